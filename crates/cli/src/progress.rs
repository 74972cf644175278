//! Progress of a copy: a bar on a terminal, lines elsewhere.

use std::env;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul::{Progress, SourceRow, Summary};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};

use crate::console;
use crate::plain;
use crate::quantity::count;

const LINE_EVERY: Duration = Duration::from_secs(10);
/// Highest number of redraws of the bar per second.
const DRAWS: u8 = 10;

/// Highest number of sources with their own line. If there are more, only the fastest have one.
const LINES: usize = 8;

pub(crate) enum Meter {
    Hidden,
    Bars(Bars),
    Lines(Calm),
}

/// Progress as lines, one every [`LINE_EVERY`].
pub(crate) struct Calm {
    /// Time of the last line, or of the start.
    last: Instant,
    began: bool,
}

/// A bar for the whole copy. Above it is a line for each of several sources; below it are the
/// losses and the file's name. One line for all figures would exceed 80 columns.
pub(crate) struct Bars {
    all: MultiProgress,
    overall: ProgressBar,
    more: ProgressBar,
    /// The current file.
    name: ProgressBar,
    sources: Vec<ProgressBar>,
    /// Whether the terminal is too narrow for the bar next to its numbers.
    is_narrow: bool,
    began: bool,
}

impl Calm {
    fn new(now: Instant) -> Calm {
        Calm { last: now, began: false }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        self.began = true;
        let is_due = now.saturating_duration_since(self.last) >= LINE_EVERY;
        if is_due {
            self.last = now;
        }
        is_due
    }
}

impl Bars {
    fn new() -> Bars {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS);
        let all = MultiProgress::with_draw_target(target);
        // The bar stays empty while the length is unknown.
        let overall = all.add(ProgressBar::new(1).with_style(bar_style(false)));
        let more = all.add(ProgressBar::new(0).with_style(style(LINE)));
        let name = all.add(ProgressBar::new(0).with_style(style(LINE)));
        Bars { all, overall, more, name, sources: Vec::new(), is_narrow: false, began: false }
    }

    fn update(&mut self, progress: &Progress) {
        let is_narrow = console::columns().is_some_and(|columns| columns < WIDE);
        if is_narrow != self.is_narrow {
            self.is_narrow = is_narrow;
            self.overall.set_style(bar_style(is_narrow));
        }
        let lines = source_lines(&progress.sources);
        while self.sources.len() < lines.len() {
            let bar = ProgressBar::new(0).with_style(style(LINE));
            self.sources.push(self.all.insert_before(&self.overall, bar));
        }
        for (bar, line) in self.sources.iter().zip(lines) {
            bar.set_message(line);
        }
        self.overall.set_length(progress.total_bytes.max(1));
        self.overall.set_position(progress.bytes);
        self.overall.set_message(how_far(progress));
        self.more.set_message(how(progress));
        self.began = true;
    }

    fn clear(&self) {
        let all = self.sources.iter().chain([&self.overall, &self.more, &self.name]);
        all.for_each(ProgressBar::finish_and_clear);
    }

    fn finish(&self) {
        self.sources.iter().for_each(ProgressBar::abandon);
        self.overall.abandon();
        self.more.abandon();
        self.name.finish_and_clear();
    }
}

/// Whether stderr is a terminal that can redraw: `TERM` is set, and is not `dumb`.
pub(crate) fn can_draw() -> bool {
    console::is_terminal() && env::var_os("TERM").is_some_and(|name| name != "dumb")
}

const BAR: &str = "[{bar:12}] {wide_msg}";
const LINE: &str = "{wide_msg}";

/// Minimum number of columns for the bar next to its numbers.
const WIDE: u16 = 60;

fn bar_style(is_narrow: bool) -> ProgressStyle {
    style(if is_narrow { LINE } else { BAR }).progress_chars("=> ")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed")
}

impl Meter {
    /// A bar if stderr can redraw, otherwise lines; hidden if not `wanted`.
    pub(crate) fn new(wanted: bool) -> Meter {
        match wanted {
            false => Meter::Hidden,
            true if can_draw() => Meter::Bars(Bars::new()),
            true => Meter::Lines(Calm::new(Instant::now())),
        }
    }

    pub(crate) fn update(&mut self, progress: &Progress) {
        match self {
            Meter::Hidden => {}
            Meter::Bars(bars) => bars.update(progress),
            Meter::Lines(calm) => {
                if calm.is_due(Instant::now()) {
                    print(progress);
                }
            }
        }
    }

    pub(crate) fn name(&self, path: &Path) {
        if let Meter::Bars(bars) = self {
            let columns = console::columns().unwrap_or(WIDE);
            bars.name.set_message(end_of(&plain::path(path), usize::from(columns)));
        }
    }

