//! The control messages, valid by construction.
//!
//! All messages are idempotent: any may arrive twice, late, early, out of order, or for a segment
//! that is finished or has not begun. This module checks everything that does not depend on the
//! object's layout; the host that gets the message checks the rest, such as whether a segment
//! exists.
//!
//! A segment is a part of the object. The first round of a segment sends all blocks that the
//! receiver needs, and each later round sends the missing blocks. A slice is the range of blocks
//! that a report covers. A run is a range of consecutive blocks. A buffer is a part of the object
//! that NETBLT sends and confirms as a whole.
//!
//! A message with lists or many numbers has its own file: [`report`], [`pulse`], [`progress`],
//! [`error_rate`], [`selective`], [`buffers`], [`request`].

use alloc::vec::Vec;

use prost::Message;

use super::messages;
use crate::wire::header::{Header, PacketNumber};

pub mod buffers;
pub mod error_rate;
pub mod progress;
pub mod pulse;
pub mod report;
pub mod request;
mod runs;
pub mod selective;

pub use buffers::{Begun, BufferOk, Burst, Go, Resend};
pub use error_rate::ErrorRate;
pub use progress::{Ack, Loss};
pub use pulse::{Echo, Pulse, Train};
pub use report::Report;
pub use request::{Request, SenderOffer};
pub use selective::{Closing, Selective};

/// Maximum length of a message in bytes. Longer messages are refused without parsing.
const MAX_DECODED: usize = 64 * 1024;

/// A protocol's control message.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Sender to receiver: a round has been sent.
    Done(Done),
    /// Receiver to sender: missing blocks after a round.
    Report(Report),
    /// Receiver to sender: the state of the flow.
    Pulse(Pulse),
    /// Receiver to sender: the progress so far.
    Ack(Ack),
    /// Receiver to sender: blocks that the receiver lacks.
    Loss(Loss),
    /// Receiver to sender: blocks to send, and the rate.
    Request(Request),
    /// Sender to receiver: the sender's limits and progress.
    SenderOffer(SenderOffer),
    /// Receiver to sender: arrived blocks.
    Selective(Selective),
    /// Receiver to sender: adjust the rate.
    Sync(Sync),
    /// Receiver to sender: the smoothed error rate.
    ErrorRate(ErrorRate),
    /// Receiver to sender: buffers may be sent.
    Go(Go),
    /// Receiver to sender: a buffer is complete.
    BufferOk(BufferOk),
    /// Receiver to sender: missing blocks of a buffer.
    Resend(Resend),
    /// Sender to receiver: a buffer begins.
    Begun(Begun),
}

/// Says that a synchronization interval has ended at the receiver; the sender adjusts its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Number of the interval.
    pub sequence: u64,
}

/// Says that a round of a segment has been sent, and requests a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The segment.
    pub segment: u32,
    /// The round, from 1.
    pub round: u32,
    /// The segment's blocks before this block have been sent at least once, or need not be sent.
    pub sent_to: u32,
    /// The highest packet number that carried a block of the round; data may arrive after this
    /// message.
    pub highest: PacketNumber,
}

/// Why bytes are not a valid control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Longer than any valid message.
    TooLong,
    /// Not protobuf, or truncated.
    Malformed,
    /// An empty message, or a message of a later version; to be ignored.
    Unknown,
    /// A value that is impossible, contradicts another, or is missing. Examples: an empty slice, a
    /// run beyond its slice, a rate of zero.
    Range,
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            WireError::TooLong => "a control message is longer than 64 KiB",
            WireError::Malformed => "a control message cannot be read",
            WireError::Unknown => "a control message is empty or of a kind that is not known",
            WireError::Range => "a control message has an impossible value, or lacks a value",
        })
    }
}

impl core::error::Error for WireError {}

