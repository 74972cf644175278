//! The log of a server: text on stderr and JSON on stdout, or one of the two in a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longhaul::{ServedClient, ServerEvent};
use longhaul_gateway::AccessRecord;
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;

use crate::error::{Error, ErrorKind};
use crate::quantity::count;
use crate::{console, json, plain, utc};

pub(super) struct Log {
    file: Option<(PathBuf, Mutex<File>)>,
    json: bool,
    quiet: bool,
}

impl Log {
    /// Without a file, text goes to stderr unless `quiet`, and JSON to stdout if `json`.
    pub(super) fn open(file: Option<&Path>, json: bool, quiet: bool) -> Result<Log, Error> {
        let file = match file {
            Some(path) => Some((path.to_owned(), Mutex::new(append(path)?))),
            None => None,
        };
        Ok(Log { file, json, quiet })
    }

    /// Opens the log file anew after logrotate moved it. If this fails, the old file stays open.
    /// Returns whether there is a log file.
    pub(super) fn reopen(&self) -> bool {
        let Some((path, file)) = &self.file else { return false };
        match append(path) {
            Ok(new) => *file.lock().unwrap_or_else(PoisonError::into_inner) = new,
            Err(error) => {
                let what = plain::text(&error.what);
                console::warn(format_args!("{what}; the old log file stays open"));
            }
        }
        true
    }

    pub(super) fn write(&self, event: &ServerEvent) {
        // A log file has no line for the start of a request: the line for the end repeats it.
        if self.file.is_some() && matches!(event, ServerEvent::Asked(_)) {
            return;
        }
        self.line(|| json::server_event(event), || said(event));
    }

    pub(super) fn write_http(&self, record: &AccessRecord) {
        if record.is_refused() {
            return self.write_refused(record);
        }
        let AccessRecord { address, name, method, path, destination, bytes, .. } = record;
        let to = destination.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
        let size = bytes.map(|bytes| format!(", {}", Bytes::new(bytes))).unwrap_or_default();
        let by = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let left = record.left.as_ref().map(|left| format!("; {left}")).unwrap_or_default();
        let end = match record.disconnected_after {
            Some(limit) => format!(
                "disconnected, because the client neither received nor sent a byte for {} s",
                limit.as_secs_f64()
            ),
            None if record.is_write() => format!("done{size}{left}"),
            None => format!("failed with status {}{left}", record.status),
        };
        let line = format!("{} {address}{by} HTTP {method} {path}{to}: {end}", utc::now());
        self.line(|| Some(json::http(record)), || Some(plain::text(&line)));
    }

    fn write_refused(&self, refused: &AccessRecord) {
        let AccessRecord { address, name, method, path, status, .. } = refused;
        let name = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let what = format!("HTTP status {status} for {method} {path}{name}");
        let said = || Some(plain::text(&format!("{} {address} was refused: {what}", utc::now())));
        let error = || Error::new(ErrorKind::Unreachable, what.clone());
        self.line(|| Some(json::refused(*address, &error())), said);
    }

    /// Writes a line to the log file, as JSON or as text. Without a log file, writes JSON to stdout
    /// and text to stderr.
    fn line(&self, json: impl Fn() -> Option<String>, said: impl Fn() -> Option<String>) {
        let Some((path, file)) = &self.file else {
            if let Some(line) = self.json.then(&json).flatten() {
                console::out(line);
            }
            if let Some(line) = (!self.quiet).then(&said).flatten() {
                console::note(format_args!("longhaul: {line}"));
            }
            return;
        };
        let Some(line) = (if self.json { json() } else { said() }) else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            console::warn(format_args!("cannot write {}: {error}", path.display()));
        }
    }
}

fn append(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    opened.map_err(|error| {
        let what = format!("cannot write the log {}: {error}", path.display());
        Error::new(ErrorKind::LocalFile, what).advise("check --log-file")
    })
}

/// The text line of an event, with control characters escaped; `None` for an unknown event.
fn said(event: &ServerEvent) -> Option<String> {
    let said = |error: &longhaul::Error| Error::from(error.clone());
    let one = |client: &ServedClient| {
        let ServedClient { address, id, name, wish, .. } = client;
        let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        format!("{address} ({id}{name}) {wish}")
    };
    let line = match event {
        ServerEvent::Refused { address, error } => {
            format!("{address} was refused: {}", said(error))
        }
        ServerEvent::RefusedMore { count } => format!("{count} more clients were refused"),
        ServerEvent::Asked(client) => one(client),
        ServerEvent::Ended { client, took, moved, error } => {
            let (client, seconds) = (one(client), took.as_secs_f64());
            let result = json::served_result(moved, error.is_some());
            let took = Span::from_nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            let mut line = format!("{client}: {result}");
            if moved.failed > 0 {
                line += &format!(", {} FAILED", count(moved.failed, "file"));
            }
            let (bytes, copied) = (Bytes::new(moved.bytes), count(moved.files, "file"));
            line += &format!(", {copied}, {bytes} in {seconds:.1} s, {}", bytes / took);
            match error {
                Some(error) => format!("{line}: {}", said(error)),
                None => line,
            }
        }
        ServerEvent::LinkFailed { to, error } => {
            format!("the link to {to} failed: {}", said(error))
        }
        ServerEvent::Lagged(count) => format!("{count} log lines were lost"),
        _ => return None,
    };
    Some(plain::text(&format!("{} {line}", utc::now())))
}
