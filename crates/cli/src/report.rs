//! Text output of events and summaries.

use longhaul::accounting::{Origin, ReceiveCapacity};
use longhaul::{BoundBy, Event, SourceRow, Summary};
use longhaul_proto::law::Found;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};

use crate::error::Error;
use crate::plain;
use crate::progress::duration;
use crate::quantity::{self, count};

/// Shorter times are shown in ms.
const SHORT: Span = Span::from_millis(100);
/// Without `-v`, only copies of at least this duration report their bottleneck, and traffic that
/// shared the path.
const LONG: Span = Span::from_secs(2);

/// Formats an event as a line, with control characters escaped.
pub(crate) fn event(event: &Event) -> String {
    let path = plain::path;
    match event {
        Event::Connected { peer, address, carrier } => {
            format!("connected to {} at {address} by {carrier}", plain::text(peer))
        }
        Event::Resumed { bytes } => {
            format!("longhaul: {} are there already", Bytes::new(*bytes))
        }
        Event::Silent { since, sends } => {
            let stopped =
                if *sends { "sending pauses until the other side answers" } else { "waiting" };
            format!("no data from the other side for {}: {stopped}", duration(*since))
        }
        Event::HeardAgain => "the other side answers again; the copy continues".to_owned(),
        Event::Reconnecting { reason } => {
            format!("the copy is interrupted ({}); trying again", plain::text(reason))
        }
        Event::Busy { reason } => {
            format!("the copy has to wait ({}); trying again", plain::text(reason))
        }
        Event::Fallback { carrier, advice } => {
            format!("the data go by {carrier} now; {}", plain::text(advice))
        }
        Event::Streams { count, found } => {
            let ways = quantity::count(u64::from(*count), "connection");
            match found {
                true => format!("{ways}: the best of the numbers tried"),
                false => format!("{ways} at the end of the copy, before the best number was found"),
            }
        }
        Event::FileDone { path: file } => path(file),
        // The format of rsync.
        Event::FolderDone { path: folder } => format!("{}/", path(folder)),
        Event::LinkDone { path: link, target } => format!("{} -> {}", path(link), path(target)),
        Event::FileSkipped { path: file } => format!("{} exists and is equal", path(file)),
        Event::Deleted { path: name } => format!("deleting {}", path(name)),
        Event::FileFailed { path: file, reason } => {
            format!("{}: {}", path(file), plain::text(reason))
        }
        Event::SourceFailed { source, error } => {
            format!(
                "{} is left out: {}",
                plain::text(source),
                plain::text(&Error::from(error.clone()).to_string())
            )
        }
        Event::OfSource { source, event } => {
            format!("{}: {}", plain::text(source), self::event(event))
        }
        Event::Warning(text) => plain::text(text),
        // A newer library may have more events.
        other => plain::text(&format!("{other:?}")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Copy,
    Replicas,
    DryRun,
    /// A measurement that writes nothing.
    Fake,
}

/// The lines of a summary: what was copied and, for long copies, what limited it.
pub(crate) fn lines(summary: &Summary, kind: Kind, verbose: bool) -> Vec<String> {
    let left = summary.bytes.saturating_sub(summary.resumed_bytes);
    if kind == Kind::DryRun {
        let files = count(summary.files.saturating_sub(summary.skipped_files), "file");
        let mut lines = vec![format!("longhaul: would copy {files}, {}", Bytes::new(left))];
        if summary.deleted > 0 {
            lines.push(format!("  deletes  {}", count(summary.deleted, "name")));
        }
        if summary.failed_files > 0 {
            let failed = count(summary.failed_files, "file");
            lines.push(format!("  failing  {failed}, named above"));
        }
        return lines;
    }
    let mut lines = vec![headline(summary, kind)];
    let some_resumed = summary.resumed_bytes > 0 || summary.skipped_files > 0;
    if some_resumed && !is_nothing(summary) {
        let resumed = Bytes::new(summary.resumed_bytes);
        let skipped = count(summary.skipped_files, "file");
        lines.push(format!("  resumed  {resumed} existed already, {skipped} skipped"));
    }
    if summary.deleted > 0 {
        lines.push(format!("  deleted  {}", count(summary.deleted, "name")));
    }
    if verbose {
        lines.extend(summary.blake3.as_ref().map(|digest| format!("  blake3   {digest}")));
        if summary.blocks > 0 {
            lines.extend([speed(summary), losses(summary), resends(summary)]);
        } else if summary.goodput > Rate::ZERO {
            lines.push(stream_speed(summary));
        }
        lines.extend(refused(summary));
        lines.extend(summary.receives.map(receives));
    }
    let is_shared = |found: &Found| found.shared.is_some_and(|shared| shared > Span::ZERO);
    let is_shown = |found: &Found| verbose || is_shared(found) && summary.elapsed >= LONG;
    let found = summary.found.filter(is_shown).filter(|_| !is_nothing(summary));
    lines.extend(found.map(|found| path_found(&found, summary.elapsed)));
    if summary.bound_by != BoundBy::Nothing && (verbose || summary.elapsed >= LONG) {
        lines.push(format!("  bound    {}{}", bound(summary.bound_by), lost(summary, verbose)));
    }
    lines.extend(summary.sources.iter().map(source));
    if summary.failed_sources > 0 {
        let all = summary.sources.len();
        let what = match kind {
            Kind::Replicas => "named above; the others delivered the whole object",
            _ => "named above; the files of the others are complete",
        };
        lines.push(format!("  failed   {} of {all} sources, {what}", summary.failed_sources));
    }
    if summary.failed_files > 0 {
        let failed = count(summary.failed_files, "file");
        lines.push(format!(
            "  failed   {failed}, named above; fix the cause and run the same command again"
        ));
    }
    lines
}

fn is_nothing(summary: &Summary) -> bool {
    let there = summary.skipped_files >= summary.files;
    there && came(summary).is_none() && summary.failed_files == 0 && summary.failed_sources == 0
}

/// What this run copied, if anything; folders are mentioned only if there is nothing else.
fn came(summary: &Summary) -> Option<String> {
    let Summary { copied_files, copied_bytes, links, folders, .. } = *summary;
    let mut came = Vec::new();
    if copied_files > 0 {
        came.push(count(copied_files, "file"));
    }
    if links > 0 {
        came.push(count(links, "link"));
    }
    if copied_files > 0 {
        came.push(Bytes::new(copied_bytes).to_string());
    }
    if came.is_empty() && folders > 0 {
        came.push(count(folders, "folder"));
    }
    (!came.is_empty()).then(|| came.join(", "))
}

fn headline(summary: &Summary, kind: Kind) -> String {
    let (files, bytes) = (count(summary.files, "file"), Bytes::new(summary.bytes));
    let verified = match summary.unread_files {
        _ if summary.verified => "verified".to_owned(),
        // A failed file never gets its final name; all other files are verified.
        0 if summary.failed_files > 0 => {
            format!("verified; {} FAILED", count(summary.failed_files, "file"))
        }
        unread if unread > 0 && summary.failed_files == 0 => {
            let unread = count(unread, "file");
            format!("verified except {unread} of the same size and time (--checksum reads them)")
        }
        _ => "NOT verified".to_owned(),
    };
    let time = match summary.elapsed.as_nanos() {
        blink if blink < SHORT.as_nanos() => format!("{} ms", blink.div_ceil(1_000_000)),
        _ => duration(summary.elapsed),
    };
    let goodput = match summary.goodput {
        Rate::ZERO => String::new(),
        goodput => format!(", {goodput}"),
    };
    if kind == Kind::Fake {
        return format!("longhaul: measured {bytes} in {time}{goodput}; nothing was written");
    }
    if is_nothing(summary) {
        return match summary.files {
            0 => "longhaul: already there, nothing to copy".to_owned(),
            _ => format!("longhaul: already there, nothing to copy: {files}, {bytes}"),
        };
    }
    let Some(came) = came(summary) else {
        return match summary.failed_files {
            0 => "longhaul: copied nothing".to_owned(),
            failed => format!("longhaul: copied nothing; {} FAILED", count(failed, "file")),
        };
    };
    format!("longhaul: copied {came} in {time}{goodput}, {verified}")
}

pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Given => "given",
        Origin::Limit => "limit",
        Origin::Card => "card",
        Origin::Found => "found",
    }
}

