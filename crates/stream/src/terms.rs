//! Checks the parameters and measurements in the messages of other hosts.

use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::fec::Losses;
use longhaul_proto::share::Key;
use longhaul_proto::stream::{Head, MAX_FRAME, MAX_RANGES, Request};
use longhaul_proto::time::Span;
use longhaul_proto::units::{LossRatio, Rate};
use longhaul_session::{Error, Exporter, Kind};

use crate::messages::{Again, Report, State, Way};

/// Maximum bytes of a symbol (the piece of a frame in one datagram); its datagram fits into a jumbo
/// frame.
const MAX_SYMBOL: u32 = 8_900;
/// Minimum and maximum of frames a second.
const RATES: (f64, f64) = (0.001, 10_000.0);
/// Minimum and maximum of a deadline.
const DEADLINES: (Span, Span) = (Span::from_millis(1), Span::from_secs(60));
/// Maximum number of frames in a payload.
const GROUP: u32 = 10_000;
/// Bytes of the length field before each frame of a payload.
pub(crate) const LENGTH: usize = 4;
/// Maximum time in a message about the path.
const LONGEST: Span = Span::from_secs(60);
/// Maximum loss ratio that a sender adapts to: a lying receiver cannot make it send without limit.
const LOSS: f64 = 0.1;
/// Maximum length of a loss burst, in datagrams, that a sender adapts to.
const BURST: f64 = 64.0;

const MILLION: f64 = 1e6;

fn wrong(what: String) -> Error {
    Error::new(Kind::Usage, what)
}

/// A sender's parameters of its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Bytes of a symbol: the piece of a frame in one datagram.
    pub symbol: u16,
    /// Maximum bytes of a frame.
    pub frame: u32,
    /// Frames a second.
    pub per_second: f64,
    /// Maximum time from the sender to the delivery.
    pub deadline: Span,
    /// Maximum number of frames in a payload. Above 1, `frame` and `per_second` describe payloads.
    pub group: u32,
}

impl Terms {
    /// Checks the parameters, of this end or of a peer.
    ///
    /// # Errors
    /// The first parameter out of its limits.
    pub fn check(self) -> Result<Terms, Error> {
        let Terms { symbol, frame, per_second, deadline, group } = self;
        let head = Head { frame: 0, index: 0, repairs: 0, length: frame, skipped: 0, at: 0 };
        if !(RATES.0..=RATES.1).contains(&per_second) {
            let (least, most) = RATES;
            return Err(wrong(format!(
                "{per_second} frames a second; {least} to {most} are allowed"
            )));
        }
        check_deadline(deadline)?;
        if !(1..=GROUP).contains(&group) {
            return Err(wrong(format!("payloads of {group} frames; 1 to {GROUP} are allowed")));
        }
        if frame == 0 || frame > MAX_FRAME {
            return Err(wrong(format!("frames of {frame} bytes; 1 to {MAX_FRAME} are allowed")));
        }
        if u32::from(symbol) > MAX_SYMBOL || head.shape(symbol).is_err() {
            let what = format!(
                "frames of {frame} bytes in datagrams with {symbol} bytes are not possible"
            );
            return Err(wrong(what).advise("send smaller frames, or larger datagrams"));
        }
        Ok(self)
    }

    /// Returns the parameters for payloads. A payload joins as many frames as are sent in the time
    /// `deadline` (equation 9 of the Quanta paper), at most 16 MiB and [`GROUP`] frames.
    pub(crate) fn in_payloads(self) -> Terms {
        let Terms { frame, per_second, deadline, .. } = self;
        let bytes = frame.saturating_add(LENGTH as u32);
        let group = ((per_second * deadline.as_secs_f64()) as u32).min(MAX_FRAME / bytes);
        let group = group.clamp(1, GROUP);
        if group == 1 {
            return self;
        }
        Terms { frame: bytes * group, per_second: per_second / f64::from(group), group, ..self }
    }

