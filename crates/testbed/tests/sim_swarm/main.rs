//! A swarm test: random scenarios with random faults, for every protocol of the registry.
//!
//! The simulator itself checks a run's invariants. This test adds time limits, except in runs with
//! extreme settings: no copy may take longer, or stall for longer, than its rate, losses and faults
//! explain. A failed test prints the command that repeats the run, and writes its scenario to a
//! file.
//!
//! `SWARM_RUNS=N` draws N scenarios for each protocol, `SWARM=PROTOCOL:SEED` repeats one.

mod draw;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;

use longhaul_proto::registry::{Row, all, find};
use longhaul_proto::time::{Span, Time};
use longhaul_testbed::link::{Change, LinkSpec, Loss, QueueControl};
use longhaul_testbed::scenario::{Reading, Scenario};
use longhaul_testbed::sim::{self, SimOutcome};

use draw::Case;

/// Scenarios for each protocol by default.
const RUNS: u64 = 100;
/// Repeats one run: `SWARM=PROTOCOL:SEED`.
const ONE: &str = "SWARM";
const MANY: &str = "SWARM_RUNS";

/// A case that gets five times the usual time limit. Its path has 10 % loss, a queue of 3 packets
/// and an outage of 3.8 s. Known weakness: the rate of its second flow (`fobs-table`) stays low.
const SLOW: (&str, u64) = ("rbudp", 60);

fn judge(row: &Row, seed: u64, case: &Case) -> Result<SimOutcome, String> {
    let scenario = Scenario::parse("swarm", &case.text, &Reading::PLAIN)
        .map_err(|error| format!("no scenario: {error}"))?;
    let outcome = sim::run(&scenario).map_err(|error| error.to_string())?;
    if seed.is_multiple_of(10) && sim::run(&scenario).ok().as_ref() != Some(&outcome) {
        return Err("two runs with the same seed differ".into());
    }
    if case.wild {
        return Ok(outcome);
    }
    // TCP has no limit. A loss burst ends after a number of packets, so a connection that is alone
    // on the path can back off for a long time before the burst ends.
    for flow in outcome.flows.iter().filter(|flow| find(&flow.carrier).is_some()) {
        let (name, carrier) = (&flow.name, &flow.carrier);
        let Some(finished) = flow.finished else {
            return Err(format!("{name} by {carrier} is incomplete: {flow:?}"));
        };
        let took = finished.since(Time::ZERO);
        let most = if (row.name, seed) == SLOW { case.most * 5 } else { case.most };
        if took > most || Some(flow.delivered) != flow.object {
            return Err(format!("{name} by {carrier} took {took}, at most {most}: {flow:?}"));
        }
        if flow.stall > case.stall {
            let (stall, most) = (flow.stall, case.stall);
            return Err(format!("{name} by {carrier} stood still for {stall}, at most {most}"));
        }
    }
    let own = outcome.flows.iter().filter(|flow| flow.carrier == row.name).count();
    if own == 0 { Err("the protocol sent nothing".into()) } else { Ok(outcome) }
}

/// Prints how to repeat a failed run.
struct Replay<'r> {
    row: &'r Row,
    seed: u64,
    case: &'r Case,
}

impl Replay<'_> {
    /// Returns the command that repeats the run; `longhaul sim` would not check the limits.
    fn command(&self) -> String {
        let Replay { row, seed, .. } = self;
        format!("{ONE}={}:{seed} cargo test -p longhaul-testbed --test sim_swarm", row.name)
    }
}

fn one(named: &str) -> (&'static Row, u64) {
    let (name, seed) = named.split_once(':').expect("PROTOCOL:SEED");
    (find(name).expect("a protocol"), seed.parse().expect("a seed"))
}

impl Drop for Replay<'_> {
    #[allow(clippy::print_stderr, reason = "a failed run says how to repeat it")]
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let Replay { row, seed, case } = self;
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = folder.join(format!("swarm-{}-{seed}.toml", row.name));
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &case.text));
        match written {
            Ok(()) => eprintln!("the scenario: {}", file.display()),
            Err(error) => eprintln!("{} cannot be written: {error}\n{}", file.display(), case.text),
        }
        eprintln!("repeat with: {}", self.command());
    }
}

fn check(row: &Row, seed: u64) -> SimOutcome {
    let case = draw::case(row, seed);
    let _replay = Replay { row, seed, case: &case };
    judge(row, seed, &case).unwrap_or_else(|why| panic!("{}, seed {seed}: {why}", row.name))
}

/// Counts of events. Together, the runs of a swarm must cause each event at least once.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    dropped: u64,
    queue_full: u64,
    socket_lost: u64,
    replayed: u64,
    cross_traffic: u64,
}

impl Met {
    fn meet(&mut self, outcome: &SimOutcome) {
        for flow in &outcome.flows {
            self.dropped += flow.accounts.dropped;
            self.queue_full += flow.accounts.queue_full;
            self.socket_lost += flow.accounts.socket_lost;
            self.replayed += flow.accounts.replayed;
            self.cross_traffic += u64::from(find(&flow.carrier).is_none());
        }
    }
}

#[test]
fn every_protocol_delivers_its_objects_in_random_scenarios() {
    if let Ok(named) = std::env::var(ONE) {
        let (row, seed) = one(&named);
        check(row, seed);
    } else {
        check_all();
    }
}