fn receives(capacity: ReceiveCapacity) -> String {
    let ReceiveCapacity { rate, link, share, others, .. } = capacity;
    let known = match capacity.origin {
        Origin::Given => "by --receive-rate",
        Origin::Limit => "by --bwlimit",
        Origin::Card => "by the card's speed",
        Origin::Found => "as measured",
    };
    let share = match share {
        share if share < 1.0 => format!("{} % of ", (share * 1000.0).round() / 10.0),
        _ => String::new(),
    };
    let others = others.map(|rate| format!("; {rate} left to other traffic")).unwrap_or_default();
    format!("  took     at most {rate} in all, {share}{link} {known}{others}")
}

fn source(row: &SourceRow) -> String {
    let bytes = Bytes::new(row.received_bytes);
    let SourceRow { state, loss, resent, refused, .. } = row;
    let source = plain::text(&row.source);
    let resent = count(*resent, "block");
    let refused = match refused {
        0 => String::new(),
        blocks => format!(", {} not requested", count(*blocks, "block")),
    };
    format!("  from     {source}: {}, {bytes}, loss {loss}, resent {resent}{refused}", state.name())
}

fn speed(summary: &Summary) -> String {
    let Summary { goodput, protocol, cipher, rate, rtt, payload_bytes, remembered, .. } = summary;
    let remembered = remembered.map_or(String::new(), |rate| format!(", {rate} remembered"));
    format!(
        "  goodput  {goodput} by {protocol} ({cipher}), rate {rate}, RTT {rtt}, {payload_bytes} B \
         in a datagram, first data after {}{remembered}",
        summary.setup
    )
}

