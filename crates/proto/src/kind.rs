//! Kinds of settings: the unit of a number, how to write it and how to read it.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use crate::quantity::{self, Quantity};

/// The meaning of a setting's number. Numbers are in base units: bit/s, seconds, bytes, fractions
/// of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A rate in bit/s, written `950Mbit/s`.
    Rate,
    /// A time in seconds, written `350ms`.
    Time,
    /// A size in bytes, written `64MiB`.
    Size,
    /// A fraction: `0.5%` is 0.005. Some settings allow more than 100 %.
    Ratio,
    /// A whole number.
    Count,
    /// A factor, a weight or a multiple: no unit, not necessarily whole.
    Number,
    /// 1 for `on`, 0 for `off`.
    Switch,
    /// One of these words; the number is the index of the word.
    Choice(&'static [&'static str]),
}

const SWITCH: &[&str] = &["off", "on"];

impl Kind {
    /// The placeholder in help texts: `RATE`, `TIME`, `on|off`.
    pub fn value_name(self) -> String {
        let name = match self {
            Kind::Rate => "RATE",
            Kind::Time => "TIME",
            Kind::Size => "SIZE",
            Kind::Ratio => "PERCENT",
            Kind::Count => "COUNT",
            Kind::Number => "NUMBER",
            Kind::Switch => return SWITCH.join("|"),
            Kind::Choice(words) => return words.join("|"),
        };
        name.to_owned()
    }

    /// Whether only whole numbers are valid.
    pub fn is_whole(self) -> bool {
        matches!(self, Kind::Count | Kind::Switch | Kind::Choice(_))
    }

    /// Returns the word with index `value`; empty if `Choice` has no such word, and for all other
    /// kinds.
    pub fn word(self, value: f64) -> &'static str {
        let Kind::Choice(words) = self else { return "" };
        words.get(value as usize).copied().unwrap_or_default()
    }

    /// Reads a value and converts it to base units. Rates, times, sizes and ratios need a unit,
    /// except zero.
    ///
    /// # Errors
    /// A message with the value and what is expected.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        let text = text.trim();
        match self {
            Kind::Rate => with_unit(quantity::rate, text, 0, quantity::RATE),
            Kind::Time => with_unit(quantity::span, text, -9, quantity::SPAN),
            Kind::Size => with_unit(quantity::bytes, text, 0, quantity::BYTES),
            Kind::Ratio => with_unit(quantity::percent, text, -2, quantity::RATIO),
            Kind::Count => {
                let whole = plain(text).filter(|number| libm::trunc(*number) == *number);
                whole.ok_or_else(|| format!("'{text}' is not a count; expected a whole number"))
            }
            Kind::Number => plain(text).ok_or_else(|| format!("'{text}' is not a finite number")),
            Kind::Switch => match text {
                "true" => Ok(1.0),
                "false" => Ok(0.0),
                _ => word(SWITCH, text),
            },
            Kind::Choice(words) => word(words, text),
        }
    }

    /// Formats a value so that `parse` reads exactly the same number.
    pub fn written(self, value: f64) -> String {
        const POWERS: [(i32, &str); 5] = [(12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, "")];
        const BINARY: [(f64, &str); 3] =
            [(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1_024.0, "KiB")];
        const TIMES: [(i32, &str); 4] = [(0, "s"), (-3, "ms"), (-6, "us"), (-9, "ns")];
        match self {
            Kind::Rate => in_units(value, &POWERS) + "bit/s",
            Kind::Time => in_units(value, &TIMES),
            Kind::Size => {
                let is_multiple = |size: f64| value >= size && libm::fmod(value, size) == 0.0;
                let decimal = in_units(value, &POWERS) + "B";
                let largest = BINARY.iter().find(|(size, _)| is_multiple(*size));
                // Division by a power of two is exact.
                let binary = largest.map(|(size, unit)| format!("{}{unit}", value / size));
                binary.filter(|binary| binary.len() < decimal.len()).unwrap_or(decimal)
            }
            Kind::Ratio => shifted(value, -2) + "%",
            Kind::Count | Kind::Number => value.to_string(),
            Kind::Switch => chosen(SWITCH, value),
            Kind::Choice(words) => chosen(words, value),
        }
    }
}

