//! The receiving end, and both ends together.

use alloc::vec::Vec;
use core::ops::Range;

use super::{FLOW, RTT, listed, ms, settings, setup};
use crate::endpoint::{Arrival, BlockRange, Carrier, PacketNumber, Receiver, Sender, Setup, Wake};
use crate::fobs::{FobsReceiver, FobsSender};
use crate::layout::Block;
use crate::time::{Span, Time};
use crate::units::Rate;
use crate::wire::{Ack, Closing, Control, Selective};

struct In {
    receiver: FobsReceiver,
    next: u64,
}

impl In {
    fn new(setup: &Setup) -> In {
        let mut receiver = FobsReceiver::default();
        receiver.add_flow(Time::ZERO, setup);
        In { receiver, next: 0 }
    }

    fn arrive(&mut self, now: Time, blocks: Range<u32>) {
        let first = self.next;
        self.next += u64::from(blocks.end - blocks.start);
        let arrivals: Vec<Arrival> = blocks
            .zip(first..)
            .map(|(index, number)| Arrival {
                number: PacketNumber(number),
                block: Block { segment: 0, index },
                at: now,
            })
            .collect();
        self.receiver.on_datagrams(now, FLOW, &arrivals);
    }

    fn acks(&mut self, now: Time) -> Vec<Selective> {
        let mut all = Vec::new();
        while let Some(outgoing) = self.receiver.poll_control(now) {
            if let Control::Selective(ack) = outgoing.control {
                assert_eq!(outgoing.carrier, Carrier::Datagram);
                all.push(ack);
            }
        }
        all
    }
}

#[test]
fn an_acknowledgement_follows_a_fixed_number_of_new_blocks() {
    let mut inn = In::new(&Setup { settings: settings(4, 2), ..setup(20, 0) });
    inn.arrive(ms(0), 0..3);
    assert!(inn.acks(ms(0)).is_empty());
    inn.arrive(ms(1), 5..7);
    let acks = inn.acks(ms(1));
    assert_eq!((acks.len(), acks[0].report.slice()), (1, 0..7));
    assert_eq!(listed(acks[0].report.missing()), [3, 4]);
    assert_eq!(acks[0].closing, Some(Closing { highest: 5, fresh: 5 }));
    inn.arrive(ms(2), 7..10);
    assert!(inn.acks(ms(2)).is_empty());
    inn.arrive(ms(3), 0..3);
    assert!(inn.acks(ms(3)).is_empty());
    inn.arrive(ms(4), 3..4);
    assert_eq!(inn.acks(ms(4))[0].closing, Some(Closing { highest: 12, fresh: 4 }));
    let accounting = inn.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (2, 3));
}

#[test]
fn an_acknowledgement_follows_after_a_delay_if_too_few_blocks_arrive_to_trigger_it() {
    let mut inn = In::new(&Setup { settings: settings(100, 2), ..setup(20, 0) });
    inn.arrive(ms(0), 0..3);
    assert!(inn.acks(ms(0)).is_empty());
    let Wake::At(due, _) = inn.receiver.next_wakeup() else { panic!("it waits for ever") };
    assert!(inn.acks(ms(24)).is_empty() && due <= ms(25));
    inn.receiver.on_timeout(ms(25));
    assert_eq!(inn.acks(ms(25))[0].closing, Some(Closing { highest: 3, fresh: 3 }));
    assert!(inn.acks(ms(90)).is_empty());
    // A block that arrives again is reported too: its acknowledgement was lost or is late.
    inn.arrive(ms(100), 0..1);
    let acks = inn.acks(ms(125));
    assert_eq!(acks[0].closing, Some(Closing { highest: 4, fresh: 0 }));
    assert_eq!((acks[0].report.slice(), acks[0].report.count()), (0..3, 0));
}

