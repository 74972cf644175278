//! RBUDP's sender and receiver, message by message. The sender sends DONE at the end of a round.
//! The receiver's grant is the number of bytes that may be sent for the first time.
#![allow(clippy::single_range_in_vec_init, reason = "the list has one run on purpose")]

mod coded;
mod timers;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{ROW, RbudpReceiver, RbudpSender, TAIL_COPIES};
use crate::endpoint::{
    Arrival, BlockRange, Event, Outgoing, PacketNumber, Receiver, Sender, Setup, Wake, Why,
};
use crate::ends::out::{self, FLOW};
use crate::law::{Found, Phase};
use crate::layout::{Block, Layout};
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Control, Done, Echo, Pulse, Report};

fn setup(blocks: u64, segment: u64) -> Setup {
    let (object, segment) = (Bytes::new(blocks * 1000), Bytes::new(segment * 1000));
    let layout = Layout::new(object, segment, Bytes::new(1000), 1000).unwrap();
    let (overhead, rate) = (Bytes::new(32), Some(Rate::from_mbps(100)));
    let setup = Setup::new(FLOW, layout, Span::from_millis(100));
    Setup { overhead, rate, settings: tail_copies(1), ..setup }
}

fn tail_copies(times: u32) -> Settings {
    Settings::default().with(&ROW, TAIL_COPIES.name, times.into()).unwrap()
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

type Out = out::Out<RbudpSender>;

impl Out {
    fn new(setup: &Setup) -> Out {
        Out::of(RbudpSender::new(setup))
    }

    fn dones(&mut self) -> Vec<Done> {
        let done = |outgoing: Outgoing| match outgoing.control {
            Control::Done(done) => Some(done),
            _ => None,
        };
        self.messages().filter_map(done).collect()
    }

    /// Delivers a message of the receiver after a round trip (100 ms).
    fn hear_later(&mut self, control: &Control) {
        self.now += Span::from_millis(100);
        self.hear(control);
    }

    fn report(&mut self, round: u32, slice: u32, missing: &[core::ops::Range<u32>]) {
        let missing = missing.iter().cloned();
        self.hear_later(&Control::Report(Report::fill(0, round, 0..slice, missing)));
    }

    fn grant(&mut self, sequence: u64, bytes: u64) {
        let grant = Bytes::new(bytes);
        self.hear_later(&Control::Pulse(Pulse { sequence, grant, ..Pulse::default() }));
    }
}

#[test]
fn rounds_send_everything_then_missing_blocks() {
    let mut out = Out::new(&setup(10, 0));
    assert_eq!(out.run(), (0..10).collect::<Vec<_>>());
    let highest = PacketNumber(9);
    assert_eq!(out.dones(), [Done { segment: 0, round: 1, sent_to: 10, highest }]);
    out.report(1, 10, &[2..4, 9..10]);
    assert_eq!(out.run(), [2, 3, 9]);
    let highest = PacketNumber(12);
    assert_eq!(out.dones(), [Done { segment: 0, round: 2, sent_to: 10, highest }]);
    out.report(1, 10, &[2..4]);
    assert!(out.run().is_empty());
    out.report(2, 10, &[]);
    assert!(out.sender.is_finished());
    assert_eq!(out.sender.accounting().rounds, 2);
    assert_eq!(out.sender.next_wakeup(), Wake::OnInput);
}

#[test]
fn the_next_segment_follows_immediately_but_repairs_go_first() {
    let mut out = Out::new(&setup(40, 10));
    out.sender.poll_transmit(Time::ZERO, PacketNumber(0), 1, &mut out.sent);
    while out.sent.len() < 25 {
        out.now += Span::from_millis(1);
        let next = PacketNumber(out.sent.len() as u64);
        out.sender.poll_transmit(out.now, next, 1, &mut out.sent);
    }
    assert_eq!(out.dones().len(), 2);
    out.report(1, 10, &[5..6]);
    out.run();
    assert_eq!(out.sent[25], Block { segment: 0, index: 5 });
    assert_eq!(out.sent[26], Block { segment: 2, index: 5 });
}

#[test]
fn a_sender_that_has_used_up_its_grant_sends_a_done_for_the_blocks_so_far() {
    let mut out = Out::new(&Setup { grant: Bytes::new(4_500), ..setup(10, 0) });
    assert_eq!(out.run(), [0, 1, 2, 3]);
    assert!(out.sender.is_blocked_by_grant());
    assert_eq!(out.dones()[0].sent_to, 4);
    out.report(1, 4, &[1..2]);
    assert_eq!(out.run(), [1]);
    assert_eq!(out.dones()[0].sent_to, 4);
    out.grant(1, 100_000);
    assert_eq!(out.run(), (4..10).collect::<Vec<_>>());
    assert_eq!(out.dones()[0].sent_to, 10);
    out.report(3, 10, &[]);
    assert!(out.sender.is_finished());
}

#[test]
fn done_is_repeated_with_growing_waits_until_it_is_answered() {
    let mut out = Out::new(&setup(10, 0));
    out.run();
    out.dones();
    let mut waits = Vec::new();
    for _ in 0..3 {
        let Wake::At(at, Why::Repeat) = out.sender.next_wakeup() else { panic!("no repeat") };
        waits.push(at.since(out.now));
        out.now = at;
        out.sender.on_timeout(at);
        assert_eq!(out.dones().len(), 1);
    }
    assert!(waits[0] >= Span::from_millis(200) && waits[1] == waits[0] * 2);
    out.report(1, 10, &[]);
    assert!(out.sender.is_finished());
}

#[test]
fn silence_stops_the_flow_and_a_message_resumes_it() {
    let mut out = Out::new(&Setup { rate: Some(Rate::from_bps(80_000)), ..setup(100, 0) });
    // A datagram of 1,032 bytes takes 103 ms at 80 kbit/s. The flow is still sending when the
    // silence stops it.
    while out.sender.poll_event().is_none() {
        let next = PacketNumber(out.sent.len() as u64);
        out.sender.poll_transmit(out.now, next, 16, &mut out.sent);
        if let Wake::At(at, _) = out.sender.next_wakeup() {
            out.now = at;
        }
        out.sender.on_timeout(out.now);
        assert!(out.now < ms(60_000));
    }
    assert_eq!(out.now, ms(3_000));
    let sent = out.sent.len();
    assert!(out.run().is_empty() && sent < 40);
    assert_eq!(out.sender.next_wakeup(), Wake::OnInput);
    out.grant(1, u64::MAX);
    assert_eq!(out.sender.poll_event(), Some(Event::Resumed));
    assert!(!out.run().is_empty());
}

#[test]
fn copies_of_small_last_rounds_stay_within_their_limit() {
    let mut out = Out::new(&Setup { settings: tail_copies(3), ..setup(2048, 0) });
    assert_eq!(out.run().len(), 2048);
    // 2048 / 256 = 8 extra blocks, of which a round takes at most half. The first repair round has
    // five blocks, too many for copies. The next round has three blocks, which are sent twice. Five
    // extra blocks are left. The last round has one block and takes two extra blocks, so the block
    // is sent three times.
    out.report(1, 2048, &[0..1, 5..6, 9..10, 20..22]);
    assert_eq!(out.run(), [0, 5, 9, 20, 21]);
    out.report(2, 2048, &[0..1, 9..10, 20..21]);
    assert_eq!(out.run(), [0, 9, 20, 0, 9, 20]);
    out.report(3, 2048, &[9..10]);
    assert_eq!(out.run(), [9, 9, 9]);
    assert_eq!(out.sender.accounting().retransmitted, 5 + 6 + 3);
}

#[test]
fn skipped_blocks_are_neither_sent_nor_repaired() {
    let mut out = Out::new(&setup(20, 10));
    let range = |segment, index, count| BlockRange { first: Block { segment, index }, count };
    out.sender.skip(Time::ZERO, FLOW, range(0, 2, 6));
    out.sender.skip(Time::ZERO, FLOW, range(1, 0, 10));
    assert_eq!(out.run(), [0, 1, 8, 9]);
    out.report(1, 10, &[0..2]);
    out.sender.skip(out.now, FLOW, range(0, 0, 1));
    assert_eq!(out.run(), [1]);
    out.report(2, 10, &[1..2]);
    out.sender.skip(out.now, FLOW, range(0, 1, 1));
    assert!(out.run().is_empty());
    assert!(out.sender.is_finished());
}

proptest! {
    #[test]
    fn blocks_skipped_after_they_were_sent_use_no_grant(
        budget in 1u64..12,
        skips in prop::collection::vec((0u32..60, 1u32..20), 0..12),
    ) {
        let mut out = Out::new(&Setup { grant: Bytes::new(budget * 1000), ..setup(60, 0) });
        let mut skipped = BTreeSet::new();
        let mut drained = 0;
        let mut skips = skips.into_iter();
        for turn in 1..1_000 {
            out.run();
            let sent: BTreeSet<u32> = out.sent.iter().map(|block| block.index).collect();
            let kept = sent.difference(&skipped).count() as u64;
            prop_assert!(kept <= budget + drained, "{kept} blocks kept");
            if out.sender.is_finished() {
                return Ok(());
            }
            if let Some((index, count)) = skips.next() {
                let first = Block { segment: 0, index };
                out.sender.skip(out.now, FLOW, BlockRange { first, count });
                skipped.extend(index..(index + count).min(60));
                continue;
            }
            // The receiver has written the blocks that it needs, so its grant rises by their bytes.
            // Skipped blocks do not count.
            drained = kept;
            out.grant(turn, (budget + drained) * 1000);
            for done in out.dones() {
                out.report(done.round, done.sent_to, &[]);
            }
        }
        prop_assert!(false, "out of grant for ever");
    }
}

struct In {
    receiver: RbudpReceiver,
}

impl In {
    fn new(setup: &Setup) -> In {
        let mut receiver = RbudpReceiver::default();
        receiver.add_flow(Time::ZERO, setup);
        In { receiver }
    }

    fn arrive(&mut self, now: Time, blocks: &[(u64, u32)]) {
        let arrival = |&(number, index): &(u64, u32)| Arrival {
            number: PacketNumber(number),
            block: Block { segment: 0, index },
            at: now,
        };
        let arrivals: Vec<Arrival> = blocks.iter().map(arrival).collect();
        self.receiver.on_datagrams(now, FLOW, &arrivals);
    }

    fn done(&mut self, now: Time, round: u32, sent_to: u32, highest: u64) {
        let highest = PacketNumber(highest);
        let done = Done { segment: 0, round, sent_to, highest };
        self.receiver.on_control(now, FLOW, &Control::Done(done));
    }

    fn reports(&mut self, now: Time) -> Vec<Report> {
        let mut reports = Vec::new();
        while let Some(outgoing) = self.receiver.poll_control(now) {
            if let Control::Report(report) = outgoing.control {
                reports.push(report);
            }
        }
        reports
    }
}

#[test]
fn a_report_waits_for_the_rounds_last_datagram() {
    let mut inn = In::new(&setup(4, 0));
    inn.arrive(ms(0), &[(0, 0), (1, 1)]);
    inn.done(ms(1), 1, 4, 3);
    assert!(inn.reports(ms(1)).is_empty());
    inn.arrive(ms(2), &[(3, 3)]);
    let reports = inn.reports(ms(2));
    assert_eq!(reports[0].missing(), [2..3]);
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().blocks_lost, 1);
    inn.arrive(ms(3), &[(4, 2)]);
    assert!(inn.reports(ms(3))[0].missing().is_empty());
    assert!(inn.receiver.is_finished(FLOW));
}

