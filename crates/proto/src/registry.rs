//! The list of protocols. Flags, help, docs, experiments and tests read it.
//!
//! Each protocol is a row of the list. Its folder defines the row, so a new protocol needs one
//! folder, and its name here and in `lib.rs`.

pub use crate::row::Row;

use crate::{fobs, gtp, netblt, rbudp, sabul, tsunami};

const ROWS: &[Row] = &[
    rbudp::ROW,
    fobs::ROW,
    fobs::TABLE_ROW,
    sabul::ROW,
    sabul::ORNL_ROW,
    tsunami::ROW,
    netblt::ROW,
    gtp::ROW,
];

/// Every protocol; the first is the default.
pub fn all() -> &'static [Row] {
    ROWS
}

/// The protocol called `name`, as in `--protocol`.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// The protocol for many senders into one receiver.
pub fn of_many() -> &'static Row {
    ROWS.iter().find(|row| row.many).expect("a test checks that there is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_own_name_and_documented() {
        for row in all() {
            assert_eq!(find(row.name).map(|found| found.title), Some(row.title));
            assert!(row.summary.len() > 100 && !row.paper.is_empty());
            // RFC 998 publishes no measurements to reproduce.
            assert!(!row.experiments.is_empty() || row.paper.contains("RFC"), "{}", row.name);
            for option in row.options {
                let range = option.least..=option.most;
                assert!(range.contains(&option.default) && !option.help.is_empty(), "{option:?}");
            }
        }
        assert!(find("no such protocol").is_none());
        assert!(of_many().many);
    }

    #[test]
    fn settings_of_one_name_have_one_kind_because_one_flag_sets_them() {
        let options = || all().iter().flat_map(|row| row.options);
        for option in options() {
            let same = options().filter(|other| other.name == option.name);
            for other in same {
                assert_eq!((other.kind, other.is_shared), (option.kind, option.is_shared));
            }
        }
    }

    #[test]
    fn every_default_and_every_end_of_a_range_parses_to_itself() {
        for option in all().iter().flat_map(|row| row.options) {
            for value in [option.least, option.default, option.most] {
                let text = option.written(value);
                assert_eq!(option.parse(&text), Ok(value), "{} {text}", option.name);
            }
        }
    }
}
