//! Copies of a file of random bytes to another host.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul::{
    CancelHandle, Client, CopyRequest, Event, Location, NewServer, Receive, Summary, blocking,
};
use longhaul_experiments::plot::Origin;
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use longhaul_testbed::random::Random;

use super::candidate::Candidate;
use super::course::Course;
use super::runs::{Counts, Cpu, Measured, Run};
use super::{CompareArgs, Setting, beside};
use crate::error::{Error, ErrorKind, event_in_flags};
use crate::progress::Meter;
use crate::{console, kernel_tcp, report, signals, trust};

const SIZE: Bytes = Bytes::new(300_000_000);
/// The default of `cp --memory`.
const MEMORY: Bytes = Bytes::mebi(512);
/// A run without progress for this long has failed.
const STALL: Duration = Duration::from_secs(60);
const PIECE: usize = 1 << 20;

/// Copies with each candidate in turn, `--repeat` times.
pub(super) fn run(
    args: &CompareArgs,
    host: &Location,
    candidates: &[Candidate],
    tell: impl Fn(&Run),
) -> Result<(Setting, Vec<Run>), Error> {
    let size = args.size.unwrap_or(SIZE);
    let cancel = CancelHandle::default();
    let first = "stopping; press Ctrl-C again to stop immediately";
    signals::cancel_on_signal(cancel.clone(), first)?;
    let folder = tempfile::tempdir().map_err(|error| local("cannot make a folder", &error))?;
    let object = folder.path().join("longhaul-compare");
    let mut runs = Vec::new();
    let all = candidates.len() * args.repeat as usize;
    for turn in 1..=args.repeat {
        for candidate in candidates {
            if runs.is_empty() || args.write {
                // A copy skips a file that is already there, so each run needs new content.
                fill(&object, size, runs.len() as u64, &cancel)?;
            }
            let watch = Watch::new(&cancel);
            if console::is_terminal() {
                console::note(format_args!("{candidate}, run {} of {all}", runs.len() + 1));
            }
            let copy = request(args, host, &object, *candidate, &watch)?;
            let watched = copy.clone().cancel_with(&cancel).on_event(Watch::seeing(&watch));
            let ended = blocking::wait(watched.start()?.finish()).map_err(Error::from);
            let rates = watch.ended();
            let mut end = match ended {
                Ok(summary) => measured(*candidate, &summary, watch.cpu_before, rates),
                Err(error) if ends_all(&error) => return Err(error),
                Err(error) => Err(error.what),
            };
            if let (true, Ok(alone)) = (args.beside_tcp, &mut end) {
                match beside::shares(&copy, &cancel) {
                    Ok(shares) => alone.beside_tcp = Some(shares),
                    Err(error) if ends_all(&error) => return Err(error),
                    Err(error) => end = Err(format!("beside TCP: {}", error.what)),
                }
            }
            let run = Run { candidate: *candidate, turn, seed: None, end };
            tell(&run);
            runs.push(run);
        }
    }
    Ok((setting(args, host, size), runs))
}

/// Whether the next run would fail for the same reason.
fn ends_all(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Unfinished | ErrorKind::Verification | ErrorKind::Stalled)
}

fn local(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::LocalFile, format!("{what}: {error}"))
        .advise("set TMPDIR to another folder")
}

fn fill(path: &Path, size: Bytes, seed: u64, cancel: &CancelHandle) -> Result<(), Error> {
    let unwritten = |error| local(&format!("cannot write {}", path.display()), &error);
    let mut file = BufWriter::new(File::create(path).map_err(unwritten)?);
    let mut random = Random::new(seed);
    let mut piece = vec![0; PIECE];
    let mut left = size.get();
    while left > 0 {
        if cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the comparison was interrupted"));
        }
        for word in piece.chunks_exact_mut(8) {
            word.copy_from_slice(&random.bits().to_le_bytes());
        }
        let take = left.min(PIECE as u64);
        file.write_all(&piece[..take as usize]).map_err(unwritten)?;
        left -= take;
    }
    file.flush().map_err(unwritten)
}

fn request(
    args: &CompareArgs,
    host: &Location,
    object: &Path,
    candidate: Candidate,
    watch: &Arc<Watch>,
) -> Result<CopyRequest, Error> {
    let asking = watch.clone();
    let client: Client =
        args.reach.client(&[host], move |server| asking.trusts(server))?.build()?;
    Ok(client
        .copy([object], host.clone())
        .protocol(candidate.protocol())
        .rate(args.rate)
        .receive(if args.write { Receive::Naive } else { Receive::Fake })
        .memory(MEMORY)
        // No retries: the time of an interrupted run would not be comparable.
        .retry_for(Duration::ZERO)
        .stall(STALL)
        .reach(args.reach.options()))
}

