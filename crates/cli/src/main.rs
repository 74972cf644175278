//! The `longhaul` command.
//!
//! [`args`] parses the command line, adds defaults from the configuration, and calls the
//! subcommand. Each subcommand has its own file.
//!
//! Shared modules: [`config`] (defaults from files), [`quantity`] (`950M`, `0.1%`), [`reach`] (how
//! another host is reached), [`exit`] (statuses), [`console`] (stdout and stderr), [`screen`]
//! (shows a running copy, with [`progress`], [`json`] and [`report`]), [`plain`] (escapes text from
//! others), [`signals`], [`scenario_file`].

mod args;
mod cat;
mod channel;
mod compare;
mod completions;
mod config;
mod console;
mod cp;
mod demo;
mod descriptors;
mod doctor;
#[cfg(target_os = "linux")]
mod emulate;
mod error;
mod exit;
mod habits;
mod help;
mod hex;
mod id;
mod json;
mod kernel_tcp;
mod link_tally;
mod live;
mod ls;
mod man;
mod model;
#[cfg(target_os = "linux")]
mod mount;
mod notify;
mod path;
mod plain;
mod probe;
mod progress;
mod protocol_settings;
mod quantity;
mod reach;
mod report;
mod reproduce;
mod scenario_file;
mod screen;
mod serve;
mod share;
mod show_config;
mod signals;
mod sim;
mod stream;
mod sync;
mod table;
mod top;
mod trust;
mod utc;
mod words;

use std::process::ExitCode;

use crate::error::ErrorKind;

fn main() -> ExitCode {
    let status = args::run();
    // A command with incomplete output must not report success.
    let lost = status == exit::DONE && console::has_lost();
    ExitCode::from(if lost { exit::status(ErrorKind::LocalFile) } else { status })
}