impl Control {
    /// Appends the message to `out`; at most [`MAX_CONTROL`](super::MAX_CONTROL) bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let body = match self {
            Control::Done(done) => messages::Body::Done(messages::Done {
                segment: done.segment,
                round: done.round,
                sent_to: done.sent_to,
                highest: done.highest.0,
            }),
            Control::Report(report) => messages::Body::Report(report.to_wire()),
            Control::Pulse(pulse) => messages::Body::Pulse(pulse.to_wire()),
            Control::Ack(ack) => messages::Body::Ack(ack.to_wire()),
            Control::Loss(loss) => messages::Body::Loss(loss.to_wire()),
            Control::Selective(selective) => messages::Body::Selective(selective.to_wire()),
            Control::Sync(sync) => messages::Body::Sync(messages::Sync { sequence: sync.sequence }),
            Control::Request(request) => messages::Body::Request(request.to_wire()),
            Control::SenderOffer(offer) => messages::Body::SenderOffer(offer.to_wire()),
            Control::ErrorRate(rate) => messages::Body::ErrorRate(rate.to_wire()),
            Control::Go(go) => messages::Body::Go(go.to_wire()),
            Control::BufferOk(ok) => messages::Body::BufferOk(ok.to_wire()),
            Control::Resend(resend) => messages::Body::Resend(resend.to_wire()),
            Control::Begun(begun) => messages::Body::Begun(begun.to_wire()),
        };
        let envelope = messages::Envelope { body: Some(body) };
        envelope.encode(out).expect("a vector grows as needed");
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError::Unknown`] for an empty message or a message of a later version, which the
    /// caller ignores; the other errors for invalid bytes.
    pub fn decode(bytes: &[u8]) -> Result<Control, WireError> {
        if bytes.len() > MAX_DECODED {
            return Err(WireError::TooLong);
        }
        let envelope = messages::Envelope::decode(bytes).map_err(|_| WireError::Malformed)?;
        match envelope.body.ok_or(WireError::Unknown)? {
            messages::Body::Done(done) => {
                if done.round == 0 || done.highest >= Header::NUMBERS {
                    return Err(WireError::Range);
                }
                Ok(Control::Done(Done {
                    segment: done.segment,
                    round: done.round,
                    sent_to: done.sent_to,
                    highest: PacketNumber(done.highest),
                }))
            }
            messages::Body::Report(report) => Report::from_wire(report).map(Control::Report),
            messages::Body::Pulse(pulse) => Pulse::from_wire(&pulse).map(Control::Pulse),
            messages::Body::Ack(ack) => Ack::from_wire(&ack).map(Control::Ack),
            messages::Body::Loss(loss) => Loss::from_wire(&loss).map(Control::Loss),
            messages::Body::Selective(selective) => {
                Selective::from_wire(selective).map(Control::Selective)
            }
            messages::Body::Sync(sync) => Ok(Control::Sync(Sync { sequence: sync.sequence })),
            messages::Body::Request(asked) => Request::from_wire(&asked).map(Control::Request),
            messages::Body::SenderOffer(offer) => {
                SenderOffer::from_wire(&offer).map(Control::SenderOffer)
            }
            messages::Body::ErrorRate(rate) => ErrorRate::from_wire(&rate).map(Control::ErrorRate),
            messages::Body::Go(go) => Go::from_wire(&go).map(Control::Go),
            messages::Body::BufferOk(ok) => BufferOk::from_wire(&ok).map(Control::BufferOk),
            messages::Body::Resend(resend) => Resend::from_wire(resend).map(Control::Resend),
            messages::Body::Begun(begun) => Begun::from_wire(&begun).map(Control::Begun),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;
    use crate::units::{Bytes, Rate};
    use crate::wire::MAX_CONTROL;
    use alloc::vec;
    use core::ops::Range;
    use proptest::prelude::*;

    fn encoded(control: &Control) -> Vec<u8> {
        let mut out = Vec::new();
        control.encode(&mut out);
        out
    }

    fn runs_of(blocks: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }

    fn pulse() -> Pulse {
        Pulse {
            sequence: 7,
            clock: Span::from_millis(300),
            highest: 100,
            received: 90,
            distinct: 80,
            grant: Bytes::new(1 << 29),
            drain: Some(Rate::from_mbps(900)),
            echo: Some(Echo { number: PacketNumber(99), age: Span::from_micros(5) }),
            train: Some(Train {
                first: PacketNumber(0),
                bytes: Bytes::new(45_000),
                span: Span::from_micros(360),
                steps: 31,
            }),
            socket_lost: 3,
        }
    }

    #[test]
    fn done_has_the_recorded_bytes() {
        let highest = PacketNumber(300);
        let done = Control::Done(Done { segment: 1, round: 2, sent_to: 3, highest });
        let golden = [0x0a, 9, 0x08, 1, 0x10, 2, 0x18, 3, 0x20, 0xac, 0x02];
        assert_eq!(encoded(&done), golden);
        assert_eq!(Control::decode(&golden), Ok(done));
    }

    #[test]
    fn a_sparse_report_has_the_recorded_bytes() {
        let report = Report::fill(1, 2, 0..1000, [5..6, 300..310].into_iter());
        let golden = [0x12, 16, 0x08, 1, 0x10, 2, 0x20, 0xe8, 7, 0x2a, 5, 5, 1, 0xa6, 2, 10];
        let bytes = encoded(&Control::Report(report.clone()));
        assert_eq!(bytes[2..], golden[2..]);
        assert_eq!(Control::decode(&bytes), Ok(Control::Report(report)));
    }

    #[test]
    fn a_pulse_survives_the_wire_and_fits_a_datagram() {
        for pulse in [pulse(), Pulse::default()] {
            let bytes = encoded(&Control::Pulse(pulse));
            assert!(bytes.len() < 120);
            assert_eq!(Control::decode(&bytes), Ok(Control::Pulse(pulse)));
        }
    }

    #[test]
    fn syncs_and_error_rates_survive_the_wire_and_invalid_error_rates_are_refused() {
        let rate = ErrorRate { sequence: 4, rate: 7_900, restart: None };
        let restart = ErrorRate { restart: Some(0), ..rate };
        let sync = Control::Sync(Sync { sequence: 9 });
        for control in [sync, Control::ErrorRate(rate), Control::ErrorRate(restart)] {
            assert_eq!(Control::decode(&encoded(&control)), Ok(control));
        }
        for lie in [
            ErrorRate { rate: ErrorRate::ALL + 1, ..rate },
            ErrorRate { restart: Some(u64::MAX), ..rate },
        ] {
            let bytes = encoded(&Control::ErrorRate(lie));
            assert_eq!(Control::decode(&bytes), Err(WireError::Range));
        }
    }

    #[test]
    fn acknowledgements_and_loss_lists_survive_the_wire_and_invalid_ones_are_refused() {
        let ack = Control::Ack(Ack { sequence: 3, next: 70, received: 90 });
        assert_eq!(Control::decode(&encoded(&ack)), Ok(ack));
        let decodes = |next, received| {
            Control::decode(&encoded(&Control::Ack(Ack { sequence: 3, next, received }))).is_ok()
        };
        assert_eq!([decodes(90, 90), decodes(91, 90)], [true, false]);
        let most = Header::BLOCKS;
        assert_eq!([most, most + 1, most + 2].map(|all| decodes(0, all)), [true, false, false]);
        let all: Vec<_> =
            (0..4000u64).map(|n| n * 1000 + (1 << 40)..n * 1000 + (1 << 40) + 7).collect();
        let (mut rest, mut heard) = (all.iter().cloned().peekable(), Vec::new());
        for sequence in 0.. {
            if rest.peek().is_none() {
                break;
            }
            let loss = Control::Loss(Loss::fill(sequence, &mut rest));
            let bytes = encoded(&loss);
            assert!(bytes.len() <= MAX_CONTROL);
            assert_eq!(Control::decode(&bytes), Ok(loss.clone()));
            let Control::Loss(loss) = loss else { unreachable!("it is a list") };
            heard.extend_from_slice(loss.lost());
        }
        assert_eq!(heard, all);
        let empty = Control::Loss(Loss::fill(1, &mut core::iter::empty().peekable()));
        assert_eq!(Control::decode(&encoded(&empty)), Err(WireError::Range));
    }

    #[test]
    fn a_selective_acknowledgement_survives_the_wire_and_invalid_ones_are_refused() {
        let closing = Some(Closing { highest: 1 << 39, fresh: 1 << 30 });
        for closing in [None, closing, Some(Closing { highest: 0, fresh: 0 })] {
            // A report of the largest possible size.
            let report = Report::fill(9, 0, 0..60_000, runs_of((0..60_000).step_by(2)).into_iter());
            let selective = Control::Selective(Selective { sequence: u64::MAX, report, closing });
            let bytes = encoded(&selective);
            assert!(bytes.len() <= MAX_CONTROL);
            assert_eq!(Control::decode(&bytes), Ok(selective));
        }
        let report = Report::fill(9, 0, 0..10, core::iter::empty());
        let wire = Selective { sequence: 1, report, closing: None }.to_wire();
        let far = Some(Header::NUMBERS + 1);
        let lies = [
            messages::Selective { report: None, ..wire.clone() },
            messages::Selective { highest: far, ..wire.clone() },
            messages::Selective { highest: Some(4), fresh: 5, ..wire.clone() },
            messages::Selective { fresh: 5, ..wire },
        ];
        assert_eq!(lies.map(|lie| Selective::from_wire(lie).unwrap_err()), [WireError::Range; 4]);
    }

    #[test]
    fn messages_about_buffers_survive_the_wire_and_invalid_ones_are_refused() {
        let burst = Some(Burst { size: 25, interval: Span::from_micros(300) });
        let missing = runs_of((0..60_000).step_by(2)).into_iter();
        let report = Report::fill(9, 3, 0..60_000, missing);
        let resend = Resend { buffer: u64::MAX, highest: 1 << 39, report };
        for control in [
            Control::Go(Go { buffers: 1 << 40 }),
            Control::BufferOk(BufferOk { buffer: 7, offer: burst }),
            Control::BufferOk(BufferOk { buffer: u64::MAX, offer: None }),
            Control::Begun(Begun { buffer: 7, burst }),
            Control::Resend(resend.clone()),
        ] {
            let bytes = encoded(&control);
            assert!(bytes.len() <= MAX_CONTROL);
            assert_eq!(Control::decode(&bytes), Ok(control));
        }
        let nothing = Report::fill(9, 3, 0..10, core::iter::empty());
        for lie in [
            Control::Go(Go { buffers: 0 }),
            Control::Go(Go { buffers: Header::BLOCKS + 1 }),
            Control::Begun(Begun { buffer: 0, burst: burst.map(|b| Burst { size: 0, ..b }) }),
            Control::Resend(Resend { highest: Header::NUMBERS + 1, ..resend.clone() }),
            Control::Resend(Resend { report: nothing, ..resend }),
        ] {
            assert_eq!(Control::decode(&encoded(&lie)), Err(WireError::Range));
        }
    }

    #[test]
    fn a_truncated_message_is_not_taken_for_the_whole_message() {
        for control in [
            Control::Pulse(pulse()),
            Control::Report(Report::fill(1, 2, 0..64, runs_of((0..64).step_by(2)).into_iter())),
        ] {
            let bytes = encoded(&control);
            for len in 0..bytes.len() {
                assert_ne!(Control::decode(&bytes[..len]), Ok(control.clone()));
            }
        }
    }

    #[test]
    fn a_message_of_a_later_version_is_unknown_not_malformed() {
        assert_eq!(Control::decode(&[0xfa, 0x01, 1, 0]), Err(WireError::Unknown));
        let zeros = |len| Control::decode(&vec![0; len]);
        assert_eq!(zeros(MAX_DECODED), Err(WireError::Malformed));
        assert_eq!(zeros(MAX_DECODED + 1), Err(WireError::TooLong));
    }

    #[test]
    fn a_done_with_round_zero_or_a_too_high_packet_number_is_refused() {
        let decodes = |round, highest| {
            let highest = PacketNumber(highest);
            let done = Control::Done(Done { segment: 1, round, sent_to: 7, highest });
            Control::decode(&encoded(&done)) == Ok(done)
        };
        assert_eq!([decodes(0, 9), decodes(1, 9)], [false, true]);
        let most = Header::NUMBERS;
        assert_eq!([most - 1, most].map(|highest| decodes(1, highest)), [true, false]);
    }

    #[test]
    fn a_report_with_1100_bytes_of_runs_covers_its_slice_and_with_more_becomes_a_bitmap() {
        let end = |count| {
            let missing = (0..count).map(|n| 2 * n..2 * n + 1);
            let report = Report::fill(3, 1, 0..60_000, missing);
            assert_eq!(report.count(), count);
            report.slice().end
        };
        // One more run makes it a bitmap of the first 8,800 blocks.
        assert_eq!([end(550), end(551)], [60_000, 8_800]);
    }

    #[test]
    fn an_error_says_what_is_wrong_with_the_message() {
        for (error, part) in [
            (WireError::TooLong, "longer than 64 KiB"),
            (WireError::Malformed, "cannot be read"),
            (WireError::Unknown, "not known"),
            (WireError::Range, "impossible value"),
        ] {
            assert!(alloc::string::ToString::to_string(&error).contains(part), "{error:?}");
        }
    }

    #[test]
    fn messages_with_impossible_numbers_are_refused() {
        let report = |first, count, runs: &[u8], bitmap: &[u8]| {
            let (runs, bitmap) = (runs.to_vec(), bitmap.to_vec());
            let report = messages::Report { segment: 0, round: 1, first, count, runs, bitmap };
            Report::from_wire(report).unwrap_err()
        };
        let cases = [
            report(0, 0, &[], &[]),
            report(u32::MAX, 2, &[], &[]),
            report(0, 10, &[5, 6], &[]),
            report(0, 10, &[5], &[]),
            report(0, 10, &[0xff, 0xff, 0xff, 0xff, 0x7f, 1], &[]),
            report(0, 10, &[1, 0], &[]),
            report(0, 10, &[1, 1, 0, 1], &[]),
            report(0, 10, &[1, 1], &[1, 0]),
            report(0, 10, &[], &[1, 0, 0]),
            report(0, 10, &[], &[1, 4]),
        ];
        assert_eq!(cases, [WireError::Range; 10]);
        let too_many = Pulse { received: 200, ..pulse() };
        let bytes = encoded(&Control::Pulse(too_many));
        assert_eq!(Control::decode(&bytes), Err(WireError::Range));
    }

    proptest! {
        #[test]
        fn successive_reports_fit_into_messages_and_name_exactly_the_missing_blocks(
            seed: u64, count in 1u32..60_000, one_in in 1u64..2_000,
        ) {
            // A small generator instead of proptest's, which shrinks a set of this size slowly.
            let mut state = seed | 1;
            let missing = runs_of((0..count).filter(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.is_multiple_of(one_in)
            }));
            let mut heard = Vec::new();
            let mut at = 0;
            while at < count {
                let rest = missing.iter().filter(|run| run.end > at);
                let rest = rest.map(|run| run.start.max(at)..run.end);
                let report = Report::fill(3, 1, at..count, rest);
                prop_assert_eq!(report.slice().start, at);
                prop_assert!(report.slice().end > at);
                at = report.slice().end;
                let bytes = encoded(&Control::Report(report.clone()));
                prop_assert!(bytes.len() <= MAX_CONTROL);
                prop_assert_eq!(Control::decode(&bytes), Ok(Control::Report(report.clone())));
                heard.extend(report.missing().iter().cloned().flatten());
            }
            prop_assert_eq!(heard, missing.into_iter().flatten().collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_an_error_or_a_message_that_survives_the_wire(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(control) = Control::decode(&bytes) {
                prop_assert_eq!(Control::decode(&encoded(&control)), Ok(control));
            }
        }
    }
}
