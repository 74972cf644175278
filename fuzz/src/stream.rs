//! Messages between the ends of a stream, and the headers of its datagrams.

use longhaul_proto::stream::{Delivery, Head, Meter, Receiver};
use longhaul_proto::time::{Span, Time};
use longhaul_stream::messages::{Ask, Asked, Tell, Told};
use longhaul_stream::terms;
use prost::Message as _;

use super::input::Input;

const SYMBOL: u16 = 100;
const MEMORY: usize = 1 << 16;

/// Checks that accepted values are within limits, and that frames are in order and within their
/// memory limit.
pub fn run(bytes: &[u8]) {
    let deadline = Span::from_millis(100);
    let mut receiver = Receiver::new(SYMBOL, deadline, Span::from_millis(10), MEMORY);
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
            _ => {}
        }
        now += Span::from_micros(u64::from(input.byte()) * 100);
        meter.on_datagram(now, input.any() & 0xff_ffff_ffff);
        if let Ok(head) = Head::decode(input.any() & 0xffff_ffff_ffff, message, SYMBOL) {
            assert!(head.symbol_len(SYMBOL).is_ok_and(|len| (1..=SYMBOL.into()).contains(&len)));
            meter.on_frame(i64::from(head.at));
            receiver.on_symbol(now, &head);
        }
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

fn client(asked: Asked) {
    match asked {
        Asked::Send(send) => {
            let _ = (terms::name(&send.name), terms::suite(&send.cipher));
            let (rate, deadline) = (send.per_second_milli, send.deadline_micros);
            if let Ok(terms) = terms::terms(send.symbol, send.frame, rate, deadline) {
                let interval = terms.interval();
                assert!(interval >= Span::from_micros(100) && interval <= Span::from_secs(1_000));
            }
        }
        Asked::Receive(receive) => drop(terms::name(&receive.name)),
        Asked::Report(report) => {
            let seen = terms::seen(&report);
            assert!(seen.losses.ratio().get() <= 0.1 && seen.jitter <= Span::from_secs(60));
        }
        Asked::End(_) => {}
    }
}
