//! A swarm: random scenarios with random faults, every protocol of the registry.
//!
//! What a run promises is checked by the simulator itself: objects whole, accounts that balance,
//! links that leak nothing, nothing after the end, no core polled without end. Beside that: no
//! copy takes longer than its rate, its losses and its faults explain. A failure prints the
//! command that repeats it.

use std::fmt::Write;

use longhaul_proto::registry::{Row, all};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::random::Random;
use longhaul_testbed::scenario::{Reading, Scenario};
use longhaul_testbed::sim::{self, Outcome};

/// Scenarios of each protocol.
const RUNS: u64 = 60;
/// The timers of protocols (3 s of silence, questions again after 2 s), and of the control
/// stream (4 s).
const TIMERS: Span = Span::from_secs(8);
/// Repeats one run: `SWARM=PROTOCOL:SEED`.
const VARIABLE: &str = "SWARM";

/// A scenario, and the longest that it may take, and that nothing new may come.
struct Case {
    text: String,
    most: Span,
    stall: Span,
}

/// What is drawn for a path.
struct Path {
    mbps: u64,
    rtt: Span,
    loss: f64,
    /// When everything is over that can only pass by waiting.
    faults: Span,
}

fn one_of<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.below(choices.len() as u64) as usize]
}

/// A path with faults; writes its topology.
fn path(random: &mut Random, text: &mut String) -> Path {
    let mbps = [5, 20, 100, 400][random.below(4) as usize];
    let delay = Span::from_micros([50, 1_000, 10_000, 60_000][random.below(4) as usize]);
    let loss = [0.0, 0.0, 0.001, 0.02, 0.1][random.below(5) as usize];
    let micros = delay.as_nanos() / 1_000;
    let mut link = format!("rate = \"{mbps}M\", delay = \"{micros}us\"");
    let burst = if random.chance(0.3) { one_of(random, &["2", "10"]) } else { "" };
    let _ = match (loss > 0.0, burst) {
        (false, _) => Ok(()),
        (true, "") => write!(link, ", loss = {loss}"),
        (true, burst) => write!(link, ", loss = {{ ratio = {loss}, burst = {burst} }}"),
    };
    if random.chance(0.4) {
        let by = one_of(random, &["100us", "5ms", "30ms"]);
        let _ = write!(link, ", reorder = \"3%\", reorder-by = \"{by}\"");
    }
    if random.chance(0.3) {
        let _ = write!(link, ", jitter = \"{}\"", one_of(random, &["50us", "2ms"]));
        let _ = write!(link, ", overtakes = {}", random.chance(0.5));
    }
    if random.chance(0.3) {
        link.push_str(", duplicate = \"2%\"");
    }
    if random.chance(0.3) {
        link.push_str(", corrupt = \"1%\"");
    }
    let mut faults = Span::ZERO;
    if random.chance(0.3) {
        let (from, length) = (random.below(600), 100 + random.below(5_000));
        let to = from + length;
        let _ = write!(
            link,
            ", changes = [{{ at = \"{from}ms\", up = false }}, {{ at = \"{to}ms\", up = true }}]"
        );
        faults = Span::from_millis(to);
    }
    let _ = write!(text, "[topology]\nkind = \"pair\"\nlink = {{ {link} }}\n");
    Path { mbps, rtt: delay * 2, loss, faults }
}

/// A host's limits; the slowest rate that they leave, in Mbit/s, and whether it has a disk.
fn host(random: &mut Random, text: &mut String, name: &str, mbps: u64) -> (u64, bool) {
    let slow = (mbps / 2).max(2);
    let _ = write!(text, "[[host]]\nname = \"{name}\"\n");
    if random.chance(0.2) {
        let _ = writeln!(text, "nic = \"{mbps}M\"");
    }
    let mut least = mbps;
    let disk = random.chance(0.25);
    if disk {
        let _ = writeln!(text, "disk-rate = \"{slow}M\"");
        if random.chance(0.5) {
            text.push_str("disk-stall = \"200ms\"\ndisk-stall-every = \"700ms\"\n");
        }
        least = least.min(slow / 2);
    }
    if random.chance(0.25) {
        let _ =
            writeln!(text, "{}s-rate = \"{slow}M\"", if name == "a" { "send" } else { "receive" });
        let _ = writeln!(text, "socket-buffer = \"{}\"", one_of(random, &["20KB", "500KB"]));
        least = least.min(slow);
    }
    (least, disk)
}

