//! Text form of quantities: `950M`, `12MB/s`, `512Mi`, `100ms`, `0.1%`.
//!
//! Rates are bits a second unless written `B/s`; sizes are bytes. k, M, G and T are powers of 1000;
//! Ki, Mi, Gi and Ti are powers of 1024.

use alloc::format;
use alloc::string::String;

use crate::time::Span;
use crate::units::{Bytes, LossRatio, Rate};

/// Reads a rate: `950M`, `950Mbit/s`, `12.5MB/s`, `1Gi`. A number without a unit is bits a second.
///
/// # Errors
/// The error message states the expected form with an example, or that the number is too large.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    rate(text)?.whole(text).map(Rate::from_bps)
}

/// Reads a size: `300MB`, `64Mi`, `1.5GiB`. A number without a unit is bytes.
///
/// # Errors
/// The error message states the expected form with an example, or that the number is too large.
pub fn parse_bytes(text: &str) -> Result<Bytes, String> {
    bytes(text)?.whole(text).map(Bytes::new)
}

/// Reads a time: `100ms`, `60s`, `5m`. The unit is required, except for zero.
///
/// # Errors
/// The error message states the expected form with an example, or that the number is too large.
pub fn parse_span(text: &str) -> Result<Span, String> {
    let span = span(text)?;
    if span.needs_unit() {
        return Err(format!("'{text}' has no unit; {SPAN}"));
    }
    span.whole(text).map(Span::from_nanos)
}

pub(crate) const RATE: &str = "expected a rate such as 950Mbit/s or 12MB/s";
pub(crate) const BYTES: &str = "expected a size such as 300MB or 64MiB";
pub(crate) const SPAN: &str = "expected a time such as 100ms, 60s or 5m";
pub(crate) const RATIO: &str = "expected a ratio in percent such as 0.5%";

/// Reads a rate, in bits a second.
pub(crate) fn rate(text: &str) -> Result<Quantity, String> {
    let (number, unit) = split(text, RATE)?;
    let (factor, rest) = prefix(unit);
    let bits = match rest {
        "" | "bit" | "bit/s" | "bps" | "b/s" => 1,
        "B/s" => 8,
        "B" => return Err(format!("'{text}' is a size, not a rate; {RATE}")),
        _ => return Err(format!("unknown unit '{unit}'; {RATE}")),
    };
    Ok(Quantity { number, factor: factor * bits, is_bare: unit.is_empty() })
}

/// Reads a size, in bytes.
pub(crate) fn bytes(text: &str) -> Result<Quantity, String> {
    let (number, unit) = split(text, BYTES)?;
    let (factor, rest) = prefix(unit);
    match rest {
        "" | "B" => Ok(Quantity { number, factor, is_bare: unit.is_empty() }),
        "B/s" | "bit" | "bit/s" | "bps" | "b/s" => {
            Err(format!("'{text}' is not a size in bytes; {BYTES}"))
        }
        _ => Err(format!("unknown unit '{unit}'; {BYTES}")),
    }
}

/// Reads a time, in nanoseconds.
pub(crate) fn span(text: &str) -> Result<Quantity, String> {
    let (number, unit) = split(text, SPAN)?;
    let factor = match unit {
        "ns" | "" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(format!("unknown unit '{unit}'; {SPAN}")),
    };
    Ok(Quantity { number, factor, is_bare: unit.is_empty() })
}

/// Reads a ratio, in percent.
pub(crate) fn percent(text: &str) -> Result<Quantity, String> {
    let (number, unit) = split(text, RATIO)?;
    match unit {
        "" | "%" => Ok(Quantity { number, factor: 1, is_bare: unit.is_empty() }),
        _ => Err(format!("unknown unit '{unit}'; {RATIO}")),
    }
}

/// A number and its unit, as a multiple of a base unit.
pub(crate) struct Quantity {
    number: Number,
    factor: u64,
    is_bare: bool,
}