#[test]
fn a_report_is_sent_after_the_grace_when_the_last_datagram_is_lost() {
    let mut inn = In::new(&setup(4, 0));
    inn.arrive(ms(0), &[(0, 0)]);
    inn.done(ms(1), 1, 4, 3);
    assert!(inn.reports(ms(1)).is_empty());
    // Newer data restart the grace: the wait for late data, a quarter of the round trip (25 ms).
    inn.arrive(ms(20), &[(1, 1)]);
    inn.receiver.on_timeout(ms(26));
    assert!(inn.reports(ms(26)).is_empty());
    assert!(matches!(inn.receiver.next_wakeup(), Wake::At(..)));
    inn.receiver.on_timeout(ms(45));
    assert_eq!(inn.reports(ms(45))[0].missing(), [2..4]);
}

#[test]
fn a_repeatedly_reported_loss_counts_once() {
    let mut inn = In::new(&setup(4, 0));
    inn.arrive(ms(0), &[(3, 3)]);
    inn.done(ms(1), 1, 4, 3);
    // An immediate copy of the DONE is ignored; a repeat after a round trip is answered.
    inn.done(ms(1), 1, 4, 3);
    assert_eq!(inn.reports(ms(1)).len(), 1);
    inn.done(ms(2), 1, 4, 3);
    assert!(inn.reports(ms(2)).is_empty());
    inn.done(ms(300), 1, 4, 3);
    assert_eq!(inn.reports(ms(300)).len(), 1);
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (3, 6));
}