    /// Returns the number of single frames a second. Messages round the rate of payloads to
    /// thousandths, so this product is rounded to the decimals that are certain.
    pub fn frames_per_second(&self) -> f64 {
        let group = f64::from(self.group);
        let unit = 10_f64.powi((1_000.0 / group).log10().floor() as i32);
        (self.per_second * group * unit).round() / unit
    }

    /// Returns the time between two frames, or between two payloads if `group` is above 1.
    pub fn interval(&self) -> Span {
        Span::from_secs_f64(1.0 / self.per_second)
    }

    pub(crate) fn datagram(&self) -> u16 {
        self.symbol + OVERHEAD
    }
}

pub(crate) const OVERHEAD: u16 = (longhaul_net::sealing::seal::SEALED_OVERHEAD + Head::LEN) as u16;

/// Checks a deadline.
///
/// # Errors
/// The deadline is out of its limits.
pub fn check_deadline(deadline: Span) -> Result<Span, Error> {
    let (least, most) = DEADLINES;
    match (least..=most).contains(&deadline) {
        true => Ok(deadline),
        false => Err(wrong(format!("a deadline of {deadline}; {least} to {most} are allowed"))),
    }
}

/// Parses and checks the parameters in a message. `per_second` counts thousandths of a frame a
/// second, and `deadline` counts microseconds.
///
/// # Errors
/// A parameter is out of its limits.
pub fn terms(
    symbol: u32,
    frame: u32,
    per_second: u64,
    deadline: u64,
    group: u32,
) -> Result<Terms, Error> {
    let per_second = per_second as f64 / 1_000.0;
    let symbol = u16::try_from(symbol).unwrap_or(u16::MAX);
    let (deadline, group) = (Span::from_micros(deadline), group.max(1));
    Terms { symbol, frame, per_second, deadline, group }.check()
}

/// Parses a request for lost symbols.
///
/// # Errors
/// The request is invalid.
pub fn request(again: &Again) -> Result<Request, Error> {
    let Again { frame, first, last, .. } = again;
    let number = |number: &u32| u16::try_from(*number).ok();
    let ranges = first.iter().zip(last).map(|(first, last)| Some((number(first)?, number(last)?)));
    let ranges = ranges.collect::<Option<Vec<(u16, u16)>>>().unwrap_or_default();
    let ascends = ranges.is_sorted_by(|one, next| one.1 < next.0);
    let is_right = ascends && ranges.iter().all(|(first, last)| first <= last);
    match first.len() == last.len() && (1..=MAX_RANGES).contains(&ranges.len()) && is_right {
        true => Ok(Request { frame: *frame, ranges }),
        false => Err(wrong("this is not a request for lost symbols".into())),
    }
}

/// Parses the name of a stream or of a room.
///
/// # Errors
/// The text is no valid name.
pub fn name(text: &str) -> Result<Key, Error> {
    let what = |error| wrong(format!("this is not a name of a stream or of a room: {error}"));
    Key::new(text).map_err(what)
}

/// Parses a cipher that encrypts.
///
/// # Errors
/// This release does not know the cipher.
pub fn suite(cipher: &str) -> Result<Suite, Error> {
    Suite::sealed(cipher).ok_or_else(|| {
        let shown: String = cipher.chars().filter(char::is_ascii_graphic).take(40).collect();
        let error = Error::new(Kind::Unreachable, format!("no cipher {shown} is known"));
        error.advise("use the same release of longhaul on both sides")
    })
}

/// Returns the flow's keys with this `number`: 0 for control datagrams, and for data whose keys
/// never change. Each higher number is an epoch, with new keys for the data to a receiver.
pub(crate) fn keys(exporter: &Exporter, suite: Suite, number: u64, flow: FlowId) -> FlowKeys {
    FlowKeys::new(&exporter.export(b"longhaul stream", &[]), suite, number, flow)
}

