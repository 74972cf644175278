//! JSON of a link's counters, the same for simulated and emulated links.

use longhaul_testbed::link::LinkTally;
use serde_json::{Map, Value};

/// The counters of the link `name`.
pub(crate) fn json(name: &str, tally: &LinkTally) -> Value {
    let mut object = Map::from_iter([("link".to_owned(), name.into())]);
    object.extend(tally.counts().map(|count| (count.name.to_owned(), count.value.into())));
    Value::Object(object)
}
