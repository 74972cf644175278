//! Every protocol, one row each; flags, help, docs, experiments and tests read it from here.
//!
//! A row lives in its protocol's folder. A new protocol is one folder, and one line here.

use crate::endpoint::{BoxedReceiver, BoxedSender, Setup};
use crate::{fobs, gtp, netblt, rbudp, sabul, tsunami};

/// A protocol. A variant of one is a row of its own, named `PROTOCOL-VARIANT`, in the same folder.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What `--protocol` calls it.
    pub name: &'static str,
    /// Its name in a sentence.
    pub title: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// What it does and where it fits, in a paragraph.
    pub summary: &'static str,
    /// The experiments that reproduce what was published.
    pub experiments: &'static [&'static str],
    /// Whether a block goes again only where the receiver is known to lack it.
    pub frugal: bool,
    /// Whether one receiver is made for all flows that come to a host, and shares out what it can
    /// take among them.
    pub many: bool,
    /// Settings of its own.
    pub options: &'static [ProtocolOption],
    /// Makes the sending end of a flow.
    pub sender: fn(&Setup) -> BoxedSender,
    /// Makes the receiving end, of any number of flows.
    pub receiver: fn() -> BoxedReceiver,
}

/// A setting of a protocol: a number that [`Settings`](crate::settings::Settings) may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolOption {
    /// Its name in scenarios; a flag of the same name sets it for a copy.
    pub name: &'static str,
    /// What it does, and its unit.
    pub help: &'static str,
    /// The smallest that it may be.
    pub least: f64,
    /// The largest that it may be.
    pub most: f64,
    /// What it is where it is not set.
    pub default: f64,
    /// It is of the receiving host, and so one for all flows that it receives.
    pub is_shared: bool,
}

impl ProtocolOption {
    /// A setting that each flow may have its own of, from the least to the most of `range`.
    pub(crate) const fn own(
        name: &'static str,
        help: &'static str,
        range: (f64, f64),
        default: f64,
    ) -> ProtocolOption {
        let (least, most) = range;
        ProtocolOption { name, help, least, most, default, is_shared: false }
    }

    /// One of the receiving host, and so of all flows that it receives.
    pub(crate) const fn shared(
        name: &'static str,
        help: &'static str,
        range: (f64, f64),
        default: f64,
    ) -> ProtocolOption {
        ProtocolOption { is_shared: true, ..ProtocolOption::own(name, help, range, default) }
    }
}

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

/// The protocol that `--protocol` calls `name`.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// The protocol for many senders into one receiver.
pub fn of_many() -> &'static Row {
    ROWS.iter().find(|row| row.many).expect("a test sees that there is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_own_name_and_documented() {
        for row in all() {
            assert_eq!(find(row.name).map(|found| found.title), Some(row.title));
            assert!(row.summary.len() > 100 && !row.paper.is_empty());
            // An RFC publishes no measurements to be made again.
            assert!(!row.experiments.is_empty() || row.paper.contains("RFC"), "{}", row.name);
            for option in row.options {
                let range = option.least..=option.most;
                assert!(range.contains(&option.default) && !option.help.is_empty(), "{option:?}");
            }
        }
        assert!(find("no such protocol").is_none());
        assert!(of_many().many);
    }
}
