//! What a decision of GTP's receiver costs, against the number of its flows: the max-min shares
//! alone, and all that a join leads to (shares, targets, a request to each sender).
//! `cargo bench -p longhaul-proto --bench scheduler` prints the table.
//!
//! On one core of an AMD EPYC, 2026-11-22 (the shares are a sort and a pass: N log N):
//!
//! | flows | shares, ns | for each flow, ns | a join, ns | for each flow, ns |
//! | ---: | ---: | ---: | ---: | ---: |
//! | 1 | 54 | 54 | 1902 | 1902 |
//! | 10 | 167 | 17 | 3406 | 341 |
//! | 100 | 3033 | 30 | 10766 | 108 |
//! | 1000 | 38307 | 38 | 123213 | 123 |
//! | 10000 | 494425 | 49 | 8020736 | 802 |
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
/// Each number is the median of so many.
const TURNS: usize = 101;

fn main() {
    // `cargo test` runs benchmarks too, to see that they run.
    let is_test = std::env::args().any(|word| word == "--test");
    let (flows, turns) = if is_test { (&FLOWS[..3], 3) } else { (&FLOWS[..], TURNS) };
    println!("| flows | shares, ns | for each flow, ns | a join, ns | for each flow, ns |");
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for &flows in flows {
        let [shares, join] = [sharing(flows, turns), joining(flows, turns)];
        let each = |nanos: u128| nanos as f64 / f64::from(flows);
        println!("| {flows} | {shares} | {:.0} | {join} | {:.0} |", each(shares), each(join));
    }
}

/// Nanoseconds that the shares of so many flows take, half of which could not take an even one.
fn sharing(flows: u32, turns: usize) -> u128 {
    let mut place = 1u64;
    let mut estimate = || {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (place >> 40) as f64 + 1.0
    };
    let demands: Vec<Demand> =
        (0..flows).map(|_| Demand { estimate: estimate(), weight: 1.0 }).collect();
    let capacity = demands.iter().map(|demand| demand.estimate).sum::<f64>() / 2.0;
    // What takes less than the clock's steps is done many times.
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

/// Nanoseconds from a join among so many flows until each sender's request is there.
fn joining(flows: u32, turns: usize) -> u128 {
    let settings = Settings::default().with(&ROW, RECEIVE_RATE.name, 9_571.0);
    let settings = settings.expect("it has such a setting");
    let layout = Layout::whole(Bytes::new(1 << 40), 1440).expect("sizes that fit");
    let setup = |flow: u32| {
        let rtt = Span::from_millis(1 + u64::from(flow) % 300);
        Setup { settings: settings.clone(), ..Setup::new(FlowId(flow), layout, rtt) }
    };
    let (mut receiver, mut now) = (GtpReceiver::default(), Time::ZERO);
    (1..flows).for_each(|flow| receiver.add_flow(now, &setup(flow)));
    let times = (0..turns).map(|_| {
        receiver.remove_flow(FlowId(0));
        while receiver.poll_control(now).is_some() {}
        now += Span::from_micros(1);
        let setup = setup(0);
        let started = Instant::now();
        receiver.add_flow(now, &setup);
        while black_box(receiver.poll_control(now)).is_some() {}
        started.elapsed()
    });
    median(times.collect())
}

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos()
}
