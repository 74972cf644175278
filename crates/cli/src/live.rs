//! Code for the commands that stay connected to a server's streams or rooms.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use longhaul::units::Span;
use longhaul::{CancelHandle, Client, Location};
use serde_json::json;

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::quantity::parse_span;
use crate::reach::ReachArgs;
use crate::screen::{Screen, Show};
use crate::{console, exit, json};

/// Interval of progress reports.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct LiveArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// How long to keep retrying a lost connection
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    retry_for: Span,
    /// Write each event as a JSON object on stdout, one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl LiveArgs {
    pub(crate) fn retry_for(&self) -> Duration {
        Duration::from_nanos(self.retry_for.as_nanos())
    }

    /// A client for `url`, and a handle that cancels its requests. `wrong` has the error text and
    /// the advice for a URL that names no server.
    pub(crate) fn client(
        &self,
        url: &Location,
        settings: &[Setting],
        wrong: (&str, &str),
    ) -> Result<(Client, CancelHandle), Error> {
        if !matches!(url, Location::Daemon { .. } | Location::Ssh { .. }) {
            let error = Error::new(ErrorKind::Usage, format!("{url} {}", wrong.0));
            return Err(error.advise(wrong.1));
        }
        let cancel = CancelHandle::default();
        let screen = Arc::new(Screen::new(Show::errors(false), cancel.clone()));
        let client = self.reach.remote(&[url], settings, &screen, &cancel)?;
        Ok((client, cancel))
    }

    pub(crate) fn notes(&self) -> Notes {
        Notes { json: self.json, quiet: self.quiet }
    }

    pub(crate) fn status(&self, done: Result<u8, Error>) -> u8 {
        match exit::of_view(done) {
            Ok(status) => status,
            Err(error) if self.json => {
                console::out(json::error(&error, exit::status(error.kind)));
                exit::status(error.kind)
            }
            Err(error) => exit::fail(&error),
        }
    }
}

/// The lines on stderr and stdout that these commands share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notes {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Notes {
    /// Prints a line for people.
    pub(crate) fn note(self, line: impl std::fmt::Display) {
        if !self.json && !self.quiet {
            console::note(line);
        }
    }

    pub(crate) fn connected(self, connected: bool) {
        if self.json {
            let again = json!({"event": "heard-again"});
            console::out(if connected { again } else { json!({"event": "lost"}) });
        }
        let what = if connected { "connected again" } else { "the connection is lost; retrying" };
        self.note(format_args!("longhaul: {what}"));
    }

    /// Prints that the server has admitted the receiver or subscriber.
    pub(crate) fn waiting(self, url: &str) {
        self.note(format_args!("longhaul: receives {url}"));
    }
}

pub(crate) fn millis(span: Span) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1_000.0)
}

/// A thread that reads the frames or messages to send.
pub(crate) struct Feeding(Receiver<Result<(), Error>>);

impl Feeding {
    pub(crate) fn start(
        feed: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<Feeding, Error> {
        let (tell, fed) = channel();
        let thread = std::thread::Builder::new().name("source".into()).spawn(move || {
            // The command may already have ended.
            let _ = tell.send(feed());
        });
        let failed = |error| format!("cannot start a thread: {error}");
        thread.map_err(|error| Error::new(ErrorKind::Unfinished, failed(error)))?;
        Ok(Feeding(fed))
    }

    /// Waits for the end of the thread, for at most one second. `None` if the thread still runs.
    pub(crate) fn ended(&self) -> Option<Result<(), Error>> {
        match self.0.recv_timeout(EVERY) {
            Ok(ended) => Some(ended),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let what = "the source's thread ended early";
                Some(Err(Error::new(ErrorKind::Unfinished, what)))
            }
        }
    }
}
