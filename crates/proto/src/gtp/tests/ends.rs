//! GTP's sender and receiver, message by message.
#![allow(clippy::single_range_in_vec_init, reason = "the list has one run on purpose")]

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::star::{ms, settings};
use crate::endpoint::{
    Arrival, BlockRange, Carrier, Event, Origin, Others, Outgoing, PacketNumber, Receiver, Sender,
    Setup, Wake,
};
use crate::ends::out::{self, FLOW};
use crate::gtp::tuning::Tuning;
use crate::gtp::{GtpReceiver, GtpSender};
use crate::layout::{Block, Layout};
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Ack, Control, Pulse, Request, SenderOffer};

fn setup(blocks: u64, segment: u64, settings: Settings) -> Setup {
    let (object, segment) = (Bytes::new(blocks * 1000), Bytes::new(segment * 1000));
    let layout = Layout::new(object, segment, Bytes::new(1000), 1000).unwrap();
    let setup = Setup::new(FLOW, layout, Span::from_millis(100));
    Setup { overhead: Bytes::new(32), settings, ..setup }
}

fn request(sequence: u64, mbps: u64, blocks: &[Range<u64>]) -> Control {
    let blocks = &mut blocks.iter().cloned().peekable();
    Control::Request(Request::fill(sequence, Rate::from_mbps(mbps), false, blocks))
}

type Out = out::Out<GtpSender>;

impl Out {
    fn new(setup: &Setup) -> Out {
        Out::of(GtpSender::new(setup))
    }

    fn offers(&mut self) -> Vec<SenderOffer> {
        let offer = |outgoing: Outgoing| match outgoing.control {
            Control::SenderOffer(offer) => Some(offer),
            _ => None,
        };
        self.messages().filter_map(offer).collect()
    }
}

/// Settings with which a sender sends no early blocks (blocks before the first request).
fn late() -> Settings {
    settings(&[("early", 0.0)])
}

#[test]
fn a_sender_sends_only_requested_blocks_at_the_requested_rate() {
    let mut out = Out::new(&setup(100, 0, late()));
    assert!(out.run().is_empty());
    out.hear(&request(1, 100, &[3..6, 40..42]));
    assert_eq!(out.sender.rate(), Rate::from_mbps(100));
    assert_eq!(out.run(), [3, 4, 5, 40, 41]);
    let answer = out.offers().pop().unwrap();
    assert_eq!((answer.answered, answer.highest), (1, 5));
    // A request whose number was seen before is a copy, whatever its content.
    out.hear(&request(1, 50, &[3..6, 40..42]));
    assert!(out.run().is_empty());
    assert_eq!(out.sender.rate(), Rate::from_mbps(100));
    out.hear(&request(2, 10, &[]));
    assert_eq!(out.sender.rate(), Rate::from_mbps(10));
    assert!(out.run().is_empty() && out.offers().is_empty());
    out.hear(&request(3, 10, &[4..5, 42..44]));
    assert_eq!(out.run(), [4, 42, 43]);
    let accounting = *out.sender.accounting();
    assert_eq!((accounting.first, accounting.retransmitted, accounting.reported_lost), (7, 1, 1));
}

#[test]
fn requests_are_obeyed_in_the_order_of_their_numbers() {
    let mut out = Out::new(&setup(100, 0, late()));
    out.hear(&request(3, 30, &[20..22]));
    out.hear(&request(2, 20, &[10..12]));
    assert!(out.run().is_empty());
    out.hear(&request(1, 10, &[0..2]));
    assert_eq!(out.run(), [0, 1, 10, 11, 20, 21]);
    assert_eq!(out.sender.rate(), Rate::from_mbps(30));
}

#[test]
fn a_voiding_request_cancels_unsent_blocks() {
    let mut out = Out::new(&setup(100, 0, late()));
    out.hear(&request(1, 1, &[0..50]));
    out.sender.poll_transmit(out.now, PacketNumber(0), 1, &mut out.sent);
    out.hear(&request(2, 1, &[50..60]));
    // The third request has not arrived. The fourth request does not wait for the third, because it
    // voids all earlier requests.
    let blocks = &mut [1..4].into_iter().peekable();
    out.hear(&Control::Request(Request::fill(4, Rate::from_mbps(9), true, blocks)));
    out.hear(&request(3, 1, &[60..70]));
    out.hear(&request(5, 9, &[70..71]));
    assert_eq!(out.run(), [1, 2, 3, 70]);
}

