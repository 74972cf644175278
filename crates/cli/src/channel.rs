//! `longhaul channel`: messages through a room of a server.

mod code;
mod lines;

use std::io::{BufRead, Read};

use clap::{Args, Subcommand, ValueEnum};
use longhaul::units::Span;
use longhaul::{
    CancelHandle, ChannelCode, ChannelEvent, ChannelInput, ChannelMode, ChannelReceiver,
    ChannelSender, ChannelSettings, Client, Location, ReachOptions, blocking,
};

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::live::{Feeding, LiveArgs};
use crate::quantity::parse_span;
use crate::{console, exit, plain};
use lines::Lines;

/// Maximum size of a message in bytes.
const MOST: usize = 16 << 20;

const EXAMPLES: &str = "\
Examples:
  longhaul channel receive lh://dtn.example.org/lab/log
  sensor | longhaul channel send lh://dtn.example.org/lab/log
  longhaul channel send --mode latest --key pose/7 lh://dtn.example.org/lab/poses
  longhaul channel receive --mode datagram --code xor:3 --json lh://dtn.example.org/lab/poses
  longhaul channel receive --mode deadline --deadline 200ms lh://dtn.example.org/lab/poses
  longhaul channel receive --mode multicast lh://dtn.example.org/lab/poses
";

/// Send or receive messages through a room of a server
///
/// The server runs `longhaul serve` or `longhaul reflect` and passes each message to all
/// subscribers of the room. A room is created on first use. Except with `--mode deadline`, a new
/// subscriber first gets the last message of each key. A slow subscriber does not delay the
/// others: the room keeps a limited number of messages, and drops the oldest first.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct ChannelArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Send each line of stdin as a message
    Send(SendArgs),
    /// Write each message as a line to stdout
    Receive(ReceiveArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Every message, in order
    Reliable,
    /// The newest message of each key
    Latest,
    /// Every message in UDP datagrams, immediately or never
    Datagram,
    /// Like datagram, but messages older than --deadline are not delivered, only counted as late
    Deadline,
    /// Every message through the multicast group of the room, immediately or never
    Multicast,
}

#[derive(Args)]
struct SendArgs {
    /// Key of the messages: words joined by slashes [default: none]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Send all of stdin as one message of at most 16 MiB
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    link: LinkArgs,
}

#[derive(Args)]
struct ReceiveArgs {
    /// Receive only messages with this key or a key below it
    #[arg(long, value_name = "KEY", default_value = "", hide_default_value = true)]
    key: String,
    /// Write the first message without a line end, and stop
    #[arg(long, conflicts_with = "json")]
    whole: bool,
    /// Stop after this many messages
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    #[command(flatten)]
    link: LinkArgs,
}

#[derive(Args)]
struct LinkArgs {
    /// The server and the room: lh://HOST/ROOM
    #[arg(value_name = "URL")]
    url: Location,
    /// How messages travel between this host and the server
    #[arg(long, value_name = "MODE", default_value = "reliable")]
    mode: Mode,
    /// Maximum age of a message, for --mode deadline: at a receiver the time since the message was
    /// sent, at a sender the time until the server has the message
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    #[arg(required_if_eq("mode", "deadline"))]
    deadline: Option<Span>,
    /// Network interface of this host for the multicast group, for --mode multicast [default: the
    /// interface that leads to the server]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Repairs for lost datagrams between this host and the server: xor:N sends the XOR of each N
    /// datagrams, rs:N+M sends M Reed-Solomon repairs for each N; at a receiver M is at most N. For
    /// --mode datagram, and for senders with --mode multicast
    #[arg(long, value_name = "CODE", default_value = "none", value_parser = code::parse)]
    code: ChannelCode,
    /// UDP payload of a datagram in bytes, 1232 to 8900 [default: the largest that reaches the
    /// server, at most 1452]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1232..=8900))]
    datagram: Option<u16>,
    /// Number of TCP connections to the server, if UDP is blocked. Several connections are faster
    /// than one on a long path with losses
    #[arg(long, value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    streams: u8,
    #[command(flatten)]
    live: LiveArgs,
}

impl LinkArgs {
    fn reach(&self) -> ReachOptions {
        let mut options = self.live.reach.options();
        options.lanes = self.streams;
        options
    }

    fn settings(&self) -> Result<ChannelSettings, Error> {
        let mode = match (self.mode, self.deadline) {
            (Mode::Deadline, Some(deadline)) => ChannelMode::Deadline(deadline),
            (_, Some(_)) => {
                let advice = "leave --deadline out, or add --mode deadline";
                return Err(
                    Error::new(ErrorKind::Usage, "this mode has no deadline").advise(advice)
                );
            }
            (Mode::Reliable, None) => ChannelMode::Reliable,
            (Mode::Latest, None) => ChannelMode::Latest,
            (Mode::Datagram | Mode::Deadline, None) => ChannelMode::Datagram,
            (Mode::Multicast, None) => ChannelMode::Multicast,
        };
        let mut settings = ChannelSettings::new(mode);
        (settings.code, settings.datagram) = (self.code, self.datagram);
        settings.interface.clone_from(&self.interface);
        Ok(settings)
    }