impl Quantity {
    /// Whether the unit is missing and needed. Zero needs no unit.
    pub(crate) fn needs_unit(&self) -> bool {
        self.is_bare && self.number.digits != 0
    }

    /// The quantity in base units, times 10^`power`.
    pub(crate) fn scaled(&self, power: i32) -> f64 {
        let (mut factor, mut power) = (self.factor, power);
        while factor.is_multiple_of(10) {
            (factor, power) = (factor / 10, power + 1);
        }
        let Number { digits, scale } = self.number;
        let exponent = power - scale as i32;
        // The parser rounds once and correctly; a product of powers of ten would round twice.
        let value: f64 = format!("{digits}e{exponent}").parse().unwrap_or(f64::INFINITY);
        value * factor as f64
    }

    /// The quantity in whole base units, rounded down.
    fn whole(&self, text: &str) -> Result<u64, String> {
        self.number.times(self.factor, text)
    }
}

/// Reads a loss ratio: `0.1%` and `0.001` are the same.
///
/// # Errors
/// The error message states the expected form with an example.
pub fn parse_loss(text: &str) -> Result<LossRatio, String> {
    let expected = "expected a loss such as 0.1% or 0.001";
    let (number, unit) = split(text, expected)?;
    let value = match unit {
        "" => number.as_f64(),
        "%" => number.as_f64() / 100.0,
        _ => return Err(format!("unknown unit '{unit}'; {expected}")),
    };
    LossRatio::new(value).ok_or_else(|| format!("'{text}' is more than 1 (100%); {expected}"))
}

/// A decimal number, exact: `digits` / 10^`scale`.
struct Number {
    digits: u128,
    scale: u32,
}

impl Number {
    fn times(&self, factor: u64, text: &str) -> Result<u64, String> {
        let product = self.digits.checked_mul(u128::from(factor));
        let value = product.map(|p| p / 10u128.pow(self.scale));
        let value = value.and_then(|v| u64::try_from(v).ok());
        value.ok_or_else(|| format!("'{text}' is too large"))
    }

    fn as_f64(&self) -> f64 {
        self.digits as f64 / libm::pow(10.0, f64::from(self.scale))
    }
}

fn split<'a>(text: &'a str, expected: &str) -> Result<(Number, &'a str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    // 25 digits times any factor below 2⁴⁴ fit into 128 bits. So does the divisor 10^`scale`:
    // `scale` is at most 38.
    let significant = digits.trim_start_matches('0').len();
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err(format!("'{text}' is negative; {expected}"));
    }
    if digits.is_empty() || fraction.contains('.') {
        return Err(format!("'{text}' does not start with a number; {expected}"));
    }
    if significant > 25 || digits.len() > 38 {
        return Err(format!("'{text}' has too many digits; {expected}"));
    }
    let digits = digits.parse().map_err(|_| format!("'{text}' is not a number; {expected}"))?;
    Ok((Number { digits, scale: fraction.len() as u32 }, unit.trim_start()))
}

