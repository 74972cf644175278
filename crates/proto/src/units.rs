//! Quantities with units: a rate is never a bare number.
//!
//! `Bytes / Rate = Span`, `Rate.over(Span) = Bytes`, `Bytes / Span = Rate`. Rates and sizes print
//! in decimal units.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Sub, SubAssign};

use crate::time::Span;

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// A rate in bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// The share of sent data that did not arrive, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct LossRatio(f64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// The largest size.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// `count` bytes.
    pub const fn new(count: u64) -> Bytes {
        Bytes(count)
    }

    /// `count` times 2²⁰ bytes.
    pub const fn mebi(count: u64) -> Bytes {
        Bytes(count << 20)
    }

    /// The count of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The count of bits, as a float for ratios.
    pub fn bits(self) -> f64 {
        self.0 as f64 * 8.0
    }

    /// This size minus `other`, at least zero.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Rate {
    /// No data.
    pub const ZERO: Rate = Rate(0);

    /// `bits` a second.
    pub const fn from_bps(bits: u64) -> Rate {
        Rate(bits)
    }

    /// `bits` a second, rounded; negative and NaN become zero.
    pub fn from_bps_f64(bits: f64) -> Rate {
        Rate(libm::round(bits) as u64)
    }

    /// `megabits` times 10⁶ bits a second.
    pub const fn from_mbps(megabits: u64) -> Rate {
        Rate(megabits * 1_000_000)
    }

    /// Bits a second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// This rate times `factor`.
    pub fn scale(self, factor: f64) -> Rate {
        Rate::from_bps_f64(self.0 as f64 * factor)
    }

    /// The bytes that this rate transfers in `span`, at most [`Bytes::MAX`].
    pub const fn over(self, span: Span) -> Bytes {
        let bytes = scaled(self.0, span.as_nanos(), 1_000_000_000) / 8;
        if bytes > u64::MAX as u128 { Bytes::MAX } else { Bytes(bytes as u64) }
    }
}

/// `a` · `b` / `c`, rounded down; `c` is not zero. Nearly all products fit 64 bits, where the
/// division is several times as fast.
const fn scaled(a: u64, b: u64, c: u64) -> u128 {
    match a.checked_mul(b) {
        Some(product) => (product / c) as u128,
        None => a as u128 * b as u128 / c as u128,
    }
}

impl LossRatio {
    /// No loss.
    pub const NONE: LossRatio = LossRatio(0.0);

    /// The ratio `value`, or `None` if it is outside 0 to 1.
    pub fn new(value: f64) -> Option<LossRatio> {
        (0.0..=1.0).contains(&value).then_some(LossRatio(value))
    }

    /// `lost` of `sent`; zero if nothing was sent, and never above 1.
    pub fn of(lost: u64, sent: u64) -> LossRatio {
        if sent == 0 { LossRatio(0.0) } else { LossRatio((lost as f64 / sent as f64).min(1.0)) }
    }

    /// The ratio in millionths, rounded.
    pub fn ppm(self) -> u32 {
        libm::round(self.0 * 1e6) as u32
    }

    /// The ratio as a number from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        self.saturating_sub(other)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl Div<Rate> for Bytes {
    type Output = Span;
    /// The time for this many bytes at `rate`; [`Span::MAX`] at rate zero.
    fn div(self, rate: Rate) -> Span {
        if rate.0 == 0 {
            return Span::MAX;
        }
        let nanos = scaled(self.0, 8_000_000_000, rate.0);
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Div<Span> for Bytes {
    type Output = Rate;
    /// The rate that transfers this many bytes in `span`; zero for an empty span.
    fn div(self, span: Span) -> Rate {
        if span == Span::ZERO {
            return Rate::ZERO;
        }
        let bps = scaled(self.0, 8_000_000_000, span.as_nanos());
        Rate(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, "B")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, "bit/s")
    }
}

impl fmt::Display for LossRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} %", self.0 * 100.0)
    }
}

fn decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: &str) -> fmt::Result {
    const PREFIXES: [(u64, &str); 5] = [
        (1_000_000_000_000_000, "P"),
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    match PREFIXES.iter().find(|(size, _)| value >= *size) {
        Some((size, prefix)) => write!(f, "{:.2} {prefix}{unit}", value as f64 / *size as f64),
        None => write!(f, "{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_ratio_in_millionths_is_rounded() {
        let ppm = |lost, sent| LossRatio::of(lost, sent).ppm();
        assert_eq!([ppm(1, 3), ppm(2, 3), ppm(5, 0), ppm(9, 3)], [333_333, 666_667, 0, 1_000_000]);
    }

    #[test]
    fn sums_of_bytes_add_all_terms() {
        assert_eq!([7, 0, 5].into_iter().map(Bytes::new).sum::<Bytes>(), Bytes::new(12));
    }

    #[test]
    fn a_difference_of_bytes_is_at_least_zero() {
        let left = |less| {
            let mut bytes = Bytes::new(7);
            bytes -= Bytes::new(less);
            bytes.get()
        };
        assert_eq!([0, 3, 7, 8].map(left), [7, 4, 0, 0]);
    }

    #[test]
    fn units_divide_into_each_other() {
        let size = Bytes::new(125_000_000);
        let rate = Rate::from_mbps(1_000);
        assert_eq!(size / rate, Span::from_secs(1));
        assert_eq!(rate.over(Span::from_secs(1)), size);
        assert_eq!(size / Span::from_secs(1), rate);
        assert_eq!(size / Rate::ZERO, Span::MAX);
        assert_eq!(size / Span::ZERO, Rate::ZERO);
    }

    #[test]
    fn products_and_quotients_of_extreme_quantities_saturate() {
        let rate = Rate::from_bps(u64::MAX);
        assert_eq!(rate.over(Span::MAX), Bytes::MAX);
        assert_eq!(rate.over(Span::from_secs(8)), Bytes::MAX);
        assert_eq!(rate.over(Span::from_secs(7)), Bytes::new((u64::MAX as u128 * 7 / 8) as u64));
        assert_eq!(Bytes::MAX / Rate::from_bps(1), Span::MAX);
        assert_eq!(Bytes::MAX / Span::from_nanos(1), rate);
    }

    #[test]
    fn quantities_print_decimal_with_their_unit() {
        assert_eq!(Bytes::new(450_000_000).to_string(), "450.00 MB");
        assert_eq!(Rate::from_mbps(611).to_string(), "611.00 Mbit/s");
        assert_eq!(Bytes::new(17).to_string(), "17 B");
    }

    #[test]
    fn a_loss_ratio_is_at_most_one_and_prints_in_percent() {
        assert_eq!(LossRatio::new(1.5), None);
        assert_eq!(LossRatio::of(1, 0), LossRatio::NONE);
        assert_eq!(LossRatio::of(12, 100).to_string(), "12.00 %");
    }
}