#[test]
fn no_request_makes_a_sender_exceed_a_rate_that_the_user_set() {
    let slow = Rate::from_mbps(20);
    let fixed = Setup { rate: Some(slow), ..setup(100, 0, late()) };
    let limited = Setup { rate_limit: Some(slow), ..setup(100, 0, late()) };
    for setup in [fixed, limited] {
        let mut out = Out::new(&setup);
        assert_eq!(out.offers()[0].limit, Some(slow));
        out.hear(&request(1, 1000, &[0..1]));
        assert_eq!(out.sender.rate(), slow);
        out.hear(&request(2, 5, &[]));
        assert_eq!(out.sender.rate(), Rate::from_mbps(5));
    }
}

#[test]
fn a_sender_reports_its_cards_speed_or_the_users_lower_limit() {
    let reported = |card, rate, rate_limit| {
        let [card, rate, rate_limit] = [card, rate, rate_limit].map(|mbps: u64| {
            let known = mbps != u64::MAX;
            known.then(|| Rate::from_mbps(mbps))
        });
        let mut out = Out::new(&Setup { card, rate, rate_limit, ..setup(100, 0, late()) });
        out.offers()[0].limit.map(|limit| limit.as_bps() / 1_000_000)
    };
    let unknown = u64::MAX;
    assert_eq!(reported(957, unknown, unknown), Some(957));
    assert_eq!(reported(957, unknown, 300), Some(300));
    assert_eq!(reported(957, 2_000, unknown), Some(957));
    assert_eq!(reported(unknown, unknown, unknown), None);
    assert_eq!(reported(0, unknown, unknown), None);
    // Only the receiver needs the card's speed: the card itself limits the sender.
    let card = Some(Rate::from_mbps(10));
    let mut out = Out::new(&Setup { card, ..setup(100, 0, late()) });
    out.hear(&request(1, 1000, &[0..1]));
    assert_eq!(out.sender.rate(), Rate::from_mbps(1000));
}

#[test]
fn impossible_requests_and_acks_are_refused_and_skipped_blocks_are_not_sent() {
    let mut out = Out::new(&setup(10, 5, late()));
    out.hear(&request(1, 10, &[8..11]));
    out.hear(&Control::Ack(Ack { sequence: 1, next: 11, received: 11 }));
    assert_eq!(out.sender.accounting().refused, 2);
    let first = Block { segment: 0, index: 1 };
    out.sender.skip(out.now, FLOW, BlockRange { first, count: 3 });
    out.hear(&request(1, 10, &[0..10]));
    assert_eq!(out.run(), [0, 4, 0, 1, 2, 3, 4]);
    out.hear(&Control::Ack(Ack { sequence: 1, next: 5, received: 7 }));
    out.hear(&Control::Ack(Ack { sequence: 2, next: 10, received: 10 }));
    let events: Vec<Event> = core::iter::from_fn(|| out.sender.poll_event()).collect();
    let done = |segment| Event::SegmentDone { segment };
    assert_eq!(events, [done(0), done(1), Event::Finished]);
    assert!(out.sender.is_finished() && out.sender.next_wakeup() == Wake::OnInput);
}

#[test]
fn the_early_blocks_leave_together_within_the_grant() {
    let mut blocks = Vec::new();
    // The 64 early blocks leave together if the receiver has to find its capacity C_r. If C_r is
    // given, only the first 32 do.
    for (receive_rate, at_once) in [(0.0, 64), (900e6, 32)] {
        blocks.clear();
        let settings = settings(&[("receive-rate", receive_rate)]);
        let mut sender = GtpSender::new(&setup(100, 0, settings));
        sender.poll_transmit(Time::ZERO, PacketNumber(0), 100, &mut blocks);
        assert_eq!(blocks.len(), at_once);
    }
    let paper = settings(&[("gtp-variant", 1.0)]);
    let mut sender = GtpSender::new(&setup(100, 0, paper));
    blocks.clear();
    sender.poll_transmit(Time::ZERO, PacketNumber(0), 100, &mut blocks);
    assert_eq!(blocks.len(), 0);
    let granted = Setup { grant: Bytes::new(5_000), ..setup(100, 0, Settings::default()) };
    let mut out = Out::new(&granted);
    assert_eq!(out.run(), [0, 1, 2, 3, 4]);
    assert!(out.sender.is_blocked_by_grant());
    let answer = out.offers().pop().unwrap();
    assert_eq!((answer.answered, answer.highest), (0, 5));
    out.hear(&request(1, 100, &[2..3]));
    assert!(!out.sender.is_blocked_by_grant(), "a requested block is left to send");
    // With a rate fixed by the user, the early blocks do not leave together.
    let rate = Some(Rate::from_mbps(1));
    let mut sender = GtpSender::new(&Setup { rate, ..setup(100, 0, Settings::default()) });
    blocks.clear();
    sender.poll_transmit(Time::ZERO, PacketNumber(0), 44, &mut blocks);
    assert_eq!(blocks.len(), 1);
}

