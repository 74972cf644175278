//! JSON of a link's counters, the same for simulated and emulated links.

use longhaul_testbed::link::LinkTally;
use serde_json::{Value, json};

/// The counters of the link `name`.
pub(crate) fn json(name: &str, tally: &LinkTally) -> Value {
    // Destructures every field, so that a new one causes a compile error here.
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
