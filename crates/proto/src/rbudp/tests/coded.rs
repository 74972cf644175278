//! RBUDP's coded symbols (redundant data from an erasure code) in the last rounds: how many are
//! sent, and when they replace blocks. A *repair* is a block that is sent again.

use alloc::vec::Vec;

use super::{FLOW, In, Out, ms, setup, tail_copies};
use crate::accounting::ReceiverAccounting;
use crate::coded::Symbol;
use crate::endpoint::{BlockRange, Event, PacketNumber, Receiver, Sender, Setup};
use crate::layout::{Block, Layout};
use crate::remembered::Remembered;
use crate::units::{Bytes, LossRatio, Rate};
use crate::wire::{Control, Done, Pulse, Report};

/// An object of `blocks` blocks of 1,000 bytes, with `segment` blocks in a segment (0: all blocks)
/// and `chunk` blocks in a chunk.
fn coded(blocks: u64, segment: u64, chunk: u64) -> Setup {
    let size = |blocks: u64| Bytes::new(blocks * 1_000);
    let layout = Layout::new(size(blocks), size(segment), size(chunk), 1_000).unwrap();
    Setup { layout, settings: tail_copies(2), ..setup(blocks, segment) }
}

fn sender(setup: &Setup) -> Out {
    let mut out = Out::new(setup);
    out.sender.allow_coded();
    out
}

/// Reports to the sender that a twentieth of its `sent` datagrams was lost, and lets it send
/// everything.
fn hear_of_loss(out: &mut Out, sent: u64) {
    let (highest, received, grant) = (sent, sent * 19 / 20, Bytes::MAX);
    let pulse = Pulse { sequence: 1, highest, received, grant, ..Pulse::default() };
    out.hear_later(&Control::Pulse(pulse));
}

/// A sender that has sent everything and then learns of the loss.
fn sent(setup: &Setup) -> Out {
    let (mut out, blocks) = (sender(setup), setup.layout.blocks());
    assert_eq!(out.run().len() as u64, blocks, "the loss is unknown: no symbols");
    hear_of_loss(&mut out, blocks);
    out
}

fn symbol(chunk: u64, number: u8) -> Symbol {
    Symbol { chunk, number }
}

#[test]
fn repairs_are_followed_by_symbols_of_their_chunks() {
    let setup = coded(800, 0, 8);
    let index = |chunk, number| symbol(chunk, number).block(&setup.layout).unwrap().index;
    let mut out = sent(&setup);
    out.dones();
    // At a loss ratio of 0.05, two symbols for two repairs fail once in 2,000 times: when three or
    // four of the four datagrams are lost. One symbol for one repair fails once in 400 times.
    out.report(1, 800, &[3..5, 799..800]);
    assert_eq!(out.run(), [3, 4, 799, index(0, 0), index(0, 1), index(99, 0)]);
    let highest = PacketNumber(805);
    assert_eq!(out.dones(), [Done { segment: 0, round: 2, sent_to: 800, highest }]);
    let counts = *out.sender.accounting();
    assert_eq!((counts.coded, counts.retransmitted, counts.rounds), (3, 6, 2));
    out.report(2, 800, &[3..4, 799..800]);
    assert_eq!(out.run(), [3, 799, index(0, 2), index(99, 1)]);
    out.report(3, 800, &[]);
    assert!(out.sender.is_finished());
}

#[test]
fn repairs_and_symbols_exceed_the_expected_losses_by_at_most_0_75_percent() {
    // A loss ratio of 0.05 requires 0.05 / 0.95 = 5.26 % repairs. 5.26 % + 0.75 % of 800 blocks are
    // 48.1, rounded up to 49. After 38 repairs 11 are left: two for each of the five chunks.
    let setup = coded(800, 0, 8);
    let mut out = sent(&setup);
    out.report(1, 800, &[0..38]);
    let symbols = out.run().split_off(38);
    let index = |chunk, number| symbol(chunk, number).block(&setup.layout).unwrap().index;
    assert_eq!(symbols, (0..5).flat_map(|c| [index(c, 0), index(c, 1)]).collect::<Vec<_>>());
    // One of the 49 datagrams is left. The six repairs use it up, so no symbols follow.
    out.report(2, 800, &[0..1, 8..9, 16..17, 24..25, 32..33, 40..41]);
    assert_eq!(out.run().len(), 6);
}

