//! What a finished copy says of itself to people: what was copied, what bounded it, what was lost
//! where. Every quantity carries its unit.

use longhaul_proto::units::{Bytes, LossRatio};
use longhaul_transfer::progress::{Notice, SourceRow};
use longhaul_transfer::summary::{BoundBy, Summary};

use crate::progress::duration;

/// A notice as a line.
pub(crate) fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Connected { peer, address, carrier } => {
            format!("connected to {peer} at {address} by {carrier}")
        }
        Notice::Resumed { bytes } => format!("{} are there already", Bytes::new(*bytes)),
        Notice::Silent { since, sends } => {
            let stopped = if *sends { "sending has stopped until it is heard" } else { "waiting" };
            format!("nothing has come from the other side for {}: {stopped}", duration(*since))
        }
        Notice::HeardAgain => "the other side is heard again; going on".to_owned(),
        Notice::Reconnecting { reason } => format!("connection lost ({reason}); trying again"),
        Notice::Fallback { carrier, advice } => format!("the data go by {carrier} now; {advice}"),
        Notice::Streams { count, found } => {
            let ways = self::count(u64::from(*count), "connection");
            match found {
                true => format!("{ways}: the best of the numbers tried"),
                false => format!("{ways} when the copy was over, before the best was found"),
            }
        }
        Notice::File { path } => path.display().to_string(),
        Notice::Skipped { path } => format!("{} is there and equal", path.display()),
        Notice::FileFailed { path, reason } => format!("{}: {reason}", path.display()),
        Notice::SourceFailed { source, error } => format!("{source} is left out: {error}"),
        Notice::OfSource { source, notice } => format!("{source}: {}", self::notice(notice)),
        Notice::Warning(text) => text.clone(),
    }
}

/// What a summary is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A copy.
    Copy,
    /// A look at what a copy would do.
    DryRun,
    /// A measurement, after which nothing is there.
    Fake,
}

/// The summary as lines.
pub(crate) fn lines(summary: &Summary, kind: Kind) -> Vec<String> {
    if kind == Kind::DryRun {
        let files = count(summary.files.saturating_sub(summary.skipped_files), "file");
        let bytes = Bytes::new(summary.bytes.saturating_sub(summary.resumed_bytes));
        return vec![format!("longhaul: would copy {files}, {bytes}")];
    }
    let mut lines = vec![headline(summary, kind)];
    if let Some(digest) = &summary.blake3 {
        lines.push(format!("  blake3   {digest}"));
    }
    if summary.resumed_bytes > 0 || summary.skipped_files > 0 {
        let resumed = Bytes::new(summary.resumed_bytes);
        let skipped = count(summary.skipped_files, "file");
        lines.push(format!("  resumed  {resumed} were there already, {skipped} skipped"));
    }
    if summary.blocks > 0 {
        lines.extend([speed(summary), losses(summary), resends(summary)]);
    }
    if summary.bound_by != BoundBy::Nothing {
        lines.push(format!("  bound    {}", bound(summary.bound_by)));
    }
    lines.extend(summary.sources.iter().map(source));
    if summary.failed_sources > 0 {
        let all = summary.sources.len();
        let what = "named above; what the others have is there";
        lines.push(format!("  failed   {} of {all} sources, {what}", summary.failed_sources));
    }
    if summary.failed_files > 0 {
        let failed = count(summary.failed_files, "file");
        lines.push(format!("  failed   {failed}, named above; mend and run the same again"));
    }
    lines
}

fn headline(summary: &Summary, kind: Kind) -> String {
    let (files, bytes) = (count(summary.files, "file"), Bytes::new(summary.bytes));
    let verified = match summary.unread_files {
        _ if summary.verified => "verified".to_owned(),
        unread if unread > 0 && summary.failed_files == 0 => {
            let unread = count(unread, "file");
            format!("verified but for {unread} of the same size and time (--checksum reads them)")
        }
        _ => "NOT verified".to_owned(),
    };
    let time = duration(summary.elapsed);
    if kind == Kind::Fake {
        return format!("longhaul: measured {bytes} in {time}; nothing was written");
    }
    format!("longhaul: copied {files}, {bytes} in {time}, {verified}")
}

