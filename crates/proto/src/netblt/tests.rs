//! NETBLT's sender and receiver, message by message.
#![allow(clippy::single_range_in_vec_init, reason = "the list has one run on purpose")]

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use proptest::prelude::*;

use super::buffers::Buffers;
use super::{BUFFER, BUFFERS, BURST, NetbltReceiver, NetbltSender, ROW};
use crate::endpoint::{
    Arrival, BlockRange, Carrier, Event, PacketNumber, Receiver, Sender, Setup, Wake, Why,
};
use crate::ends::out::{self, FLOW};
use crate::layout::{Block, Layout};
use crate::registry::find;
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Begun, BufferOk, Burst, Control, Go, Pulse, Report, Resend};

const RTT: Span = Span::from_millis(100);

fn setup(blocks: u64, segment: u64, buffer: u32, buffers: u32) -> Setup {
    let (object, segment) = (Bytes::new(blocks * 1000), Bytes::new(segment * 1000));
    let layout = Layout::new(object, segment, Bytes::new(1000), 1000).unwrap();
    let (overhead, rate) = (Bytes::new(32), Some(Rate::from_mbps(80)));
    let row = find(ROW.name).unwrap();
    let settings = Settings::default().with(row, BUFFER.name, buffer.into()).unwrap();
    let settings = settings.with(row, BUFFERS.name, buffers.into()).unwrap();
    Setup { overhead, rate, settings, ..Setup::new(FLOW, layout, RTT) }
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

type Out = out::Out<NetbltSender>;

impl Out {
    fn new(setup: &Setup) -> Out {
        Out::of(NetbltSender::new(setup))
    }

    fn begun(&mut self) -> Vec<Begun> {
        let begun = self.messages().filter_map(|outgoing| match outgoing.control {
            Control::Begun(begun) if outgoing.carrier == Carrier::Reliable => Some(begun),
            _ => None,
        });
        begun.collect()
    }

    fn go(&mut self, buffers: u64) {
        self.hear(&Control::Go(Go { buffers }));
    }

    fn ok(&mut self, buffer: u64, offer: Option<Burst>) {
        self.hear(&Control::BufferOk(BufferOk { buffer, offer }));
    }

    fn resend(&mut self, buffer: u64, round: u32, slice: Range<u32>, lost: &[Range<u32>], to: u64) {
        let report = Report::fill(0, round, slice, lost.iter().cloned());
        self.hear(&Control::Resend(Resend { buffer, highest: to, report }));
    }
}

#[test]
fn allowed_buffers_are_sent_and_requested_blocks_go_before_new_buffers() {
    let mut out = Out::new(&setup(40, 0, 10, 2));
    assert!(out.run().is_empty());
    assert_eq!(out.sender.next_wakeup(), Wake::OnInput);
    out.go(2);
    assert_eq!(out.run(), (0..20).collect::<Vec<_>>());
    let burst = Burst::of(Rate::from_mbps(80), 9, Bytes::new(1032));
    assert_eq!(out.begun(), [0, 1].map(|buffer| Begun { buffer, burst }));
    out.resend(0, 1, 0..10, &[2..4, 9..10], 20);
    out.go(3);
    assert_eq!(out.run(), [2, 3, 9, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29]);
    for buffer in 0..3 {
        out.ok(buffer, None);
    }
    out.go(4);
    assert_eq!(out.run(), (30..40).collect::<Vec<_>>());
    out.ok(3, None);
    assert!(out.sender.is_finished() && out.sender.next_wakeup() == Wake::OnInput);
    let accounting = out.sender.accounting();
    assert_eq!((accounting.retransmitted, accounting.reported_lost), (3, 3));
    assert_eq!((accounting.rounds, accounting.refused), (2, 0));
}

#[test]
fn blocks_that_may_be_in_flight_are_not_resent_before_a_timeout() {
    let mut out = Out::new(&setup(20, 0, 20, 1));
    out.go(1);
    out.sender.poll_transmit(out.now, PacketNumber(0), 2, &mut out.sent);
    out.now += Span::from_millis(1);
    assert_eq!(out.run().len(), 18);
    // When the receiver made this request, only the first two datagrams could have arrived.
    out.resend(0, 1, 0..20, &[0..20], 2);
    assert_eq!(out.run(), [0, 1]);
    // The two resent blocks may still be in flight, so this request is ignored.
    out.resend(0, 2, 0..20, &[1..20], 20);
    assert!(out.run().is_empty());
    out.resend(0, 3, 0..20, &[1..20], 22);
    assert_eq!(out.run(), (1..20).collect::<Vec<_>>());
    out.resend(0, 3, 0..20, &[1..20], 22);
    assert!(out.run().is_empty());
    // The last block was lost again. Nothing was sent after it, so only the time shows the loss.
    out.now += RTT * 3;
    out.resend(0, 4, 0..20, &[19..20], 30);
    assert_eq!(out.run(), [19]);
}

#[test]
fn an_empty_request_does_not_raise_the_count_of_rounds() {
    let mut out = Out::new(&setup(20, 0, 10, 2));
    out.go(2);
    out.run();
    out.resend(0, 1, 0..10, &[], 20);
    assert_eq!((out.run(), out.sender.accounting().rounds), (Vec::new(), 1));
    out.resend(0, 2, 0..10, &[2..3], 20);
    assert_eq!((out.run(), out.sender.accounting().rounds), (Vec::from([2]), 3));
}

#[test]
fn a_request_in_slices_is_answered_slice_by_slice() {
    let mut out = Out::new(&setup(20, 0, 20, 1));
    out.go(1);
    out.run();
    out.resend(0, 1, 10..20, &[11..12], 20);
    assert_eq!(out.run(), [11]);
    out.resend(0, 1, 0..10, &[3..4], 20);
    assert_eq!(out.run(), [3]);
}

#[test]
fn each_buffer_gets_the_lower_of_the_senders_rate_and_the_offer() {
    let mut out = Out::new(&setup(40, 0, 10, 4));
    out.go(1);
    out.run();
    assert_eq!(out.sender.rate(), Rate::from_mbps(80));
    let offer = |mbps| Burst::of(Rate::from_mbps(mbps), 25, Bytes::new(1032));
    let is = |out: &Out, mbps| {
        let rate = out.sender.rate();
        rate >= Rate::from_mbps(mbps).scale(0.99) && rate <= Rate::from_mbps(mbps).scale(1.01)
    };
    out.ok(0, offer(20));
    assert!(is(&out, 20));
    out.go(2);
    out.begun();
    out.run();
    let rate = out.begun()[0].burst.unwrap().rate(Bytes::new(1032));
    assert!(rate >= Rate::from_mbps(19) && rate <= Rate::from_mbps(21));
    // An older offer is ignored. If an offer is faster than the sender, the sender's rate applies.
    out.ok(2, offer(40));
    out.ok(1, offer(10));
    assert!(is(&out, 40));
    out.ok(3, offer(500));
    assert!(is(&out, 80));
}

#[test]
fn each_buffer_gets_the_smaller_of_the_senders_burst_and_the_offer() {
    let set = |burst: f64| {
        let setup = setup(400, 0, 100, 4);
        let row = find(ROW.name).unwrap();
        let settings = setup.settings.clone().with(row, BURST.name, burst).unwrap();
        Setup { settings, ..setup }
    };
    let offer = |size| Burst::of(Rate::from_mbps(500), size, Bytes::new(1032));
    let mut out = Out::new(&set(20.0));
    out.go(1);
    out.run();
    assert_eq!(out.begun()[0].burst.unwrap().size, 20);
    for (buffer, (offered, agreed)) in [(5, 5), (30, 20), (1, 1)].into_iter().enumerate() {
        let buffer = buffer as u64;
        out.ok(buffer, offer(offered));
        out.go(buffer + 2);
        out.now += Span::from_secs(1);
        let before = out.sent.len();
        let next = PacketNumber(before as u64);
        out.sender.poll_transmit(out.now, next, 100, &mut out.sent);
        assert_eq!(out.sent.len() - before, agreed, "{offered} offered");
        out.run();
        assert_eq!(out.begun()[0].burst.unwrap().size as usize, agreed);
    }
    // Without a setting, the receiver offers at least the largest default burst of a sender: 88
    // datagrams.
    let mut inn = In::new(&setup(40, 0, 10, 2));
    inn.said(ms(0));
    inn.receiver.set_grant(ms(0), FLOW, Bytes::MAX, Some(Rate::from_mbps(10)));
    inn.arrive(ms(1), 0..10);
    let size = |said: &[Control]| match said[0] {
        Control::BufferOk(BufferOk { offer: Some(burst), .. }) => burst.size,
        _ => panic!("{said:?}"),
    };
    assert!(size(&inn.said(ms(1))) >= 88);
}

#[test]
fn skipped_blocks_are_not_sent_and_can_complete_their_buffer() {
    let mut out = Out::new(&setup(40, 20, 10, 4));
    let skip = |segment, index, count| BlockRange { first: Block { segment, index }, count };
    out.sender.skip(Time::ZERO, FLOW, skip(0, 5, 10));
    out.go(4);
    out.sender.skip(Time::ZERO, FLOW, skip(1, 0, 20));
    assert_eq!(out.run(), [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]);
    out.resend(0, 1, 0..10, &[1..3], 10);
    out.sender.skip(out.now, FLOW, skip(0, 2, 3));
    assert_eq!(out.run(), [1]);
    out.sender.skip(out.now, FLOW, skip(0, 0, 2));
    out.ok(1, None);
    assert!(out.sender.is_finished());
    let events: Vec<Event> = core::iter::from_fn(|| out.sender.poll_event()).collect();
    let done = |segment| Event::SegmentDone { segment };
    assert_eq!(events, [done(1), done(0), Event::Finished]);
}

#[test]
fn a_sender_that_has_used_its_grant_waits_even_in_the_middle_of_a_buffer() {
    let mut out = Out::new(&Setup { grant: Bytes::new(4_500), ..setup(20, 0, 10, 2) });
    out.go(2);
    assert_eq!(out.run(), [0, 1, 2, 3]);
    assert!(out.sender.is_blocked_by_grant());
    // If the receiver's data timer expires meanwhile, only blocks that were sent and lost are
    // resent.
    out.resend(0, 1, 0..10, &[1..2, 4..10], 4);
    assert_eq!(out.run(), [1]);
    assert_eq!(out.sender.accounting().reported_lost, 1);
    let grant = Bytes::new(20_000);
    out.hear(&Control::Pulse(Pulse { sequence: 1, grant, ..Pulse::default() }));
    assert_eq!(out.run(), (4..20).collect::<Vec<_>>());
}

#[test]
fn impossible_messages_are_refused() {
    let mut out = Out::new(&setup(25, 0, 10, 2));
    out.go(4);
    out.go(3);
    out.run();
    out.ok(3, None);
    out.resend(2, 1, 20..30, &[20..21], 20);
    out.resend(1, 1, 0..10, &[2..3], 20);
    out.resend(0, 1, 0..10, &[2..3], 26);
    assert_eq!(out.sender.accounting().refused, 5);
    assert!(out.run().is_empty());
    let mut inn = In::new(&setup(25, 0, 10, 2));
    inn.begun(ms(0), 2, None);
    assert_eq!(inn.receiver.accounting(FLOW).unwrap().refused, 1);
}

struct In {
    receiver: NetbltReceiver,
    next: u64,
}

impl In {
    fn new(setup: &Setup) -> In {
        let mut receiver = NetbltReceiver::default();
        receiver.add_flow(Time::ZERO, setup);
        In { receiver, next: 0 }
    }

    fn arrive(&mut self, now: Time, blocks: impl IntoIterator<Item = u32>) {
        let arrivals: Vec<Arrival> = blocks
            .into_iter()
            .zip(self.next..)
            .map(|(index, number)| Arrival {
                number: PacketNumber(number),
                block: Block { segment: 0, index },
                at: now,
            })
            .collect();
        self.next += arrivals.len() as u64;
        self.receiver.on_datagrams(now, FLOW, &arrivals);
    }

    fn begun(&mut self, now: Time, buffer: u64, burst: Option<Burst>) {
        self.receiver.on_control(now, FLOW, &Control::Begun(Begun { buffer, burst }));
    }

    /// The receiver's messages at the time `now`, without pulses (the periodic reports).
    fn said(&mut self, now: Time) -> Vec<Control> {
        self.receiver.on_timeout(now);
        let said = core::iter::from_fn(|| self.receiver.poll_control(now));
        let said = said.filter(|outgoing| !matches!(outgoing.control, Control::Pulse(_)));
        let said = said.map(|outgoing| {
            assert_eq!(outgoing.carrier, Carrier::Reliable);
            outgoing.control
        });
        said.collect()
    }

    fn request(&mut self, now: Time) -> Option<(u64, u32, Vec<u32>)> {
        let said = self.said(now);
        let [Control::Resend(resend)] = &said[..] else {
            assert!(said.is_empty(), "{said:?}");
            return None;
        };
        let missing = resend.report.missing().iter().cloned().flatten();
        Some((resend.buffer, resend.report.round(), missing.collect()))
    }
}

fn ok(buffer: u64) -> Control {
    Control::BufferOk(BufferOk { buffer, offer: None })
}

fn go(buffers: u64) -> Control {
    Control::Go(Go { buffers })
}

#[test]
fn the_receiver_keeps_the_set_number_of_buffers_in_flight() {
    let mut inn = In::new(&setup(40, 0, 10, 2));
    assert_eq!(inn.said(ms(0)), [go(2)]);
    inn.arrive(ms(1), 0..9);
    inn.arrive(ms(2), 10..20);
    assert_eq!(inn.said(ms(2)), [ok(1), go(3)]);
    inn.arrive(ms(3), 9..10);
    assert_eq!(inn.said(ms(3)), [ok(0), go(4)]);
    inn.arrive(ms(4), 30..40);
    // All buffers are allowed, so only the OK is due.
    assert_eq!(inn.receiver.next_wakeup(), Wake::Now);
    assert_eq!(inn.said(ms(4)), [ok(3)]);
    inn.arrive(ms(4), 20..30);
    assert_eq!(inn.said(ms(4)), [ok(2)]);
    assert!(inn.receiver.is_finished(FLOW));
}

#[test]
fn missing_blocks_are_requested_one_grace_period_after_the_buffers_last_block_arrives() {
    let mut inn = In::new(&setup(40, 0, 10, 2));
    inn.said(ms(0));
    inn.arrive(ms(0), [0, 1, 3, 9]);
    // The grace (the wait for late blocks) is 25 ms.
    assert_eq!(inn.request(ms(24)), None);
    assert_eq!(inn.request(ms(25)), Some((0, 1, [2, 4, 5, 6, 7, 8].into())));
    // The last block of the next buffer is lost; arrivals of the following buffer show it.
    inn.arrive(ms(30), 10..19);
    inn.arrive(ms(40), 20..21);
    assert_eq!(inn.request(ms(65)), Some((1, 1, [19].into())));
    // All requested blocks except one arrive, including the last on the list.
    inn.arrive(ms(130), [2, 4, 5, 7, 8]);
    let first = |found: Option<(u64, u32, Vec<u32>)>| found.filter(|(buffer, ..)| *buffer == 0);
    assert_eq!(first(inn.request(ms(155))), Some((0, 2, [6].into())));
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (7, 8));
}