#[test]
fn a_changed_round_trip_time_is_reported() {
    let mut out = Out::new(&setup(100, 0, Settings::default()));
    out.sender.poll_transmit(out.now, PacketNumber(0), 20, &mut out.sent);
    out.offers();
    for (sequence, at) in [(1, 40), (2, 41)] {
        let echo = Some(crate::wire::Echo { number: PacketNumber(0), age: Span::ZERO });
        let pulse = Pulse { sequence, highest: 20, received: 20, echo, ..Pulse::default() };
        out.now = ms(at);
        out.hear(&Control::Pulse(pulse));
    }
    let rtts: Vec<Span> = out.offers().iter().map(|offer| offer.rtt).collect();
    assert_eq!(rtts, [Span::from_millis(40)]);
}

struct In {
    receiver: GtpReceiver,
    number: u64,
}

impl In {
    fn new(setup: &Setup) -> In {
        In::tuned(setup, Tuning::OURS)
    }

    fn tuned(setup: &Setup, tuning: Tuning) -> In {
        let mut receiver = GtpReceiver::default();
        receiver.tuning = tuning;
        receiver.add_flow(Time::ZERO, setup);
        In { receiver, number: 0 }
    }

    fn requests(&mut self, at: u64) -> Vec<Request> {
        self.receiver.on_timeout(ms(at));
        let mut requests = Vec::new();
        while let Some(outgoing) = self.receiver.poll_control(ms(at)) {
            if let Control::Request(request) = outgoing.control {
                assert_eq!(outgoing.carrier, Carrier::Reliable, "a lost request starves a sender");
                requests.push(request);
            }
        }
        requests
    }

    fn arrive(&mut self, at: u64, blocks: Range<u64>) {
        let arrivals: Vec<Arrival> = blocks
            .map(|block| {
                self.number += 1;
                let block = Block { segment: 0, index: block as u32 };
                Arrival { number: PacketNumber(self.number - 1), block, at: ms(at) }
            })
            .collect();
        self.receiver.on_datagrams(ms(at), FLOW, &arrivals);
    }
}

fn blocks(requests: &[Request]) -> Vec<Range<u64>> {
    requests.iter().flat_map(|request| request.blocks().to_vec()).collect()
}

#[test]
fn the_requested_blocks_last_for_two_round_trips_at_the_flows_rate() {
    let given = settings(&[("receive-rate", 82.56e6), ("early", 0.0)]);
    let mut side = In::new(&setup(100_000, 0, given));
    // One flow gets all of the capacity C_r: 82.56 Mbit/s, 10,000 blocks of 1,032 bytes a second.
    // Two round trips (0.2 s) are requested.
    let requests = side.requests(0);
    assert_eq!(requests[0].rate(), Rate::from_bps(82_560_000));
    assert_eq!(blocks(&requests), [0..2000]);
    assert_eq!(side.requests(10), []);
    side.arrive(110, 0..100);
    assert_eq!(blocks(&side.requests(150)), [2000..2100]);
}

#[test]
fn a_message_for_a_sender_is_refused_by_a_receiver() {
    let mut side = In::new(&setup(100, 0, Settings::default()));
    side.receiver.on_control(ms(0), FLOW, &request(1, 10, &[]));
    assert_eq!(side.receiver.accounting(FLOW).unwrap().refused, 1);
}