fn path_found(found: &Found, elapsed: Span) -> String {
    let Found { rate, after, loss_ppm, shared, .. } = *found;
    let loss = match loss_ppm {
        0 => String::new(),
        ppm => format!("; loss of {} is the path's own", LossRatio::of(ppm.into(), 1_000_000)),
    };
    let shared = match shared {
        None => String::new(),
        Some(Span::ZERO) => "; no other traffic detected".to_owned(),
        Some(shared) => format!("; shared with other traffic for {shared} of {elapsed}"),
    };
    format!("  found    {rate}, the first rate after {after}{loss}{shared}")
}

fn stream_speed(summary: &Summary) -> String {
    let Summary { goodput, protocol, cipher, setup, .. } = summary;
    // A copy over HTTP has no setup time.
    let setup = match *setup {
        Span::ZERO => String::new(),
        setup => format!(", first data after {setup}"),
    };
    format!("  goodput  {goodput} by {protocol} ({cipher}){setup}")
}

/// Datagrams lost on the path, without those that the receiver dropped.
fn lost_on_path(summary: &Summary) -> u64 {
    summary.path_lost.saturating_sub(lost_at_receiver(summary))
}

fn lost_at_receiver(summary: &Summary) -> u64 {
    summary.socket_lost + summary.memory_lost + summary.early_lost
}

/// The losses in short; empty if `shown`, which means that the verbose line shows them.
fn lost(summary: &Summary, shown: bool) -> String {
    let share = |lost: u64| LossRatio::of(lost, summary.sender.sent);
    match (lost_on_path(summary), lost_at_receiver(summary)) {
        _ if shown => String::new(),
        (0, 0) => String::new(),
        (path, 0) => format!("; lost on the path {}", share(path)),
        (path, here) => {
            format!("; lost on the path {}, at the receiver {}", share(path), share(here))
        }
    }
}

