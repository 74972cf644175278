//! The rates that SABUL's two rate controls set: the control of the paper, and the control of the
//! release that Oak Ridge measured. The release sets the rate by the delay between two datagrams. A
//! *freeze* is a round trip in which the sender sends nothing.

use super::*;
use crate::sabul::rate::{PaperRate, RateControl};
use crate::sabul::release::ReleaseRate;

/// A flow with datagrams of 1500 bytes: the MTU of the paper's table.
fn mtu_1500(settings: Settings) -> Setup {
    let layout = Layout::whole(Bytes::new(1_468_000), 1468).unwrap();
    Setup { overhead: Bytes::new(32), settings, ..Setup::new(FLOW, layout, RTT) }
}

fn paper(mbps: f64) -> PaperRate {
    PaperRate::new(&mtu_1500(Settings::default()), Rate::from_bps_f64(mbps * 1e6), None)
}

/// The rate in datagrams of 1500 bytes per synchronization interval of 10 ms.
fn per_sync(control: &dyn RateControl) -> f64 {
    control.rate().as_bps() as f64 * 0.01 / 12_000.0
}

#[test]
fn the_increase_at_each_rate_is_that_of_the_papers_table() {
    // "If the MTU is 1500 bytes, the increase parameters are: 1Mbps < S <= 10Mbps, inc = 0.01;
    // 10Mbps < S <= 100Mbps, inc = 0.1; 100Mbps < S <= 1000Mbps, inc = 1; and so on."
    let table = [
        (1.1, 0.01),
        (5.0, 0.01),
        (10.0, 0.01),
        (10.1, 0.1),
        (100.0, 0.1),
        (100.1, 1.0),
        (1000.0, 1.0),
        (1001.0, 10.0),
    ];
    for (mbps, inc) in table {
        let mut control = paper(mbps);
        let before = per_sync(&control);
        control.on_interval(100, 0);
        let increase = per_sync(&control) - before;
        assert!((increase - inc).abs() < 1e-5, "{mbps} Mbit/s: {increase}");
    }
}

#[test]
fn the_increase_is_at_least_one_byte_per_interval() {
    let mut control = paper(0.05);
    let before = per_sync(&control);
    control.on_interval(1, 0);
    assert!((per_sync(&control) - before - 1.0 / 1500.0).abs() < 1e-5);
}

#[test]
fn the_rate_rises_only_below_the_loss_threshold_and_only_if_something_was_sent() {
    let mut control = paper(500.0);
    control.on_interval(0, 0);
    assert_eq!(control.rate(), Rate::from_mbps(500));
    // A loss of 1 % in one interval raises the average from 0 to 0.125 %. Each interval without
    // loss reduces the average by an eighth.
    control.on_interval(1000, 10);
    let mut intervals = 0;
    while control.rate() == Rate::from_mbps(500) {
        control.on_interval(1000, 0);
        intervals += 1;
    }
    // 0.00125 · (7/8)^n < 0.001.
    assert_eq!(intervals, 2);
    // More losses than datagrams count as a loss ratio of 1, which adds 0.125 to the average.
    // 0.125 · (7/8)^n is below 0.001 from n = 37 on.
    let mut control = paper(500.0);
    control.on_interval(10, 1_000_000);
    for _ in 0..36 {
        control.on_interval(1000, 0);
    }
    assert_eq!(control.rate(), Rate::from_mbps(500));
    control.on_interval(1000, 0);
    assert!(control.rate() > Rate::from_mbps(500));
}

#[test]
fn a_lost_block_sent_after_the_last_decrease_slows_and_freezes_the_sender() {
    let mut control = paper(900.0);
    // A decrease lengthens the time between datagrams by 1/8: 900 becomes 800, and 800 becomes 711.
    assert!(control.on_report(10, 1_000));
    assert_eq!(control.rate(), Rate::from_mbps(800));
    // A lost block that was sent before the decrease does not freeze the sender.
    assert!(!control.on_report(999, 1_500));
    assert_eq!(control.rate(), Rate::from_mbps(800));
    assert!(control.on_report(1_000, 2_000));
    assert!(control.rate() < Rate::from_mbps(712));
}

#[test]
fn after_a_freeze_the_16th_32nd_64th_and_128th_report_slow_the_sender_without_a_freeze() {
    let mut control = paper(900.0);
    control.on_report(10, 1_000);
    let mut slowed = Vec::new();
    for report in 1..=128 {
        let before = control.rate();
        assert!(!control.on_report(20, 1_000));
        if control.rate() < before {
            slowed.push(report);
        }
    }
    assert_eq!(slowed, [16, 32, 64, 128]);
    assert!(control.on_report(1_000, 2_000));
    let before = control.rate();
    for _ in 0..15 {
        control.on_report(20, 2_000);
    }
    assert_eq!(control.rate(), before);
    control.on_report(20, 2_000);
    assert!(control.rate() < before);
}

#[test]
fn the_rate_stays_between_one_datagram_per_interval_and_the_cap() {
    let setup = mtu_1500(Settings::default());
    let cap = Rate::from_mbps(300);
    let mut control = PaperRate::new(&setup, cap, Some(cap));
    for _ in 0..100 {
        control.on_interval(100, 0);
    }
    assert_eq!(control.rate(), cap);
    for turn in 0..1_000 {
        control.on_report(turn, turn);
    }
    // The minimum is one datagram of 12,000 bits in 10 ms.
    assert_eq!(control.rate(), Rate::from_bps(1_200_000));
    // A cap below one datagram an interval overrides the minimum.
    let cap = Rate::from_bps(80_000);
    let mut control = PaperRate::new(&setup, cap, Some(cap));
    control.on_report(0, 1);
    assert_eq!(control.rate(), cap);
}