#[test]
fn the_cards_speed_is_the_capacity_if_a_train_without_one_step_reaches_75_percent_of_it() {
    // 64 datagrams of 1,032 bytes, one every 100 µs, arrive at 82.56 Mbit/s. Without one of the 63
    // steps (distinct arrival times after the first) the rate is 81.25 Mbit/s. The cards have 109
    // and 108 Mbit/s, and three quarters of these are 81.75 and 81 Mbit/s.
    let origin = |card| {
        let mut side = In::new(&setup(100, 0, Settings::default()));
        let others = Others { link: Some(Rate::from_mbps(card)), bytes: Bytes::ZERO, flows: 0 };
        side.receiver.set_others(ms(0), others);
        let arrival = |index: u32| Arrival {
            number: PacketNumber(index.into()),
            block: Block { segment: 0, index },
            at: ms(50) + Span::from_micros(100) * u64::from(index),
        };
        let arrivals: Vec<Arrival> = (0..64).map(arrival).collect();
        side.receiver.on_datagrams(ms(57), FLOW, &arrivals);
        side.receiver.receive_capacity().unwrap().origin
    };
    assert_eq!([109, 108].map(origin), [Origin::Found, Origin::Card]);
}

#[test]
fn a_sender_gets_a_fixed_number_of_requests_in_a_round_trip() {
    let asked = |turns| {
        let given = [("receive-rate", 82.56e6), ("early", 0.0)];
        let tuning = Tuning { turns, ..Tuning::OURS };
        let mut side = In::tuned(&setup(100_000, 0, settings(&given)), tuning);
        side.requests(0);
        // Ten blocks a millisecond, for five round trips.
        let each = (0..500).map(|at| {
            side.arrive(110 + at, at * 10..at * 10 + 10);
            side.requests(110 + at).len()
        });
        each.sum::<usize>()
    };
    // One request at the start, and `turns` requests in each of five round trips.
    assert_eq!([1, 2, 5].map(asked), [6, 11, 26]);
}

#[test]
fn the_grant_limits_the_requests() {
    let given = settings(&[("receive-rate", 82.56e6), ("early", 0.0)]);
    let mut side = In::new(&Setup { grant: Bytes::new(70_000), ..setup(1000, 0, given) });
    assert_eq!(blocks(&side.requests(0)), [0..70]);
    side.arrive(100, 0..70);
    assert_eq!(side.requests(150), []);
    side.receiver.set_grant(ms(160), FLOW, Bytes::new(80_000), None);
    assert_eq!(blocks(&side.requests(160)), [70..80]);
}

#[test]
fn a_flow_that_waits_for_its_grants_is_not_measured_at_the_rate_of_its_bursts() {
    // Each grant allows 60 blocks. They arrive within 6 ms, at C_r = 82.56 Mbit/s. The next grant
    // follows 100 ms after the previous one, so the mean rate is 5 Mbit/s.
    let given = settings(&[("receive-rate", 82.56e6), ("early", 0.0)]);
    let rtt = Span::from_millis(1);
    let mut side = In::new(&Setup { grant: Bytes::ZERO, rtt, ..setup(100_000, 0, given) });
    let (mut late, mut last) = (Vec::new(), 0);
    for turn in 1..40 {
        side.receiver.set_grant(ms(turn * 100), FLOW, Bytes::new(turn * 60_000), None);
        for at in turn * 100..turn * 100 + 100 {
            for request in side.requests(at) {
                last = request.sequence();
                if turn > 10 {
                    late.push(request.rate());
                }
            }
            if let after @ 1..=6 = at % 100 {
                let first = turn * 60 - 60 + (after - 1) * 10;
                side.arrive(at, first..first + 10);
            }
            if at % 100 == 7 {
                let offer = SenderOffer {
                    sequence: turn,
                    rtt,
                    limit: None,
                    answered: last,
                    highest: turn * 60,
                };
                side.receiver.on_control(ms(at), FLOW, &Control::SenderOffer(offer));
            }
        }
    }
    assert_eq!(side.receiver.accounting(FLOW).unwrap().distinct, 39 * 60);
    assert!(!late.is_empty() && late.iter().all(|rate| *rate < Rate::from_mbps(50)), "{late:?}");
}

