//! A row's quantity: its name, its unit, its formatting and comparison.

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The quantity's name in a table.
    pub name: &'static str,
    /// The quantity's unit.
    pub unit: Unit,
}

/// A unit; determines the number of digits and the kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Mbit/s; differences in per cent.
    Rate,
    /// Per cent; differences in points.
    Share,
    /// A count; differences in the same unit.
    Count,
    /// Seconds; differences in per cent.
    Seconds,
    /// Megabytes; differences in per cent.
    Size,
    /// A number without a unit, such as Jain's index; differences as plain numbers.
    Index,
}

const fn quantity(name: &'static str, unit: Unit) -> Quantity {
    Quantity { name, unit }
}

/// Object bits delivered a second: over the whole transfer, or over the interval that the page
/// names.
pub(crate) const GOODPUT: Quantity = quantity("goodput", Unit::Rate);
pub(crate) const AGGREGATE: Quantity = quantity("aggregate goodput", Unit::Rate);
pub(crate) const TIME: Quantity = quantity("time", Unit::Seconds);
/// Goodput as a share of the link's rate.
pub(crate) const SHARE: Quantity = quantity("share of the capacity", Unit::Share);
/// Datagrams sent beyond the object's blocks, as a share of these blocks.
pub(crate) const WASTE: Quantity = quantity("waste", Unit::Share);
/// Datagrams that did not reach the receiving program, as a share of all datagrams sent.
pub(crate) const LOSS: Quantity = quantity("loss", Unit::Share);
/// Losses reported to the sender; a loss that is reported twice counts twice. A column of the ORNL
/// study.
pub(crate) const LOST: Quantity = quantity("lost, as reported", Unit::Count);
pub(crate) const RETRANSMITTED: Quantity = quantity("retransmitted", Unit::Count);
pub(crate) const SENT: Quantity = quantity("sent", Unit::Count);
/// Data datagrams that reached the receiving program.
pub(crate) const RECEIVED: Quantity = quantity("received", Unit::Count);
/// Datagrams whose block the receiver already had.
pub(crate) const DUPLICATES: Quantity = quantity("duplicates", Unit::Count);
/// Rounds over the object, the first one included.
pub(crate) const ROUNDS: Quantity = quantity("rounds", Unit::Count);
/// Jain's fairness index of the flows' rates: 1 is fair.
pub(crate) const FAIRNESS: Quantity = quantity("fairness index", Unit::Index);

impl Quantity {
    /// The quantity's name with its unit, as in a table or at an axis.
    pub fn heading(&self) -> String {
        match self.unit.symbol() {
            "" => self.name.to_owned(),
            symbol => format!("{}, {symbol}", self.name),
        }
    }
}

impl Unit {
    /// The unit's symbol; empty for plain numbers.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Rate => "Mbit/s",
            Unit::Share => "%",
            Unit::Seconds => "s",
            Unit::Size => "MB",
            Unit::Count | Unit::Index => "",
        }
    }

    /// Formats a value for a table, without the unit.
    pub fn write(self, value: f64) -> String {
        let digits = match self {
            Unit::Count => 0,
            // The rounded value decides: 99.996 is written 100.0.
            Unit::Rate if (value.abs() * 100.0).round() >= 10_000.0 => 1,
            Unit::Rate | Unit::Share | Unit::Size => 2,
            Unit::Seconds | Unit::Index => 3,
        };
        let text = format!("{value:.digits$}");
        if is_nothing(&text) { text.replace('-', "") } else { text }
    }

    /// The signed difference of `value` from `reference`; empty if it is in per cent and
    /// `reference` is zero.
    pub fn difference(self, value: f64, reference: f64) -> String {
        let text = match self {
            Unit::Share => format!("{:+.2} points", value - reference),
            Unit::Index => format!("{:+.3}", value - reference),
            Unit::Count => format!("{:+.0}", value - reference),
            Unit::Rate | Unit::Seconds | Unit::Size if reference == 0.0 => String::new(),
            Unit::Rate | Unit::Seconds | Unit::Size => {
                format!("{:+.1} %", (value / reference - 1.0) * 100.0)
            }
        };
        let number = text.split(' ').next().unwrap_or_default();
        if is_nothing(number) { text.replace(['+', '-'], "") } else { text }
    }
}

fn is_nothing(number: &str) -> bool {
    number.trim_start_matches(['-', '+', '0', '.']).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_decides_how_many_digits_are_written() {
        assert_eq!(Unit::Rate.write(643.04), "643.0");
        assert_eq!(Unit::Rate.write(4.876), "4.88");
        assert_eq!(Unit::Count.write(137_742.0), "137742");
        assert_eq!(Unit::Index.write(0.67), "0.670");
        assert_eq!(Unit::Share.write(-0.001), "0.00");
        assert_eq!((GOODPUT.heading(), SENT.heading()), ("goodput, Mbit/s".into(), "sent".into()));
    }

    #[test]
    fn the_unit_decides_how_a_difference_is_written() {
        assert_eq!(Unit::Rate.difference(90.0, 100.0), "-10.0 %");
        assert_eq!(Unit::Share.difference(12.5, 12.0), "+0.50 points");
        assert_eq!(Unit::Count.difference(142.0, 0.0), "+142");
        assert_eq!(Unit::Rate.difference(1.0, 0.0), "");
        assert_eq!(Unit::Rate.difference(99.99, 100.0), "0.0 %");
    }

    #[test]
    fn a_written_value_parsed_and_written_again_is_the_same_text() {
        let units = [Unit::Rate, Unit::Share, Unit::Count, Unit::Seconds, Unit::Size, Unit::Index];
        for unit in units {
            for value in [0.0, 0.004_999, 99.996, 643.25, 1e9 / 3.0] {
                let text = unit.write(value);
                assert_eq!(unit.write(text.parse().unwrap()), text, "{unit:?}");
            }
        }
    }
}
