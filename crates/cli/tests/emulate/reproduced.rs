//! `longhaul reproduce --how emulate`, from a scenario to a page.

use std::fs;
use std::process::Command;

use super::{emulate, piped};
use crate::rig::{Child, need};

#[test]
fn the_page_has_each_emulated_value_or_the_reason_for_its_absence() {
    const CASE: &str = "10 frames at 230.4 Mbit/s, loss 0 %";
    need!(emulate(&["--", "true"]));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let results = folder.path().to_str().expect("plain letters");
    let words = ["reproduce", "quanta-streaming", "--how", "emulate", "--case", CASE];
    let words = [&words[..], &["--update", "--results", results]].concat();
    let ended =
        Child::spawn(&mut piped(Command::new(env!("CARGO_BIN_EXE_longhaul")), &words)).end();
    ended.is(0, &["emulates 1 cases"]);
    let page = fs::read_to_string(folder.path().join("quanta-streaming.md")).expect("it is there");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let head = page.lines().map(cells).find(|cells| cells.contains(&"emulated".to_owned()));
    let of_case = page.lines().map(cells).find(|cells| cells.get(1).is_some_and(|c| c == CASE));
    let of_case = of_case.unwrap_or_else(|| panic!("no row of the case: {page}"));
    let place = head.and_then(|names| names.iter().position(|name| name == "emulated"));
    let emulated = place.map(|place| &of_case[place]);
    // Other load on the machine can invalidate a run; the page then says so.
    match emulated {
        Some(value) => {
            let seconds: f64 = value.parse().unwrap_or_else(|_| panic!("{value:?}: {page}"));
            // 14.4 MB at 230.4 Mbit/s take half a second, plus a round trip of 0.1 s.
            assert!(seconds > 0.59, "{seconds}: {page}");
            assert!(
                page.contains("Emulated values: ") && !page.contains("Emulation failed"),
                "{page}"
            );
        }
        None => assert!(page.contains(&format!("Emulation failed: {CASE}: ")), "{page}"),
    }
    assert!(page.contains("Not emulated yet: ") || emulated.is_none(), "{page}");
}
