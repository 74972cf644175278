//! Formats UTC times.

use std::time::SystemTime;

const DAY: i64 = 86_400;

fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

pub(crate) fn now() -> String {
    time(seconds_now())
}

pub(crate) fn today() -> String {
    date(seconds_now() / DAY)
}

/// Formats `seconds` since 1970 as `2026-11-24T22:00:00Z`, in the proleptic Gregorian calendar.
pub(crate) fn time(seconds: i64) -> String {
    let (day, rest) = (date(seconds.div_euclid(DAY)), seconds.rem_euclid(DAY));
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats the date `days` after 1 January 1970.
fn date(days: i64) -> String {
    // Eras have 400 years. Here years begin on 1 March, so a leap day is the last day of its year
    // (H. Hinnant, "chrono-compatible low-level date algorithms", civil_from_days).
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time(seconds), text);
        }
        // A file system may report any number of seconds.
        for seconds in [i64::MIN / 2, i64::MAX / 2] {
            assert!(time(seconds).ends_with('Z'));
        }
    }
}