#[test]
fn the_papers_constants_can_be_set() {
    let settings = set(&ROW, &[("decrease", 1.0), ("loss-threshold", 0.5), ("beta", 1.2e-4)]);
    let setup = mtu_1500(settings);
    // Ten times the paper's beta adds ten datagrams an interval: 12 Mbit/s. A decrease of 1 halves
    // the rate: (500 + 12) / 2.
    let mut control = PaperRate::new(&setup, Rate::from_mbps(500), None);
    control.on_interval(100, 10);
    assert!((per_sync(&control) - 1e6 * 500.0 * 0.01 / 12_000.0 - 10.0).abs() < 1e-3);
    control.on_report(1, 2);
    assert_eq!(control.rate(), Rate::from_mbps(256));
}

#[test]
fn the_sync_interval_can_be_set() {
    let seconds = |interval| set(&ROW, &[("sync-interval", interval)]);
    // Each interval without loss raises the rate by one datagram per interval, whatever the
    // interval's length: by 240 kbit/s with intervals of 50 ms. Reports lower the rate to one
    // datagram per interval and no further.
    let mut control = PaperRate::new(&mtu_1500(seconds(0.05)), Rate::from_mbps(500), None);
    control.on_interval(100, 0);
    assert!(control.rate().as_bps().abs_diff(500_240_000) <= 1, "{}", control.rate());
    for turn in 0..1_000 {
        control.on_report(turn, turn);
    }
    assert!(control.rate().as_bps().abs_diff(240_000) <= 1, "{}", control.rate());
    // `rises` returns how often a sender raises its rate within 1 s. `acknowledged` returns the
    // times, in ms, at which a receiver sends acknowledgements.
    let rises = |interval: f64| {
        let settings = set(&ROW, &[("sync-interval", interval), ("initial-rate", 8e6)]);
        let mut out = Out::new(&Setup { settings, rate: None, ..setup(100_000) });
        out.sender.window.on_loss();
        let mut rates = Vec::new();
        while out.now < ms(1_000) {
            out.run_for(5);
            out.ack(out.sent.len() as u64);
            rates.push(out.sender.rate());
        }
        rates.windows(2).filter(|pair| pair[1] > pair[0]).count()
    };
    let acknowledged = |interval: f64| {
        let setup = Setup { settings: seconds(interval), ..setup(1_000) };
        let mut inn = In::<SabulReceiver>::new(&setup);
        let mut acknowledges = |turn: &u64| {
            inn.arrive(ms(*turn), [*turn as u32]);
            !inn.said(ms(*turn)).is_empty()
        };
        (0..=200).filter(|turn| acknowledges(turn)).collect::<Vec<u64>>()
    };
    assert_eq!((rises(0.05), rises(0.01)), (20, 100));
    assert_eq!(acknowledged(0.05), [0, 50, 100, 150, 200]);
    assert_eq!(acknowledged(0.01).len(), 21);
}

#[test]
fn the_releases_delay_grows_with_loss_and_shrinks_without_loss_within_its_limits() {
    let settings = set(&ORNL_ROW, &[("loss-smoothing", 1.0), ("shortest-delay", 9e-6)]);
    let mut control = ReleaseRate::new(&mtu_1500(settings), None);
    let delay = |control: &ReleaseRate| 12_000.0 * 1e6 / control.rate().as_bps() as f64;
    assert!((delay(&control) - 10.0).abs() < 1e-6);
    control.on_interval(1000, 2);
    assert!((delay(&control) - 10.5).abs() < 1e-6);
    control.on_interval(1000, 1);
    assert!((delay(&control) - 10.6).abs() < 1e-6);
    control.on_interval(1000, 0);
    assert!((delay(&control) - 10.6 / 1.05).abs() < 1e-6);
    for _ in 0..20 {
        control.on_interval(1000, 0);
    }
    assert!((delay(&control) - 9.0).abs() < 1e-6);
    for _ in 0..1000 {
        control.on_interval(1000, 5000);
    }
    assert!((delay(&control) - 10_000.0).abs() < 1e-3);
    assert!(!control.on_report(5, 10));
}

#[test]
fn the_release_sends_at_the_rate_cap_until_its_delay_gives_a_lower_rate() {
    let cap = Some(Rate::from_mbps(97));
    let mut control = ReleaseRate::new(&mtu_1500(Settings::default()), cap);
    assert_eq!(control.rate(), Rate::from_mbps(97));
    // The delay grows by a twentieth in each interval, from 10 µs to 124 µs: the delay of 97 Mbit/s
    // with 1500 bytes a datagram.
    let mut turns = 0;
    while control.rate() == Rate::from_mbps(97) {
        control.on_interval(1000, 100);
        turns += 1;
    }
    assert_eq!(turns, 52);
}

#[test]
fn the_release_starts_at_the_rate_of_a_train_within_the_limits_of_its_delay() {
    let mut control = ReleaseRate::new(&mtu_1500(Settings::default()), None);
    let mut after = |rate| {
        control.start(rate);
        control.rate()
    };
    assert_eq!(after(Rate::from_mbps(500)), Rate::from_mbps(500));
    // The shortest delay is 10 µs.
    assert_eq!(after(Rate::from_mbps(5_000)), Rate::from_mbps(1_200));
}
