//! Starts programs on emulated hosts in order, and decides when the emulation ends.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_testbed::emu::flows::Stop;
use longhaul_testbed::emu::{Emulation, EmulationError};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::console;

/// Exit status at the time limit, as of coreutils' `timeout`.
pub(super) const EXIT_TIME_LIMIT: u8 = 124;

/// Time for a command to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Program {
    pub(super) host: String,
    pub(super) words: Vec<String>,
    /// Start time after the emulation's start.
    pub(super) start: Span,
    /// Whether a failure of this program sets the exit status if the last program succeeds.
    pub(super) counts: bool,
}

impl Program {
    /// A shell command that starts immediately.
    pub(super) fn shell(host: &str, command: &str) -> Program {
        let words = vec!["/bin/sh".into(), "-c".into(), command.into()];
        Program { host: host.into(), words, start: Span::ZERO, counts: true }
    }
}

pub(super) enum Event {
    /// The program with this index ended.
    Ended(usize, io::Result<ExitStatus>),
    /// All flows except the endless ones have ended.
    Flows,
    Signal(i32),
}

/// Catches the signals that end a run.
///
/// A shell starts its background jobs with SIGINT ignored, but a user who sends SIGINT wants to end
/// the run. SIGHUP stays ignored if it was: `nohup` ignores it on purpose.
pub(super) struct CaughtSignals(Signals);

impl CaughtSignals {
    /// Starts no thread: the kernel gives a user namespace only to a process with a single thread.
    pub(super) fn watch() -> Result<CaughtSignals, EmulationError> {
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup));
        signals.map(CaughtSignals).map_err(|error| EmulationError::System("watch signals", error))
    }
}

/// Whether the parent process made this one ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// Receives the events of programs and flows, and signals.
pub(super) struct Events {
    sender: Sender<Event>,
    inbox: Receiver<Event>,
}

impl Events {
    /// Each signal that ends a run stops the flows and becomes an event, even if it arrived before
    /// this call.
    pub(super) fn of(caught: CaughtSignals, stop: &Stop) -> Result<Events, EmulationError> {
        let (sender, inbox) = channel();
        let CaughtSignals(mut signals) = caught;
        for signal in signals.pending() {
            stop.stop();
            // This function owns the receiver, so the channel is open.
            let _ = sender.send(Event::Signal(signal));
        }
        pass_on(signals, sender.clone(), stop.clone())
            .map_err(|error| EmulationError::System("start a thread", error))?;
        Ok(Events { sender, inbox })
    }

    pub(super) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The exit status for a received signal.
    pub(super) fn signalled(&self) -> Option<u8> {
        self.inbox.try_iter().find_map(|event| match event {
            Event::Signal(signal) => Some(of_signal(signal)),
            Event::Ended(..) | Event::Flows => None,
        })
    }
}

/// Runs `programs`, each from its start time after `began`. Returns at the end of the last program
/// of the list (without programs, at the end of the flows), at `limit`, or after a signal.
///
/// Returns the last program's exit status; if it is 0, that of the first other program whose
/// failure counts. Returns [`EXIT_TIME_LIMIT`] at `limit`, and a shell's status for a signal.
pub(super) fn run(
    emulation: &Emulation,
    programs: &[Program],
    began: Instant,
    limit: Option<Span>,
    events: &Events,
) -> Result<u8, EmulationError> {
    let mut watch = Watch { inbox: &events.inbox, programs, failed: None };
    let deadline = limit.map(|limit| began + duration(limit));
    let mut order: Vec<usize> = (0..programs.len()).collect();
    order.sort_by_key(|place| programs[*place].start);
    let mut decides = None;
    for place in order {
        let program = &programs[place];
        let start = began + duration(program.start);
        if let Some(end) = watch.wait(Some(deadline.map_or(start, |limit| limit.min(start)))) {
            return watch.end_of(end, decides);
        }
        if deadline.is_some_and(|limit| limit < start) {
            return Ok(out_of_time(limit));
        }
        let child = launch(emulation, program)?;
        if place + 1 == programs.len() {
            decides = Pid::from_raw(child.id().cast_signed());
        }
        report_end(place, child, events.sender())?;
    }
    match watch.wait(deadline) {
        Some(event) => watch.end_of(event, decides),
        None => Ok(out_of_time(limit)),
    }
}

