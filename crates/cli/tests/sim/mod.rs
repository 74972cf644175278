//! `longhaul sim` from the user's point of view.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::usage::{Run, longhaul};

/// A scenario with a copy, a TCP connection and mice (short TCP connections), and with faults on
/// the path.
const MIXED: &str = r#"
record-every = "100ms"
[topology]
kind = "pair"
link = { rate = "100M", delay = "20ms", loss = "0.5%", reorder = "1%", reorder-by = "1ms" }
[[flow]]
name = "copy"
from = "a"
to = "b"
protocol = "rbudp"
size = "3MB"
rate = "60M"
[[flow]]
from = "a"
to = "b"
tcp = "cubic"
size = "2MB"
[[flow]]
from = "a"
to = "b"
mice = 5
size = "20KB"
arrivals = "in-turn"
"#;

struct Case {
    folder: TempDir,
}

impl Case {
    fn new(text: &str) -> Case {
        let folder = tempfile::tempdir().expect("a folder for the scenario");
        fs::write(folder.path().join("wan.toml"), text).expect("room for it");
        Case { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("wan.toml")
    }

    fn run(&self, args: &[&str]) -> Run {
        let path = self.path();
        let path = path.to_str().expect("a folder's name is UTF-8");
        longhaul(&[&["sim", path], args].concat())
    }
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).expect("a line is an object")
}

#[test]
fn two_runs_of_a_seed_give_the_same_bytes_in_every_format() {
    let case = Case::new(MIXED);
    for format in [&["--json"][..], &["--csv"], &[]] {
        let first = case.run(format);
        assert_eq!((first.status, first.stderr.as_str()), (0, ""));
        assert_eq!(first.stdout, case.run(format).stdout);
        let other = case.run(&[format, &["--seed", "2"]].concat()).stdout;
        assert_ne!(first.stdout.replace("seed 1", "seed 2"), other);
    }
}

#[test]
fn a_small_scenario_gives_the_same_bytes_on_every_machine() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/golden.json");
    let found = Case::new(MIXED).run(&["--json"]).stdout;
    let expected = fs::read_to_string(golden).expect("it is there");
    assert_eq!(
        found, expected,
        "the simulator's results have changed; if they should, replace {golden}"
    );
}

#[test]
fn a_sweep_runs_every_combination_in_order() {
    let case = Case::new(MIXED);
    let sweeps = ["--sweep", "topology.link.loss=0,1%", "--sweep", "flow.copy.rate=20M,60M,30M"];
    let run = case.run(&[&sweeps[..], &["--json"]].concat());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let runs: Vec<_> = run.stdout.lines().map(json).collect();
    let settings = |run: &serde_json::Value| {
        let of = |key: &str| run["settings"][key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", of("topology.link.loss"), of("flow.copy.rate"))
    };
    let order: Vec<String> = runs.iter().map(settings).collect();
    assert_eq!(order, ["0 20M", "0 60M", "0 30M", "1% 20M", "1% 60M", "1% 30M"]);
    let goodput = |run: &serde_json::Value| run["flows"][0]["goodput_bps"].as_u64().unwrap_or(0);
    assert!(goodput(&runs[0]) < goodput(&runs[2]) && goodput(&runs[2]) < goodput(&runs[1]));
    let csv = case.run(&[&sweeps[..], &["--csv"]].concat()).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 6 * 3);
    assert!(lines[0].starts_with("seed,topology.link.loss,flow.copy.rate,flow,by,"));
    let columns = lines[0].split(',').count();
    assert!(lines[1].split(',').count() == columns && lines[1].starts_with("1,0,20M,copy,rbudp,"));
}

#[test]
fn a_plot_names_the_flow_and_the_unit_and_an_unwritable_plot_is_an_error() {
    let case = Case::new(MIXED);
    let plot = case.folder.path().join("rates.svg");
    let run = case.run(&["--plot", plot.to_str().expect("a folder's name is UTF-8")]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let svg = fs::read_to_string(plot).expect("it was drawn");
    assert!(svg.starts_with("<svg") && svg.contains("copy") && svg.contains("Mbit/s"));
    let run = case.run(&["--plot", "/no/such/folder/x.svg"]);
    assert_eq!(run.status, 4, "{}", run.stderr);
}

#[test]
fn invalid_input_is_refused_with_advice() {
    let refused = |case: &Case, args: &[&str], status, words: &[&str]| {
        let run = case.run(args);
        assert_eq!((run.status, run.stdout.as_str()), (status, ""), "{}", run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "no '{word}' in: {}", run.stderr);
        }
    };
    let case = Case::new(MIXED);
    refused(&case, &["--sweep", "loss"], 2, &["topology.link.loss="]);
    let no_flow = ["no 'flow.no.rate' to set", "choose one of copy, 1, 2"];
    refused(&case, &["--sweep", "flow.no.rate=1M"], 2, &no_flow);
    let no_link = ["no 'link.0.rate' to set", "topology"];
    refused(&case, &["--sweep", "link.0.rate=1M"], 2, &no_link);
    let twice = ["--sweep", "flow.copy.rate=1M", "--sweep", "flow.copy.rate=2M"];
    refused(&case, &twice, 2, &["two sweeps of flow.copy.rate"]);
    refused(&case, &["--seed", "3", "--sweep", "seed=1,2"], 2, &["--seed and --sweep seed="]);
    refused(&case, &["--sweep", "flow.0.rate=fast"], 2, &["fast", "950M"]);
    refused(&case, &["--json", "--csv"], 2, &["--csv"]);
    let wrong = MIXED.replace("\nrate = \"60M\"", "\nrates = \"60M\"");
    refused(&Case::new(&wrong), &[], 2, &["wan.toml", "line 12", "rate"]);
    let unknown = MIXED.replace("rbudp", "rbupd");
    refused(&Case::new(&unknown), &[], 2, &["rbupd", "rbudp"]);
    fs::remove_file(case.path()).expect("it was there");
    refused(&case, &[], 4, &["wan.toml", "cannot be read"]);
    let endless = longhaul(&["sim", "/dev/zero"]);
    assert_eq!(endless.status, 4, "{}", endless.stderr);
    assert!(endless.stderr.contains("/dev/zero cannot be read: it is a device"));
}

#[test]
fn if_one_run_of_a_sweep_fails_the_results_of_the_others_are_printed() {
    let case = Case::new(MIXED);
    let run = case.run(&["--sweep", "flow.copy.settings.tail-copies=1,99,2", "--csv"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("tail-copies=99") && run.stderr.contains("between"));
    let copies = run.stdout.lines().filter(|line| line.contains(",copy,")).count();
    assert_eq!(copies, 2, "{}", run.stdout);
    let none = Case::new("[topology]\nkind = \"pair\"\n").run(&[]);
    assert!(none.status == 0 && none.stderr.contains("no [[flow]]"), "{}", none.stderr);
}

#[test]
fn a_run_ended_by_the_time_limit_reports_that() {
    let case = Case::new(&format!("time-limit = \"100ms\"\n{MIXED}"));
    let run = case.run(&[]);
    assert_eq!(run.status, 0);
    assert!(run.stderr.contains("raise time-limit"), "{}", run.stderr);
}
