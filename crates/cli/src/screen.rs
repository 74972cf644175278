//! What a user sees of a running copy.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_transfer::error::Error;
use longhaul_transfer::options::CopyOptions;
use longhaul_transfer::progress::{Cancel, Notice, Observer, Progress};
use longhaul_transfer::summary::Summary;

use crate::progress::Meter;
use crate::report::Kind;
use crate::{console, exit, json, report, trust};

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
    /// What the summary will be of; of a dry run, what would be copied is what was asked for.
    pub(crate) kind: Kind,
}

/// The user's side of a copy.
pub(crate) struct Screen {
    show: Show,
    cancel: Cancel,
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
    pub(crate) fn new(show: Show, cancel: Cancel) -> Screen {
        let meter = Meter::new(show.progress);
        Screen { show, cancel, state: Mutex::new(State { meter, json_last: None, resumed: None }) }
    }

    /// The copy begins.
    pub(crate) fn started(&self, options: &CopyOptions) {
        if self.show.json {
            console::out(json::start(options));
        }
    }

    /// The copy is done.
    pub(crate) fn finished(&self, summary: &Summary, status: u8) {
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
            console::out(json::summary(summary, status));
        }
    }

    /// The copy ended otherwise.
    pub(crate) fn failed(&self, error: &Error) {
        self.with(|state| state.meter.finish());
        console::error(error);
        if self.show.json {
            console::out(json::error(error, exit::status(error.class)));
        }
    }

    /// A poisoned lock only means that a thread died while it drew.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, notice: &Notice) {
        let Show { verbose, quiet, kind, json, .. } = self.show;
        let inner = match notice {
            Notice::OfSource { notice, .. } => &**notice,
            notice => notice,
        };
        match inner {
            Notice::File { .. } | Notice::Folder { .. } | Notice::Link { .. }
                if kind == Kind::DryRun && !json && !quiet =>
            {
                console::out(report::notice(inner));
            }
            Notice::FileFailed { .. } | Notice::SourceFailed { .. } => {
                console::warn(report::notice(notice));
            }
            _ if quiet => {}
            Notice::Connected { .. }
            | Notice::File { .. }
            | Notice::Folder { .. }
            | Notice::Link { .. }
            | Notice::Skipped { .. } => {
                if verbose {
                    console::note(report::notice(notice));
                }
            }
            Notice::Resumed { .. } | Notice::Streams { .. } => {
                console::note(report::notice(notice));
            }
            Notice::Silent { .. }
            | Notice::HeardAgain
            | Notice::Reconnecting { .. }
            | Notice::Fallback { .. }
            | Notice::OfSource { .. }
            | Notice::Warning(_) => {
                console::warn(report::notice(notice));
            }
        }
    }
}

impl Observer for Screen {
    fn progress(&self, progress: &Progress) {
        self.with(|state| {
            state.meter.update(progress);
            if progress.total_bytes > 0
                && let Some(bytes) = state.resumed.take()
                && bytes < progress.total_bytes
            {
                state.meter.aside(|| self.tell(&Notice::Resumed { bytes }));
            }
            if self.show.json && state.json_last.is_none_or(|last| last.elapsed() >= JSON_EVERY) {
                state.json_last = Some(Instant::now());
                console::out(json::progress(progress));
            }
        });
    }

    fn notice(&self, notice: Notice) {
        self.with(|state| {
            if self.show.json {
                console::out(json::notice(&notice));
            }
            match notice {
                Notice::Resumed { bytes } => state.resumed = Some(bytes),
                notice => state.meter.aside(|| self.tell(&notice)),
            }
        });
    }

    fn trust_new_server(&self, server: &str, id: &str) -> bool {
        self.with(|state| state.meter.aside(|| trust::ask(server, id, &self.cancel)))
    }
}