#[test]
fn a_buffer_completed_before_its_request_does_not_cancel_the_requests_of_other_buffers() {
    let mut inn = In::new(&setup(40, 0, 10, 2));
    inn.said(ms(0));
    inn.arrive(ms(0), [0, 9, 10, 19]);
    inn.receiver.on_timeout(ms(25));
    inn.arrive(ms(25), 1..9);
    let said = inn.said(ms(25));
    assert_eq!(said[..2], [ok(0), go(3)]);
    let Control::Resend(resend) = &said[2] else { panic!("{said:?}") };
    assert_eq!((resend.buffer, resend.report.missing(), said.len()), (1, &[11..19][..], 3));
    assert_eq!(inn.receiver.next_wakeup(), Wake::At(ms(175), Why::Report));
}

#[test]
fn a_silent_buffer_is_requested_by_its_timer_with_growing_waits() {
    let mut inn = In::new(&setup(10, 0, 10, 2));
    inn.said(ms(0));
    // Ten blocks in bursts of five, 100 ms apart: the timer allows 200 ms for both bursts.
    inn.begun(ms(0), 0, Some(Burst { size: 5, interval: Span::from_millis(100) }));
    let mut asked = Vec::new();
    for at in 0..4_000 {
        if let Some((buffer, round, missing)) = inn.request(ms(at)) {
            assert_eq!((buffer, round, missing.len()), (0, asked.len() as u32 + 1, 10));
            asked.push(at);
        }
    }
    // A silence is 150 ms long: a round trip and two graces (waits for late blocks). The silence
    // doubles with each request after the first. The timer waits for one silence, but at least for
    // the time of the two bursts plus 150 ms.
    assert_eq!(asked, [350, 700, 1050, 1650, 2850]);
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (0, 0));
}