/// What one of several sources has brought.
fn source(row: &SourceRow) -> String {
    let bytes = Bytes::new(row.received_bytes);
    let SourceRow { source, state, loss, resent, .. } = row;
    let resent = count(*resent, "block");
    format!("  from     {source}: {}, {bytes}, loss {loss}, resent {resent}", state.name())
}

fn speed(summary: &Summary) -> String {
    let Summary { goodput, protocol, cipher, rate, rtt, payload_bytes, .. } = summary;
    format!(
        "  goodput  {goodput} by {protocol} ({cipher}), rate {rate}, RTT {rtt}, {payload_bytes} B \
         in a datagram, first data after {}",
        summary.setup
    )
}

fn losses(summary: &Summary) -> String {
    let sent = summary.sender.sent;
    // What the receiver dropped came over the path: it is no loss of the path.
    let at_receiver = summary.socket_lost + summary.memory_lost;
    let on_path = summary.path_lost.saturating_sub(at_receiver);
    let share = |lost: u64| format!("{} ({lost})", LossRatio::of(lost, sent));
    let for_memory = match summary.memory_lost {
        0 => String::new(),
        lost => format!(", beyond what its memory had granted {}", share(lost)),
    };
    format!(
        "  lost     on the path {}, in the receiver's socket buffer {}{for_memory}, of {sent} \
         datagrams",
        share(on_path),
        share(summary.socket_lost)
    )
}

fn resends(summary: &Summary) -> String {
    format!(
        "  resent   {} in {}, {} of our own, waste {:.2} %",
        count(summary.sender.retransmitted, "block"),
        count(u64::from(summary.sender.rounds), "round"),
        count(summary.receiver.duplicates, "duplicate"),
        summary.waste * 100.0
    )
}

/// What strangers sent, and copies that the way made: for who asks for it.
pub(crate) fn refused(summary: &Summary) -> Option<String> {
    let refused = count(summary.refused_datagrams, "datagram");
    (summary.refused_datagrams > 0)
        .then(|| format!("  refused  {refused} that were foreign, forged or came again"))
}

/// What bounded the copy, and what would make it faster.
fn bound(by: BoundBy) -> &'static str {
    match by {
        BoundBy::Path => "by the path: it was full",
        BoundBy::RateOption => "by --rate or --bwlimit: raise it if the path has room",
        BoundBy::SenderCpu => {
            "by the sending host's CPU: larger packets (MTU 9000), or a faster core, would help"
        }
        BoundBy::ReceiverCpu => {
            "by the receiving host's CPU: larger packets (MTU 9000), or a faster core, would help"
        }
        BoundBy::SourceDisk => "by reading at the source: a faster disk there would help",
        BoundBy::DestinationDisk => "by writing at the destination: a faster disk there would help",
        BoundBy::SmallFiles => {
            "by creating many small files at the destination: an archive of them would be faster"
        }
        BoundBy::PeerLimit => {
            "by the other side's own limit: raise --memory there, or its rate, if it has room"
        }
        BoundBy::Nothing => "by nothing that could be told",
    }
}

fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
    use longhaul_proto::time::Span;
    use longhaul_proto::units::Rate;
    use longhaul_transfer::progress::SourceState;

    pub(crate) fn example() -> Summary {
        Summary {
            bytes: 300_000_000,
            files: 12,
            elapsed: Span::from_millis(2_830),
            setup: Span::from_millis(101),
            goodput: Rate::from_mbps(848),
            protocol: "rbudp".into(),
            rate: Rate::from_mbps(940),
            rtt: Span::from_millis(100),
            payload_bytes: 1_440,
            blocks: 208_334,
            path_lost: 2_150,
            socket_lost: 50,
            memory_lost: 0,
            refused_datagrams: 0,
            sender: SenderAccounting {
                sent: 210_500,
                first: 208_334,
                retransmitted: 2_166,
                reported_lost: 2_150,
                rounds: 3,
                ..Default::default()
            },
            receiver: ReceiverAccounting {
                received: 208_350,
                distinct: 208_334,
                duplicates: 16,
                blocks_lost: 2_120,
                reported_lost: 2_150,
                highest: 210_500,
                ..Default::default()
            },
            waste: 0.0104,
            bound_by: BoundBy::RateOption,
            resumed_bytes: 0,
            skipped_files: 0,
            unread_files: 0,
            failed_files: 0,
            cipher: "aes-128-gcm".into(),
            blake3: Some("af13".into()),
            verified: true,
            cpu: Span::from_millis(900),
            far_cpu: Some(Span::from_millis(800)),
            sources: Vec::new(),
            failed_sources: 0,
        }
    }

    #[test]
    fn a_summary_says_what_was_copied_lost_and_resent() {
        assert_eq!(
            lines(&example(), Kind::Copy),
            [
                "longhaul: copied 12 files, 300.00 MB in 2.8 s, verified",
                "  blake3   af13",
                "  goodput  848.00 Mbit/s by rbudp (aes-128-gcm), rate 940.00 Mbit/s, \
                 RTT 100.0 ms, 1440 B in a datagram, first data after 101.0 ms",
                "  lost     on the path 1.00 % (2100), in the receiver's socket buffer \
                 0.02 % (50), of 210500 datagrams",
                "  resent   2166 blocks in 3 rounds, 16 duplicates of our own, waste 1.04 %",
                "  bound    by --rate or --bwlimit: raise it if the path has room",
            ]
        );
    }

    #[test]
    fn what_is_not_verified_or_failed_is_said() {
        let summary = Summary { verified: false, failed_files: 1, ..example() };
        let text = lines(&summary, Kind::Copy).join("\n");
        assert!(text.contains("NOT verified") && text.contains("failed   1 file,"), "{text}");
        let summary = Summary { verified: false, unread_files: 2, ..example() };
        let said = "verified but for 2 files of the same size and time (--checksum reads them)";
        assert!(lines(&summary, Kind::Copy)[0].ends_with(said));
    }

    #[test]
    fn what_the_receiver_had_no_memory_for_is_no_loss_of_the_path() {
        let summary = Summary { memory_lost: 100, ..example() };
        let text = lines(&summary, Kind::Copy).join("\n");
        let said = "on the path 0.95 % (2000), in the receiver's socket buffer 0.02 % (50), \
                    beyond what its memory had granted 0.05 % (100), of 210500 datagrams";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn the_number_of_connections_that_was_found_is_said() {
        let said = |count, found| notice(&Notice::Streams { count, found });
        assert_eq!(said(8, true), "8 connections: the best of the numbers tried");
        assert!(said(1, false).starts_with("1 connection when the copy was over"));
    }

    #[test]
    fn each_of_several_sources_has_its_line_and_failures_are_counted() {
        let row = SourceRow {
            source: "h1:/a".into(),
            state: SourceState::Done,
            received_bytes: 5_000_000,
            rate: Rate::ZERO,
            share: 0.0,
            loss: LossRatio::of(1, 100),
            resent: 1,
            rtt: Span::ZERO,
        };
        let failed = SourceRow { state: SourceState::Failed, ..row.clone() };
        let summary = Summary { sources: vec![row, failed], failed_sources: 1, ..example() };
        let text = lines(&summary, Kind::Copy).join("\n");
        assert!(text.contains("h1:/a: done, 5.00 MB, loss 1.00 %, resent 1 block\n"), "{text}");
        assert!(text.contains("failed   1 of 2 sources"), "{text}");
    }

    #[test]
    fn a_measurement_says_that_nothing_is_there() {
        let said = lines(&Summary { verified: false, ..example() }, Kind::Fake);
        assert_eq!(said[0], "longhaul: measured 300.00 MB in 2.8 s; nothing was written");
    }

    #[test]
    fn a_dry_run_says_what_would_be() {
        assert_eq!(lines(&example(), Kind::DryRun), ["longhaul: would copy 12 files, 300.00 MB"]);
    }
}
