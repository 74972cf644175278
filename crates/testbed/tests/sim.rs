//! The simulator through its public face.

use longhaul_proto::registry::all;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::scenario::{Reading, Scenario};
use longhaul_testbed::sim::{self, Outcome, SimError};

fn scenario(text: &str) -> Scenario {
    Scenario::parse("test", text, &Reading::PLAIN).expect("a scenario that can be")
}

fn run(text: &str) -> Outcome {
    sim::run(&scenario(text)).expect("a run that keeps its promises")
}

/// Two hosts, `link` between them (keys of a link), and flows.
fn pair(link: &str, flows: &[&str]) -> String {
    let flows = flows.iter().map(|flow| format!("\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}\n"));
    format!("[topology]\nkind = \"pair\"\nlink = {{ {link} }}\n{}", flows.collect::<String>())
}

const WAN: &str = r#"rate = "100M", delay = "20ms", loss = "1%""#;

#[test]
fn the_same_seed_gives_the_same_outcome_and_another_one_another() {
    let flows = [
        "protocol = \"rbudp\"\nsize = \"5MB\"\nrate = \"50M\"",
        "tcp = \"cubic\"\nsize = \"5MB\"",
        "udp = \"5M\"\non = \"20ms\"\noff = \"10ms\"\nrandom = true",
        "mice = 20\nsize = \"20KB\"\narrivals = \"poisson\"\nevery = \"20ms\"",
    ];
    let text = format!("record-every = \"50ms\"\n{}", pair(WAN, &flows));
    let outcome = run(&text);
    assert_eq!(outcome, run(&text));
    assert!(!outcome.timed_out && outcome.flows.iter().all(|flow| !flow.series.is_empty()));
    let mut other = scenario(&text);
    other.seed += 1;
    assert_ne!(outcome.flows, sim::run(&other).unwrap().flows);
}

#[test]
fn every_protocol_fills_a_clean_path() {
    for row in all() {
        let flow = format!("protocol = \"{}\"\nsize = \"20MB\"\nrate = \"90M\"", row.name);
        let outcome = run(&pair(r#"rate = "100M", delay = "20ms""#, &[&flow]));
        let flow = &outcome.flows[0];
        assert_eq!((flow.delivered, flow.object), (Bytes::new(20_000_000), flow.object));
        assert!(flow.goodput > Rate::from_mbps(84), "{}: {}", row.name, flow.goodput);
        // Half a round trip more until the sender knows.
        let (finished, known) = (flow.finished.unwrap(), flow.known.unwrap());
        assert!(known > finished && known.since(finished) < Span::from_millis(30));
        assert_eq!(flow.accounts.dropped, 0);
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_with_the_reason() {
    let cases = [
        ("protocol = \"no\"\nsize = \"1MB\"", "no protocol 'no'; there are: rbudp"),
        ("command = \"true\"", "only the emulator"),
        ("protocol = \"rbudp\"\nlasts = \"1s\"", "needs a rate"),
    ];
    for (flow, reason) in cases {
        let error = sim::run(&scenario(&pair("delay = \"5ms\"", &[flow]))).expect_err(reason);
        assert!(matches!(error, SimError::Scenario(_)), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_run_without_end_ends_at_the_time_limit() {
    let text = format!(
        "time-limit = \"2s\"\n{}",
        pair(r#"rate = "10M", delay = "5ms""#, &["tcp = \"newreno\"\nsize = \"1GB\""])
    );
    let outcome = run(&text);
    assert!(outcome.timed_out);
    assert_eq!(outcome.ended, Time::ZERO + Span::from_secs(2));
    let flow = &outcome.flows[0];
    assert_eq!((flow.finished, flow.object), (None, Some(Bytes::new(1_000_000_000))));
    // 1448 of 1538 bytes on the wire are payload.
    assert!(flow.goodput > Rate::from_bps(9_000_000) && flow.goodput < Rate::from_bps(9_415_000));
}
