//! Parsers of the quantities in flags, and counts in output.

pub(crate) use longhaul_proto::quantity::{parse_bytes, parse_loss, parse_rate, parse_span};
use longhaul_proto::units::Rate;

/// Returns `1 block`, `2 blocks`.
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Parses a rate. Refuses a number without a unit, because tools disagree on its unit.
pub(crate) fn parse_rate_with_unit(text: &str) -> Result<Rate, String> {
    let rate = parse_rate(text).map_err(|error| as_rsync_has_it(text).unwrap_or(error))?;
    if text.trim().ends_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "'{text}' names no unit; write {0}k or {0}M for kbit/s or Mbit/s, {0}KiB/s for \
             rsync's meaning",
            text.trim()
        ));
    }
    Ok(rate)
}

/// Suggests a rate for rsync's `1m` or `2.5g`, which are bytes a second in powers of 1024.
fn as_rsync_has_it(text: &str) -> Option<String> {
    let number = text.trim().strip_suffix(['m', 'g', 't'])?;
    number.parse::<f64>().ok()?;
    let unit = text.trim()[number.len()..].to_uppercase();
    Some(format!(
        "'{text}' is rsync's notation; write {number}{unit}iB/s for rsync's meaning, \
         {number}{unit} for {number} {unit}bit/s"
    ))
}

/// Parses a range of UDP ports: `50000-50009`.
pub(crate) fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let ends = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    // An ssh copy needs two ports: one for control, one for data.
    ends.filter(|(first, last)| *first > 0 && first < last)
        .ok_or_else(|| "expected a range of at least two ports such as 50000-50009".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bwlimit_without_a_unit_is_refused_with_an_example() {
        assert!(parse_rate_with_unit("1000").unwrap_err().contains("1000k"));
        assert_eq!(parse_rate_with_unit("1000k"), Ok(Rate::from_mbps(1)));
    }

    #[test]
    fn unit_letters_of_rsync_are_refused_with_the_replacement() {
        let refused = parse_rate_with_unit("1.5m").unwrap_err();
        assert!(refused.contains("1.5MiB/s") && refused.contains("1.5 Mbit/s"), "{refused}");
        assert!(parse_rate_with_unit("1.5MiB/s").is_ok());
        assert!(!parse_rate_with_unit("fastm").unwrap_err().contains("rsync's notation"));
    }

    #[test]
    fn a_range_holds_at_least_two_ports() {
        assert_eq!(parse_ports("50000-50001"), Ok((50_000, 50_001)));
        for text in ["50000", "2-1", "7-7", "0-9", "a-b", "1-70000"] {
            assert!(parse_ports(text).unwrap_err().contains("50000-50009"), "{text}");
        }
    }
}