#[test]
fn blocks_skipped_later_do_not_count_as_lost() {
    let mut inn = In::new(&setup(6, 0));
    inn.arrive(ms(0), &[(0, 1), (1, 5)]);
    // Block 0 was lost. The sender knew that the receiver does not need blocks 2 to 4. The receiver
    // learns this below, so it first counts four blocks as lost.
    inn.done(ms(1), 1, 6, 1);
    assert_eq!(inn.reports(ms(1)).len(), 1);
    let lost = |inn: &In| inn.receiver.accounting(FLOW).unwrap().blocks_lost;
    assert_eq!(lost(&inn), 4);
    let needless = BlockRange { first: Block { segment: 0, index: 1 }, count: 4 };
    for _ in 0..2 {
        inn.receiver.skip(ms(2), FLOW, needless);
        assert_eq!(lost(&inn), 1);
    }
    inn.arrive(ms(3), &[(2, 0)]);
    assert!(inn.receiver.is_finished(FLOW));
    assert_eq!(lost(&inn), 1);
}

#[test]
fn an_older_done_that_arrives_late_is_ignored() {
    let mut inn = In::new(&setup(4, 0));
    inn.arrive(ms(0), &[(3, 3)]);
    inn.done(ms(1), 2, 4, 3);
    assert_eq!(inn.reports(ms(1))[0].round(), 2);
    inn.done(ms(500), 1, 4, 3);
    assert!(inn.reports(ms(500)).is_empty());
}

