//! `longhaul top`: shows the state of a server in a terminal.

use std::sync::Arc;
use std::time::Duration;

use longhaul::units::{Bytes, Rate};
use longhaul::{
    BoundBy, CancelHandle, Connection, Location, RoomStatus, ServerStatus, SharedTreeStatus,
    StreamStatus, TransferStatus, blocking,
};

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::progress::duration;
use crate::reach::ReachArgs;
use crate::screen::{Screen, Show};
use crate::{console, exit, json, plain, table};

const EXAMPLES: &str = "\
Examples:
  longhaul top                                the server of this host
  longhaul top lh://dtn.example.org:7727      another server, until Ctrl-C
  longhaul top --once dtn.example.org         one snapshot
  longhaul top --json dtn.example.org         one JSON object a second
";

const ABOUT: &str = "\
Show the status of a server

Prints each transfer with its rate, queue, losses and bottleneck, then the streams, the rooms and \
the shared tree, and refreshes the screen each second, or after the time of --interval. Needs the \
right `status=ro` in the server's list of clients, because the status shows the ids and paths of \
all clients.";

/// Moves the cursor to the top of the terminal, and clears the screen.
const ERASE: &str = "\x1b[H\x1b[J";
/// Largest width, in characters, of the column with a transfer's client and paths.
const WIDEST: usize = 48;
/// The time over which `--once` measures rates.
const ONCE: Duration = Duration::from_secs(1);

/// Show the status of a server
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct TopArgs {
    // rustdoc would read the brackets of a doc comment as links.
    #[arg(help = "The server: lh://HOST[:PORT] or HOST[:PORT]")]
    #[arg(value_name = "HOST", default_value = "localhost", value_parser = parse_host)]
    host: Location,
    /// Print one snapshot, with the rates of one second
    #[arg(long)]
    once: bool,
    /// Seconds between two snapshots, from 0.1 to 10
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    #[command(flatten)]
    reach: ReachArgs,
    /// Write each snapshot as a JSON object on stdout, one a line
    #[arg(long)]
    json: bool,
}

fn parse_host(text: &str) -> Result<Location, String> {
    let text = if text.contains("://") { text.to_owned() } else { format!("lh://{text}/") };
    text.parse().map_err(|error| format!("{error}"))
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=10.0).contains(seconds));
    let wrong = || format!("{text} is not a number of seconds from 0.1 to 10");
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

pub(crate) fn run(args: &TopArgs, settings: &[Setting]) -> u8 {
    let cancel = CancelHandle::default();
    let screen = Arc::new(Screen::new(Show::errors(args.json), cancel.clone()));
    match exit::of_view(start(args, settings, &screen, &cancel).map(|()| exit::DONE)) {
        Ok(status) => status,
        // Ctrl-C is the normal end of a view.
        Err(error) if error.kind == ErrorKind::Cancelled && !args.once => exit::DONE,
        Err(error) => {
            screen.failed(&error);
            exit::status(error.kind)
        }
    }
}

fn start(
    args: &TopArgs,
    settings: &[Setting],
    screen: &Arc<Screen>,
    cancel: &CancelHandle,
) -> Result<(), Error> {
    let client = args.reach.remote(&[&args.host], settings, screen, cancel)?;
    console::cancel_with_stdout(cancel)?;
    let request = client.connect(args.host.clone()).reach(args.reach.options());
    let connection = blocking::wait(request.cancel_with(cancel).into_future())?;
    let shown = show(args, &connection);
    blocking::wait(connection.close());
    shown
}

fn show(args: &TopArgs, connection: &Connection) -> Result<(), Error> {
    let every = if args.once { ONCE } else { args.interval };
    let mut watch = blocking::wait(connection.watch_status(every))?;
    // The first snapshot has no rates yet.
    let mut skip = u32::from(args.once);
    let draws = console::is_terminal_out() && !args.once;
    while let Some(status) = blocking::wait(watch.next()) {
        let status = status?;
        if skip > 0 {
            skip -= 1;
            continue;
        }
        match args.json {
            true => console::out(json::server_status(&status, None)),
            false => {
                let erase = if draws { ERASE } else { "" };
                console::out(format_args!("{erase}{}", view(&status, &args.host.to_string())));
            }
        }
        if args.once {
            return Ok(());
        }
    }
    Ok(())
}

