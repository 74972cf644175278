//! What a link did with what came to it, in JSON: simulated and emulated links tell the same.

use longhaul_testbed::link::LinkTally;
use serde_json::{Value, json};

/// The counts of the link `name`.
pub(crate) fn json(name: &str, tally: &LinkTally) -> Value {
    // Every field is named, so that a new one does not compile until it is placed here.
    let LinkTally {
        offered,
        offered_bytes,
        arrives,
        arrives_bytes,
        lost,
        queue_full,
        managed,
        policed,
        down,
        too_large,
        duplicates,
        corrupted,
        held_back,
    } = *tally;
    json!({
        "link": name,
        "offered": offered,
        "offered_bytes": offered_bytes.get(),
        "arrives": arrives,
        "arrives_bytes": arrives_bytes.get(),
        "lost": lost,
        "queue_full": queue_full,
        "managed": managed,
        "policed": policed,
        "down": down,
        "too_large": too_large,
        "duplicates": duplicates,
        "corrupted": corrupted,
        "held_back": held_back,
    })
}