#[test]
fn a_done_about_a_complete_segment_is_answered_once_with_an_empty_report() {
    let mut inn = In::new(&setup(2, 0));
    inn.arrive(ms(0), &[(0, 0), (1, 1)]);
    assert_eq!(inn.reports(ms(0)).len(), 1);
    inn.done(ms(1), 1, 2, 1);
    inn.done(ms(1), 1, 2, 1);
    let reports = inn.reports(ms(1));
    assert_eq!((reports.len(), reports[0].missing().len()), (1, 0));
}

#[test]
fn blocks_and_messages_outside_the_layout_are_refused() {
    let mut inn = In::new(&setup(4, 0));
    inn.done(ms(0), 1, 5, 3);
    inn.done(ms(0), 1, 0, 3);
    inn.arrive(ms(0), &[(0, 4)]);
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().refused, 3);
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().received, 0);
    inn.receiver.on_control(
        ms(0),
        FLOW,
        &Control::Report(Report::fill(0, 1, 0..4, [].into_iter())),
    );
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().refused, 4);
    let mut out = Out::new(&setup(4, 0));
    out.run();
    out.report(1, 5, &[]);
    assert_eq!(out.sender.accounting().refused, 1);
    assert!(!out.sender.is_finished());
}

#[test]
fn a_segment_of_two_million_blocks_is_reported_in_slices_and_repaired() {
    const BLOCKS: u32 = 2_000_000;
    let setup = Setup { rate: Some(Rate::from_mbps(100_000)), ..setup(u64::from(BLOCKS), 0) };
    let (mut sender, mut inn) = (RbudpSender::new(&setup), In::new(&setup));
    let (mut now, mut next, mut blocks, mut chance) = (Time::ZERO, 0u64, Vec::new(), 1u64);
    let mut messages = 0u64;
    while !sender.is_finished() {
        sender.poll_transmit(now, PacketNumber(next), 44, &mut blocks);
        let numbered = blocks.drain(..).zip(next..);
        let arrivals: Vec<Arrival> = numbered
            .map(|(block, number)| Arrival { number: PacketNumber(number), block, at: now })
            .collect();
        next += arrivals.len() as u64;
        let mut came = arrivals.clone();
        came.retain(|_| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            chance >> 33 > (1 << 31) / 100
        });
        inn.receiver.on_datagrams(now, FLOW, &came);
        while let Some(outgoing) = sender.poll_control(now) {
            inn.receiver.on_control(now, FLOW, &outgoing.control);
        }
        while let Some(outgoing) = inn.receiver.poll_control(now) {
            messages += u64::from(matches!(outgoing.control, Control::Report(_)));
            sender.on_control(now, FLOW, &outgoing.control);
        }
        if arrivals.is_empty()
            && let Wake::At(at, _) = sender.next_wakeup().earlier(inn.receiver.next_wakeup())
        {
            now = now.max(at);
            sender.on_timeout(now);
            inn.receiver.on_timeout(now);
        }
    }
    let (sent, came) = (*sender.accounting(), *inn.receiver.accounting(FLOW).unwrap());
    assert_eq!((sent.first, came.distinct), (u64::from(BLOCKS), u64::from(BLOCKS)));
    assert_eq!((came.duplicates, sent.retransmitted), (0, came.path_lost()));
    // One block in 100 is lost. Reports name each of these 20,000 blocks with two to three bytes;
    // a message has room for 1,100 bytes.
    assert!((30..60).contains(&messages), "{messages}");
    assert!(came.blocks_lost >= 19_000 && came.blocks_lost <= 21_000);
}

