//! Recreates the conditions of Tsunami's defects in Oak Ridge's study; the defects must not occur.

use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::tsunami::ROW;
use longhaul_proto::units::{Bytes, Rate};

use crate::rig::{Channel, Host, Rig, setup};

const RTT: Span = Span::from_millis(70);
const RATE: Rate = Rate::from_mbps(50);

fn run(seed: u64, blocks: u64, channel: Channel, settings: &[(&str, f64)]) -> Rig {
    let mut rig = Rig::new(&ROW, seed, channel);
    let mut setup = setup(1, blocks, 0, Some(RATE), RTT);
    let with = |all: Settings, (name, value): &(&str, f64)| all.with(&ROW, name, *value);
    let settings = settings.iter().try_fold(Settings::default(), with);
    setup.settings = settings.expect("settings that Tsunami has");
    rig.add_flow(setup, Host::Fast);
    rig.run(Span::from_secs(120));
    rig
}

fn waste(rig: &Rig) -> f64 {
    let flow = &rig.flows[0];
    flow.sender.accounting().waste(flow.setup.layout.blocks())
}

fn most_sends(rig: &Rig) -> u32 {
    rig.flows[0].sends.values().copied().max().expect("something was sent")
}

fn lossy(loss: f64) -> Channel {
    Channel { loss, ..Channel::perfect(RTT / 2) }
}

#[test]
fn a_lossy_path_is_kept_full_and_little_is_wasted() {
    for (seed, loss) in [(1, 0.0), (2, 0.001), (3, 0.01), (4, 0.05)] {
        let rig = run(seed, 30_000, lossy(loss), &[]);
        let took = rig.flows[0].finished_at.expect("it ran to the end").since(Time::ZERO);
        let best = Bytes::new(30_000 * 1032) / RATE;
        // The delay between datagrams begins at three times its minimum; about two seconds of
        // reports shorten it to the minimum.
        let bound = best.as_secs_f64() / (1.0 - loss) + 2.5;
        assert!(took.as_secs_f64() <= bound, "loss {loss}: {took} of {bound} s");
        let waste = waste(&rig);
        assert!(waste <= loss / (1.0 - loss) + 0.01, "loss {loss}: waste {waste}");
    }
}

#[test]
fn reordering_within_the_wait_for_late_blocks_makes_no_requests() {
    let channel = Channel { reorder: 0.05, lateness: RTT / 5, ..lossy(0.0) };
    let rig = run(5, 20_000, channel, &[]);
    let came = rig.receiver.accounting(rig.flows[0].setup.flow).expect("it was added");
    assert_eq!((came.reported_lost, came.duplicates, most_sends(&rig)), (0, 0, 1));
}

#[test]
fn few_blocks_are_requested_again_although_requests_arrive_late_and_out_of_order() {
    // The receiver reports at intervals shorter than the round trip. Its requests arrive late, more
    // than once and out of order.
    let channel = Channel {
        duplicate: 0.1,
        reorder: 0.2,
        lateness: RTT * 2,
        stall: 0.3,
        copies: true,
        ..lossy(0.03)
    };
    let rig = run(6, 20_000, channel, &[("report-interval", 0.01)]);
    let came = rig.receiver.accounting(rig.flows[0].setup.flow).expect("it was added");
    // The receiver requests blocks that are later than the grace (its wait for late blocks). It
    // repeats few of its requests.
    assert!(came.reported_lost <= came.blocks_lost * 11 / 10, "{came:?}");
    assert!(most_sends(&rig) <= 5 && waste(&rig) < 0.2, "{} {}", most_sends(&rig), waste(&rig));
}

#[test]
fn the_last_block_is_sent_a_few_times_if_an_outage_loses_it() {
    // Everything is lost for two seconds, from just before the last block leaves.
    let clean = run(7, 5_000, lossy(0.0), &[]);
    let end = clean.flows[0].finished_at.expect("it ran to the end");
    let from = Time::ZERO + (end.since(Time::ZERO) - RTT - Span::from_millis(20));
    let outage = Some((from, from + Span::from_secs(2)));
    let rig = run(7, 5_000, Channel { outage, ..lossy(0.0) }, &[]);
    assert!(most_sends(&rig) <= 6, "{}", most_sends(&rig));
    assert!(waste(&rig) < 0.05);
}

#[test]
fn waste_stays_limited_although_the_table_overflows_and_the_copy_restarts() {
    // The public tool's table of missing blocks, scaled down to this object, overflows again and
    // again.
    for (seed, loss, most) in [(8, 0.1, 1.6), (9, 0.3, 2.9)] {
        let rig = run(seed, 10_000, lossy(loss), &[("table", 50.0)]);
        assert!(rig.restarts > 0, "loss {loss}: nothing overflowed");
        assert!(most_sends(&rig) <= 12, "loss {loss}: {} sends", most_sends(&rig));
        assert!(waste(&rig) < most, "loss {loss}: waste {}", waste(&rig));
    }
}

/// Copies 30 MB over 100 Mbit/s without a given rate; returns the duration in seconds and the
/// waste. The receiving host sleeps during `asleep`.
fn found(rtt: Span, asleep: Option<(Span, Span)>) -> (f64, f64) {
    let bottleneck = Some((Rate::from_mbps(100), Rate::from_mbps(100).over(rtt)));
    let asleep = asleep.map(|(from, to)| (Time::ZERO + from, Time::ZERO + to));
    let channel = Channel { bottleneck, asleep, ..Channel::perfect(rtt / 2) };
    let mut rig = Rig::new(&ROW, 10, channel);
    rig.add_flow(setup(1, 30_000, 0, None, rtt), Host::Fast);
    rig.run(Span::from_secs(60));
    let took = rig.flows[0].finished_at.expect("it ran to the end").since(Time::ZERO);
    (took.as_secs_f64(), waste(&rig))
}

#[test]
fn a_first_train_that_shows_a_false_rate_costs_little() {
    for rtt in [Span::from_millis(10), Span::from_millis(60)] {
        // The train (32 datagrams of 1,032 bytes at 100 Mbit/s) takes 2.6 ms to arrive.
        let (begins, ms) = (rtt / 2, Span::from_millis);
        let (clean, wasted) = found(rtt, None);
        let best = (Bytes::new(30_000 * 1032) / Rate::from_mbps(100)).as_secs_f64();
        assert!(clean < best * 1.15 && wasted < 0.03, "{clean} s, waste {wasted}");
        let too_fast = (Span::ZERO, begins + ms(4));
        let too_slow = (begins + ms(1), begins + ms(60));
        for asleep in [too_fast, too_slow] {
            let (took, wasted) = found(rtt, Some(asleep));
            assert!(took < clean * 1.1, "{rtt}, {asleep:?}: {took} s, {clean} without");
            assert!(wasted < 0.1, "{rtt}, {asleep:?}: waste {wasted}");
        }
    }
}