/// A sender of ten segments of 400 blocks that learns of the loss after 600 blocks and then sends
/// on.
fn sent_on() -> Out {
    let setup = Setup { grant: Bytes::new(600_000), ..coded(4_000, 400, 200) };
    let mut out = sender(&setup);
    out.run();
    hear_of_loss(&mut out, 600);
    out.run();
    out
}

#[test]
fn a_segment_takes_half_of_the_datagrams_that_segments_without_symbols_leave() {
    let out = sent_on();
    let symbols_of = |segment| {
        let symbol = |block: &&Block| block.segment == segment && block.index >= 400;
        out.sent.iter().filter(symbol).count()
    };
    // Segment 6 is the first with symbols. 5.26 % of its blocks are 21.05. Of the 0.75 % of all
    // 2,800 blocks sent so far (21) it takes half: together 31.55, rounded up to 32. That is 11
    // more than it is expected to lose. Segment 7 takes half of the 13 that are left: 27.55,
    // rounded up to 28.
    assert_eq!([5, 6, 7].map(symbols_of), [0, 32, 28]);
}

#[test]
fn first_sends_at_a_known_loss_ratio_get_symbols_before_the_message_done() {
    // Without a further grant (of bytes that may be sent for the first time) the sender stops in
    // the second segment.
    let setup = Setup { grant: Bytes::new(600_000), ..coded(800, 400, 200) };
    let mut out = sender(&setup);
    assert_eq!(out.run().len(), 600);
    out.dones();
    hear_of_loss(&mut out, 600);
    let sent = out.run();
    // Repairs and symbols may take 5.26 % of 400 blocks and 0.75 % of 800, rounded up: 28
    // datagrams. The two chunks need more, so each gets 14.
    let index = |chunk, number| symbol(chunk, number).block(&setup.layout).unwrap().index;
    let symbols = [2, 3].into_iter().flat_map(|c| (0..14).map(move |n| index(c, n)));
    assert_eq!(sent, (200..400).chain(symbols).collect::<Vec<_>>());
    let highest = PacketNumber(827);
    assert_eq!(out.dones(), [Done { segment: 1, round: 2, sent_to: 400, highest }]);
    assert_eq!((out.sender.accounting().rounds, out.sender.accounting().coded), (1, 28));
}

#[test]
fn first_sends_have_symbols_for_a_remembered_loss_until_reports_refute_it() {
    let path = |loss| {
        let setup = coded(400, 0, 200);
        let loss = LossRatio::new(loss).unwrap();
        let path = Remembered { rate: Rate::from_mbps(100), rtt: setup.rtt, loss };
        Setup { remembered: Some(path), ..setup }
    };
    let symbols = |setup: &Setup| sender(setup).run().len() - 400;
    assert_eq!(symbols(&path(0.05)), 24);
    assert_eq!([0.0, 0.5, 1.0].map(|loss| symbols(&path(loss))), [0, 0, 0]);
    let another = Setup { rtt: path(0.05).rtt / 3, ..path(0.05) };
    assert_eq!(symbols(&another), 0, "the path has changed");
    // None of 300 datagrams is lost; at the remembered loss ratio 15 would be lost, with a standard
    // deviation of 3.8.
    let mut out = sender(&Setup { grant: Bytes::new(300_000), ..path(0.05) });
    out.run();
    let (highest, grant) = (300, Bytes::MAX);
    let pulse = Pulse { sequence: 1, highest, received: 300, grant, ..Pulse::default() };
    out.hear_later(&Control::Pulse(pulse));
    assert_eq!(out.run(), (300..400).collect::<Vec<_>>());
}

#[test]
fn segments_whose_repairs_arrive_before_the_last_block_have_no_symbols() {
    let out = sent_on();
    // A repair arrives 125 ms after its round's end: a round trip and 25 ms of waiting for late
    // data. At 100 Mbit/s and 1,032 bytes a datagram the sender sends 1,514 blocks in that time,
    // so only the last four segments have symbols.
    let coded = out.sent.iter().filter(|block| block.index >= 400).map(|block| block.segment);
    assert_eq!(coded.min(), Some(6));
}

