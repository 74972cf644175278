//! Errors of commands, with advice for the user.

use std::fmt;

pub(crate) use longhaul::ErrorKind;
use longhaul::{CallOption, Event};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) kind: ErrorKind,
    /// What failed, on which object, and the reason, in one sentence without a full stop.
    pub(crate) what: String,
    pub(crate) advice: Option<String>,
    /// Whether the file or folder concerned does not exist.
    pub(crate) is_missing: bool,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), advice: None, is_missing: false }
    }

    #[must_use]
    pub(crate) fn advise(self, advice: impl Into<String>) -> Error {
        Error { advice: Some(advice.into()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Changes fields of a value: `#[non_exhaustive]` types of other crates permit no struct literals.
#[cfg(test)]
macro_rules! but {
    ($base:expr, $($field:ident: $value:expr),* $(,)?) => {{
        let mut value = $base;
        $(value.$field = $value;)*
        value
    }};
}
#[cfg(test)]
pub(crate) use but;

impl From<longhaul::Error> for Error {
    fn from(error: longhaul::Error) -> Error {
        let (what, advice) = (in_flags(error.what()), error.advice().map(in_flags));
        Error { kind: error.kind, what, advice, is_missing: error.is_missing }
    }
}

fn flag(option: CallOption) -> &'static str {
    match option {
        CallOption::AcceptNew => "--accept-new",
        CallOption::Allow => "--allow",
        CallOption::AllowDowngrade => "--allow-downgrade",
        CallOption::AllowPlain => "--allow-plain",
        CallOption::Cipher => "--cipher",
        CallOption::Datagram => "--datagram",
        CallOption::DryRun => "--dry-run",
        CallOption::Listen => "--listen",
        CallOption::Memory => "--memory",
        CallOption::Pin => "--server-id",
        CallOption::Ports => "--ports",
        CallOption::Receive => "--receive",
        CallOption::Recursive => "-r",
        CallOption::RemotePath => "--remote-path",
        CallOption::Replicas => "--replicas",
        CallOption::RetryFor => "--retry-for",
        CallOption::Root => "--root",
        CallOption::Segment => "--segment",
        CallOption::Time => "--time",
        CallOption::Token => "--token-file",
        // `max_bytes` limits calls that the command line does not make; a newer library may have
        // more options.
        other => other.name(),
    }
}

/// Replaces the names of library options in `text` by flags. The text may come from a peer.
fn in_flags(text: &str) -> String {
    let named = CallOption::named_in(text).into_iter();
    named.fold(text.to_owned(), |text, option| text.replace(&option.to_string(), flag(option)))
}

/// Replaces the names of library options in the event's texts by flags.
pub(crate) fn event_in_flags(event: Event) -> Event {
    match event {
        Event::Fallback { carrier, advice } => {
            Event::Fallback { carrier, advice: in_flags(&advice) }
        }
        Event::Reconnecting { reason } => Event::Reconnecting { reason: in_flags(&reason) },
        Event::Busy { reason } => Event::Busy { reason: in_flags(&reason) },
        Event::FileFailed { path, reason } => Event::FileFailed { path, reason: in_flags(&reason) },
        Event::Warning(text) => Event::Warning(in_flags(&text)),
        Event::OfSource { source, event } => {
            Event::OfSource { source, event: Box::new(event_in_flags(*event)) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_option_of_the_library_has_an_existing_flag() {
        let root = Cli::command();
        let is_there = |flag: &str| {
            root.get_subcommands().flat_map(clap::Command::get_arguments).any(|argument| {
                let short = argument.get_short().map(|short| format!("-{short}"));
                let long = argument.get_long().map(|long| format!("--{long}"));
                [short, long].iter().flatten().any(|known| known == flag)
            })
        };
        let limits_library_calls = |option: &CallOption| *option == CallOption::MaxBytes;
        for option in CallOption::ALL.into_iter().filter(|option| !limits_library_calls(option)) {
            assert!(is_there(flag(option)), "{option:?}");
        }
    }

    #[test]
    fn library_errors_name_options_and_command_line_errors_name_flags() {
        let error = longhaul::Error::new(ErrorKind::Usage, "`memory` 1 MiB is too little");
        assert_eq!(error.options(), [CallOption::Memory]);
        assert_eq!(Error::from(error).what, "--memory 1 MiB is too little");
        let event = Box::new(Event::Warning("`receive` fake writes nothing".into()));
        let event = event_in_flags(Event::OfSource { source: "h".into(), event });
        assert_eq!(crate::report::event(&event), "h: --receive fake writes nothing");
    }
}