    /// Hides the bars, so that `act` can print.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        match self {
            Meter::Bars(bars) => bars.all.suspend(act),
            _ => act(),
        }
    }

    pub(crate) fn complete(&mut self, summary: &Summary) {
        match self {
            Meter::Bars(bars) if bars.began => {
                bars.update(&overall(summary));
                bars.overall.tick();
            }
            Meter::Lines(calm) if calm.began => print(&overall(summary)),
            _ => {}
        }
        self.finish();
    }

    /// Ends the output; the last state of the bars stays on the screen.
    pub(crate) fn finish(&mut self) {
        if let Meter::Bars(bars) = self {
            bars.finish();
        }
        *self = Meter::Hidden;
    }

    /// Ends the output, and removes the bars from the screen.
    pub(crate) fn clear(&mut self) {
        if let Meter::Bars(bars) = self {
            bars.clear();
        }
        *self = Meter::Hidden;
    }
}

/// Shortens a path to `columns` characters, at least one. The end stays: it is the most specific
/// part.
fn end_of(path: &str, columns: usize) -> String {
    let count = path.chars().count();
    if count <= columns {
        return path.to_owned();
    }
    let kept = path.chars().skip(count + 1 - columns.max(1));
    ['…'].into_iter().chain(kept).collect()
}

/// The final progress, with the figures of the summary.
fn overall(summary: &Summary) -> Progress {
    let mut progress = Progress::default();
    (progress.bytes, progress.total_bytes) = (summary.bytes, summary.bytes);
    (progress.files, progress.total_files) = (summary.files, summary.files);
    progress.rate_average = summary.goodput;
    progress.sent = summary.sender.sent;
    progress.retransmitted = summary.sender.retransmitted;
    progress.blocks_lost = summary.receiver.blocks_lost;
    progress.rtt = summary.rtt;
    progress.resumed_bytes = summary.resumed_bytes;
    progress.sources = summary.sources.clone();
    progress
}

fn print(progress: &Progress) {
    console::note(format_args!("longhaul: {}", line(progress)));
    for line in source_lines(&progress.sources) {
        console::note(line);
    }
}

/// A line for each source. If there are more than [`LINES`], the fastest have one each, and the
/// others share one.
fn source_lines(rows: &[SourceRow]) -> Vec<String> {
    if rows.len() <= LINES {
        return rows.iter().map(source_line).collect();
    }
    let mut rows: Vec<&SourceRow> = rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.rate));
    let (shown, rest) = rows.split_at(LINES);
    let rate: u64 = rest.iter().map(|row| row.rate.as_bps()).sum();
    let more = format!("  and {} more: {}", rest.len(), Rate::from_bps(rate));
    shown.iter().map(|row| source_line(row)).chain([more]).collect()
}

fn source_line(row: &SourceRow) -> String {
    let SourceRow { state, received_bytes, rate, share, loss, resent, .. } = row;
    let source = plain::text(&row.source);
    let (state, bytes) = (state.name(), Bytes::new(*received_bytes));
    let resent = count(*resent, "block");
    format!(
        "  {source}: {state}, {rate} ({:.0} %), {bytes}, loss {loss}, resent {resent}",
        share * 100.0
    )
}

fn line(progress: &Progress) -> String {
    match how(progress) {
        more if more.is_empty() => how_far(progress),
        more => format!("{}, {more}", how_far(progress)),
    }
}

fn is_known(progress: &Progress) -> bool {
    progress.total_bytes > 0 || progress.total_files > 0
}

/// The main figures, most important first, because a narrow terminal cuts the end.
fn how_far(progress: &Progress) -> String {
    let Progress { bytes, total_bytes, rate_now, .. } = *progress;
    if !is_known(progress) {
        return "checking existing files".to_owned();
    }
    let mut parts = Vec::new();
    if total_bytes > 0 {
        parts.push(format!("{:.1} %", 100.0 * bytes as f64 / total_bytes as f64));
    }
    // At the end the current rate is zero.
    if bytes < total_bytes || rate_now > Rate::ZERO {
        parts.push(rate_now.to_string());
    }
    parts.extend(progress.left.map(|left| format!("{} left", duration(left))));
    parts.push(format!("{} of {}", Bytes::new(bytes), Bytes::new(total_bytes)));
    parts.join(", ")
}

/// Further figures: losses, resent blocks, average rate, files of a tree.
fn how(progress: &Progress) -> String {
    if !is_known(progress) {
        return String::new();
    }
    let Progress { files, total_files, .. } = *progress;
    let first = progress.sent.saturating_sub(progress.retransmitted);
    let loss = LossRatio::of(progress.blocks_lost, first);
    let (average, resent) = (progress.rate_average, count(progress.retransmitted, "block"));
    let mut line = format!("loss {loss}, resent {resent}, average {average}");
    if total_files > 1 {
        line += &format!(", {files} of {total_files} files");
    }
    line
}