#[test]
fn the_data_timer_does_not_expire_while_data_come() {
    let mut inn = In::new(&setup(100, 0, 100, 1));
    inn.said(ms(0));
    inn.begun(ms(0), 0, Burst::of(Rate::from_mbps(80), 2, Bytes::new(1032)));
    for block in 0..50 {
        let at = ms(u64::from(block) * 90);
        inn.arrive(at, block..block + 1);
        assert_eq!(inn.request(at), None);
    }
    assert!(inn.request(ms(49 * 90 + 150)).is_some());
}

#[test]
fn a_slow_host_offers_its_rate_with_each_buffer() {
    let mut inn = In::new(&setup(40, 0, 10, 2));
    inn.said(ms(0));
    let drain = Rate::from_mbps(10);
    inn.receiver.set_grant(ms(0), FLOW, Bytes::MAX, Some(drain));
    inn.arrive(ms(1), 0..10);
    let said = inn.said(ms(1));
    let Control::BufferOk(BufferOk { buffer: 0, offer: Some(offer) }) = said[0] else {
        panic!("{said:?}");
    };
    let rate = offer.rate(Bytes::new(1032));
    assert!(rate >= drain && rate <= drain.scale(1.2), "{rate}");
}

#[test]
fn buffers_from_another_source_make_room_immediately() {
    let mut inn = In::new(&setup(60, 30, 10, 2));
    assert_eq!(inn.said(ms(0)), [go(2)]);
    let skip = |segment, index, count| BlockRange { first: Block { segment, index }, count };
    inn.receiver.skip(ms(1), FLOW, skip(0, 5, 20));
    assert_eq!(inn.said(ms(1)), [go(3)]);
    inn.arrive(ms(2), 0..5);
    assert_eq!(inn.said(ms(2)), [ok(0), go(4)]);
    inn.receiver.skip(ms(3), FLOW, skip(1, 0, 30));
    assert_eq!(inn.said(ms(3)), [go(6)]);
    inn.arrive(ms(4), 25..27);
    inn.receiver.skip(ms(5), FLOW, skip(0, 0, 30));
    assert_eq!(inn.said(ms(5)), [ok(2)]);
    assert!(inn.receiver.is_finished(FLOW));
}