fn with_unit(
    read: fn(&str) -> Result<Quantity, String>,
    text: &str,
    power: i32,
    expected: &str,
) -> Result<f64, String> {
    let quantity = read(&text.replace('_', ""))?;
    if quantity.needs_unit() {
        return Err(format!("'{text}' has no unit; {expected}"));
    }
    Ok(quantity.scaled(power))
}

/// A finite number; `_` is ignored, because TOML allows it between digits.
fn plain(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
}

fn word(words: &[&str], text: &str) -> Result<f64, String> {
    let place = words.iter().position(|word| *word == text);
    let place = place.ok_or_else(|| format!("'{text}' is not one of {}", words.join(", ")))?;
    Ok(place as f64)
}

fn chosen(words: &[&str], value: f64) -> String {
    let word = words.iter().enumerate().find(|(place, _)| *place as f64 == value);
    word.map_or_else(|| value.to_string(), |(_, word)| (*word).to_owned())
}

/// Formats `value` in the largest unit that does not exceed it. A value below all units gets the
/// smallest unit, except that a time of zero is `0s`.
fn in_units(value: f64, units: &[(i32, &str)]) -> String {
    let fits = |power: i32| format!("1e{power}").parse().is_ok_and(|unit: f64| value >= unit);
    let zero = value == 0.0 && units.first().is_some_and(|(power, _)| *power == 0);
    let fitting = units.iter().find(|(power, _)| zero || fits(*power)).or(units.last());
    fitting.map_or_else(String::new, |(power, unit)| shifted(value, *power) + unit)
}