/// Formats a time as `3.2 s`, `4 min 12 s`, `2 h 5 min`.
pub(crate) fn duration(span: Span) -> String {
    let seconds = span.as_nanos() / 1_000_000_000;
    match seconds {
        0..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::but;
    use longhaul::SourceState;

    #[test]
    fn the_line_has_every_quantity_with_its_unit() {
        let progress = but!(Progress::default(), bytes: 75_000_000,
            total_bytes: 300_000_000,
            files: 3,
            total_files: 12,
            rate_now: Rate::from_mbps(940),
            rate_average: Rate::from_mbps(900),
            left: Some(Span::from_secs(252)),
            sent: 10_200,
            retransmitted: 200,
            blocks_lost: 100);
        assert_eq!(
            line(&progress),
            "25.0 %, 940.00 Mbit/s, 4 min 12 s left, 75.00 MB of 300.00 MB, \
             loss 1.00 %, resent 200 blocks, average 900.00 Mbit/s, 3 of 12 files"
        );
    }

    #[test]
    fn without_a_terminal_a_line_is_printed_every_ten_seconds() {
        let start = Instant::now();
        let mut calm = Calm::new(start);
        // Progress comes every 100 ms, here for 35 s.
        let times = (1..=350).map(|tenths| Duration::from_millis(100 * tenths));
        let lines: Vec<_> = times.filter(|time| calm.is_due(start + *time)).collect();
        assert_eq!(lines, [10, 20, 30].map(Duration::from_secs));
    }

    #[test]
    fn the_progress_of_a_large_tree_fits_a_terminal_of_80_columns() {
        let progress = but!(Progress::default(), bytes: 299_990_000_000,
            total_bytes: 300_000_000_000,
            files: 99_999,
            total_files: 100_000,
            rate_now: Rate::from_mbps(940),
            rate_average: Rate::from_mbps(900),
            left: Some(Span::from_secs(3_599)),
            sent: 1_000_000,
            retransmitted: 20_000,
            blocks_lost: 9_800);
        let bar = "[============] ".len();
        assert!(bar + how_far(&progress).len() <= 80, "{}", how_far(&progress));
        assert!(how(&progress).len() <= 80, "{}", how(&progress));
        // Without the bar, 40 columns show the most important figures.
        let narrow: String = how_far(&progress).chars().take(40).collect();
        assert!(narrow.starts_with("100.0 %, 940.00 Mbit/s, 59 min 59 s left"), "{narrow}");
    }

    #[test]
    fn the_last_line_agrees_with_the_summary() {
        let summary = crate::report::tests::example();
        assert_eq!(
            line(&overall(&summary)),
            "100.0 %, 300.00 MB of 300.00 MB, loss 1.02 %, resent 2166 blocks, \
             average 848.00 Mbit/s, 12 of 12 files"
        );
    }

    #[test]
    fn the_fastest_of_many_sources_have_lines_and_the_others_are_counted() {
        let row = |number: u64| {
            but!(SourceRow::default(), source: format!("h{number}:/x"),
            state: SourceState::Receiving,
            received_bytes: 1_000_000,
            rate: Rate::from_mbps(number),
            share: 0.1,
            loss: LossRatio::NONE,
            resent: 2,
            refused: 0,
            rtt: Span::ZERO)
        };
        // Ten sources at 1 to 10 Mbit/s.
        let rows: Vec<SourceRow> = (1..=10).map(row).collect();
        let lines = source_lines(&rows);
        assert_eq!(
            lines[0],
            "  h10:/x: receiving, 10.00 Mbit/s (10 %), 1.00 MB, loss 0.00 %, resent 2 blocks"
        );
        assert_eq!((lines.len(), &lines[8][..]), (9, "  and 2 more: 3.00 Mbit/s"));
        assert!(source_lines(&rows[..3])[0].contains("h1:/x"));
        assert!(source_lines(&[]).is_empty());
    }

    #[test]
    fn a_long_path_shows_its_end() {
        assert_eq!(end_of("run/a.h5", 8), "run/a.h5");
        assert_eq!(end_of("run/ä.h5", 7), "…n/ä.h5");
        assert_eq!(end_of("run", 0), "…");
    }

    #[test]
    fn the_first_line_shows_no_unknown_quantity() {
        let line = line(&Progress::default());
        assert_eq!(line, "checking existing files");
    }

    #[test]
    fn durations_have_at_most_two_units() {
        assert_eq!(duration(Span::from_millis(3_210)), "3.2 s");
        assert_eq!(duration(Span::from_secs(252)), "4 min 12 s");
        assert_eq!(duration(Span::from_secs(7_500)), "2 h 5 min");
    }
}
