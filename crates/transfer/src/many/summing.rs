//! One summary of several sources.

use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::rows::Rows;
use crate::counters::process_time;
use crate::summary::{BoundBy, Summary};

/// Returns the summary of sources with different objects. `failed` is the number of failed sources,
/// which have no summary in `summaries`.
pub(super) fn of_parts(summaries: &[Summary], failed: u64, rows: &Rows) -> Summary {
    let mut whole = of_flows(summaries, rows);
    let sum = |of: fn(&Summary) -> u64| sum(summaries, of);
    whole.bytes = sum(|s| s.bytes);
    whole.files = sum(|s| s.files);
    whole.copied_files = sum(|s| s.copied_files);
    whole.copied_bytes = sum(|s| s.copied_bytes);
    whole.links = sum(|s| s.links);
    whole.folders = sum(|s| s.folders);
    whole.resumed_bytes = sum(|s| s.resumed_bytes);
    whole.skipped_files = sum(|s| s.skipped_files);
    whole.unread_files = sum(|s| s.unread_files);
    whole.failed_files = sum(|s| s.failed_files);
    whole.failed_sources = failed;
    whole.verified = summaries.iter().all(|summary| summary.verified);
    let moved = sum(|s| (s.goodput.as_bps() as f64 * s.elapsed.as_secs_f64() / 8.0) as u64);
    whole.goodput = Bytes::new(moved) / whole.elapsed;
    whole
}

/// Sums a field without overflow; counts from other ends may have any value.
fn sum(summaries: &[Summary], of: fn(&Summary) -> u64) -> u64 {
    summaries.iter().map(of).fold(0, u64::saturating_add)
}

/// Returns the summary of the flows of all sources. The values of the object, such as its bytes and
/// files, stay zero; the caller sets them.
pub(super) fn of_flows(summaries: &[Summary], rows: &Rows) -> Summary {
    let sum = |of: fn(&Summary) -> u64| sum(summaries, of);
    let main = summaries.iter().max_by_key(|summary| summary.blocks);
    let text = |of: fn(&Summary) -> &String| main.map(|s| of(s).clone()).unwrap_or_default();
    let blocks = sum(|s| s.blocks);
    let sender = SenderAccounting {
        sent: sum(|s| s.sender.sent),
        first: sum(|s| s.sender.first),
        retransmitted: sum(|s| s.sender.retransmitted),
        coded: sum(|s| s.sender.coded),
        reported_lost: sum(|s| s.sender.reported_lost),
        rounds: summaries.iter().map(|s| s.sender.rounds).max().unwrap_or(0),
        ..SenderAccounting::default()
    };
    Summary {
        bytes: 0,
        files: 0,
        copied_files: 0,
        copied_bytes: 0,
        links: 0,
        deleted: 0,
        folders: 0,
        elapsed: Span::from_nanos(rows.elapsed().as_nanos() as u64),
        first_flight: summaries.iter().any(|s| s.first_flight),
        setup: summaries.iter().map(|s| s.setup).min().unwrap_or(Span::ZERO),
        last_block: summaries.iter().filter_map(|s| s.last_block).max(),
        goodput: Rate::ZERO,
        protocol: text(|s| &s.protocol),
        rate: Rate::from_bps(sum(|s| s.rate.as_bps())),
        remembered: None,
        found: None,
        rtt: summaries.iter().map(|s| s.rtt).max().unwrap_or(Span::ZERO),
        payload_bytes: main.map_or(0, |summary| summary.payload_bytes),
        blocks,
        path_lost: sum(|s| s.path_lost),
        socket_lost: sum(|s| s.socket_lost),
        memory_lost: sum(|s| s.memory_lost),
        early_lost: sum(|s| s.early_lost),
        // Not added: the sources share a port, and each counts all datagrams the port refused.
        refused_datagrams: summaries.iter().map(|s| s.refused_datagrams).max().unwrap_or(0),
        sender,
        receiver: ReceiverAccounting {
            received: sum(|s| s.receiver.received),
            distinct: sum(|s| s.receiver.distinct),
            duplicates: sum(|s| s.receiver.duplicates),
            recovered: sum(|s| s.receiver.recovered),
            blocks_lost: sum(|s| s.receiver.blocks_lost),
            reported_lost: sum(|s| s.receiver.reported_lost),
            highest: sum(|s| s.receiver.highest),
            // Includes the refusals of excluded sources, which have no summary.
            refused: rows.table().iter().map(|row| row.refused).sum(),
            too_fast: sum(|s| s.receiver.too_fast),
        },
        waste: sender.waste(blocks),
        segments: None,
        bound_by: main.map_or(BoundBy::Nothing, |summary| summary.bound_by),
        resumed_bytes: 0,
        skipped_files: 0,
        unread_files: 0,
        failed_files: 0,
        cipher: text(|s| &s.cipher),
        blake3: None,
        verified: false,
        cpu: process_time(),
        far_cpu: None,
        sources: rows.table(),
        receives: None,
        failed_sources: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_reported_counts_saturates() {
        let part = Summary { links: u64::MAX, resumed_bytes: u64::MAX, ..Summary::default() };
        let whole = of_parts(&[part.clone(), part], 0, &Rows::new(Vec::new()));
        assert_eq!((whole.links, whole.resumed_bytes), (u64::MAX, u64::MAX));
    }
}