/// The measurements of the path from a sender to its receivers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// Number of receivers with the keys for the datagrams.
    pub receivers: u32,
    /// The round-trip time to the nearest receiver.
    pub nearest: Span,
    /// The round-trip time to the farthest receiver.
    pub farthest: Span,
    /// The losses to the worst receiver.
    pub losses: Losses,
    /// Spread of delays above the fastest datagram's.
    pub jitter: Span,
    /// Datagrams that arrived at the server.
    pub came: u64,
    /// Frames that receivers got within their deadline.
    pub on_time: u64,
    /// Frames that receivers did not get in time.
    pub missed: u64,
    /// The highest recent rate of a whole frame to the server; zero if unknown.
    pub carried: Rate,
}

pub(crate) fn losses(ppm: u32, burst_milli: u32) -> Losses {
    let share = (f64::from(ppm) / MILLION).min(LOSS);
    let burst = (f64::from(burst_milli) / 1_000.0).clamp(1.0, BURST);
    Losses::bursty(LossRatio::new(share).expect("a share within its limits"), burst)
}

pub(crate) fn span(micros: u64) -> Span {
    Span::from_micros(micros).min(LONGEST)
}

/// Parses a server's report on the path.
pub fn course(way: &Way) -> Course {
    let farthest = span(way.farthest_micros);
    Course {
        receivers: way.receivers,
        nearest: span(way.nearest_micros).min(farthest),
        farthest,
        losses: losses(way.loss_ppm, way.burst_milli),
        jitter: span(way.jitter_micros),
        came: way.came,
        on_time: way.on_time,
        missed: way.missed,
        carried: Rate::from_bps(way.carried_bps),
    }
}

/// The measurements of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Losses between server and receiver.
    pub losses: Losses,
    /// Spread of delays above the fastest datagram's.
    pub jitter: Span,
    /// Frames delivered within their deadline.
    pub on_time: u64,
    /// Frames not delivered within their deadline.
    pub missed: u64,
}

/// Parses a receiver's report.
pub fn seen(report: &Report) -> Seen {
    Seen {
        losses: losses(report.loss_ppm, report.burst_milli),
        jitter: span(report.jitter_micros),
        on_time: report.on_time,
        missed: report.missed,
    }
}

/// Returns the loss ratio in millionths, and the burst length in thousandths.
pub fn written(losses: Losses) -> (u32, u32) {
    ((losses.ratio().get() * MILLION) as u32, (losses.burst() * 1_000.0) as u32)
}

pub(crate) fn micros(span: Span) -> u64 {
    span.as_nanos() / 1_000
}

/// The state of a stream, for a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// There is no sender, or the receiver's address is unknown.
    Idle,
    /// A client sends the stream.
    Live {
        /// The sender's random number.
        run: u64,
        /// The number of the data keys.
        epoch: u64,
        /// The parameters of the stream, except `frame`, which the server's report lacks.
        terms: Terms,
        /// The round-trip time from the sender to the server.
        sender: Span,
        /// The first frame that can arrive completely.
        frame: u32,
    },
    /// The stream has ended after this many frames.
    Ended(u32),
}

