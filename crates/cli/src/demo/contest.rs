//! The race over an emulated long path: the kernel's TCP with one stream and with eight, then
//! longhaul. A lap is one transfer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul::CancelHandle;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::emu::{Emulation, EmulationError, EmulationSpec, KernelTcp, Verdict};
use longhaul_testbed::link::{LinkSpec, Loss};
use longhaul_testbed::scenario::Amount;

use super::child::{self, CONFIG_DIR, Copy, Server, Stage};
use super::walk::same_bytes;
use super::{goodput, interrupted, interrupted_or, local, step};
use crate::console::{self, bold};
use crate::kernel_tcp;
use crate::progress::duration;

/// Size of each transfer.
const SIZE: Bytes = Bytes::new(200_000_000);
const RATE: Rate = Rate::from_mbps(1_000);
const RTT: Span = Span::from_millis(100);
const LOSS: f64 = 0.001;
/// Time limit of a lap by the kernel's TCP.
const PATIENCE: Span = Span::from_secs(20);
const PORT: u16 = 5001;
/// Redraw interval of the bar of a lap by the kernel's TCP.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) type Track = Result<Emulation, EmulationError>;

struct Lap {
    name: &'static str,
    took: Span,
    bytes: Bytes,
    /// Why the measurement is invalid.
    invalid: Option<String>,
}

/// An emulated host that runs commands of this binary.
struct OnHost<'e>(&'e Emulation, &'static str);

impl Stage for OnHost<'_> {
    fn spawn(&self, config: &Path, words: &[String]) -> io::Result<Child> {
        let command = self.0.command(self.1, std::env::current_exe()?);
        let command = command.map_err(io::Error::other)?.args(words).env(CONFIG_DIR, config);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    }
}

/// Creates the path. The first call must come before the first thread starts: without root, the
/// process enters a user namespace, and the kernel permits this only to a process with one thread.
pub(super) fn track() -> Track {
    let loss = LossRatio::new(LOSS).expect("a share");
    let link = LinkSpec::path(RATE, RTT).with_loss(Loss::independent(loss));
    Emulation::start(EmulationSpec::pair(link.clone(), link))
}

/// The race's files are in the folder `place`. The first lap uses the path `track`.
pub(super) fn run(track: Emulation, place: &Path, cancel: &CancelHandle) -> Result<(), Error> {
    step(&format!(
        "sends {SIZE} by TCP and by longhaul over an emulated path: {RATE}, {RTT}, {:.1} % loss \
         both ways; TCP may have 64 MiB in flight",
        LOSS * 100.0
    ));
    for notice in track.notices() {
        step(&format!("notice: {notice}"));
    }
    let bars = Bars::new();
    let mut laps = vec![by_tcp(track, "kernel TCP", 1, &bars, cancel)?];
    laps.push(by_tcp(again()?, "kernel TCP, 8 streams", 8, &bars, cancel)?);
    laps.push(by_longhaul(again()?, place, &bars, cancel)?);
    for line in table(&laps) {
        console::out(line);
    }
    Ok(())
}

/// A new path, because the emulator's counters must cover one lap only.
fn again() -> Result<Emulation, Error> {
    track().map_err(|error| emulating(&error))
}

fn by_tcp(
    track: Emulation,
    name: &'static str,
    streams: u16,
    bars: &Bars,
    cancel: &CancelHandle,
) -> Result<Lap, Error> {
    let (from, to) = ("a".to_owned(), "b".to_owned());
    let amount = Amount::Size(SIZE);
    let tcp = KernelTcp { from, to, port: PORT, streams, amount, window: None, congestion: None };
    let bar = bars.add(name);
    let mut running = track.start_tcp(&tcp).map_err(|error| emulating(&error))?;
    while !running.is_finished() && running.elapsed() < PATIENCE {
        bar.set_position(running.received().get());
        // The kernel's TCP sends no progress events, so this loop polls.
        thread::sleep(LOOK_EVERY);
        if cancel.is_cancelled() {
            return Err(interrupted());
        }
    }
    let bytes = running.received();
    bar.set_position(bytes.get());
    bar.abandon();
    let took = if running.is_finished() {
        running.wait().map_err(|error| emulating(&EmulationError::System("carry bytes", error)))?
    } else {
        running.elapsed()
    };
    Ok(Lap { name, took, bytes, invalid: invalid(&track)? })
}

fn by_longhaul(
    track: Emulation,
    place: &Path,
    bars: &Bars,
    cancel: &CancelHandle,
) -> Result<Lap, Error> {
    let failed = |error: io::Error| local("cannot write or compare the files of the race", &error);
    let (file, served) = (place.join("object"), place.join("over-there"));
    random_file(&file).and_then(|()| fs::create_dir(&served)).map_err(failed)?;
    let (client, there) = (place.join("client"), OnHost(&track, "b"));
    let keys = place.join("server");
    let server = Server::start(&there, "[::]:7717", &keys, &served, &child::id(&client)?, cancel)?;
    let bar = bars.add("longhaul");
    let pinned = format!("--server-id={}", server.id);
    let words = ["cp", &pinned, &file.display().to_string(), "lh://b/"].map(str::to_owned);
    let copy = Copy { stage: &OnHost(&track, "a"), config: &client, words: words.into() };
    let summary = copy.to_the_end(cancel, |bytes| bar.set_position(bytes))?;
    bar.set_position(summary.bytes);
    bar.abandon();
    server.end();
    let same = same_bytes(&file, &served.join("object"), cancel)
        .map_err(|error| interrupted_or(cancel, failed(error)))?;
    if !same || !summary.verified {
        return Err(Error::new(
            ErrorKind::Verification,
            "the file of the race arrived with different content",
        ));
    }
    let took = Span::from_secs_f64(summary.seconds);
    Ok(Lap { name: "longhaul", took, bytes: SIZE, invalid: invalid(&track)? })
}

