//! Points in time and spans between them, in nanoseconds.
//!
//! This crate never reads a clock: its driver (the code that calls it) passes the current [`Time`].
//! [`Time::ZERO`] is the start of the driver's clock or simulation.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in time: nanoseconds since the driver's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of time in nanoseconds; never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The driver's start.
    pub const ZERO: Time = Time(0);
    /// A time that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// The time `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span since `earlier`; zero if this time is before `earlier`.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// The empty span.
    pub const ZERO: Span = Span(0);
    /// The longest span.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of whole nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    /// A span of whole microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros.saturating_mul(1_000))
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1_000_000))
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000_000))
    }

    /// A span of `secs` seconds, rounded to a nanosecond; negative and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Span {
        // A float cast saturates, and turns NaN into zero.
        Span(libm::round(secs * 1e9) as u64)
    }

    /// Whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds, as a float for ratios and display.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This span minus `other`, at least zero.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, divisor: u64) -> Span {
        Span(self.0 / divisor)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} ns"),
            n if n < 999_950 => write!(f, "{:.1} µs", n as f64 / 1e3),
            n if n < 999_950_000 => write!(f, "{:.1} ms", n as f64 / 1e6),
            n => write!(f, "{:.2} s", n as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_time_never_overflows() {
        assert_eq!(Time::NEVER + Span::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::from_nanos(5)), Span::ZERO);
    }

    #[test]
    fn negative_and_nan_seconds_become_zero() {
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
        assert_eq!(Span::from_secs_f64(0.1), Span::from_millis(100));
    }

    #[test]
    fn a_span_prints_with_its_unit() {
        let text = |nanos| Span::from_nanos(nanos).to_string();
        assert_eq!([0, 999].map(text), ["0 ns", "999 ns"]);
        assert_eq!([1_000, 2_340, 999_940].map(text), ["1.0 µs", "2.3 µs", "999.9 µs"]);
        assert_eq!([999_960, 1_000_000, 999_940_000].map(text), ["1.0 ms", "1.0 ms", "999.9 ms"]);
        assert_eq!([999_960_000, 61_250_000_000].map(text), ["1.00 s", "61.25 s"]);
    }

    #[test]
    fn spans_stay_between_zero_and_the_longest() {
        let [three, five] = [3, 5].map(Span::from_nanos);
        assert_eq!((five - three, three - five), (Span::from_nanos(2), Span::ZERO));
        assert_eq!((three + five, Span::MAX + three), (Span::from_nanos(8), Span::MAX));
        assert_eq!((three * 4, Span::MAX * 2), (Span::from_nanos(12), Span::MAX));
        assert_eq!(Span::from_nanos(11) / 4, Span::from_nanos(2));
        let mut time = Time::from_nanos(7);
        time += five;
        assert_eq!((time, time.since(Time::from_nanos(7))), (Time::from_nanos(12), five));
    }
}