fn measured(
    candidate: Candidate,
    summary: &Summary,
    cpu_before: Span,
    rates: Vec<(f64, f64)>,
) -> Result<Measured, String> {
    let by_tcp = candidate.is_tcp();
    if !by_tcp && summary.protocol == "tcp" {
        return Err("UDP did not pass; TCP carried the data".into());
    }
    if summary.resumed_bytes > 0 {
        let resumed = Bytes::new(summary.resumed_bytes);
        return Err(format!("{resumed} were already at the destination"));
    }
    let gigabytes = summary.bytes as f64 / 1e9;
    let here = summary.cpu.as_secs_f64() - cpu_before.as_secs_f64();
    let there = summary.far_cpu.filter(|_| !by_tcp).map(|span| span.as_secs_f64() / gigabytes);
    let counts = match by_tcp {
        // Over TCP, only retransmitted segments are known: the kernel counts them.
        true => summary.segments.map(|segments| Counts {
            waste: segments.waste(),
            retransmitted: segments.retransmitted as f64,
            ..Counts::default()
        }),
        false => Some(Counts {
            waste: summary.waste,
            retransmitted: summary.sender.retransmitted as f64,
            path_lost: Some(summary.path_lost as f64),
            blocks_lost: Some(summary.receiver.blocks_lost as f64),
            reported_lost: Some(summary.sender.reported_lost as f64),
            duplicates: Some(summary.receiver.duplicates as f64),
        }),
    };
    Ok(Measured {
        bytes: Bytes::new(summary.bytes),
        took: summary.elapsed,
        goodput: summary.goodput,
        counts,
        cpu: Some(Cpu { here: here / gigabytes, there }),
        beside_tcp: None,
        rates,
    })
}

fn setting(args: &CompareArgs, host: &Location, size: Bytes) -> Setting {
    let rate = args.rate.map_or(String::new(), |rate| format!(", rate {rate}"));
    let fate = match args.write {
        true => "the host wrote and verified the object of each run, and keeps the last one",
        false => "the host wrote nothing, so the figures exclude disk and verification",
    };
    let turns = args.repeat;
    let runs = if turns == 1 { "run" } else { "runs" };
    Setting {
        title: format!(
            "{}: {size} of random bytes{rate}, {turns} {runs} of each protocol, in turn",
            // An ssh host without a path is displayed as `host:`.
            host.to_string().trim_end_matches(':')
        ),
        notes: vec![
            fate.into(),
            "goodput counts the time from the start, session setup included; for TCP the kernel \
             reports only resent segments, not losses and duplicates"
                .into(),
            "CPU in seconds per GB: on this host for the whole process, on the other host only for \
             the threads that receive and write datagrams"
                .into(),
            match args.beside_tcp {
                true => beside::NOTE.into(),
                false => "no concurrent TCP flow was sent, because others may use this path; \
                    --beside-tcp sends one"
                    .into(),
            },
        ],
        rates: "delivered, Mbit/s",
        origin: Origin::Emulated,
        congestion: kernel_tcp::congestion(),
    }
}

/// Records and displays the progress of a run.
struct Watch {
    cancel: CancelHandle,
    cpu_before: Span,
    course: Course,
    meter: Mutex<Meter>,
}

impl Watch {
    fn new(cancel: &CancelHandle) -> Arc<Watch> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Arc::new(Watch {
            cancel: cancel.clone(),
            cpu_before: Span::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
            course: Course::new(),
            meter: Mutex::new(Meter::new(console::is_terminal())),
        })
    }

    /// Uses the lock even if it is poisoned: then a thread panicked while it drew the bar, which is
    /// harmless.
    fn with<T>(&self, act: impl FnOnce(&mut Meter) -> T) -> T {
        act(&mut self.meter.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clears the bar. Returns the rates between the samples: seconds since the start, Mbit/s.
    fn ended(&self) -> Vec<(f64, f64)> {
        self.with(Meter::clear);
        self.course.rates()
    }

    fn seeing(watch: &Arc<Watch>) -> impl Fn(Event) + Send + Sync + 'static {
        let watch = watch.clone();
        move |event| match event_in_flags(event) {
            Event::Progress(progress) => {
                watch.course.note(progress.bytes);
                watch.with(|meter| meter.update(&progress));
            }
            event @ (Event::Fallback { .. } | Event::FileFailed { .. }) => {
                watch.with(|meter| meter.aside(|| console::warn(report::event(&event))));
            }
            _ => {}
        }
    }

    fn trusts(&self, server: &NewServer) -> bool {
        let ask = || trust::ask(&server.name, &server.id, &self.cancel);
        self.with(|meter| meter.aside(ask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_requested_size_and_bytes_that_depend_on_the_seed() {
        let folder = tempfile::tempdir().unwrap();
        let made = |seed| {
            let path = folder.path().join("object");
            fill(&path, Bytes::new(PIECE as u64 + 13), seed, &CancelHandle::default()).unwrap();
            std::fs::read(path).unwrap()
        };
        let (one, other) = (made(0), made(1));
        assert_eq!((one.len(), other.len()), (PIECE + 13, PIECE + 13));
        assert!(one == made(0) && one != other);
    }
}