fn view(status: &ServerStatus, host: &str) -> String {
    let all = &status.totals;
    let mut lines = vec![
        format!(
            "{}: received {}, sent {}; requests: {} done, {} partial, {} failed",
            plain::text(host),
            Bytes::new(all.received_bytes),
            Bytes::new(all.sent_bytes),
            all.done,
            all.partial,
            all.failed
        ),
        String::new(),
    ];
    match status.transfers.is_empty() {
        true => lines.push("no transfer is under way".to_owned()),
        false => lines.extend(transfers(&status.transfers)),
    }
    if !status.streams.is_empty() {
        lines.push(String::new());
        lines.extend(streams(&status.streams));
    }
    if !status.rooms.is_empty() {
        lines.push(String::new());
        lines.extend(rooms(&status.rooms));
    }
    if let Some(SharedTreeStatus { keys, changes, watches, .. }) = status.shared_tree {
        lines.push(String::new());
        lines.push(format!("shared tree: {keys} keys, {changes} changes, {watches} watches"));
    }
    lines.join("\n")
}

fn transfers(all: &[TransferStatus]) -> Vec<String> {
    let head = [
        "", "transfer", "rate", "sending", "done", "of", "left", "queue", "path", "socket",
        "memory", "bound by",
    ];
    let head = head.map(str::to_owned).to_vec();
    let rows = all.iter().map(|status| {
        let left = status.total_bytes.saturating_sub(status.bytes);
        let left = match status.rate_now {
            _ if status.total_bytes == 0 => "-".to_owned(),
            Rate::ZERO => "-".to_owned(),
            rate => duration(Bytes::new(left) / rate),
        };
        let who = status.name.as_deref().unwrap_or(&status.address);
        vec![
            if status.receives { "in" } else { "out" }.to_owned(),
            plain::text(&format!("{who} {}", status.wish)).chars().take(WIDEST).collect(),
            status.rate_now.to_string(),
            status.sending_rate.to_string(),
            Bytes::new(status.bytes).to_string(),
            match status.total_bytes {
                0 => "-".to_owned(),
                total => Bytes::new(total).to_string(),
            },
            left,
            status.queue.to_string(),
            status.path_lost.to_string(),
            status.socket_lost.to_string(),
            status.memory_lost.to_string(),
            match status.bound_by {
                BoundBy::Nothing => "-",
                bound => bound.name(),
            }
            .to_owned(),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    table::lines(&rows, 2)
}

fn streams(all: &[StreamStatus]) -> Vec<String> {
    let head = ["stream", "receivers", "frames", "sender"].map(str::to_owned).to_vec();
    let rows = all.iter().map(|status| {
        vec![
            plain::text(&status.name),
            status.receivers.to_string(),
            status.frames.to_string(),
            plain::text(status.sender.as_deref().unwrap_or("-")),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    table::lines(&rows, 1)
}

fn rooms(all: &[RoomStatus]) -> Vec<String> {
    let head = ["room", "senders", "subscribers", "messages"].map(str::to_owned).to_vec();
    let rows = all.iter().map(|status| {
        let counts = [status.senders, status.subscribers, status.messages];
        let counts = counts.iter().map(u64::to_string);
        std::iter::once(plain::text(&status.name)).chain(counts).collect()
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    table::lines(&rows, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_server_is_shown_as_idle_and_a_name_cannot_move_the_cursor() {
        let quiet = view(&ServerStatus::default(), "lh://h/");
        assert!(quiet.contains("no transfer is under way"), "{quiet}");
        let evil = view(&ServerStatus::default(), "lh://h\x1b[2J/");
        assert!(!evil.contains('\x1b'), "{evil}");
    }

    #[test]
    fn the_size_of_a_transfer_is_shown_only_if_it_is_known() {
        let size = |total_bytes| {
            let mut status = TransferStatus::default();
            status.total_bytes = total_bytes;
            transfers(&[status])[1].split_whitespace().nth(7).map(str::to_owned)
        };
        assert_eq!(size(0).as_deref(), Some("-"));
        assert!(size(5_000).is_some_and(|size| size.starts_with('5')));
    }

    #[test]
    fn a_host_is_a_name_or_a_url_and_an_interval_has_limits() {
        for (text, url) in [("localhost", "lh://localhost/"), ("lh://h:7718/", "lh://h:7718/")] {
            assert_eq!(parse_host(text).unwrap().to_string(), url);
        }
        assert!(parse_interval("0.1").is_ok() && parse_interval("11").is_err());
    }
}
