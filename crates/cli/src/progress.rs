//! How far a copy is: a bar on a terminal, elsewhere a calm line.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio};
use longhaul_transfer::progress::Progress;

use crate::console;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often the bar is drawn, in 1/s.
const DRAWS: u8 = 10;

/// What shows the progress.
pub(crate) enum Meter {
    /// Nothing.
    Hidden,
    /// A bar that is drawn over itself.
    Bar(ProgressBar),
    /// A line now and then, the last at this instant.
    Lines(Instant),
}

impl Meter {
    /// A bar if stderr is a terminal, else lines; nothing if it is not wanted.
    pub(crate) fn new(wanted: bool) -> Meter {
        if !wanted {
            return Meter::Hidden;
        }
        if !console::is_terminal() {
            return Meter::Lines(Instant::now());
        }
        let target = ProgressDrawTarget::stderr_with_hz(DRAWS);
        let style = ProgressStyle::with_template("[{bar:12}] {wide_msg}");
        let style = style.expect("the template is well formed").progress_chars("=> ");
        Meter::Bar(ProgressBar::with_draw_target(Some(0), target).with_style(style))
    }

    /// Shows `progress`.
    pub(crate) fn update(&mut self, progress: &Progress) {
        match self {
            Meter::Hidden => {}
            Meter::Bar(bar) => {
                bar.set_length(progress.total_bytes);
                bar.set_position(progress.bytes);
                bar.set_message(line(progress));
            }
            Meter::Lines(last) => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    console::note(format_args!("longhaul: {}", line(progress)));
                }
            }
        }
    }

    /// Does `act`, which writes, while the bar is out of its way.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        match self {
            Meter::Bar(bar) => bar.suspend(act),
            _ => act(),
        }
    }

    /// Shows nothing more.
    pub(crate) fn finish(&mut self) {
        if let Meter::Bar(bar) = self {
            bar.abandon();
        }
        *self = Meter::Hidden;
    }
}

/// Everything worth knowing, what matters most first: a narrow terminal cuts the end.
fn line(progress: &Progress) -> String {
    let Progress { bytes, total_bytes, files, total_files, .. } = *progress;
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
    use longhaul_proto::units::Rate;

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
            rtt: Span::ZERO,
        };
        assert_eq!(
            line(&progress),
            "75.00 MB of 300.00 MB 25.0 %, 940.00 Mbit/s, 4 min 12 s left, 3 of 12 files, \
             loss 1.00 %, resent 200 blocks, average 900.00 Mbit/s"
        );
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
