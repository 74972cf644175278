//! Programs on emulated hosts: started in their order, and what brings their end.

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

use super::say;

/// What `timeout` of the coreutils ends with.
pub(super) const EXIT_TIME_LIMIT: u8 = 124;

/// What a command gets to end by itself after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// A program to start on a host.
pub(super) struct Program {
    pub(super) host: String,
    pub(super) words: Vec<String>,
    /// When, after the emulation's start.
    pub(super) start: Span,
    /// Whether its failure is one of the run, though another program's end is its end.
    pub(super) counts: bool,
}

impl Program {
    /// A shell command that starts at once.
    pub(super) fn shell(host: &str, command: &str) -> Program {
        let words = vec!["/bin/sh".into(), "-c".into(), command.into()];
        Program { host: host.into(), words, start: Span::ZERO, counts: true }
    }
}

/// What ends the wait.
pub(super) enum Event {
    /// The program at this place has ended.
    Ended(usize, io::Result<ExitStatus>),
    /// Every flow that can end has, and nothing else is waited for.
    Flows,
    Signal(i32),
}

/// The signals that ask for an end: from now on none is lost.
///
/// A shell's job with `&` is born ignoring Ctrl-C; who sends it one all the same means it. Of
/// `nohup` the purpose is that a terminal's end says nothing.
pub(super) struct Asked(Signals);

impl Asked {
    /// Without a thread: the kernel gives a user namespace only to a process that has none.
    pub(super) fn watch() -> Result<Asked, EmulationError> {
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup));
        signals.map(Asked).map_err(|error| EmulationError::System("watch signals", error))
    }
}

/// Whether whoever started this process made it ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// What comes while programs and flows run.
pub(super) struct Events {
    sender: Sender<Event>,
    inbox: Receiver<Event>,
}

impl Events {
    /// Each signal that asks for an end comes here, and stops the flows; those that have come
    /// already are here at once.
    pub(super) fn of(asked: Asked, stop: &Stop) -> Result<Events, EmulationError> {
        let (sender, inbox) = channel();
        let Asked(mut signals) = asked;
        for signal in signals.pending() {
            stop.stop();
            // The inbox is here.
            let _ = sender.send(Event::Signal(signal));
        }
        pass_on(signals, sender.clone(), stop.clone())
            .map_err(|error| EmulationError::System("start a thread", error))?;
        Ok(Events { sender, inbox })
    }

    /// Where else events come from.
    pub(super) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The exit status that a signal asks for, if one has come.
    pub(super) fn signalled(&self) -> Option<u8> {
        self.inbox.try_iter().find_map(|event| match event {
            Event::Signal(signal) => Some(of_signal(signal)),
            Event::Ended(..) | Event::Flows => None,
        })
    }
}

/// Runs `programs`, each at its time after `began`; gives the exit status of the last one in their
/// order when it ends, or 0 when the flows have ended and there is no program. Where the last one
/// ends well but another had failed before, it is that one's status. The others then still run: the
/// emulation's end is theirs.
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

/// The wait for what ends a run.
struct Watch<'a> {
    inbox: &'a Receiver<Event>,
    programs: &'a [Program],
    /// The status of the first program that counts, failed and was not the last one.
    failed: Option<u8>,
}

impl Watch<'_> {
    /// Waits for an event that ends the run until `deadline`, or for ever. That another program
    /// than the last one has failed is said.
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
        // Nothing is known of a program that could not be waited for.
        let Ok(status) = status else { return };
        if status.success() {
            return;
        }
        let Program { host, words, counts, .. } = &self.programs[place];
        let command = words.last().map_or("", String::as_str);
        say(&format!("longhaul emulate: on {host}, '{command}' ended before the end: {status}"));
        if *counts {
            self.failed.get_or_insert(exit_code(status));
        }
    }

    /// The exit status after an event, of which a signal leaves the deciding program some time.
    fn end_of(&mut self, event: Event, decides: Option<Pid>) -> Result<u8, EmulationError> {
        match event {
            Event::Ended(_, status) => {
                let status = status.map_err(|e| EmulationError::System("run a program", e))?;
                let own = exit_code(status);
                Ok(if own == 0 { self.failed.unwrap_or(0) } else { own })
            }
            Event::Flows => Ok(0),
            Event::Signal(signal) => {
                // Ctrl-C goes to the programs of the terminal too; other signals come here only.
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

    /// Gives the deciding program some time to end, or until the next signal.
    fn linger(&self) {
        let deadline = Instant::now() + GRACE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                // Those that the same signal has reached say nothing of themselves.
                Ok(Event::Ended(place, _)) if place + 1 < self.programs.len() => {}
                _ => return,
            }
        }
    }
}

fn out_of_time(limit: Option<Span>) -> u8 {
    let limit = limit.unwrap_or(Span::ZERO);
    say(&format!("longhaul emulate: ended after the time limit of {limit}"));
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

/// Tells `events` when `child`, the program at `place`, has ended.
fn report_end(place: usize, mut child: Child, events: Sender<Event>) -> Result<(), EmulationError> {
    let wait = move || {
        // Nobody listens where something else has brought the end.
        let _ = events.send(Event::Ended(place, child.wait()));
    };
    let started = thread::Builder::new().name("program".into()).spawn(wait);
    started.map(drop).map_err(|error| EmulationError::System("start a thread", error))
}

/// What a shell makes of a program that a signal ended.
fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(1)
}

/// Tells `events` of each signal that asks for an end, and stops the flows.
fn pass_on(mut signals: Signals, events: Sender<Event>, stop: Stop) -> io::Result<()> {
    let watch = move || {
        for signal in signals.forever() {
            stop.stop();
            if events.send(Event::Signal(signal)).is_err() {
                // The programs are being ended already: with this process, the rest is.
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