#[test]
fn completion_is_signalled_once_on_the_reliable_stream() {
    let mut inn = In::new(&setup(8, 0));
    inn.arrive(ms(0), 0..7);
    inn.acks(ms(0));
    let last = Block { segment: 0, index: 7 };
    inn.receiver.skip(ms(1), FLOW, BlockRange { first: last, count: 1 });
    assert!(inn.receiver.is_finished(FLOW));
    let said = inn.receiver.poll_control(ms(1)).unwrap();
    assert_eq!(said.carrier, Carrier::Reliable);
    let Control::Ack(Ack { next, received, .. }) = said.control else { panic!("{said:?}") };
    assert_eq!((next, received), (8, 8));
    inn.arrive(ms(2), 0..8);
    assert!(inn.acks(ms(500)).is_empty());
}

#[test]
fn a_repeated_block_of_a_complete_segment_gets_a_report_with_nothing_missing() {
    let mut inn = In::new(&setup(16, 8));
    inn.arrive(ms(0), 0..8);
    let whole = |ack: &Selective| ack.report.slice() == (0..8) && ack.report.count() == 0;
    assert!(inn.acks(ms(0)).iter().all(whole));
    inn.arrive(ms(100), 3..4);
    let acks = inn.acks(ms(200));
    assert!(acks.len() == 1 && whole(&acks[0]));
}

#[test]
fn reports_of_unchanged_cells_are_repeated_in_turn() {
    // Ten cells (the units of reports) of 8,192 blocks. In each of the first eight cells, every
    // other block is lost.
    let mut inn = In::new(&Setup { settings: settings(1_000_000, 2), ..setup(81_920, 0) });
    for index in (0..65_536).step_by(2) {
        inn.arrive(ms(0), index..index + 1);
    }
    let mut now = ms(60);
    assert_eq!(inn.acks(now).len(), 8);
    // From now on only the ninth cell changes. At first the eight cells with losses still count as
    // changed.
    let mut again = alloc::collections::BTreeSet::new();
    for index in 70_000..70_040 {
        inn.arrive(now, index..index + 1);
        now += RTT;
        let cells = inn.acks(now).into_iter().map(|ack| ack.report.slice().start / 8192);
        if index > 70_003 {
            again.extend(cells);
        }
    }
    assert_eq!(again, (0..9).collect());
}

#[test]
fn two_million_blocks_arrive_despite_lost_acks() {
    const BLOCKS: u64 = 2_000_000;
    let rate = Some(Rate::from_mbps(100_000));
    let setup = Setup { rate, settings: settings(1_000, 0), ..setup(BLOCKS, 0) };
    let (mut sender, mut inn) = (FobsSender::greedy(&setup), In::new(&setup));
    let (mut now, mut next, mut blocks, mut chance) = (Time::ZERO, 0u64, Vec::new(), 1u64);
    let mut lost = |of: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (chance >> 33).is_multiple_of(of)
    };
    let mut messages = 0u64;
    while !sender.is_finished() {
        sender.poll_transmit(now, PacketNumber(next), 44, &mut blocks);
        let numbered = blocks.drain(..).zip(next..);
        let mut came: Vec<Arrival> = numbered
            .map(|(block, number)| Arrival { number: PacketNumber(number), block, at: now })
            .collect();
        let sent = came.len();
        next += sent as u64;
        came.retain(|_| !lost(100));
        inn.receiver.on_datagrams(now, FLOW, &came);
        while let Some(outgoing) = inn.receiver.poll_control(now) {
            messages += u64::from(matches!(outgoing.control, Control::Selective(_)));
            if outgoing.carrier == Carrier::Reliable || !lost(4) {
                sender.on_control(now, FLOW, &outgoing.control);
            }
        }
        if sent == 0
            && let Wake::At(at, _) = sender.next_wakeup().earlier(inn.receiver.next_wakeup())
        {
            now = now.max(at);
            sender.on_timeout(now);
            inn.receiver.on_timeout(now);
        }
        assert!(now < Time::ZERO + Span::from_secs(10));
    }
    let (sent, came) = (*sender.accounting(), *inn.receiver.accounting(FLOW).unwrap());
    assert_eq!((sent.first, came.distinct), (BLOCKS, BLOCKS));
    // A hundredth of the blocks was lost.
    assert!(sent.retransmitted < BLOCKS / 70, "{sent:?}");
    assert!(messages < BLOCKS / 1_000 * 2, "{messages} messages");
}