    fn client(&self, settings: &[Setting]) -> Result<(Client, CancelHandle), Error> {
        let wrong = ("is not a server with rooms", "name a room of a server: lh://host/room");
        self.live.client(&self.url, settings, wrong)
    }
}

pub(crate) fn run(args: &ChannelArgs, settings: &[Setting]) -> u8 {
    let (link, done) = match &args.what {
        What::Send(args) => (&args.link, send(args, settings)),
        What::Receive(args) => (&args.link, receive(args, settings)),
    };
    link.live.status(done)
}

fn send(args: &SendArgs, settings: &[Setting]) -> Result<u8, Error> {
    let link = &args.link;
    let (client, cancel) = link.client(settings)?;
    let lines = Lines::new(link.live.notes());
    let request = client.send_channel(link.url.clone(), link.settings()?);
    let request = request.reach(link.reach()).retry_for(link.live.retry_for());
    let sender = blocking::wait(request.cancel_with(&cancel).into_future())?;
    let (input, key, whole) = (sender.input(), args.key.clone(), args.whole);
    let fed = Feeding::start(move || feed(&input, key.as_deref(), whole))?;
    let read = watch(&sender, &fed, &cancel, &lines);
    let sent = blocking::wait(sender.finish());
    // The error of `feed` is more specific than the channel's.
    read?;
    lines.sent(&sent?);
    Ok(exit::DONE)
}

/// Sends each line of stdin, or with `whole` all of stdin, as a message.
fn feed(input: &ChannelInput, key: Option<&str>, whole: bool) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::LocalFile, format!("cannot read stdin: {error}"))
    };
    let long = || Error::new(ErrorKind::Usage, "a message has at most 16 MiB");
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut message = Vec::new();
        let mut part = (&mut stdin).take(MOST as u64 + 2);
        if whole {
            part.read_to_end(&mut message).map_err(failed)?;
        } else {
            if part.read_until(b'\n', &mut message).map_err(failed)? == 0 {
                return Ok(());
            }
            if message.last() == Some(&b'\n') {
                message.pop();
            }
        }
        if message.len() > MOST {
            return Err(long());
        }
        match blocking::wait(input.send(key, message)) {
            // The channel has ended; its `finish` returns the reason.
            Err(error) if error.kind == ErrorKind::Unfinished => return Ok(()),
            sent => sent?,
        }
        if whole {
            return Ok(());
        }
    }
}

fn watch(
    sender: &ChannelSender,
    fed: &Feeding,
    cancel: &CancelHandle,
    lines: &Lines,
) -> Result<(), Error> {
    let mut connected = true;
    loop {
        if let Some(ended) = fed.ended() {
            return ended;
        }
        let now = sender.status();
        if std::mem::replace(&mut connected, now.connected) != now.connected {
            lines.notes.connected(now.connected);
        }
        lines.sending(&now);
        if sender.is_over() || cancel.is_cancelled() {
            return Ok(());
        }
    }
}

fn receive(args: &ReceiveArgs, settings: &[Setting]) -> Result<u8, Error> {
    let link = &args.link;
    let (client, cancel) = link.client(settings)?;
    console::cancel_with_stdout(&cancel)?;
    let lines = Lines::new(link.live.notes());
    let mut wanted = link.settings()?;
    wanted.keys.clone_from(&args.key);
    let request = client.receive_channel(link.url.clone(), wanted);
    let request = request.reach(link.reach()).retry_for(link.live.retry_for());
    let mut channel = blocking::wait(request.cancel_with(&cancel).into_future())?;
    let read = read(&mut channel, args, &lines);
    if read.is_ok() || cancel.is_cancelled() {
        lines.received(&channel.status());
    }
    blocking::wait(channel.close());
    read.map(|()| exit::DONE)
}

fn read(channel: &mut ChannelReceiver, args: &ReceiveArgs, lines: &Lines) -> Result<(), Error> {
    let most = if args.whole { 1 } else { args.count.unwrap_or(u64::MAX) };
    let (mut count, mut is_admitted) = (0, false);
    while count < most
        && let Some(event) = blocking::wait(channel.next())
    {
        let event = event?;
        if !std::mem::replace(&mut is_admitted, true) {
            lines.notes.waiting(&plain::text(&args.link.url.to_string()));
        }
        count += u64::from(matches!(event, ChannelEvent::Message(_)));
        match event {
            ChannelEvent::Message(message) if args.whole => console::out_whole(&message.bytes),
            event => lines.came(&event),
        }
        lines.receiving(&mut || channel.status());
    }
    Ok(())
}