fn losses(summary: &Summary) -> String {
    let sent = summary.sender.sent;
    let on_path = lost_on_path(summary);
    let share = |lost: u64| format!("{} ({lost})", LossRatio::of(lost, sent));
    let for_memory = match summary.memory_lost {
        0 => String::new(),
        lost => format!(", beyond its memory grant {}", share(lost)),
    };
    let before = match summary.early_lost {
        0 => String::new(),
        lost => format!(", before the copy was admitted {}", share(lost)),
    };
    format!(
        "  lost     on the path {}, in the receiver's socket buffer {}{for_memory}{before}, of {}",
        share(on_path),
        share(summary.socket_lost),
        count(sent, "datagram")
    )
}

fn resends(summary: &Summary) -> String {
    let in_vain = match summary.sender.first.saturating_sub(summary.blocks) {
        0 => String::new(),
        blocks => format!(", {} not needed", count(blocks, "block")),
    };
    let coded = match summary.sender.coded {
        0 => String::new(),
        symbols => format!(" ({symbols} coded, which replaced {})", summary.receiver.recovered),
    };
    format!(
        "  resent   {}{coded} in {}, {} received{in_vain}, waste {:.2} %",
        count(summary.sender.retransmitted, "block"),
        count(u64::from(summary.sender.rounds), "round"),
        count(summary.receiver.duplicates, "duplicate"),
        summary.waste * 100.0
    )
}

fn refused(summary: &Summary) -> Option<String> {
    let number = summary.refused_datagrams + summary.receiver.refused;
    let refused = count(number, "datagram");
    (number > 0)
        .then(|| format!("  refused  {refused}: foreign, forged, replayed or not requested"))
}

