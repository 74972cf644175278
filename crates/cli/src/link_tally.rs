//! What a link did with what came to it, in JSON: simulated and emulated links tell the same.

use longhaul_testbed::link::LinkTally;
use serde_json::{Value, json};

/// The counts of the link `name`.
pub(crate) fn json(name: &str, tally: &LinkTally) -> Value {
    json!({
        "link": name,
        "offered": tally.offered,
        "offered_bytes": tally.offered_bytes.get(),
        "arrives": tally.arrives,
        "arrives_bytes": tally.arrives_bytes.get(),
        "lost": tally.lost,
        "queue_full": tally.queue_full,
        "managed": tally.managed,
        "down": tally.down,
        "too_large": tally.too_large,
        "duplicates": tally.duplicates,
        "corrupted": tally.corrupted,
        "held_back": tally.held_back,
    })
}
