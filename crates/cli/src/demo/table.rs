//! The demo's table, and suggestions for next commands.

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;

use super::child::{Finished, Half};
use super::goodput;
use super::walk::Verdict;
use crate::console::bold;
use crate::progress::duration;
use crate::quantity::count;

pub(super) const NEXT: [&str; 6] = [
    "",
    "Try next:",
    "  longhaul cp -a -P FOLDER HOST:PATH        by ssh; longhaul must be on HOST too",
    "  longhaul serve --root FOLDER --allow ID   longhaul id on the other host prints ID",
    "  longhaul emulate --rate 1G --rtt 100ms --loss 0.1% -- bash",
    "                                            a shell on host a, with host b far away",
];

pub(super) struct DemoOutcome {
    /// Last progress report of the first run before its kill.
    pub(super) killed: Half,
    /// Duration of the first run.
    pub(super) first: Span,
    /// Summary of the second run.
    pub(super) summary: Finished,
    /// Duration of the second run.
    pub(super) second: Span,
    pub(super) verdict: Verdict,
}

pub(super) fn lines(outcome: &DemoOutcome) -> Vec<String> {
    let DemoOutcome { killed, first, summary, second, verdict } = outcome;
    let moved = summary.bytes.saturating_sub(summary.resumed_bytes);
    let again = killed.bytes.saturating_sub(summary.resumed_bytes);
    let bytes = |count: u64| Bytes::new(count).to_string();
    let row = |name: &str, a: &str, b: &str| format!("  {name:<16}{a:<26}{b}");
    let verified = match summary.unread_files {
        _ if summary.verified => "done, verified (BLAKE3)".to_owned(),
        0 => "done, NOT verified".to_owned(),
        unread => {
            let unread = count(unread, "file");
            format!("done, verified (BLAKE3) except {unread} of the first run")
        }
    };
    vec![
        String::new(),
        bold(&row("", "first run", "second run")),
        row("ended by", "kill -9", &verified),
        row("already there", &bytes(0), &bytes(summary.resumed_bytes)),
        row("copied", &bytes(killed.bytes), &bytes(moved)),
        row("of", &bytes(killed.total_bytes), &bytes(summary.bytes)),
        row("time", &duration(*first), &duration(*second)),
        row(
            "goodput",
            &goodput(killed.bytes, *first).to_string(),
            &goodput(moved, *second).to_string(),
        ),
        row("encrypted by", &summary.cipher, &summary.cipher),
        row("cost of kill", "", &format!("{} sent again", bytes(again))),
        row("blocks resent", "", &summary.retransmitted.to_string()),
        String::new(),
        compared(verdict),
        String::new(),
    ]
}

fn compared(verdict: &Verdict) -> String {
    let Verdict { files, bytes, differences } = verdict;
    let bytes = Bytes::new(*bytes);
    match differences.len() {
        0 => format!("  compared        {files} files, {bytes}, byte by byte: all equal"),
        count => format!("  compared        {files} files, {bytes}: {count} DIFFER"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the table says about the end of the second run.
    fn ended_by(verified: bool, unread_files: u64) -> String {
        let summary = Finished {
            bytes: 10,
            resumed_bytes: 5,
            verified,
            unread_files,
            cipher: "aes".to_owned(),
            retransmitted: 0,
            seconds: 1.0,
        };
        let outcome = DemoOutcome {
            killed: Half { bytes: 5, total_bytes: 10 },
            first: Span::from_secs(1),
            summary,
            second: Span::from_secs(1),
            verdict: Verdict::default(),
        };
        let row = lines(&outcome).into_iter().find(|line| line.contains("ended by"));
        row.expect("the table has the row").split_once("kill -9").expect("killed").1.trim().into()
    }

    #[test]
    fn the_table_says_how_many_files_the_second_run_did_not_verify() {
        assert_eq!(ended_by(true, 0), "done, verified (BLAKE3)");
        assert_eq!(ended_by(false, 2), "done, verified (BLAKE3) except 2 files of the first run");
        assert_eq!(ended_by(false, 0), "done, NOT verified");
    }
}
