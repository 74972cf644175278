//! The demo's table, and suggestions for next commands.

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;

use super::child::{Finished, Half};
use super::goodput;
use super::walk::Verdict;
use crate::console::bold;
use crate::progress::duration;

/// Suggested next commands.
pub(super) const NEXT: [&str; 6] = [
    "",
    "Try next:",
    "  longhaul cp -a -P FOLDER HOST:PATH        by ssh; longhaul must be on HOST too",
    "  longhaul serve --root FOLDER --allow ID   longhaul id on the other host prints ID",
    "  longhaul emulate --rate 1G --rtt 100ms --loss 0.1% -- bash",
    "                                            a shell on host a, with host b far away",
];

/// Results of the demo.
pub(super) struct DemoOutcome {
    /// Progress of the first run when it was killed.
    pub(super) killed: Half,
    /// Duration of the first run.
    pub(super) first: Span,
    /// Summary of the second run.
    pub(super) summary: Finished,
    /// Duration of the second run.
    pub(super) second: Span,
    /// Result of the comparison of both trees.
    pub(super) verdict: Verdict,
}

/// Formats the table.
pub(super) fn lines(outcome: &DemoOutcome) -> Vec<String> {
    let DemoOutcome { killed, first, summary, second, verdict } = outcome;
    let moved = summary.bytes.saturating_sub(summary.resumed_bytes);
    let again = killed.bytes.saturating_sub(summary.resumed_bytes);
    let bytes = |count: u64| Bytes::new(count).to_string();
    let row = |name: &str, a: &str, b: &str| format!("  {name:<16}{a:<26}{b}");
    let verified = if summary.verified || summary.unread_files > 0 {
        "done, verified (BLAKE3)"
    } else {
        "done, NOT verified"
    };
    vec![
        String::new(),
        bold(&row("", "first run", "second run")),
        row("ended by", "kill -9", verified),
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
