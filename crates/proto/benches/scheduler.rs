//! Time of one decision of GTP's receiver, against the number of its flows. Two measurements:
//! the max-min shares alone, and a join with all its effects (shares, targets, a request to each
//! sender). `cargo bench -p longhaul-proto --bench scheduler` prints the page results/scheduler.md.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark has a clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use longhaul_proto::endpoint::{FlowId, Receiver, Setup};
use longhaul_proto::gtp::{Demand, GtpReceiver, RECEIVE_RATE, ROW, shares};
use longhaul_proto::layout::Layout;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Bytes;

const FLOWS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
/// Number of runs; the result is their median.
const TURNS: usize = 101;

fn main() {
    // With `-- --test` a benchmark only checks that it works.
    let is_test = std::env::args().any(|word| word == "--test");
    let (flows, turns) = if is_test { (&FLOWS[..3], 3) } else { (&FLOWS[..], TURNS) };
    println!("# Time of a decision of GTP's receiver\n");
    println!("GTP's receiver divides its capacity among its senders. A decision computes all");
    println!("shares anew.\n");
    println!("`cargo bench -p longhaul-proto --bench scheduler > results/scheduler.md`, one core.");
    println!("*shares*: the time to compute the max-min shares alone, if a quarter of the");
    println!("flows cannot use an equal share (a sort and a pass: N log N). *a join*: the time of");
    println!("all work when a flow joins: shares, new rates, and a request to each sender.");
    println!("*for each flow*: the column before it, divided by the number of flows.");
    println!("Medians of {TURNS} runs.\n");
    println!("| flows | shares, ns | for each flow, ns | a join, ns | for each flow, ns |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for &flows in flows {
        let [shares, join] = [sharing(flows, turns), joining(flows, turns)];
        let each = |nanos: u128| nanos as f64 / f64::from(flows);
        println!("| {flows} | {shares} | {:.0} | {join} | {:.0} |", each(shares), each(join));
    }
}

/// Nanoseconds to compute the shares of this many flows. About a quarter of the flows cannot use an
/// equal share.
fn sharing(flows: u32, turns: usize) -> u128 {
    let mut place = 1u64;
    let mut estimate = || {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (place >> 40) as f64 + 1.0
    };
    let demands: Vec<Demand> =
        (0..flows).map(|_| Demand { estimate: estimate(), weight: 1.0 }).collect();
    let capacity = demands.iter().map(|demand| demand.estimate).sum::<f64>() / 2.0;
    // Computations that are shorter than the clock's resolution are repeated many times.
    let again = (10_000 / flows).max(1);
    let times = (0..turns).map(|_| {
        let started = Instant::now();
        for _ in 0..again {
            black_box(shares(black_box(&demands), capacity, &mut 0));
        }
        started.elapsed() / again
    });
    median(times.collect())
}

/// Nanoseconds from a join among this many flows until each sender's request is ready. The join
/// triggers a new schedule immediately.
fn joining(flows: u32, turns: usize) -> u128 {
    let settings = Settings::default().with(&ROW, RECEIVE_RATE.name, 9_571e6);
    let settings = settings.expect("it has such a setting");
    let layout = Layout::whole(Bytes::new(1 << 40), 1440).expect("sizes that fit");
    let setup = |flow: u32| {
        let rtt = Span::from_millis(1 + u64::from(flow) % 300);
        Setup { settings: settings.clone(), ..Setup::new(FlowId(flow), layout, rtt) }
    };
    let times = (0..turns).map(|_| {
        let mut receiver = GtpReceiver::default();
        (1..flows).for_each(|flow| receiver.add_flow(Time::ZERO, &setup(flow)));
        receiver.on_timeout(Time::ZERO);
        while receiver.poll_control(Time::ZERO).is_some() {}
        let (now, setup, mut requests) = (Time::ZERO + Span::from_secs(1), setup(0), 0);
        let started = Instant::now();
        receiver.add_flow(now, &setup);
        receiver.on_timeout(now);
        while black_box(receiver.poll_control(now)).is_some() {
            requests += 1;
        }
        let elapsed = started.elapsed();
        assert!(requests >= flows, "{requests} requests to {flows} senders");
        elapsed
    });
    median(times.collect())
}

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos()
}