proptest! {
    #[test]
    fn buffers_tile_the_object_within_its_segments(
        blocks in 0u64..400, segment in 0u64..80, size in 0u32..90,
    ) {
        let setup = setup(blocks, segment, size, 4);
        let (layout, buffers) = (setup.layout, Buffers::new(&setup));
        let mut next = Vec::new();
        for buffer in 0..buffers.count() {
            let (segment, range) = buffers.place(buffer).unwrap();
            prop_assert!(size == 0 || range.len() <= size as usize);
            prop_assert_eq!(buffers.touching(segment, range.clone()), buffer..buffer + 1);
            for index in range {
                let block = Block { segment, index };
                prop_assert_eq!(buffers.of(block), buffer);
                next.push(layout.number(block));
            }
        }
        prop_assert_eq!(next, (0..blocks).collect::<Vec<_>>());
        prop_assert_eq!(buffers.place(buffers.count()), None);
        prop_assert_eq!(buffers.place(u64::MAX), None);
    }

    #[test]
    fn only_allowed_blocks_are_sent_and_only_requested_ones_resent(
        steps in prop::collection::vec((0u8..5, 0u64..8, any::<u64>(), 0u64..150), 1..50),
    ) {
        let setup = setup(80, 40, 10, 3);
        let (layout, buffers) = (setup.layout, Buffers::new(&setup));
        let mut out = Out::new(&setup);
        let (mut may, mut asked, mut there) = (0, BTreeSet::new(), BTreeSet::new());
        let mut went: BTreeSet<Block> = BTreeSet::new();
        let mut round = 0;
        for (kind, buffer, draw, later) in steps {
            let (segment, blocks) = buffers.place(buffer).unwrap();
            let all = blocks.clone().map(|index| Block { segment, index });
            match kind {
                0 => {
                    may = may.max(buffer + 1);
                    out.go(buffer + 1);
                }
                1 => {
                    there.extend(all);
                    out.ok(buffer, None);
                }
                2 | 3 => {
                    round += 1;
                    let lost = |index: &u32| draw >> (index % 64) & 1 == 1;
                    let list: Vec<Range<u32>> =
                        blocks.clone().filter(lost).map(|index| index..index + 1).collect();
                    asked.extend(list.iter().map(|run| Block { segment, index: run.start }));
                    let report = Report::fill(segment, round, blocks, list.into_iter());
                    let highest = draw % (out.sent.len() as u64 + 1);
                    out.hear(&Control::Resend(Resend { buffer, highest, report }));
                }
                _ => {
                    let first = Block { segment, index: (draw % 40) as u32 };
                    there.extend((first.index..40.min(first.index + 7)).map(|index| Block {
                        segment, index,
                    }));
                    out.sender.skip(out.now, FLOW, BlockRange { first, count: 7 });
                }
            }
            out.now += Span::from_millis(later);
            let before = out.sent.len();
            out.run();
            for block in out.sent[before..].iter().copied() {
                prop_assert!(buffers.of(block) < may, "{block:?} without GO");
                prop_assert!(!there.contains(&block), "{block:?} is there");
                prop_assert!(went.insert(block) || asked.remove(&block), "{block:?} again");
            }
            let first = (0..layout.blocks()).filter_map(|number| layout.block(number));
            let left: Vec<Block> = first
                .filter(|block| buffers.of(*block) < may)
                .filter(|block| !went.contains(block) && !there.contains(block))
                .collect();
            prop_assert!(left.is_empty(), "{left:?} may be sent and were not");
        }
    }
}
