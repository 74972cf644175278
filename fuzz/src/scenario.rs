//! A scenario file from an untrusted source, and the network that it describes.

use longhaul_testbed::scenario::{MAX_FLOWS, MAX_LINKS, MAX_NODES, Reading, Scenario};

/// Maximum number of flows whose routes are checked one by one.
const LOOKED_AT: usize = 64;

/// Checks that a parsed scenario keeps all invariants and limits, and that its first flows have
/// routes in both directions without loops. An error must have a text without control characters.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let trace = |name: &str| {
        if name.len().is_multiple_of(2) { Ok(name.to_owned()) } else { Err("no".into()) }
    };
    let reading = Reading { trace: &trace, ..Reading::PLAIN };
    let scenario = match Scenario::parse("any", &text, &reading) {
        Ok(scenario) => scenario,
        Err(error) => {
            let error = error.to_string();
            return assert!(!error.is_empty() && !error.contains(char::is_control), "{error}");
        }
    };
    assert_eq!(scenario.validate(), Ok(()));
    assert!(scenario.nodes() <= MAX_NODES && scenario.network.links.len() <= MAX_LINKS);
    assert!(scenario.flows.len() <= MAX_FLOWS);
    let mut routes = scenario.routes();
    for flow in scenario.flows.iter().take(LOOKED_AT) {
        for (from, to) in [(flow.from, flow.to), (flow.to, flow.from)] {
            let way = routes.between(from, to).expect("each flow of a valid scenario has a route");
            let mut at = from;
            for link in &way {
                let link = &scenario.network.links[*link];
                assert_eq!(link.from, at);
                at = link.to;
            }
            assert_eq!(at, to);
            assert!(way.len() < scenario.nodes(), "{way:?} goes round");
        }
    }
}
