//! Properties of FOBS: at a loss of up to 5 % it keeps a path full, and nearly full if the receiver
//! has little memory. Its waste (datagrams sent beyond the object's blocks, as a share of these) is
//! bounded. FOBS is greedy: it resends unacknowledged blocks instead of waiting. `fobs-table` is
//! less greedy during congestion: its table has twenty states, each with a rate.

use longhaul_proto::endpoint::Event;
use longhaul_proto::layout::Layout;
use longhaul_proto::registry::{Row, find};
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::rig::{Channel, Host, Rig, setup};

const RTT: Span = Span::from_millis(40);
const RATE: Rate = Rate::from_mbps(50);

fn row(name: &str) -> &'static Row {
    find(name).expect("it is registered")
}

fn settings(name: &str, set: &[(&str, f64)]) -> Settings {
    let with = |settings: Settings, (option, value): &(&str, f64)| {
        settings.with(row(name), option, *value).expect("a setting that it has")
    };
    set.iter().fold(Settings::default(), with)
}

fn rig(name: &str, set: &[(&str, f64)], blocks: u64, channel: Channel, host: Host) -> Rig {
    let mut rig = Rig::new(row(name), 1, channel);
    let mut setup = setup(1, blocks, 0, Some(RATE), RTT);
    setup.settings = settings(name, set);
    // A chunk of 50,000 bytes takes 8 ms at the rate; a segment has twenty chunks.
    let (object, segment) = (Bytes::new(blocks * 1000), Bytes::new(1_000_000));
    setup.layout = Layout::new(object, segment, Bytes::new(50_000), 1000).expect("sizes that fit");
    rig.add_flow(setup, host);
    rig
}

fn lossy(loss: f64) -> Channel {
    Channel { loss, ..Channel::perfect(RTT / 2) }
}

/// Runs the flow. Returns how full it kept the path, and its waste. A flow that keeps the path full
/// (1.0) takes the shortest time that is possible at this loss.
fn fullness(rig: &mut Rig, loss: f64) -> (f64, f64) {
    rig.run(Span::from_secs(600));
    let flow = &rig.flows[0];
    let blocks = flow.setup.layout.blocks();
    let took = flow.finished_at.expect("it ran to the end").since(Time::ZERO);
    let best = Bytes::new(blocks * 1032) / RATE;
    let share = best.as_secs_f64() / (1.0 - loss) / took.as_secs_f64();
    (share, flow.sender.accounting().waste(blocks))
}

#[test]
fn a_lossy_path_is_kept_full_and_the_waste_is_bounded() {
    const BLOCKS: u64 = 30_000;
    let trip = RATE.over(RTT).get() as f64 / (BLOCKS * 1032) as f64;
    for (name, set) in [("fobs", &[][..]), ("fobs-table", &[("tolerated-loss", 0.1)])] {
        for loss in [0.0, 0.001, 0.01, 0.05] {
            let mut rig = rig(name, set, BLOCKS, lossy(loss), Host::Fast);
            let (share, waste) = fullness(&mut rig, loss);
            assert!(share > 0.96, "{name}, loss {loss}: {share}");
            assert!(waste <= loss / (1.0 - loss) + trip + 0.015, "{name}, loss {loss}: {waste}");
        }
    }
}

#[test]
fn a_killed_receiver_loses_at_most_two_segments_and_two_round_trips_of_data() {
    // Chunks of 50 blocks: at a loss of 5 % only 8 % of the chunks (0.95⁵⁰) are complete after the
    // first sends. The path carries a quarter of a segment in a round trip.
    let most = 2 * (1_000_000 + RATE.over(RTT).get());
    for name in ["fobs", "fobs-table"] {
        for loss in [0.01, 0.05] {
            let set = if name == "fobs" { &[][..] } else { &[("tolerated-loss", 0.1)] };
            let mut rig = rig(name, set, 20_000, lossy(loss), Host::Fast);
            let mut at = Time::ZERO;
            while !rig.step() {
                if rig.now > at {
                    at = rig.now + Span::from_millis(50);
                    let lost = rig.flows[0].unfinished().get();
                    assert!(lost <= most, "{name}, loss {loss}, {:?}: {lost} bytes", rig.now);
                }
            }
        }
    }
}

#[test]
fn greed_costs_about_a_round_trip_of_data_on_a_clean_path() {
    const BLOCKS: u64 = 5_000;
    let trip = RATE.over(RTT).get() as f64 / (BLOCKS * 1032) as f64;
    let mut rig = rig("fobs", &[("batch", 2.0)], BLOCKS, lossy(0.0), Host::Fast);
    let (_, waste) = fullness(&mut rig, 0.0);
    assert!((trip * 0.98..trip * 1.1).contains(&waste), "{waste}, a round trip is {trip}");
}