/// Returns the factor of the prefix at the start of `unit`, and the rest.
fn prefix(unit: &str) -> (u64, &str) {
    const PREFIXES: [(char, u32); 5] = [('k', 1), ('K', 1), ('M', 2), ('G', 3), ('T', 4)];
    let Some((_, power)) = PREFIXES.iter().find(|(letter, _)| unit.starts_with(*letter)) else {
        return (1, unit);
    };
    match unit[1..].strip_prefix('i') {
        Some(rest) => (1024u64.pow(*power), rest),
        None => (1000u64.pow(*power), &unit[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bps(text: &str) -> u64 {
        parse_rate(text).unwrap().as_bps()
    }

    fn bytes(text: &str) -> u64 {
        parse_bytes(text).unwrap().get()
    }

    #[test]
    fn rates_are_decimal_bits_unless_written_bytes() {
        assert_eq!(bps("950M"), 950_000_000);
        assert_eq!(bps("950Mbit/s"), 950_000_000);
        assert_eq!(bps("1.5 Gbps"), 1_500_000_000);
        assert_eq!(bps("12MB/s"), 96_000_000);
        assert_eq!(bps("1KiB/s"), 8_192);
        assert_eq!(bps("10k"), 10_000);
        assert_eq!(bps("7"), 7);
        assert_eq!(bps("0.0000001G"), 100);
    }

    #[test]
    fn a_number_has_at_most_25_digits_or_38_with_leading_zeros() {
        let is_number = |zeros: usize, digits: usize| {
            parse_bytes(&format!("{}{}B", "0".repeat(zeros), "1".repeat(digits))).is_ok()
        };
        assert!(is_number(37, 1) && !is_number(38, 1));
        let says = |text: &str| parse_bytes(text).unwrap_err();
        assert!(says("1.2.3B").contains("does not start with a number"), "{}", says("1.2.3B"));
        assert!(says(&"1".repeat(26)).contains("has too many digits"));
    }

    #[test]
    fn sizes_are_bytes_decimal_or_binary() {
        assert_eq!(bytes("450MB"), 450_000_000);
        assert_eq!(bytes("64Mi"), 64 << 20);
        assert_eq!(bytes("64MiB"), 64 << 20);
        assert_eq!(bytes("1.5T"), 1_500_000_000_000);
        assert_eq!(bytes("0"), 0);
    }

    #[test]
    fn spans_need_a_unit_except_zero() {
        assert_eq!(parse_span("100ms"), Ok(Span::from_millis(100)));
        assert_eq!(parse_span("1.5s"), Ok(Span::from_millis(1_500)));
        assert_eq!(parse_span("5m"), Ok(Span::from_secs(300)));
        assert_eq!(parse_span("2 h"), Ok(Span::from_secs(7_200)));
        assert_eq!(parse_span("250us"), Ok(Span::from_micros(250)));
        assert_eq!(parse_span("250µs"), Ok(Span::from_micros(250)));
        assert_eq!(parse_span("0"), Ok(Span::ZERO));
        assert!(parse_span("60").unwrap_err().contains("60s"));
    }

    #[test]
    fn a_loss_may_be_written_in_percent_or_as_a_ratio() {
        assert_eq!(parse_loss("0.1%").unwrap().get(), parse_loss("0.001").unwrap().get());
        assert_eq!(parse_loss("12 %").unwrap().get(), 0.12);
        assert!(parse_loss("12").unwrap_err().contains("more than 1"));
    }

    #[test]
    fn a_malformed_quantity_is_refused_with_an_example() {
        for text in ["", "fast", "-3M", "1.2.3M", "10X", "10Mx", ".", "10MB"] {
            let error = parse_rate(text).unwrap_err();
            assert!(error.contains("950M"), "{text}: {error}");
        }
        for text in ["", "10M/s", "10Mbit", "x"] {
            assert!(parse_bytes(text).unwrap_err().contains("300MB"), "{text}");
        }
        assert!(parse_loss("lossy").unwrap_err().contains("0.1%"));
        assert!(parse_rate("10MB").unwrap_err().contains("is a size, not a rate"));
        assert!(parse_rate("10X").unwrap_err().contains("unknown unit 'X'"));
        for unit in ["B/s", "bit", "bit/s", "bps", "b/s"] {
            let error = parse_bytes(&format!("10M{unit}")).unwrap_err();
            assert!(error.contains("is not a size in bytes"), "{error}");
        }
        assert!(parse_rate("-3M").unwrap_err().contains("'-3M' is negative"));
        assert!(parse_rate("-M").unwrap_err().contains("does not start with a number"));
        assert!(parse_span("5 weeks").unwrap_err().contains("100ms"));
    }

    #[test]
    fn a_quantity_beyond_64_bits_is_too_large() {
        assert!(parse_bytes("99999999999T").unwrap_err().contains("too large"));
        assert!(parse_rate("9999999999999999999999999Ti").unwrap_err().contains("too large"));
    }
}