/// Parses a server's report on the stream.
///
/// # Errors
/// The report is invalid.
pub fn phase(state: &State) -> Result<Phase, Error> {
    Ok(match state.phase {
        0 => Phase::Idle,
        2 => Phase::Ended(state.frame),
        _ => Phase::Live {
            run: state.run,
            epoch: state.epoch,
            terms: terms(
                state.symbol,
                1,
                state.per_second_milli,
                state.deadline_micros,
                state.group,
            )?,
            sender: span(state.sender_micros),
            frame: state.frame,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_out_of_their_limits_are_refused() {
        let griz = (1430, 1_440_000, 20_000, 120_000);
        let check = |(symbol, frame, rate, deadline)| terms(symbol, frame, rate, deadline, 1);
        assert_eq!(check(griz).map(|terms| terms.interval()), Ok(Span::from_millis(50)));
        for (wrong, why) in [
            ((1431, griz.1, griz.2, griz.3), "datagrams with 1431"),
            ((0, griz.1, griz.2, griz.3), "datagrams with 0"),
            ((u32::MAX, griz.1, griz.2, griz.3), "datagrams with"),
            ((9_000, griz.1, griz.2, griz.3), "datagrams with 9000"),
            ((2, griz.1, griz.2, griz.3), "datagrams with 2 "),
            ((griz.0, 0, griz.2, griz.3), "frames of 0"),
            ((griz.0, u32::MAX, griz.2, griz.3), "are allowed"),
            ((griz.0, griz.1, 0, griz.3), "0 frames a second"),
            ((griz.0, griz.1, u64::MAX, griz.3), "frames a second"),
            ((griz.0, griz.1, griz.2, 999), "a deadline of"),
            ((griz.0, griz.1, griz.2, u64::MAX), "a deadline of"),
        ] {
            let error = check(wrong).expect_err("out of its limits");
            assert!(error.what.contains(why), "{error}");
        }
    }

    #[test]
    fn values_in_a_false_report_are_limited() {
        let most = u64::MAX;
        let course = course(&Way {
            receivers: u32::MAX,
            nearest_micros: most,
            farthest_micros: 1,
            loss_ppm: u32::MAX,
            burst_milli: u32::MAX,
            jitter_micros: most,
            came: most,
            on_time: most,
            missed: most,
            carried_bps: most,
        });
        assert_eq!((course.losses.ratio().get(), course.losses.burst()), (0.1, 64.0));
        assert!(course.jitter <= LONGEST && course.nearest <= course.farthest);
        let (loss_ppm, burst_milli) = written(course.losses);
        let report = Report { loss_ppm, burst_milli, ..Report::default() };
        assert_eq!(seen(&report).losses, course.losses);
        let live = State { phase: 1, symbol: u32::MAX, ..State::default() };
        assert!(phase(&live).is_err());
    }

    #[test]
    fn a_request_for_symbols_has_ascending_ranges_and_not_too_many() {
        let of = |first: Vec<u32>, last: Vec<u32>| {
            request(&Again { frame: 7, first, last, receiver: 0 }).map(|request| request.ranges)
        };
        assert_eq!(of(vec![0, 9], vec![3, 65_535]), Ok(vec![(0, 3), (9, 65_535)]));
        let most: Vec<u32> = (0..1_024).map(|n| 2 * n).collect();
        assert_eq!(of(most.clone(), most).map(|ranges| ranges.len()), Ok(1_024));
        let more: Vec<u32> = (0..1_025).map(|n| 2 * n).collect();
        for (first, last) in [
            (vec![], vec![]),
            (vec![1], vec![]),
            (vec![2], vec![1]),
            (vec![0], vec![65_536]),
            (vec![0, 3], vec![3, 4]),
            (vec![5, 0], vec![5, 0]),
            (more.clone(), more),
        ] {
            assert!(of(first.clone(), last.clone()).is_err(), "{first:?} {last:?}");
        }
    }

    #[test]
    fn a_payload_has_the_frames_sent_in_the_time_of_a_deadline_but_at_most_16_mib() {
        let griz = |frame: u32, deadline: u64| {
            let terms = terms(1_430, frame, 20_000, deadline, 1).expect("within the limits");
            let Terms { frame, per_second, group, .. } = terms.in_payloads();
            (frame, per_second, group)
        };
        assert_eq!(griz(1_440_000, 500_000), (14_400_040, 2.0, 10));
        assert_eq!(griz(1_440_000, 20_000_000).2, 11);
        assert_eq!(griz(MAX_FRAME, 20_000_000), (MAX_FRAME, 20.0, 1));
        assert_eq!(griz(1_000, 99_999), (1_000, 20.0, 1));
    }

    #[test]
    fn the_rate_of_frames_is_exact_although_messages_round_the_rate_of_payloads() {
        let shown = |milli, group| {
            let terms = terms(1_430, 10_000, milli, 500_000, group).expect("within the limits");
            terms.frames_per_second()
        };
        assert_eq!((shown(20_000, 1), shown(29_970, 1), shown(1, 1)), (20.0, 29.97, 0.001));
        // 20 frames a second in payloads of 3, and 41 in payloads of 16.
        assert_eq!((shown(6_667, 3), shown(2_563, 16)), (20.0, 41.0));
    }
}
