//! The protocols' control messages, from a datagram or a stream.

use longhaul_proto::wire::{Control, MAX_CONTROL};

/// Checks that a parsed message keeps its type's invariants, and that it can be encoded and parsed
/// again.
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
    // Messages of an honest end have at most `MAX_CONTROL` bytes. A hostile peer's message may be
    // longer, but encoding it again must not make it longer still.
    assert!(out.len() <= MAX_CONTROL.max(bytes.len()));
}
