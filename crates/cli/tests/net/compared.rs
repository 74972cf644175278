//! `longhaul compare` over an emulated path.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use longhaul_testbed::emu::available;
use longhaul_testbed::link::LinkSpec;

use super::path::Wan;
use super::protocols;
use crate::rig::{Child, Host, need, skip};

#[test]
fn protocols_and_the_kernels_tcp_take_turns_over_an_emulated_path() {
    let link = LinkSpec::path(Rate::from_mbps(100), Span::from_millis(10));
    let wan = need!(Wan::new(link, 1500, 1));
    let host = format!("lh://{}/", wan.server.as_ref().expect("it was started").address);
    let mut command = wan.client.command(["compare", "--json", "--accept-new", "--size=20MB"]);
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
        // The kernel does not tell how many packets its TCP has lost.
        assert_eq!(run["path_lost"].is_null(), run["protocol"] == "tcp:auto", "{run}");
    }
    let left = std::fs::read_dir(&wan.there).expect("it is the server's").count();
    assert_eq!(left, 1, "the server's folder holds only its object");
}

#[test]
fn retransmissions_and_the_share_of_a_tcp_flow_beside_each_run_are_reported() {
    // The path loses one per cent of about 14,000 packets, so every run retransmits.
    let wan = need!(Wan::new(protocols::link(0.01), 1500, 1));
    let host = format!("lh://{}/", wan.server.as_ref().expect("it was started").address);
    let mut command = wan.client.command(["compare", "--json", "--accept-new", "--size=20MB"]);
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

#[test]
fn the_command_in_choosing_md_compares_over_an_emulated_path() {
    need!(available().map_err(skip::forbidden));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/choosing.md");
    let page = fs::read_to_string(page).expect("it is there");
    let begin = page.find("longhaul emulate").expect("the page has it");
    let line = &page[begin..begin + page[begin..].find("```").expect("the block ends")];
    let few = "--accept-new --size 3MB --repeat 1 --protocols rbudp,tcp:1";
    let line = line.replace("--accept-new", few);
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let host = Host::new(&folder.path().join("config"));
    let binary = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().expect("it is in a folder");
    let path = std::env::var("PATH").expect("a shell needs one");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("LONGHAUL_CONFIG_DIR", &host.config).env("NO_COLOR", "1");
    command.env("PATH", format!("{}:{path}", binary.display())).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = Child::spawn(&mut command).end();
    ended.is(0, &[]);
    let table = ended.stdout.join("\n");
    for protocol in ["rbudp", "tcp:1"] {
        let row = ended.stdout.iter().find(|line| line.contains(protocol));
        assert!(row.is_some_and(|row| row.contains("bit/s")), "no {protocol} in {table}: {ended}");
    }
}
