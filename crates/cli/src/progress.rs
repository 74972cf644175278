//! How far a copy is: a bar on a terminal, elsewhere a calm line.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_transfer::progress::{Progress, SourceRow};

use crate::console;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often the bar is drawn, in 1/s.
const DRAWS: u8 = 10;

/// Sources that have a line each; of more, the busiest do.
const LINES: usize = 8;

/// What shows the progress.
pub(crate) enum Meter {
    /// Nothing.
    Hidden,
    /// Bars that are drawn over themselves.
    Bars(Bars),
    /// A line now and then.
    Lines(Calm),
}

/// What is written where there is no terminal.
pub(crate) struct Calm {
    /// When the last line was, or the start.
    last: Instant,
    /// How far the copy was when last told.
    progress: Option<Progress>,
}

/// A bar for the whole, and above it a line for each of several sources.
pub(crate) struct Bars {
    all: MultiProgress,
    whole: ProgressBar,
    sources: Vec<ProgressBar>,
    /// How far the copy was when last told.
    progress: Option<Progress>,
}

impl Bars {
    fn new() -> Bars {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS);
        let all = MultiProgress::with_draw_target(target);
        let style = ProgressStyle::with_template("[{bar:12}] {wide_msg}");
        let style = style.expect("the template is well formed").progress_chars("=> ");
        // Of a length that is not known yet, nothing is done.
        let whole = all.add(ProgressBar::new(1).with_style(style));
        Bars { all, whole, sources: Vec::new(), progress: None }
    }

    fn update(&mut self, progress: &Progress) {
        let lines = source_lines(&progress.sources);
        while self.sources.len() < lines.len() {
            let style = ProgressStyle::with_template("{wide_msg}");
            let style = style.expect("the template is well formed");
            let bar = ProgressBar::new(0).with_style(style);
            self.sources.push(self.all.insert_before(&self.whole, bar));
        }
        for (bar, line) in self.sources.iter().zip(lines) {
            bar.set_message(line);
        }
        self.whole.set_length(progress.total_bytes.max(1));
        self.whole.set_position(progress.bytes);
        self.whole.set_message(line(progress));
        self.progress = Some(progress.clone());
    }

    fn finish(&self) {
        self.sources.iter().for_each(ProgressBar::abandon);
        self.whole.abandon();
    }
}

impl Meter {
    /// A bar if stderr is a terminal, else lines; nothing if it is not wanted.
    pub(crate) fn new(wanted: bool) -> Meter {
        match wanted {
            false => Meter::Hidden,
            true if console::is_terminal() => Meter::Bars(Bars::new()),
            true => Meter::Lines(Calm { last: Instant::now(), progress: None }),
        }
    }

    /// Shows `progress`.
    pub(crate) fn update(&mut self, progress: &Progress) {
        match self {
            Meter::Hidden => {}
            Meter::Bars(bars) => bars.update(progress),
            Meter::Lines(calm) => {
                if calm.last.elapsed() >= LINE_EVERY {
                    calm.last = Instant::now();
                    tell(progress);
                }
                calm.progress = Some(progress.clone());
            }
        }
    }

    /// Does `act`, which writes, while the bar is out of its way.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        match self {
            Meter::Bars(bars) => bars.all.suspend(act),
            _ => act(),
        }
    }

    /// Shows the end of a copy of which all stands, and nothing more.
    pub(crate) fn complete(&mut self) {
        match self {
            Meter::Hidden => {}
            Meter::Bars(bars) => {
                if let Some(progress) = bars.progress.take() {
                    bars.update(&whole(progress));
                }
                bars.whole.tick();
            }
            Meter::Lines(calm) => {
                if let Some(progress) = calm.progress.take() {
                    tell(&whole(progress));
                }
            }
        }
        self.finish();
    }

    /// Shows nothing more.
    pub(crate) fn finish(&mut self) {
        if let Meter::Bars(bars) = self {
            bars.finish();
        }
        *self = Meter::Hidden;
    }
}

