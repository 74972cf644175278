//! Measures the simulator's speed on one core of this machine; prints a Markdown page.
//!
//! `cargo bench -p longhaul-testbed --bench sim > results/simulator.md` writes the whole page; `…
//! --bench sim -- 0.1` is a short run with a tenth of the bytes.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::process::Command;
use std::time::Instant;

use longhaul_proto::registry::all;
use longhaul_testbed::scenario::{Reading, Scenario};
use longhaul_testbed::sim;
use rustix::time::{ClockId, clock_gettime};

/// Aims: events a second of CPU time; CPU seconds for 10 GB at 1 Gbit/s.
const AIM_EVENTS: f64 = 2e6;
const AIM_SECONDS: f64 = 15.0;

struct Case {
    what: String,
    text: String,
    /// The limit in CPU seconds; `None` if the aim is [`AIM_EVENTS`].
    below: Option<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    // Only `cargo bench` adds the word `--bench`.
    let whole = if std::env::args().any(|word| word == "--bench") { 1.0 } else { 0.001 };
    let share = std::env::args().find_map(|word| word.parse::<f64>().ok()).unwrap_or(whole);
    let mut out = io::stdout();
    writeln!(out, "{}", head(share))?;
    let mut slow = Vec::new();
    for case in cases(share) {
        let (row, missed) = run(&case)?;
        writeln!(out, "{row}")?;
        slow.extend(missed);
    }
    writeln!(out, "\n{}", verdict(&slow))?;
    Ok(())
}

fn head(share: f64) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name"));
    let processor = processor.map_or("", |name| name.trim_start_matches([' ', '\t', ':']));
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let less = if share < 1.0 { format!(" Sizes are scaled by {share}.") } else { String::new() };
    format!(
        "# How fast the simulator is\n\n\
         This page shows how many events the simulator processes in a second of CPU time.\n\n\
         `cargo bench -p longhaul-testbed --bench sim > results/simulator.md`, one core of\n\
         {processor}, load average {load} at the start, commit {}.{less} CPU time of the whole\n\
         program, best of two runs. An event is a packet that reaches the end of a link, a timer,\n\
         or a host's next step. Virtual s are simulated seconds. Peak MB is the largest memory of\n\
         the program up to the end of the run. The aims are {:.0} million events a second, and\n\
         {AIM_SECONDS:.0} s of CPU time for 10 GB at 1 Gbit/s.\n\n\
         | run | packets | events | CPU s | million events/s | virtual s | peak MB so far |\n\
         | --- | --- | --- | --- | --- | --- | --- |",
        commit.unwrap_or_default(),
        AIM_EVENTS / 1e6,
    )
}

fn cases(share: f64) -> Vec<Case> {
    let pair = |loss: &str, flow: String| {
        format!(
            "time-limit = \"1h\"\n[topology]\nkind = \"pair\"\n\
             link = {{ rate = \"1G\", delay = \"25ms\", loss = {{ ratio = {loss} }} }}\n\
             [[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}"
        )
    };
    let bytes = |gigabytes: f64| format!("size = {:.0}\n", gigabytes * 1e9 * share);
    let mut cases = Vec::new();
    for row in all() {
        let flow = format!("protocol = \"{}\"\nrate = \"900M\"\n{}", row.name, bytes(3.0));
        let what = format!("{}, 3 GB at 1 Gbit/s, 50 ms, 0.01 % loss", row.name);
        cases.push(Case { what, text: pair("0.0001", flow), below: None });
    }
    for control in ["cubic", "newreno"] {
        let flow = format!("tcp = \"{control}\"\n{}", bytes(3.0));
        let what = format!("tcp {control}, 3 GB at 1 Gbit/s, 50 ms, 0.0001 % loss");
        cases.push(Case { what, text: pair("0.000001", flow), below: None });
    }
    cases.push(Case {
        what: "rbudp, 10 GB at 1 Gbit/s, 50 ms, 0.1 % loss".into(),
        text: pair("0.001", format!("protocol = \"rbudp\"\nrate = \"900M\"\n{}", bytes(10.0))),
        below: Some(AIM_SECONDS * share),
    });
    for name in ["rbudp", "gtp"] {
        let size = (1e6 * share).max(1e4);
        let flow = format!("protocol = \"{name}\"\nrate = \"900k\"\nsize = {size:.0}\n");
        cases.push(Case {
            what: format!("{name}, 1,000 senders of 1 MB into one receiver at 1 Gbit/s"),
            text: format!(
                "time-limit = \"10m\"\n[[host]]\nname = \"h1\"\nnic = \"1G\"\n[topology]\n\
                 kind = \"star\"\nhosts = 1001\naccess = {{ rate = \"1G\", delay = \"10ms\" }}\n\
                 [[flow]]\nfrom = \"h*\"\nto = \"h1\"\n{flow}"
            ),
            below: None,
        });
    }
    cases
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    number.unwrap_or(0.0) / 1e3
}

fn run(case: &Case) -> Result<(String, Option<String>), Box<dyn Error>> {
    let scenario = Scenario::parse("speed", &case.text, &Reading::PLAIN)?;
    let started = Instant::now();
    let mut best = f64::INFINITY;
    let outcome = loop {
        let before = cpu();
        let outcome = sim::run(&scenario)?;
        let again = best.is_infinite() && started.elapsed().as_secs() < 120;
        best = best.min(cpu() - before);
        if !again {
            break outcome;
        }
    };
    let all = outcome.flows.iter().all(|flow| flow.finished.is_some());
    let ended = outcome.ended.since(longhaul_proto::time::Time::ZERO).as_secs_f64();
    let rate = outcome.events as f64 / best;
    let row = format!(
        "| {}{} | {} | {} | {best:.2} | {:.2} | {ended:.1} | {:.0} |",
        case.what,
        if all { "" } else { " (NOT FINISHED)" },
        outcome.packets,
        outcome.events,
        rate / 1e6,
        peak(),
    );
    let missed = match case.below {
        Some(below) if best > below => Some(format!("{}: {best:.1} s, aim {below:.1}", case.what)),
        None if rate < AIM_EVENTS => {
            Some(format!("{}: {:.2} million events a second", case.what, rate / 1e6))
        }
        _ => None,
    };
    Ok((row, missed))
}

fn verdict(missed: &[String]) -> String {
    match missed {
        [] => "Every run meets its aim.".into(),
        missed => format!("Missed aims:\n\n- {}", missed.join("\n- ")),
    }
}
