//! The ways to carry a copy (cells): every protocol of the registry, variants of a protocol, and
//! parallel TCP.

use std::fmt::{self, Debug, Formatter};
use std::thread;

use longhaul_proto::registry::{self, Row};
use longhaul_transfer::control::Setting;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::rig::Ended;

/// Variants of protocols, each with its setting: GTP with the controller that watches delay.
const VARIANTS: [(&str, (&str, f64)); 1] = [("gtp", ("delay-control", 1.0))];

#[derive(Clone, Copy)]
pub(super) struct Cell {
    /// The row in the registry; `None` for parallel TCP.
    row: Option<&'static Row>,
    setting: Option<(&'static str, f64)>,
}

impl Cell {
    pub(super) fn protocol(self) -> &'static str {
        self.row.map_or("tcp", |row| row.name)
    }

    pub(super) fn row(self) -> Option<&'static Row> {
        self.row
    }

    /// The variant's setting, in the form of a request.
    pub(super) fn settings(self) -> Vec<Setting> {
        let setting = self.setting.into_iter();
        setting.map(|(name, value)| Setting { name: name.to_owned(), value: Some(value) }).collect()
    }

    pub(super) fn flags(self, others: &[&str]) -> Vec<String> {
        let by = format!("--protocol={}", self.protocol());
        let setting = self.setting.into_iter().map(|(name, value)| {
            let option = self.row.and_then(|row| row.option(name).ok());
            let value = option.map_or_else(|| value.to_string(), |option| option.written(value));
            format!("--{name}={value}")
        });
        let others = others.iter().map(|flag| (*flag).to_owned());
        std::iter::once(by).chain(setting).chain(others).collect()
    }
}

impl Debug for Cell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let setting = self.setting.map(|(name, value)| format!(" {name} {value}"));
        write!(f, "{}{}", self.protocol(), setting.unwrap_or_default())
    }
}

pub(super) fn cells() -> Vec<Cell> {
    let rows = registry::all().iter().map(|row| Cell { row: Some(row), setting: None });
    let variants = VARIANTS.iter().map(|(name, setting)| {
        let row = registry::find(name).expect("the registry has it");
        Cell { row: Some(row), setting: Some(*setting) }
    });
    rows.chain(variants).chain([Cell { row: None, setting: None }]).collect()
}

pub(super) fn cells_of_datagrams() -> Vec<Cell> {
    cells().into_iter().filter(|cell| cell.row.is_some()).collect()
}

/// Permits to run a cell, for all tests together. With more cells at once, the programs would wait
/// seconds for the CPU, and miss the time limits of their peers.
static PERMITS: Semaphore = Semaphore::const_new(8);

/// Runs `test` for all cells, as many at once as there are [`PERMITS`]. A failure names its cell.
pub(super) fn each(cells: &[Cell], test: impl Fn(Cell) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        let started = cells.iter().map(|cell| {
            let named = thread::Builder::new().name(format!("{cell:?}"));
            let run = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                let _permit = runtime.expect("a runtime").block_on(PERMITS.acquire());
                test(*cell);
            };
            (cell, named.spawn_scoped(scope, run).expect("a thread"))
        });
        let started: Vec<_> = started.collect();
        let failed = started.into_iter().filter_map(|(cell, run)| run.join().err().map(|_| cell));
        let failed: Vec<_> = failed.collect();
        assert!(failed.is_empty(), "{failed:?} failed; see the messages above");
    });
}

pub(super) fn count(summary: &Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap_or_else(|| panic!("{name} is a count: {summary}"))
}

/// Asserts that `cell` carried the whole copy and that the counters are consistent. Returns the
/// summary.
#[track_caller]
pub(super) fn assert_counted(ended: &Ended, cell: Cell) -> Value {
    let summary = ended.summary();
    assert_eq!(summary["protocol"], cell.protocol(), "{ended}");
    assert_eq!(summary["verified"], true, "{ended}");
    assert!(ended.events("reconnecting").is_empty(), "{ended}");
    assert!(ended.events("fallback").is_empty(), "{ended}");
    let count = |name| count(&summary, name);
    let (first, due) = (count("sent") - count("retransmitted"), count("blocks"));
    let came = count("received") - count("duplicates");
    assert!(due <= came && came <= first, "{ended}");
    // A resumed copy may send blocks before it learns that the receiver has them.
    let early = count("resumed_bytes") > 0;
    assert!(early || due == first, "{ended}");
    // Datagrams in flight when the last block arrives count as neither received nor lost.
    assert!(count("sent") >= count("received") + count("path_lost"), "{ended}");
    assert!(count("socket_lost") <= count("path_lost"), "{ended}");
    if !early {
        // No path here duplicates datagrams, so only blocks sent again arrive twice.
        assert!(count("duplicates") <= count("retransmitted"), "{ended}");
    }
    summary
}