/// The same with all of it there.
fn whole(progress: Progress) -> Progress {
    let Progress { total_bytes, total_files, .. } = progress;
    Progress { bytes: total_bytes, files: total_files, left: None, ..progress }
}

fn tell(progress: &Progress) {
    console::note(format_args!("longhaul: {}", line(progress)));
    for line in source_lines(&progress.sources) {
        console::note(line);
    }
}

/// A line for each of several sources; where there are many, the busiest, and how many more.
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
    let SourceRow { source, state, received_bytes, rate, share, loss, resent, .. } = row;
    let (state, bytes) = (state.name(), Bytes::new(*received_bytes));
    format!(
        "  {source}: {state}, {rate} ({:.0} %), {bytes}, loss {loss}, resent {resent} blocks",
        share * 100.0
    )
}

/// Everything worth knowing, what matters most first: a narrow terminal cuts the end.
fn line(progress: &Progress) -> String {
    let Progress { bytes, total_bytes, files, total_files, .. } = *progress;
    if total_bytes == 0 && total_files == 0 {
        return "looking at what is there".to_owned();
    }
    let mut line = format!("{} of {}", Bytes::new(bytes), Bytes::new(total_bytes));
    if total_bytes > 0 {
        line += &format!(" {:.1} %", 100.0 * bytes as f64 / total_bytes as f64);
    }
    line += &format!(", {}", progress.rate_now);
    if let Some(left) = progress.left {
        line += &format!(", {} left", duration(left));
    }
    if total_files > 1 {
        line += &format!(", {files} of {total_files} files");
    }
    let first = progress.sent.saturating_sub(progress.retransmitted);
    let loss = LossRatio::of(progress.blocks_lost, first);
    let (average, resent) = (progress.rate_average, progress.retransmitted);
    line + &format!(", loss {loss}, resent {resent} blocks, average {average}")
}

/// A span as people say it: `3.2 s`, `4 min 12 s`, `2 h 5 min`.
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
    use longhaul_transfer::progress::SourceState;

    #[test]
    fn the_line_has_every_quantity_with_its_unit() {
        let progress = Progress {
            bytes: 75_000_000,
            total_bytes: 300_000_000,
            files: 3,
            total_files: 12,
            rate_now: Rate::from_mbps(940),
            rate_average: Rate::from_mbps(900),
            left: Some(Span::from_secs(252)),
            sent: 10_200,
            retransmitted: 200,
            blocks_lost: 100,
            refused: 0,
            rtt: Span::ZERO,
            resumed_bytes: 0,
            sources: Vec::new(),
        };
        assert_eq!(
            line(&progress),
            "75.00 MB of 300.00 MB 25.0 %, 940.00 Mbit/s, 4 min 12 s left, 3 of 12 files, \
             loss 1.00 %, resent 200 blocks, average 900.00 Mbit/s"
        );
    }

    #[test]
    fn of_many_sources_the_busiest_have_lines_and_the_others_are_counted() {
        let row = |number: u64| SourceRow {
            source: format!("h{number}:/x"),
            state: SourceState::Receiving,
            received_bytes: 1_000_000,
            rate: Rate::from_mbps(number),
            share: 0.1,
            loss: LossRatio::NONE,
            resent: 2,
            refused: 0,
            rtt: Span::ZERO,
        };
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
    fn before_anything_is_known_nothing_is_invented() {
        let line = line(&Progress::default());
        assert!(!line.contains("NaN") && !line.contains("left") && !line.contains("files"));
    }

    #[test]
    fn spans_read_as_people_say_them() {
        assert_eq!(duration(Span::from_millis(3_210)), "3.2 s");
        assert_eq!(duration(Span::from_secs(252)), "4 min 12 s");
        assert_eq!(duration(Span::from_secs(7_500)), "2 h 5 min");
    }
}
