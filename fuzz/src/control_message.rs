//! The protocols' control messages, from a datagram or a stream.

use longhaul_proto::wire::{Control, MAX_CONTROL};

/// Checks the invariants of a parsed `Report` message, and that each message can be encoded and
/// parsed again.
pub fn run(bytes: &[u8]) {
    let Ok(control) = Control::decode(bytes) else { return };
    if let Control::Report(report) = &control {
        let slice = report.slice();
        assert!(!slice.is_empty());
        let mut end = None;
        for run in report.missing() {
            assert!(!run.is_empty() && slice.start <= run.start && run.end <= slice.end);
            assert!(end.is_none_or(|end| end < run.start), "runs touch, or go back");
            end = Some(run.end);
        }
        assert!(report.count() <= slice.end - slice.start);
    }
    let mut out = Vec::new();
    control.encode(&mut out);
    assert_eq!(Control::decode(&out).as_ref(), Ok(&control));
    // A hostile peer's message may exceed `MAX_CONTROL`.
    assert!(out.len() <= MAX_CONTROL.max(bytes.len()));
}