#[test]
fn only_lost_blocks_are_requested_again() {
    let given = settings(&[("receive-rate", 82.56e6), ("early", 0.0)]);
    let mut side = In::new(&setup(100, 0, given));
    assert_eq!(blocks(&side.requests(0)), [0..100]);
    side.arrive(100, 0..10);
    side.number += 5;
    side.arrive(105, 15..100);
    // A block counts as lost only a quarter of a round trip after a later block has arrived.
    assert_eq!(blocks(&side.requests(120)), []);
    let again = (121..160).flat_map(|at| blocks(&side.requests(at))).collect::<Vec<_>>();
    assert_eq!(again, [10..15]);
    let accounting = *side.receiver.accounting(FLOW).unwrap();
    assert_eq!((accounting.blocks_lost, accounting.reported_lost), (5, 5));
    side.arrive(260, 10..15);
    assert!(side.receiver.is_finished(FLOW));
    let acks = core::iter::from_fn(|| side.receiver.poll_control(ms(260)));
    let acks = acks.filter(|outgoing| matches!(outgoing.control, Control::Ack(_)));
    assert_eq!(acks.count(), 1);
}

#[test]
fn a_lost_tail_is_requested_again_after_the_senders_answer() {
    let given = settings(&[("receive-rate", 82.56e6), ("early", 0.0)]);
    let mut side = In::new(&setup(100, 0, given));
    side.requests(0);
    side.arrive(100, 0..97);
    let rtt = Span::from_millis(100);
    let offer = SenderOffer { sequence: 1, rtt, limit: None, answered: 1, highest: 100 };
    side.receiver.on_control(ms(101), FLOW, &Control::SenderOffer(offer));
    let again = (102..200).map(|at| (at, blocks(&side.requests(at))));
    let again: Vec<_> = again.filter(|(_, blocks)| !blocks.is_empty()).collect();
    assert_eq!(again, [(150, vec![97..100])]);
}

#[test]
fn a_silent_sender_gets_few_requests_at_a_low_rate() {
    let given = settings(&[("receive-rate", 82.56e6), ("early", 0.0)]);
    let mut side = In::new(&setup(100_000, 0, given));
    side.requests(0);
    let mut asked = Vec::new();
    for at in 1..20_000 {
        asked.extend(side.requests(at).into_iter().map(|request| (at, request)));
    }
    assert!((4..10).contains(&asked.len()), "{} times", asked.len());
    assert!(asked.iter().all(|(_, request)| request.is_anew()));
    assert!(asked.iter().all(|(_, request)| request.rate() <= Rate::from_mbps(1)));
    let (_, last) = asked.last().unwrap();
    let first = last.blocks()[0].clone();
    assert_eq!(first.start, 0);
    side.arrive(20_100, first.start..first.start + 1);
    let requests = side.requests(20_100);
    assert_eq!(requests.last().unwrap().rate(), Rate::from_bps(82_560_000));
}

#[test]
fn a_voiding_request_cancels_earlier_requests_that_wait_and_no_later_ones() {
    let mut out = Out::new(&setup(100, 0, late()));
    out.hear(&request(3, 30, &[20..22]));
    out.hear(&request(5, 30, &[50..52]));
    let blocks = &mut [1..3].into_iter().peekable();
    out.hear(&Control::Request(Request::fill(4, Rate::from_mbps(9), true, blocks)));
    assert_eq!(out.run(), [1, 2, 50, 51]);
}

#[test]
fn a_requested_run_goes_on_in_the_next_segment() {
    let mut out = Out::new(&setup(10, 5, late()));
    out.hear(&request(1, 10, &[3..8]));
    assert_eq!(out.run(), [3, 4, 0, 1, 2]);
}

#[test]
fn while_4096_requests_wait_for_a_missing_request_any_other_request_is_refused() {
    let mut out = Out::new(&setup(100, 0, late()));
    (2..=4_097).for_each(|sequence| out.hear(&request(sequence, 10, &[])));
    assert_eq!(out.sender.accounting().refused, 0);
    out.hear(&request(4_098, 10, &[5..6]));
    assert_eq!(out.sender.accounting().refused, 1);
    out.hear(&request(1, 10, &[0..1]));
    assert_eq!((out.run(), out.sender.accounting().refused), (vec![0], 1));
    out.hear(&request(4_098, 10, &[5..6]));
    assert_eq!(out.run(), [5]);
}