#[test]
fn no_symbols_are_sent_with_the_papers_settings_or_if_symbols_cannot_be_used() {
    let mut old = Out::new(&coded(800, 0, 8));
    old.run();
    hear_of_loss(&mut old, 800);
    old.report(1, 800, &[3..4]);
    assert_eq!(old.run(), [3, 3]);
    let mut paper = sent(&Setup { settings: tail_copies(1), ..coded(800, 0, 8) });
    paper.report(1, 800, &[3..4]);
    assert_eq!(paper.run(), [3]);
    let mut single = sent(&coded(800, 0, 1));
    single.report(1, 800, &[3..4]);
    assert_eq!(single.run(), [3, 3]);
    for out in [old, paper, single] {
        assert_eq!(out.sender.accounting().coded, 0);
    }
}

struct Far {
    inn: In,
    next: u64,
}

impl Far {
    fn take(&mut self, indices: &[u32]) -> Vec<Event> {
        let numbered: Vec<(u64, u32)> = (self.next..).zip(indices.iter().copied()).collect();
        self.next += numbered.len() as u64;
        self.inn.arrive(ms(1), &numbered);
        let events = core::iter::from_fn(|| self.inn.receiver.poll_event());
        events.map(|(_, event)| event).collect()
    }

    fn counts(&self) -> ReceiverAccounting {
        *self.inn.receiver.accounting(FLOW).unwrap()
    }
}

#[test]
fn a_chunk_is_complete_with_as_many_symbols_as_it_has_missing_blocks() {
    let setup = coded(20, 0, 8);
    let mut far = Far { inn: In::new(&setup), next: 0 };
    let coded = |chunk, number| symbol(chunk, number).block(&setup.layout).unwrap().index;
    // Blocks 2 and 5 and the whole last chunk are missing.
    assert!(far.take(&[0, 1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]).is_empty());
    assert!(far.take(&[coded(0, 9), coded(0, 9)]).is_empty());
    assert_eq!(far.take(&[coded(0, 0)]), [Event::Restored { chunk: 0 }]);
    let counts = far.counts();
    assert_eq!((counts.received, counts.distinct, counts.duplicates), (17, 16, 1));
    assert_eq!(counts.recovered, 2);
    // The last chunk has four blocks. One symbol and three blocks complete it.
    assert!(far.take(&[coded(2, 127), 16, 18]).is_empty());
    let done = [Event::Restored { chunk: 2 }, Event::SegmentDone { segment: 0 }, Event::Finished];
    assert_eq!(far.take(&[17]), done);
    assert!(far.take(&[coded(2, 1), 19]).is_empty());
    assert_eq!((far.counts().recovered, far.counts().refused), (3, 0));
    far.take(&[u32::MAX]);
    assert_eq!(far.counts().refused, 1);
}

#[test]
fn reports_do_not_name_blocks_that_symbols_replace() {
    let setup = coded(20, 0, 8);
    let mut far = Far { inn: In::new(&setup), next: 0 };
    let coded = |chunk, number| symbol(chunk, number).block(&setup.layout).unwrap().index;
    // Blocks 1, 3, 4 and 6 of the first chunk are missing, and blocks 17 and 19 of the last chunk.
    far.take(&[0, 2, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, coded(0, 1), coded(0, 2)]);
    far.inn.done(ms(1), 1, 20, 15);
    assert_eq!(
        far.inn.reports(ms(2)),
        [Report::fill(0, 1, 0..20, [1..2, 3..4, 17..18, 19..20].into_iter())]
    );
    while far.inn.receiver.poll_event().is_some() {}
    assert_eq!(far.take(&[6, 3]), [Event::Restored { chunk: 0 }]);
    assert_eq!(far.counts().recovered, 2);
}

#[test]
fn skipped_blocks_let_symbols_complete_a_chunk() {
    let setup = coded(8, 0, 8);
    let mut far = Far { inn: In::new(&setup), next: 0 };
    let coded = symbol(0, 0).block(&setup.layout).unwrap().index;
    assert!(far.take(&[0, 1, 2, 3, 4, 5, coded]).is_empty());
    let blocks = BlockRange { first: Block { segment: 0, index: 6 }, count: 1 };
    far.inn.receiver.skip(ms(1), FLOW, blocks);
    let done = [Event::Restored { chunk: 0 }, Event::SegmentDone { segment: 0 }, Event::Finished];
    assert_eq!(far.take(&[]), done);
}