#[test]
fn memory_for_4_to_20_round_trips_keeps_a_lossy_path_nearly_full() {
    // A missing block keeps its whole chunk in memory, so the sender again and again uses up the
    // grant: the data that the receiver has allowed.
    for (trips, loss, least) in
        [(4, 0.001, 0.95), (4, 0.01, 0.9), (8, 0.05, 0.85), (20, 0.05, 0.95)]
    {
        let budget = Bytes::new(RATE.over(RTT).get() * trips);
        let mut rig = rig("fobs", &[], 20_000, lossy(loss), Host::Chunked(budget));
        let (share, waste) = fullness(&mut rig, loss);
        assert!(share > least, "{trips} round trips, loss {loss}: {share}");
        assert!(waste <= loss / (1.0 - loss) + 0.03, "{trips} round trips, loss {loss}: {waste}");
    }
}

#[test]
fn the_path_never_idles_while_the_receiver_has_room() {
    // A disk that writes at 80 Mbit/s for 50 ms and pauses for 50 ms: on average 40 Mbit/s, slower
    // than the path's 50. The memory holds the data of a pause and two round trips. A chunk of
    // `fobs-table` is two ninths of this memory.
    let host = Host::Stalling(Rate::from_mbps(80), Span::from_millis(100), Bytes::new(900_000));
    for (name, set) in [("fobs", &[][..]), ("fobs-table", &[("chunk", 200e3)])] {
        for loss in [0.0, 0.005] {
            let mut rig = rig(name, set, 10_000, lossy(loss), host);
            let (mut sent, mut last, mut idle, mut idle_with_room) = (0, Time::ZERO, 0, 0);
            while !rig.step() {
                let sender = &rig.flows[0].sender;
                if sender.accounting().sent > sent {
                    (sent, last) = (sender.accounting().sent, rig.now);
                }
                // A burst of 25 datagrams, the default of `fobs-table`, takes 4.1 ms at the rate.
                if rig.now.since(last) > Span::from_millis(6) {
                    idle += 1;
                    idle_with_room += u32::from(!rig.flows[0].blocked);
                }
            }
            rig.audit();
            assert_eq!(idle_with_room, 0, "{name}, loss {loss}: idle instants with room");
            assert!(idle > 10, "{name}, loss {loss}: {idle} instants");
        }
    }
}

fn states(rig: &Rig) -> Vec<u64> {
    let rate = |event: &Event| match event {
        Event::Rate(rate) => Some(rate.as_bps() / 1_000_000),
        _ => None,
    };
    rig.flows[0].events.iter().filter_map(rate).collect()
}

#[test]
fn the_table_finds_a_narrow_paths_rate_and_wastes_less_than_greed() {
    let narrow = |queue| Channel {
        bottleneck: Some((Rate::from_mbps(20), Bytes::new(queue))),
        ..Channel::perfect(RTT / 2)
    };
    let set = [("state-segment", 1_000.0)];
    let mut table = rig("fobs-table", &set, 20_000, narrow(50_000), Host::Fast);
    let (_, wasted) = fullness(&mut table, 0.0);
    let states = states(&table);
    // The states are 2.5 Mbit/s apart, so the path's 20 Mbit/s are state 8. From the second event
    // on, the rate is at most two states away.
    assert!(states.len() > 5 && states.iter().skip(1).all(|rate| (15..=25).contains(rate)));
    let mut greedy = rig("fobs", &[], 20_000, narrow(50_000), Host::Fast);
    let (_, greed) = fullness(&mut greedy, 0.0);
    assert!(wasted < greed / 4.0, "{wasted}, greedy {greed}");
}

#[test]
fn after_congestion_the_table_returns_to_its_highest_rate_and_to_greed() {
    let bottleneck = Some((Rate::from_mbps(20), Bytes::new(50_000)));
    let channel = Channel { bottleneck, ..Channel::perfect(RTT / 2) };
    let mut rig = rig("fobs-table", &[("state-segment", 500.0)], 40_000, channel, Host::Fast);
    while rig.flows[0].sender.accounting().first < 10_000 {
        rig.step();
    }
    assert!(rig.flows[0].sender.rate() <= Rate::from_mbps(25));
    rig.channel.bottleneck = None;
    let retransmitted = rig.flows[0].sender.accounting().retransmitted;
    rig.run(Span::from_secs(60));
    assert_eq!(states(&rig).last(), Some(&50));
    // The last round trip is greedy.
    let last = rig.flows[0].sender.accounting().retransmitted - retransmitted;
    assert!(last * 1032 > RATE.over(RTT).get() * 9 / 10, "{last} datagrams");
}