#[test]
fn a_pulse_about_datagrams_that_were_never_sent_changes_nothing() {
    let mut out = Out::new(&Setup { rate: None, grant: Bytes::new(3_000), ..setup(500, 0) });
    assert_eq!(out.run(), [0, 1, 2]);
    let rate = out.sender.rate();
    let lie = Pulse { sequence: 9, highest: 4, received: 4, grant: Bytes::MAX, ..Pulse::default() };
    out.hear_later(&Control::Pulse(lie));
    assert_eq!(out.sender.accounting().refused, 1);
    assert_eq!((out.run(), out.sender.rate()), (Vec::new(), rate));
    let echo = Some(Echo { number: PacketNumber(3), age: Span::ZERO });
    out.hear_later(&Control::Pulse(Pulse { highest: 3, received: 3, echo, ..lie }));
    assert_eq!(out.sender.accounting().refused, 2);
    out.hear_later(&Control::Pulse(Pulse { highest: 3, received: 3, ..lie }));
    assert!(!out.run().is_empty());
}

#[test]
fn a_message_after_silence_causes_no_event_in_a_finished_sender() {
    let mut out = Out::new(&setup(10, 0));
    out.run();
    out.now = ms(60_000);
    out.sender.on_timeout(out.now);
    let all = BlockRange { first: Block { segment: 0, index: 0 }, count: 10 };
    out.sender.skip(out.now, FLOW, all);
    assert!(out.sender.is_finished());
    let before: Vec<Event> = core::iter::from_fn(|| out.sender.poll_event()).collect();
    assert!(before.contains(&Event::Finished));
    assert!(before.iter().any(|event| matches!(event, Event::Silent(_))));
    out.report(1, 10, &[]);
    assert_eq!(out.sender.poll_event(), None);
}

#[test]
fn a_block_beyond_the_object_counts_as_refused_and_is_not_in_the_pulse() {
    let mut receiver = RbudpReceiver::default();
    receiver.add_flow(Time::ZERO, &setup(10, 0));
    let foreign = Block { segment: u32::MAX, index: 0 };
    let at = ms(1);
    let arrival = |number, block| Arrival { number: PacketNumber(number), block, at };
    let known = arrival(3, Block { segment: 0, index: 3 });
    receiver.on_datagrams(ms(1), FLOW, &[known, arrival(9, foreign)]);
    assert_eq!(receiver.accounting(FLOW).map(|counts| counts.refused), Some(1));
    let Some(Control::Pulse(pulse)) = receiver.poll_control(ms(1)).map(|out| out.control) else {
        panic!("a first arrival is reported immediately");
    };
    assert_eq!((pulse.highest, pulse.echo.map(|echo| echo.number)), (4, Some(PacketNumber(3))));
}

#[test]
fn a_report_does_not_wait_for_the_report_of_an_earlier_segment() {
    let mut inn = In::new(&setup(8, 4));
    let arrival = |number, segment| Arrival {
        number: PacketNumber(number),
        block: Block { segment, index: 0 },
        at: ms(0),
    };
    inn.receiver.on_datagrams(ms(0), FLOW, &[arrival(0, 0), arrival(1, 1)]);
    // The last datagram of the round of segment 0 has not arrived.
    for (segment, highest) in [(0, 9), (1, 1)] {
        let done = Done { segment, round: 1, sent_to: 4, highest: PacketNumber(highest) };
        inn.receiver.on_control(ms(1), FLOW, &Control::Done(done));
    }
    let reports = inn.reports(ms(1));
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].segment(), reports[0].missing()), (1, &[1..4][..]));
}

#[test]
fn a_sender_without_a_rate_says_that_it_still_looks_for_one() {
    let found = |rate| Out::new(&Setup { rate, ..setup(4, 0) }).sender.found();
    assert_eq!(found(None).phase, Some(Phase::Start));
    assert_eq!(found(Some(Rate::from_mbps(9))), Found::default());
}