/// The scenario of a seed.
fn case(row: &Row, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let mut text = format!("seed = {seed}\ntime-limit = \"10m\"\n");
    let path = path(&mut random, &mut text);
    let (sends, reads) = host(&mut random, &mut text, "a", path.mbps);
    let (takes, writes) = host(&mut random, &mut text, "b", path.mbps);
    let copies = 1 + random.below(3);
    let mut bytes = 0;
    for _ in 0..copies {
        let size = [1, 1_440, 1_441, 100_001, 1_000_000, 3_000_000][random.below(6) as usize];
        bytes += size;
        let start = random.below(300);
        let _ = write!(
            text,
            "[[flow]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"{}\"\nsize = {size}\n\
             start = \"{start}ms\"\nreads-disk = {}\nwrites-disk = {}\n",
            row.name,
            reads && random.chance(0.5),
            writes && random.chance(0.5)
        );
        // Mostly a rate that the path and the hosts can take, sometimes one that they cannot.
        let slowest = sends.min(takes);
        let share = [40, 80, 150][random.below(3) as usize];
        if random.chance(0.7) {
            let kbps = (slowest * 10 * share / copies).max(200);
            let _ = writeln!(text, "rate = \"{kbps}k\"");
        }
        if random.chance(0.5) {
            text.push_str("segment = \"2MiB\"\n");
        }
    }
    if random.chance(0.3) {
        text.push_str("[[flow]]\nfrom = \"b\"\nto = \"a\"\ntcp = \"cubic\"\nlasts = \"2s\"\n");
    }
    // A rate that nothing takes loses most of what is sent; so much time is given, and ten round
    // trips and the timers for each of several rounds.
    let slowest = sends.min(takes).max(1) as f64 * 1e6 / copies as f64;
    let sending = bytes as f64 * 8.0 / slowest / (1.0 - path.loss) * 20.0;
    // A queue of one BDP, or of 100 packets, makes round trips longer.
    let queue = Bytes::new(100 * 1_538) / Rate::from_mbps(path.mbps);
    let stall = (path.rtt * 2 + queue) * 10 + TIMERS + path.faults;
    Case { text, most: Span::from_secs_f64(sending) + stall * 4, stall }
}

fn run(row: &Row, seed: u64) -> Result<Outcome, String> {
    let case = case(row, seed);
    let name = format!("swarm-{}-{seed}", row.name);
    let scenario = Scenario::parse(&name, &case.text, &Reading::PLAIN)
        .map_err(|error| format!("{error} in\n{}", case.text))?;
    let outcome = sim::run(&scenario).map_err(|error| format!("{error} in\n{}", case.text))?;
    let took = outcome.ended.since(longhaul_proto::time::Time::ZERO);
    if outcome.timed_out || took > case.most {
        let Case { text, most, .. } = case;
        let flows = &outcome.flows;
        return Err(format!(
            "it took {took}, expected at most {most}: {flows:#?} in
{text}"
        ));
    }
    for flow in outcome.flows.iter().filter(|flow| flow.carrier == row.name) {
        if flow.stall > case.stall {
            let Case { text, stall, .. } = case;
            let name = &flow.name;
            return Err(format!(
                "{name} stood still for {}, longer than {stall}, in\n{text}",
                flow.stall
            ));
        }
        if Some(flow.delivered) != flow.object || flow.finished.is_none() {
            return Err(format!("{} is not whole: {flow:?} in\n{}", flow.name, case.text));
        }
    }
    Ok(outcome)
}

/// Says how to repeat a run that failed, by a panic of a core too.
struct Replay<'r>(&'r Row, u64);

impl Drop for Replay<'_> {
    #[allow(clippy::print_stderr, reason = "a failed run says how to repeat it")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay(row, seed) = self;
            let command = "cargo test -p longhaul-testbed --test sim_swarm";
            eprintln!("repeat with: {VARIABLE}={}:{seed} {command}", row.name);
        }
    }
}

fn check(row: &Row, seed: u64) -> Outcome {
    let _replay = Replay(row, seed);
    run(row, seed).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn every_protocol_brings_every_object_over_every_path() {
    if let Ok(one) = std::env::var(VARIABLE) {
        let (name, seed) = one.split_once(':').expect("PROTOCOL:SEED");
        let row = longhaul_proto::registry::find(name).expect("a protocol");
        check(row, seed.parse().expect("a seed"));
        return;
    }
    let (mut dropped, mut socket, mut replayed) = (0, 0, 0);
    for row in all() {
        for seed in 0..RUNS {
            let flows = check(row, seed).flows;
            dropped += flows.iter().map(|flow| flow.accounts.dropped).sum::<u64>();
            socket += flows.iter().map(|flow| flow.accounts.socket_lost).sum::<u64>();
            replayed += flows.iter().map(|flow| flow.accounts.replayed).sum::<u64>();
        }
    }
    // A swarm without faults would prove nothing.
    assert!(dropped > 0 && socket > 0 && replayed > 0, "{dropped}, {socket}, {replayed}");
}