fn bound(by: BoundBy) -> &'static str {
    match by {
        BoundBy::Path => "by the path: it was full",
        BoundBy::RateOption => {
            "by --rate, --bwlimit or --receive-rate: raise it if the path has room"
        }
        BoundBy::SenderCpu => {
            "by the sending host's CPU: larger packets (MTU 9000), or a faster core, would help"
        }
        BoundBy::ReceiverCpu => {
            "by the receiving host's CPU: larger packets (MTU 9000), or a faster core, would help"
        }
        BoundBy::SourceDisk => "by reading at the source: a faster disk there would help",
        BoundBy::DestinationDisk => {
            "by writing at the destination: a faster disk, or reader of the pipe, would help"
        }
        BoundBy::SmallFiles => {
            "by creating many small files at the destination: an archive of them would be faster"
        }
        BoundBy::PeerLimit => {
            "by the receiving host's limit on memory: raise --memory there, if it has room"
        }
        _ => "by an unknown bottleneck",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error::but;
    use longhaul::SourceState;
    use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};

    pub(crate) fn example() -> Summary {
        but!(
            Summary::default(),
            bytes: 300_000_000,
            files: 12,
            copied_files: 12,
            copied_bytes: 300_000_000,
            links: 0,
            folders: 0,
            elapsed: Span::from_millis(2_830),
            setup: Span::from_millis(101),
            last_block: Some(Span::from_millis(2_780)),
            goodput: Rate::from_mbps(848),
            protocol: "rbudp".into(),
            rate: Rate::from_mbps(940),
            rtt: Span::from_millis(100),
            payload_bytes: 1_440,
            blocks: 208_334,
            path_lost: 2_150,
            socket_lost: 50,
            memory_lost: 0,
            early_lost: 0,
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
            segments: None,
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
            receives: None,
            sources: Vec::new(),
            failed_sources: 0,
        )
    }

    #[test]
    fn a_summary_reports_copied_lost_and_resent_data() {
        assert_eq!(
            lines(&example(), Kind::Copy, true),
            [
                "longhaul: copied 12 files, 300.00 MB in 2.8 s, 848.00 Mbit/s, verified",
                "  blake3   af13",
                "  goodput  848.00 Mbit/s by rbudp (aes-128-gcm), rate 940.00 Mbit/s, \
                 RTT 100.0 ms, 1440 B in a datagram, first data after 101.0 ms",
                "  lost     on the path 1.00 % (2100), in the receiver's socket buffer \
                 0.02 % (50), of 210500 datagrams",
                "  resent   2166 blocks in 3 rounds, 16 duplicates received, waste 1.04 %",
                "  bound    by --rate, --bwlimit or --receive-rate: raise it if the path has room",
            ]
        );
    }

    #[test]
    fn a_summary_reports_the_found_rate() {
        let rate = Rate::from_mbps(940);
        let trains = Found { rate, after: Span::from_millis(200), ..Found::default() };
        let alone = Found { shared: Some(Span::ZERO), ..trains };
        let shared = Span::from_millis(1_200);
        let shared = Found { loss_ppm: 10_000, shared: Some(shared), ..trains };
        let shown = |found, verbose| {
            let summary = but!(example(), found: Some(found));
            let said = lines(&summary, Kind::Copy, verbose);
            said.into_iter().find_map(|line| line.strip_prefix("  found    ").map(str::to_owned))
        };
        let first = "940.00 Mbit/s, the first rate after 200.0 ms";
        assert_eq!(shown(trains, true), Some(first.into()));
        assert_eq!(shown(alone, true), Some(format!("{first}; no other traffic detected")));
        assert_eq!(shown(alone, false), None);
        let others = "loss of 1.00 % is the path's own; shared with other traffic for 1.20 s of \
                      2.83 s";
        let line = Some(format!("{first}; {others}"));
        assert_eq!([shown(shared, true), shown(shared, false)], [line.clone(), line]);
    }

    #[test]
    fn a_summary_has_two_lines_by_default_and_one_for_a_very_short_copy() {
        let bound = "  bound    by --rate, --bwlimit or --receive-rate: raise it if the path has \
                     room; lost on the path 1.00 %, at the receiver 0.02 %";
        let said = lines(&example(), Kind::Copy, false);
        assert_eq!(
            said,
            ["longhaul: copied 12 files, 300.00 MB in 2.8 s, 848.00 Mbit/s, verified", bound]
        );
        let blink = but!(example(), elapsed: Span::from_millis(40));
        let said = lines(&blink, Kind::Copy, false);
        assert_eq!(
            said,
            ["longhaul: copied 12 files, 300.00 MB in 40 ms, 848.00 Mbit/s, verified"]
        );
        let clean = but!(example(), path_lost: 0, socket_lost: 0);
        assert!(!lines(&clean, Kind::Copy, false).join("\n").contains("lost"));
    }

    #[test]
    fn a_copy_of_existing_files_reports_nothing_to_copy() {
        let there = but!(example(), copied_files: 0,
            copied_bytes: 0,
            resumed_bytes: 300_000_000,
            skipped_files: 12,
            bound_by: BoundBy::Nothing);
        let said = lines(&there, Kind::Copy, false);
        assert_eq!(said, ["longhaul: already there, nothing to copy: 12 files, 300.00 MB"]);
        let found = Found { rate: Rate::from_mbps(753), ..Found::default() };
        let said = lines(&but!(there.clone(), found: Some(found)), Kind::Copy, true);
        assert!(!said.join("\n").contains("found"), "{said:?}");
        let one_left = but!(there.clone(), copied_files: 1, copied_bytes: 5, skipped_files: 11);
        let said = lines(&one_left, Kind::Copy, false);
        assert!(said[0].contains("copied 1 file, 5 B in"), "{said:?}");
        assert!(said[1].contains("11 files skipped"), "{said:?}");
    }

    #[test]
    fn failed_and_existing_files_are_not_reported_as_copied() {
        let some = but!(example(), copied_files: 7,
            copied_bytes: 200_000_000,
            failed_files: 3,
            skipped_files: 2,
            verified: false);
        let said = lines(&some, Kind::Copy, false);
        assert!(said[0].starts_with("longhaul: copied 7 files, 200.00 MB in"), "{said:?}");
        assert!(said[0].ends_with(", verified; 3 files FAILED"), "{said:?}");
        let none = but!(some, copied_files: 0, copied_bytes: 0, failed_files: 12);
        let said = &lines(&none, Kind::Copy, false)[0];
        assert_eq!(said, "longhaul: copied nothing; 12 files FAILED");
    }

    #[test]
    fn links_are_always_counted_and_folders_only_if_nothing_else_was_copied() {
        let links = but!(example(), bytes: 0,
            files: 0,
            copied_files: 0,
            copied_bytes: 0,
            links: 3,
            folders: 2,
            goodput: Rate::ZERO,
            elapsed: Span::from_millis(20));
        let said = |summary: &Summary| lines(summary, Kind::Copy, false)[0].clone();
        assert_eq!(said(&links), "longhaul: copied 3 links in 20 ms, verified");
        let folders = but!(links.clone(), links: 0);
        assert_eq!(said(&folders), "longhaul: copied 2 folders in 20 ms, verified");
        let there = but!(folders, folders: 0);
        assert_eq!(said(&there), "longhaul: already there, nothing to copy");
        let both = but!(links, files: 1, copied_files: 1, copied_bytes: 9);
        assert_eq!(said(&both), "longhaul: copied 1 file, 3 links, 9 B in 20 ms, verified");
    }

    #[test]
    fn control_characters_in_texts_from_the_other_host_are_escaped() {
        let path =
            std::path::PathBuf::from("\u{1b}[2J\u{1b}]0;owned\u{7}\nlonghaul: copied 9 files");
        let target = path.clone();
        let reason = "no \u{1b}[31m".to_owned();
        let shown = [
            Event::FileDone { path: path.clone() },
            Event::FolderDone { path: path.clone() },
            Event::LinkDone { path: "a".into(), target },
            Event::FileSkipped { path: path.clone() },
            Event::FileFailed { path: path.clone(), reason: reason.clone() },
            Event::Reconnecting { reason: reason.clone() },
            Event::Busy { reason: reason.clone() },
            Event::Fallback { carrier: "ssh".into(), advice: reason.clone() },
            Event::Warning(path.display().to_string()),
        ];
        for shown in shown {
            let of = Event::OfSource { source: "h:a".into(), event: Box::new(shown.clone()) };
            for line in [event(&shown), event(&of)] {
                assert!(!line.contains(char::is_control), "{line:?}");
                assert!(line.contains("\\u{1b}["), "{line:?}");
            }
        }
    }

    #[test]
    fn a_copy_by_streams_reports_its_goodput() {
        let streams = but!(example(), protocol: "tcp".into(),
            cipher: "tls".into(),
            blocks: 0,
            bound_by: BoundBy::Nothing);
        let said = lines(&streams, Kind::Copy, true);
        assert!(said[0].contains("848.00 Mbit/s"), "{said:?}");
        assert!(said[2].contains("848.00 Mbit/s by tcp (tls)"), "{said:?}");
    }

    #[test]
    fn a_count_of_one_is_singular() {
        let mut one = example();
        one.sender.sent = 1;
        let text = lines(&one, Kind::Copy, true).join("\n");
        assert!(text.contains("of 1 datagram\n"), "{text}");
    }

    #[test]
    fn unverified_and_failed_files_are_reported() {
        let summary = but!(example(), verified: false, failed_files: 1);
        let text = lines(&summary, Kind::Copy, true).join("\n");
        let said = text.contains("verified; 1 file FAILED") && text.contains("failed   1 file,");
        assert!(said, "{text}");
        let summary = but!(example(), verified: false);
        assert!(lines(&summary, Kind::Copy, true)[0].ends_with("NOT verified"));
        let summary = but!(example(), verified: false, unread_files: 2);
        let said = "verified except 2 files of the same size and time (--checksum reads them)";
        assert!(lines(&summary, Kind::Copy, true)[0].ends_with(said));
    }

    #[test]
    fn datagrams_dropped_for_lack_of_memory_at_the_receiver_are_not_losses_of_the_path() {
        let summary = but!(example(), memory_lost: 100);
        let text = lines(&summary, Kind::Copy, true).join("\n");
        let said = "on the path 0.95 % (2000), in the receiver's socket buffer 0.02 % (50), \
                    beyond its memory grant 0.05 % (100), of 210500 datagrams";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn datagrams_dropped_before_admission_are_not_losses_of_the_path() {
        let summary = but!(example(), early_lost: 100);
        let text = lines(&summary, Kind::Copy, true).join("\n");
        let said = "on the path 0.95 % (2000), in the receiver's socket buffer 0.02 % (50), \
                    before the copy was admitted 0.05 % (100), of 210500 datagrams";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn the_found_number_of_connections_is_reported() {
        let said = |count, found| event(&Event::Streams { count, found });
        assert_eq!(said(8, true), "8 connections: the best of the numbers tried");
        assert!(said(1, false).starts_with("1 connection at the end of the copy"));
    }

    #[test]
    fn each_of_several_sources_has_its_line_and_failures_are_counted() {
        let row = but!(SourceRow::default(), source: "h1:/a".into(),
            state: SourceState::Done,
            received_bytes: 5_000_000,
            rate: Rate::ZERO,
            share: 0.0,
            loss: LossRatio::of(1, 100),
            resent: 1,
            refused: 0,
            rtt: Span::ZERO);
        let failed = but!(row.clone(), state: SourceState::Failed);
        let summary = but!(example(), sources: vec![row, failed], failed_sources: 1);
        let text = lines(&summary, Kind::Copy, true).join("\n");
        assert!(text.contains("h1:/a: done, 5.00 MB, loss 1.00 %, resent 1 block\n"), "{text}");
        assert!(text.contains("failed   1 of 2 sources"), "{text}");
    }

    #[test]
    fn the_receive_rate_of_this_host_is_reported_with_its_origin() {
        let capacity = ReceiveCapacity {
            rate: Rate::from_mbps(800),
            link: Rate::from_mbps(1000),
            origin: Origin::Card,
            share: 0.85,
            others: Some(Rate::from_mbps(200)),
        };
        let said = lines(&but!(example(), receives: Some(capacity)), Kind::Copy, true);
        let expected = "  took     at most 800.00 Mbit/s in all, 85 % of 1.00 Gbit/s by the \
            card's speed; 200.00 Mbit/s left to other traffic";
        assert!(said.iter().any(|line| line == expected), "{said:?}");
        let found = ReceiveCapacity { origin: Origin::Found, share: 1.0, others: None, ..capacity };
        let said = lines(&but!(example(), receives: Some(found)), Kind::Copy, true);
        let expected = "  took     at most 800.00 Mbit/s in all, 1.00 Gbit/s as measured";
        assert!(said.iter().any(|line| line == expected), "{said:?}");
        let said = lines(&but!(example(), receives: Some(found)), Kind::Copy, false);
        assert!(!said.join("\n").contains("took"));
    }

    #[test]
    fn blocks_sent_although_the_receiver_had_them_are_reported_as_not_needed() {
        let said = lines(&but!(example(), blocks: 208_000), Kind::Copy, true);
        let expected = "16 duplicates received, 334 blocks not needed, waste";
        assert!(said.iter().any(|line| line.contains(expected)), "{said:?}");
    }

    #[test]
    fn a_measurement_reports_that_nothing_was_written() {
        let said = lines(&but!(example(), verified: false), Kind::Fake, true);
        assert_eq!(
            said[0],
            "longhaul: measured 300.00 MB in 2.8 s, 848.00 Mbit/s; nothing was written"
        );
    }

    #[test]
    fn a_dry_run_reports_the_plan() {
        assert_eq!(
            lines(&example(), Kind::DryRun, true),
            ["longhaul: would copy 12 files, 300.00 MB"]
        );
        let said = lines(&but!(example(), failed_files: 1), Kind::DryRun, false);
        assert_eq!(said[1..], ["  failing  1 file, named above"]);
    }
}