/// Writes random bytes, because no link can compress them.
fn random_file(path: &Path) -> io::Result<()> {
    let mut random = File::open("/dev/urandom")?.take(SIZE.get());
    io::copy(&mut random, &mut File::create(path)?).map(drop)
}

fn invalid(track: &Emulation) -> Result<Option<String>, Error> {
    let statistics = track.statistics().map_err(|error| emulating(&error))?;
    Ok(match statistics.verdict() {
        Verdict::Valid => None,
        Verdict::Invalid(reason) => Some(reason),
    })
}

fn emulating(error: &EmulationError) -> Error {
    Error::new(ErrorKind::Unfinished, format!("the emulated path failed: {error}"))
}

fn table(laps: &[Lap]) -> Vec<String> {
    let row = |name: &str, took: &str, rate: &str| format!("  {name:<24}{took:<22}{rate}");
    let mut lines = vec![String::new(), bold(&row("", "time", "goodput"))];
    for Lap { name, took, bytes, invalid } in laps {
        let whole = *bytes >= SIZE;
        let time = match whole {
            true => duration(*took),
            false => format!("{} for {bytes}", duration(*took)),
        };
        lines.push(row(name, &time, &goodput(bytes.get(), *took).to_string()));
        if let Some(reason) = invalid {
            lines.push(format!("    not a fair lap, the emulator limited it: {reason}"));
        }
    }
    let congestion = kernel_tcp::congestion().map_or(String::new(), |name| format!(" ({name})"));
    lines.push(format!(
        "  TCP: memory to memory, unencrypted, by the system's congestion control{congestion}."
    ));
    lines.push(
        "  longhaul: start to exit, file to file, encrypted, verified; no rate was set.".into(),
    );
    lines
}

/// The bars; hidden if stderr is not a terminal.
struct Bars(MultiProgress);

impl Bars {
    fn new() -> Bars {
        let terminal = console::is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Bars::on(target)
    }

    fn on(target: ProgressDrawTarget) -> Bars {
        Bars(MultiProgress::with_draw_target(target))
    }

    fn add(&self, name: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template(
            "  {prefix:24} [{bar:30}] {bytes:>10} {elapsed:>4} {bytes_per_sec}",
        );
        let style = style.expect("the template is well formed").progress_chars("=> ");
        let bar = ProgressBar::new(SIZE.get()).with_style(style).with_prefix(name);
        self.0.add(bar)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// The terminal's lines, and the line of the cursor. Text after a full line continues in the
    /// next one.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<(Vec<String>, usize)>>);

    const WIDTH: u16 = 100;

    impl Screen {
        fn on_line(&self, change: impl FnOnce(&mut usize), write: impl FnOnce(&mut String)) {
            let mut screen = self.0.lock().unwrap();
            let (lines, at) = &mut *screen;
            change(at);
            lines.resize(lines.len().max(*at + 1), String::new());
            write(&mut lines[*at]);
        }

        fn is_full(&self) -> bool {
            let (lines, at) = &*self.0.lock().unwrap();
            lines.get(*at).is_some_and(|line| line.chars().count() >= usize::from(WIDTH))
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            WIDTH
        }
        fn move_cursor_up(&self, n: usize) -> io::Result<()> {
            self.on_line(|at| *at = at.saturating_sub(n), |_| {});
            Ok(())
        }
        fn move_cursor_down(&self, n: usize) -> io::Result<()> {
            self.on_line(|at| *at += n, |_| {});
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)?;
            self.move_cursor_down(1)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            let down = usize::from(self.is_full() && !text.is_empty());
            self.on_line(|at| *at += down, |line| line.push_str(text));
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.on_line(|_| {}, String::clear);
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bars_of_all_laps_are_aligned() {
        const NAMES: [&str; 3] = ["kernel TCP", "kernel TCP, 8 streams", "longhaul"];
        let screen = Screen::default();
        let bars = Bars::on(ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255));
        for name in NAMES {
            let bar = bars.add(name);
            bar.set_position(SIZE.get() / 2);
            bar.abandon();
        }
        let shown = screen.0.lock().unwrap().0.clone();
        let drawn: Vec<&String> = shown.iter().filter(|line| line.contains('[')).collect();
        assert_eq!(drawn.len(), NAMES.len(), "{shown:?}");
        for (line, name) in drawn.iter().zip(NAMES) {
            let bar = format!("{name:24} [{}>", "=".repeat(15));
            assert!(line.contains(&bar) && line.contains("95.37 MiB"), "{name}: {line}");
        }
    }

    #[test]
    fn the_table_marks_unfinished_and_unfair_laps() {
        let lap = |bytes, invalid| Lap {
            name: "kernel TCP",
            took: Span::from_secs(20),
            bytes: Bytes::new(bytes),
            invalid,
        };
        let lines = table(&[lap(50_000_000, None), lap(SIZE.get(), Some("late".into()))]);
        assert!(lines[2].contains("20.0 s for 50.00 MB") && lines[2].contains("20.00 Mbit/s"));
        assert!(!lines[3].contains("for") && lines[4].contains("late"), "{lines:?}");
    }
}