/// The decimal digits of `value` / 10^`power`. Only the decimal point moves, so reading the digits
/// and moving the point back gives the same number.
fn shifted(value: f64, power: i32) -> String {
    let text = format!("{value:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, mantissa) =
        mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
    let exponent = exponent.parse().unwrap_or(0) - power;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = whole.len() as i32 + exponent;
    let zeros = |count: i32| "0".repeat(count.max(0) as usize);
    if value == 0.0 {
        return "0".to_owned();
    }
    if point <= 0 {
        return format!("{sign}0.{}{digits}", zeros(-point));
    }
    let point = point as usize;
    if point >= digits.len() {
        return format!("{sign}{digits}{}", zeros((point - digits.len()) as i32));
    }
    format!("{sign}{}.{}", &digits[..point], &digits[point..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_written_value_parses_to_itself(small in 1e-12f64..1.0, large in 1.0f64..1e16) {
            for kind in [Kind::Rate, Kind::Time, Kind::Size, Kind::Ratio, Kind::Number] {
                for value in [small, large, libm::trunc(large), 1.0 / large, small * large] {
                    let text = kind.written(value);
                    prop_assert_eq!(kind.parse(&text), Ok(value), "{:?} {}", kind, text);
                }
            }
        }
    }

    #[test]
    fn each_kind_is_read_into_base_units() {
        for (kind, text, value) in [
            (Kind::Rate, "957Mbit/s", 957e6),
            (Kind::Rate, "957M", 957e6),
            (Kind::Rate, "117.5MB/s", 940e6),
            (Kind::Rate, "1Gi", 1_073_741_824.0),
            (Kind::Rate, "0", 0.0),
            (Kind::Time, "350ms", 0.35),
            (Kind::Time, "10us", 1e-5),
            (Kind::Time, "1.5 s", 1.5),
            (Kind::Time, "2m", 120.0),
            (Kind::Size, "64Mi", 67_108_864.0),
            (Kind::Size, "300MB", 3e8),
            (Kind::Ratio, "0.5%", 0.005),
            (Kind::Ratio, "99.9%", 0.999),
            (Kind::Ratio, "200 %", 2.0),
            (Kind::Count, "65_536", 65_536.0),
            (Kind::Count, "1e6", 1e6),
            (Kind::Number, "1.2e-5", 1.2e-5),
            (Kind::Switch, "on", 1.0),
            (Kind::Switch, "off", 0.0),
            (Kind::Switch, "true", 1.0),
            (Kind::Switch, "false", 0.0),
            (Kind::Choice(&["a", "b"]), "b", 1.0),
        ] {
            assert_eq!(kind.parse(text), Ok(value), "{kind:?} {text}");
        }
    }

    #[test]
    fn a_number_without_its_unit_and_malformed_values_are_refused() {
        for (kind, form) in [
            (Kind::Rate, "950Mbit/s"),
            (Kind::Time, "100ms"),
            (Kind::Size, "64MiB"),
            (Kind::Ratio, "0.5%"),
        ] {
            let error = kind.parse("12").unwrap_err();
            assert!(error.contains("'12' has no unit") && error.contains(form), "{error}");
            assert_eq!(kind.parse("0"), Ok(0.0));
        }
        for (kind, text) in [
            (Kind::Rate, "5ms"),
            (Kind::Rate, "-5M"),
            (Kind::Time, "5M"),
            (Kind::Size, "5bit"),
            (Kind::Ratio, "5M"),
            (Kind::Count, "1.5"),
            (Kind::Count, "inf"),
            (Kind::Number, "NaN"),
            (Kind::Number, ""),
            (Kind::Switch, "1"),
            (Kind::Choice(&["a", "b"]), "c"),
        ] {
            assert!(kind.parse(text).is_err(), "{kind:?} {text}");
        }
        assert_eq!(Kind::Choice(&["a", "b"]).parse("c"), Err("'c' is not one of a, b".to_owned()));
    }

    #[test]
    fn a_value_is_written_in_the_unit_that_fits() {
        for (kind, value, text) in [
            (Kind::Rate, 957e6, "957Mbit/s"),
            (Kind::Rate, 9_571e6, "9.571Gbit/s"),
            (Kind::Rate, 0.0, "0bit/s"),
            (Kind::Rate, 0.5, "0.5bit/s"),
            (Kind::Time, 0.35, "350ms"),
            (Kind::Time, 1e-5, "10us"),
            (Kind::Time, 60.0, "60s"),
            (Kind::Time, 0.0, "0s"),
            (Kind::Time, 1e-10, "0.1ns"),
            (Kind::Size, 104_857_600.0, "100MiB"),
            (Kind::Size, 1e15, "1000TB"),
            (Kind::Size, 1_536.0, "1.536kB"),
            (Kind::Size, 1_024_000.0, "1.024MB"),
            (Kind::Size, 0.0, "0B"),
            (Kind::Ratio, 0.005, "0.5%"),
            (Kind::Ratio, 0.079, "7.9%"),
            (Kind::Ratio, 10.0, "1000%"),
            (Kind::Ratio, 0.0, "0%"),
            (Kind::Count, 1e9, "1000000000"),
            (Kind::Switch, 1.0, "on"),
            (Kind::Choice(&["a", "b"]), 0.0, "a"),
        ] {
            assert_eq!(kind.written(value), text);
            assert_eq!(kind.parse(text), Ok(value));
        }
    }
    #[test]
    fn the_placeholder_of_a_kind_names_its_unit_or_its_words() {
        let kinds = [Kind::Rate, Kind::Time, Kind::Size, Kind::Ratio, Kind::Count, Kind::Number];
        let names = kinds.map(Kind::value_name);
        assert_eq!(names, ["RATE", "TIME", "SIZE", "PERCENT", "COUNT", "NUMBER"]);
        assert_eq!(Kind::Switch.value_name(), "off|on");
        let choice = Kind::Choice(&["a", "b"]);
        assert_eq!(
            (choice.value_name(), choice.word(1.0), choice.word(2.0)),
            ("a|b".into(), "b", "")
        );
        let whole = [Kind::Count, Kind::Switch, choice, Kind::Number, Kind::Size];
        assert_eq!(whole.map(Kind::is_whole), [true, true, true, false, false]);
    }
}
