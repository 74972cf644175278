//! What a user sees of a running copy.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul::{CancelHandle, Event, Location, NewServer, Progress, Summary};

use crate::error::{Error, event_in_flags};
use crate::progress::Meter;
use crate::report::Kind;
use crate::{console, exit, json, progress, report, trust};

/// How often `--json` tells how far the copy is.
const JSON_EVERY: Duration = Duration::from_secs(1);

/// What to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    /// Events as JSON on stdout.
    pub(crate) json: bool,
    /// How far the copy is, on stderr.
    pub(crate) progress: bool,
    /// Each file by name.
    pub(crate) verbose: bool,
    /// Nothing but errors.
    pub(crate) quiet: bool,
    /// Not even errors: who reads the events shows them.
    pub(crate) silent: bool,
    /// What the summary will be of; of a dry run, what would be copied is what was asked for.
    pub(crate) kind: Kind,
}

/// The user's side of a copy.
pub(crate) struct Screen {
    show: Show,
    cancel: CancelHandle,
    state: Mutex<State>,
}

struct State {
    meter: Meter,
    json_last: Option<Instant>,
    /// Bytes that were there, not told yet: of what is all there the summary alone tells.
    resumed: Option<u64>,
}

impl Screen {
    /// A screen that shows `show`; a question ends when `cancel` is wished.
    pub(crate) fn new(show: Show, cancel: CancelHandle) -> Screen {
        let meter = Meter::new(show.progress);
        Screen { show, cancel, state: Mutex::new(State { meter, json_last: None, resumed: None }) }
    }

    /// The copy begins.
    pub(crate) fn started(&self, sources: &[Location], destination: &Location, protocol: &str) {
        if let [source] = sources
            && let Some(name) = source.path().file_name()
        {
            self.with(|state| state.meter.name(Path::new(name)));
        }
        if self.show.json {
            console::out(json::start(sources, destination, protocol));
        }
    }

    /// Whether the names of files are shown as they come, though nobody asked for a list of them.
    pub(crate) fn shows_names(&self) -> bool {
        self.show.progress && !self.show.json && progress::can_draw()
    }

    /// The copy is done; `line` is the summary as JSON.
    pub(crate) fn finished(&self, summary: &Summary, status: u8, line: &str) {
        let is_all_there = status == exit::DONE && self.show.kind != Kind::DryRun;
        self.with(|state| match is_all_there {
            true => state.meter.complete(summary),
            false => state.meter.finish(),
        });
        if !self.show.quiet {
            for line in report::lines(summary, self.show.kind, self.show.verbose) {
                console::note(line);
            }
        }
        if self.show.json {
            console::out(line);
        }
    }

    /// The copy ended otherwise.
    pub(crate) fn failed(&self, error: &Error) {
        self.with(|state| state.meter.finish());
        if !self.show.silent {
            console::error(error);
        }
        if self.show.json {
            console::out(json::error(error, exit::status(error.kind)));
        }
    }

    /// A poisoned lock only means that a thread died while it drew.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, event: &Event) {
        let Show { verbose, quiet, kind, json, silent, .. } = self.show;
        let inner = match event {
            Event::OfSource { event, .. } => &**event,
            event => event,
        };
        match inner {
            Event::FileDone { .. }
            | Event::FolderDone { .. }
            | Event::LinkDone { .. }
            | Event::Deleted { .. }
                if kind == Kind::DryRun && !json && !quiet =>
            {
                console::out(report::event(inner));
            }
            _ if silent => {}
            Event::FileFailed { .. } | Event::SourceFailed { .. } => {
                console::warn(report::event(event));
            }
            _ if quiet => {}
            Event::Connected { .. }
            | Event::FileDone { .. }
            | Event::FolderDone { .. }
            | Event::LinkDone { .. }
            | Event::Deleted { .. }
            | Event::FileSkipped { .. } => {
                if verbose {
                    console::note(report::event(event));
                }
            }
            Event::Resumed { .. } | Event::Streams { .. } => {
                console::note(report::event(event));
            }
            _ => {
                console::warn(report::event(event));
            }
        }
    }

    /// Shows what the copy reports.
    pub(crate) fn see(&self, event: Event) {
        match event_in_flags(event) {
            Event::Progress(progress) => self.progress(&progress),
            event => {
                let line = self.show.json.then(|| json::event(&event));
                self.event(event, line);
            }
        }
    }

    /// Shows what a copy on another host reports, which has its own `line` for `--json`.
    pub(crate) fn relay(&self, event: Event, line: impl FnOnce() -> String) {
        match event {
            Event::Progress(progress) => self.progress(&progress),
            event => self.event(event, self.show.json.then(line)),
        }
    }

    fn progress(&self, progress: &Progress) {
        self.with(|state| {
            state.meter.update(progress);
            if progress.total_bytes > 0
                && let Some(bytes) = state.resumed.take()
                && bytes < progress.total_bytes
            {
                state.meter.aside(|| self.tell(&Event::Resumed { bytes }));
            }
            if self.show.json && state.json_last.is_none_or(|last| last.elapsed() >= JSON_EVERY) {
                state.json_last = Some(Instant::now());
                console::out(json::progress(progress));
            }
        });
    }

    fn event(&self, event: Event, line: Option<String>) {
        self.with(|state| {
            if let Some(line) = line {
                console::out(line);
            }
            let inner = match &event {
                Event::OfSource { event, .. } => &**event,
                event => event,
            };
            if let Event::FileDone { path } = inner {
                state.meter.name(path);
            }
            let shows_all = self.show.verbose || self.show.kind == Kind::DryRun;
            match event {
                Event::Resumed { bytes } => state.resumed = Some(bytes),
                // The meter has the name, and need not step aside.
                Event::FileDone { .. } if !shows_all => {}
                event => state.meter.aside(|| self.tell(&event)),
            }
        });
    }

    /// Asks whether a server that was never seen is the right one.
    pub(crate) fn trusts(&self, server: &NewServer) -> bool {
        let ask = || trust::ask(&server.name, &server.id, &self.cancel);
        self.with(|state| state.meter.aside(ask))
    }
}