struct Watch<'a> {
    inbox: &'a Receiver<Event>,
    programs: &'a [Program],
    /// The status of the first failed program whose failure counts, except the last program.
    failed: Option<u8>,
}

impl Watch<'_> {
    /// Waits for an event that ends the run; `None` at `deadline`. Prints the failure of each
    /// program but the last.
    fn wait(&mut self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            let event = match deadline {
                None => self.inbox.recv().ok()?,
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.inbox.recv_timeout(left).ok()?
                }
            };
            match event {
                Event::Ended(place, status) if place + 1 < self.programs.len() => {
                    self.note(place, status);
                }
                event => return Some(event),
            }
        }
    }

    fn note(&mut self, place: usize, status: io::Result<ExitStatus>) {
        // Waiting for the program failed, so its status is unknown.
        let Ok(status) = status else { return };
        if status.success() {
            return;
        }
        let Program { host, words, counts, .. } = &self.programs[place];
        let command = words.last().map_or("", String::as_str);
        console::note(format_args!("longhaul emulate: on {host}, '{command}' failed: {status}"));
        if *counts {
            self.failed.get_or_insert(exit_code(status));
        }
    }

    /// The exit status after an event. After a signal, the last program of the list gets some time
    /// to end.
    fn end_of(&mut self, event: Event, decides: Option<Pid>) -> Result<u8, EmulationError> {
        match event {
            Event::Ended(_, status) => {
                let status = status.map_err(|e| EmulationError::System("run a program", e))?;
                let own = exit_code(status);
                Ok(if own == 0 { self.failed.unwrap_or(0) } else { own })
            }
            Event::Flows => Ok(0),
            Event::Signal(signal) => {
                // A terminal sends SIGINT to the programs too; other signals may arrive only here.
                if signal != SIGINT
                    && let (Some(pid), Some(signal)) = (decides, Signal::from_named_raw(signal))
                {
                    let _ = kill_process(pid, signal);
                }
                if decides.is_some() {
                    self.linger();
                }
                Ok(of_signal(signal))
            }
        }
    }

    /// Waits up to [`GRACE`] for the last program, or for the next signal.
    fn linger(&self) {
        let deadline = Instant::now() + GRACE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                // Programs that the same signal ended are not reported.
                Ok(Event::Ended(place, _)) if place + 1 < self.programs.len() => {}
                _ => return,
            }
        }
    }
}

fn out_of_time(limit: Option<Span>) -> u8 {
    let limit = limit.unwrap_or(Span::ZERO);
    console::note(format_args!("longhaul emulate: ended after the time limit of {limit}"));
    EXIT_TIME_LIMIT
}

fn launch(emulation: &Emulation, program: &Program) -> Result<Child, EmulationError> {
    let Program { host, words, .. } = program;
    let command = emulation.command(host, &words[0])?.args(&words[1..]);
    let prompted = command.env("LONGHAUL_EMULATED_HOST", host);
    prompted.spawn().map_err(|error| {
        let error = io::Error::new(error.kind(), format!("{}: {error}", words[0]));
        EmulationError::System("start a program", error)
    })
}

/// Sends an event when the program with index `place` has ended.
fn report_end(place: usize, mut child: Child, events: Sender<Event>) -> Result<(), EmulationError> {
    let wait = move || {
        // The run may already have ended.
        let _ = events.send(Event::Ended(place, child.wait()));
    };
    let started = thread::Builder::new().name("program".into()).spawn(wait);
    started.map(drop).map_err(|error| EmulationError::System("start a thread", error))
}

/// Exit status of a program that a signal ended, as in a shell.
fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(1)
}

/// Forwards each signal that ends a run to `events`, and stops the flows.
fn pass_on(mut signals: Signals, events: Sender<Event>, stop: Stop) -> io::Result<()> {
    let watch = move || {
        for signal in signals.forever() {
            stop.stop();
            if events.send(Event::Signal(signal)).is_err() {
                // The programs are already ending; the exit of this process ends the rest.
                std::process::exit(128 + signal);
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(drop)
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
