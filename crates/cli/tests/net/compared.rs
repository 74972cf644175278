//! `longhaul compare` over an emulated path: real copies by real sockets, each in its turn.

use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use longhaul_testbed::link::LinkSpec;

use super::path::Wan;
use super::protocols;

#[test]
fn protocols_and_the_kernels_tcp_take_turns_over_an_emulated_path() {
    let link = LinkSpec::path(Rate::from_mbps(100), Span::from_millis(10));
    let Some(wan) = Wan::new(link, 1500, 1) else { return };
    let host = format!("lh://{}/", wan.server.as_ref().expect("it was started").address);
    let mut command = wan.client.command(["compare", "--json", "--accept-new", "--size=3MB"]);
    command.args(["--repeat=2", "--rate=80M", "--protocols=rbudp,tsunami,tcp:auto", &host]);
    let ended = wan.run("a", &command).end();
    ended.is(0, &[]);
    let runs = ended.events("run");
    let names: Vec<_> = runs.iter().map(|run| &run["protocol"]).collect();
    let turn = ["rbudp", "tsunami", "tcp:auto"];
    assert_eq!(names, [turn, turn].concat(), "{ended}");
    for run in &runs {
        let goodput = run["goodput_bps"].as_f64().expect("each ended");
        assert!(run["error"].is_null() && goodput > 0.0 && goodput < 100e6, "{run}");
        assert!(run["waste"].is_number() && run["retransmitted"].is_number(), "{run}");
        // The kernel repairs what TCP loses, and tells no more than that it did.
        assert_eq!(run["path_lost"].is_null(), run["protocol"] == "tcp:auto", "{run}");
    }
    let left = std::fs::read_dir(&wan.there).expect("it is the server's").count();
    assert_eq!(left, 1, "a measurement writes nothing");
}

#[test]
fn what_tcp_sent_again_is_told_and_what_it_has_beside_a_copy() {
    // One packet in a hundred goes, of two thousand.
    let Some(wan) = Wan::new(protocols::link(0.01), 1500, 1) else { return };
    let host = format!("lh://{}/", wan.server.as_ref().expect("it was started").address);
    let mut command = wan.client.command(["compare", "--json", "--accept-new", "--size=3MB"]);
    command.args(["--repeat=1", "--rate=80M", "--protocols=rbudp,tcp:1", "--beside-tcp", &host]);
    let ended = wan.run("a", &command).end();
    ended.is(0, &[]);
    let runs = ended.events("run");
    assert_eq!(runs.len(), 2, "{ended}");
    for run in &runs {
        let number = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
        assert!(number("retransmitted") > 0.0 && number("waste") > 0.0, "{run}");
        assert!(number("beside_tcp_goodput_bps") > 0.0, "{run}");
        assert!((0.0..=1.0).contains(&number("beside_tcp_tcp_share")), "{run}");
    }
}