fn check_all() {
    let runs = std::env::var(MANY).map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    let all_of = |row: &Row| {
        let mut met = Met::default();
        (0..runs).for_each(|seed| met.meet(&check(row, seed)));
        met
    };
    let met: Vec<Met> = thread::scope(|scope| {
        let rows: Vec<_> = all().iter().map(|row| scope.spawn(move || all_of(row))).collect();
        rows.into_iter().map(|row| row.join().expect("its runs pass (see above)")).collect()
    });
    let sum = |of: fn(&Met) -> u64| met.iter().map(of).sum::<u64>();
    assert!(sum(|met| met.dropped) > 0 && sum(|met| met.queue_full) > 0, "{met:?}");
    assert!(sum(|met| met.socket_lost) > 0 && sum(|met| met.replayed) > 0, "{met:?}");
    assert!(sum(|met| met.cross_traffic) > 0, "{met:?}");
}

/// The features of a link. The patterns name every field and variant. With a new field or variant,
/// this file does not compile until a pattern says whether the new one is drawn.
fn models(link: &LinkSpec) -> [(&'static str, bool); 16] {
    let LinkSpec {
        rate,
        delay,
        jitter,
        queue: _, // Always present; its size is drawn.
        policer,
        control,
        loss,
        duplicate,
        reorder,
        corrupt,
        framing: _,       // No protocol sees it.
        swallow_above: _, // A path that drops full packets delivers nothing.
        up: _,            // Outages come and go by the schedule.
        schedule,
    } = link;
    let jitters = jitter.spread > Span::ZERO;
    let changes: Vec<&str> = schedule.iter().map(|step| change(&step.change)).collect();
    let changes = |what| (what, changes.contains(&what));
    let (is_independent, is_burst) = match loss {
        Loss::None => (false, false),
        Loss::Independent(_) => (true, false),
        Loss::GilbertElliott(_) => (false, true),
        // Not drawn: for packets of one size, bit errors are independent loss, and a pattern
        // repeats recorded losses.
        Loss::BitErrors(_) | Loss::Pattern(_) => (false, false),
    };
    let is_codel = match control {
        QueueControl::DropTail => false,
        QueueControl::CoDel(_) => true,
    };
    [
        ("a rate", rate.is_some()),
        ("a delay", *delay > Span::ZERO),
        ("jitter", jitters),
        ("jitter that overtakes", jitters && jitter.overtakes),
        ("a policer", policer.is_some()),
        ("CoDel", is_codel),
        ("independent loss", is_independent),
        ("loss in bursts", is_burst),
        ("duplicates", *duplicate > 0.0),
        ("reordering", reorder.share > 0.0),
        ("corruption", *corrupt > 0.0),
        changes("another rate"),
        changes("a rate ramp"),
        changes("another delay"),
        changes("another loss"),
        changes("an outage"),
    ]
}

fn change(change: &Change) -> &'static str {
    match change {
        Change::Rate(_) => "another rate",
        Change::RateRamp { .. } => "a rate ramp",
        // A flow sees a ramp of the delay as many steps.
        Change::Delay(_) | Change::DelayRamp { .. } => "another delay",
        Change::Loss(_) => "another loss",
        Change::Up(_) => "an outage",
    }
}

#[test]
fn the_random_scenarios_use_every_feature_of_a_link() {
    let row = find("rbudp").expect("a protocol");
    let mut drawn = BTreeMap::new();
    for seed in 0..RUNS {
        let text = draw::case(row, seed).text;
        let scenario = Scenario::parse("swarm", &text, &Reading::PLAIN).expect("a scenario");
        for (model, has) in scenario.network.links.iter().flat_map(|link| models(&link.link)) {
            *drawn.entry(model).or_insert(false) |= has;
        }
    }
    let never: Vec<&str> =
        drawn.into_iter().filter(|(_, has)| !has).map(|(name, _)| name).collect();
    assert!(never.is_empty(), "in {RUNS} scenarios no link has {never:?}: draw it in draw.rs");
}

#[test]
fn the_printed_command_repeats_the_failed_run() {
    for row in all() {
        let case = draw::case(row, 4_711);
        let command = Replay { row, seed: 4_711, case: &case }.command();
        let (variable, rest) = command.split_once('=').expect("a variable goes before");
        let (again, seed) = one(rest.split(' ').next().expect("a value"));
        assert_eq!((variable, again.name, seed), (ONE, row.name, 4_711), "{command}");
        assert!(rest.ends_with("--test sim_swarm"), "{command}");
    }
}

#[test]
fn a_stalled_or_slow_copy_is_detected() {
    let flow = r#"{ from = "a", to = "b", protocol = "rbudp", rate = "15M", size = "5MB" }"#;
    let outage = r#"[{ at = "500ms", up = false }, { at = "6s", up = true }]"#;
    let link = format!(r#"{{ rate = "20M", delay = "5ms", changes = {outage} }}"#);
    let text = format!("flow = [{flow}]\n[topology]\nkind = \"pair\"\nlink = {link}\n");
    let row = find("rbudp").expect("a protocol");
    let judged = |most: u64, stall: u64| {
        let (most, stall) = (Span::from_secs(most), Span::from_secs(stall));
        judge(row, 1, &Case { text: text.clone(), most, stall, wild: false })
    };
    assert!(judged(60, 60).is_ok());
    for (most, stall, why) in [(60, 5, "stood still for"), (5, 60, "took")] {
        let found = judged(most, stall).expect_err(why);
        assert!(found.contains(why), "{found}");
    }
}
