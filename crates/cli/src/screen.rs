//! Output of a running copy.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul::{CancelHandle, Event, Location, NewServer, Progress, Summary};

use crate::error::{Error, event_in_flags};
use crate::progress::Meter;
use crate::report::Kind;
use crate::{console, exit, json, progress, report, trust};

/// Minimum interval of `progress` events.
const JSON_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    /// Events as JSON on stdout.
    pub(crate) json: bool,
    /// A `sample` event for each progress report, with `json`.
    pub(crate) series: bool,
    /// Progress on stderr.
    pub(crate) progress: bool,
    /// Names of files, and all figures of the summary.
    pub(crate) verbose: bool,
    /// Only errors.
    pub(crate) quiet: bool,
    /// Not even errors: the host that started this copy reads the events and prints the errors.
    pub(crate) silent: bool,
    /// The kind of summary; a dry run prints names on stdout.
    pub(crate) kind: Kind,
}

impl Show {
    /// Only errors, and events with `json`: for commands that print their own results.
    pub(crate) fn errors(json: bool) -> Show {
        Show {
            json,
            series: false,
            progress: false,
            verbose: false,
            quiet: true,
            silent: false,
            kind: Kind::Copy,
        }
    }
}

pub(crate) struct Screen {
    show: Show,
    cancel: CancelHandle,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    meter: Meter,
    json_last: Option<Instant>,
    /// Resumed bytes that were not reported yet. If everything was already there, only the summary
    /// reports them.
    resumed: Option<u64>,
}

impl Screen {
    /// Cancelling `cancel` ends a pending question (whether to trust a new server).
    pub(crate) fn new(show: Show, cancel: CancelHandle) -> Screen {
        let meter = Meter::new(show.progress);
        let state = Mutex::new(State { meter, json_last: None, resumed: None });
        Screen { show, cancel, started: Instant::now(), state }
    }

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

    /// Whether the progress bar shows names of files.
    pub(crate) fn shows_names(&self) -> bool {
        self.show.progress && !self.show.json && progress::can_draw()
    }

    /// `line` is the summary as JSON.
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

    pub(crate) fn failed(&self, error: &Error) {
        self.with(|state| state.meter.finish());
        if !self.show.silent {
            console::error(error);
        }
        if self.show.json {
            console::out(json::error(error, exit::status(error.kind)));
        }
    }

    /// Uses a poisoned lock too: the poison only means that a thread panicked while drawing.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn print(&self, event: &Event) {
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

    pub(crate) fn see(&self, event: Event) {
        match event_in_flags(event) {
            Event::Progress(progress) => {
                if self.show.series {
                    console::out(json::sample(&progress, self.started.elapsed()));
                }
                self.progress(&progress);
            }
            event => {
                let line = self.show.json.then(|| json::event(&event));
                self.event(event, line);
            }
        }
    }

    pub(crate) fn relay_sample(&self, line: &str) {
        if self.show.series {
            console::out(line);
        }
    }

    /// Shows an event of a copy on another host; `line` is its text for `--json`.
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
                state.meter.aside(|| self.print(&Event::Resumed { bytes }));
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
                // Without `-v`, only the bar shows this name.
                Event::FileDone { .. } if !shows_all => {}
                event => state.meter.aside(|| self.print(&event)),
            }
        });
    }

    pub(crate) fn trusts(&self, server: &NewServer) -> bool {
        let ask = || trust::ask(&server.name, &server.id, &self.cancel);
        self.with(|state| state.meter.aside(ask))
    }
}
