//! Messages between the ends of a stream, and the headers of its datagrams.

use longhaul_proto::fec::Losses;
use longhaul_proto::stream::{
    Delivery, Head, MAX_RANGES, Meter, Overflow, Receiver, Request, Sender, Settings,
};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_stream::messages::{Again, Ask, Asked, Tell, Told};
use longhaul_stream::terms;
use prost::Message as _;

use super::input::Input;

const SYMBOL: u16 = 100;
const MEMORY: usize = 1 << 16;

/// Checks that accepted values are within limits, and that frames are in order.
pub fn run(bytes: &[u8]) {
    let deadline = Span::from_millis(100);
    let mut receiver = Receiver::new(SYMBOL, deadline, Span::from_millis(10), MEMORY);
    let mut sender = sender(deadline);
    let mut meter = Meter::new(Span::from_millis(50));
    let (mut input, mut now, mut next) = (Input::new(bytes), Time::ZERO, 0);
    while !input.is_empty() {
        let message = input.slice();
        if let Ok(Ask { asked: Some(asked) }) = Ask::decode(message) {
            client(asked);
        }
        match Tell::decode(message).map(|tell| tell.told) {
            Ok(Some(Told::Way(way))) => {
                let course = terms::course(&way);
                assert!(course.losses.ratio().get() <= 0.1 && course.losses.burst() <= 64.0);
            }
            Ok(Some(Told::State(state))) => drop(terms::phase(&state)),
            Ok(Some(Told::Again(again))) => request(&again, &mut sender, now),
            _ => {}
        }
        now += Span::from_micros(u64::from(input.byte()) * 100);
        meter.on_datagram(now, input.any() & 0xff_ffff_ffff);
        if let Ok(head) = Head::decode(input.any() & 0xffff_ffff_ffff, message, SYMBOL) {
            assert!(head.symbol_len(SYMBOL).is_ok_and(|len| (1..=SYMBOL.into()).contains(&len)));
            meter.on_frame(i64::from(head.at));
            receiver.on_symbol(now, &head);
        }
        while let Some(Request { ranges, .. }) = receiver.poll_request(now) {
            assert!((1..=MAX_RANGES).contains(&ranges.len()));
            assert!(ranges.is_sorted_by(|one, next| one.1 < next.0));
        }
        assert!(receiver.next_request(now).is_none_or(|at| at > now));
        while let Some(delivery) = receiver.poll(now) {
            let (first, last) = match delivery {
                Delivery::Frame { frame, .. } => (frame, frame),
                Delivery::Missed { first, last } => (first, last),
            };
            assert!(first == next && last >= first);
            next = receiver.next();
        }
        assert!(
            receiver.used() <= MEMORY && (0.0005..=0.1).contains(&meter.losses().ratio().get())
        );
    }
}

/// Returns a sender that has sent, and keeps, 8 frames of 10 symbols.
fn sender(deadline: Span) -> Sender {
    let mut sender = Sender::new(Settings {
        symbol: SYMBOL,
        overhead: 42,
        deadline,
        path: Span::from_millis(10),
        losses: Losses::independent(LossRatio::NONE),
        epsilon: 1e-4,
        rate: Rate::from_mbps(1_000),
        overflow: Overflow::Block,
        waiting: 8,
        keeps: true,
    });
    for frame in 0..8 {
        let _ = sender.offer(Time::ZERO, 10 * u32::from(SYMBOL));
        while sender.sends(frame) {
            sender.poll_transmit(sender.next_wakeup().unwrap_or_default());
        }
    }
    sender
}

/// Checks that the sender sends again only symbols that it has, and in total at most four shares of
/// each of the 8 frames. A share is the number of symbols of a frame that one receiver may request.
fn request(again: &Again, sender: &mut Sender, now: Time) {
    let Ok(request) = terms::request(again) else { return };
    sender.again(now, &request, again.receiver);
    while let Some((head, _)) = sender.poll_transmit(now) {
        assert!(head.index < 10 && head.frame < 8);
    }
    assert!(sender.resent() <= 8 * 4 * (10 / 4 + 16));
}

fn client(asked: Asked) {
    match asked {
        Asked::Send(send) => {
            let _ = (terms::name(&send.name), terms::suite(&send.cipher));
            let (rate, deadline) = (send.per_second_milli, send.deadline_micros);
            if let Ok(terms) = terms::terms(send.symbol, send.frame, rate, deadline, send.group) {
                let interval = terms.interval();
                assert!(interval >= Span::from_micros(100) && interval <= Span::from_secs(1_000));
            }
        }
        Asked::Receive(receive) => drop(terms::name(&receive.name)),
        Asked::Report(report) => {
            let seen = terms::seen(&report);
            assert!(seen.losses.ratio().get() <= 0.1 && seen.jitter <= Span::from_secs(60));
        }
        Asked::Again(again) => drop(terms::request(&again)),
        Asked::End(_) => {}
    }
}
