//! `longhaul stream`: frames with a deadline, from one client of a server to others.

mod lines;
mod output;
mod pattern;
mod source;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use longhaul::units::{Bytes, Span};
use longhaul::{
    CancelHandle, Location, StreamEvent, StreamReceiver, StreamSender, StreamSettings, StreamWay,
    WhenBehind, blocking,
};

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::live::{Feeding, LiveArgs};
use crate::quantity::{parse_bytes, parse_span};
use crate::{console, exit, plain};
use lines::Lines;
use output::Output;
use source::{Source, feed};

const EXAMPLES: &str = "\
Examples:
  longhaul stream send --frame 1440000 --fps 20 --deadline 120ms camera.raw lh://dtn.example.org/cam
  camera | longhaul stream send --frame 1440000 --fps 20 --deadline 120ms - lh://dtn.example.org/cam
  longhaul stream receive lh://dtn.example.org/cam -o - | player
  longhaul stream receive lh://dtn.example.org/cam
";

/// Send or receive frames with a deadline, through a server
///
/// The server runs `longhaul serve` or `longhaul reflect` and forwards each stream to all
/// receivers. Lost datagrams are sent again, or receivers restore them from repair datagrams:
/// whichever meets the deadline and sends less.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct StreamArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Send frames from a file, a folder, or stdin
    Send(SendArgs),
    /// Receive frames, and report their delay and losses
    Receive(ReceiveArgs),
}

/// Action when frames are produced faster than they can be sent.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Behind {
    /// The source waits
    Block,
    /// The new frame is not sent
    Skip,
    /// The oldest waiting frame is not sent
    Thin,
}

/// How the stream meets its deadline.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    /// Repair or code, whichever sends less on the measured path
    Auto,
    /// Frames are collected for as long as the deadline (at most 16Mi of frames), and sent as one
    /// transfer; lost datagrams are sent again
    Payloads,
    /// Lost datagrams of a frame are sent again while they can be in time
    Repair,
    /// Each frame has its own repair datagrams
    Code,
}

#[derive(Args)]
struct SendArgs {
    /// The source: a file of consecutive frames, a folder with one file for each frame, or - for
    /// stdin (no source with --test-pattern). Then the server and the stream: lh://HOST/NAME
    #[arg(value_name = "SOURCE|URL", num_args = 1..=2, required = true)]
    places: Vec<OsString>,
    /// Size of a frame, at most 16Mi; for a folder, of the largest frame
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    frame: Bytes,
    /// Frames a second. A file or folder is read at this rate; frames from stdin are sent when they
    /// arrive
    #[arg(long, value_name = "NUMBER")]
    fps: f64,
    /// Longest time from reading a frame to its delivery; must exceed half the round-trip time plus
    /// the jitter
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    deadline: Span,
    /// Action when frames are produced faster than they can be sent
    #[arg(long, value_name = "WHAT", default_value = "block")]
    when_behind: Behind,
    /// How to meet the deadline despite lost datagrams
    #[arg(long, value_name = "WAY", default_value = "auto")]
    way: Way,
    /// Start when the stream has this many receivers
    #[arg(long, value_name = "COUNT", default_value = "0")]
    receivers: u32,
    /// Send generated frames that `receive --check` can verify; takes no SOURCE
    #[arg(long)]
    test_pattern: bool,
    /// Stop after this many frames
    #[arg(long, value_name = "COUNT")]
    frames: Option<u64>,
    /// UDP payload of a datagram in bytes; set it if the path to a receiver carries only smaller
    /// packets than Ethernet [default: the largest that passes to the server, at most 1452]
    #[arg(long, value_name = "BYTES")]
    datagram: Option<u16>,
    #[command(flatten)]
    link: LiveArgs,
}

#[derive(Args)]
struct ReceiveArgs {
    /// The server and the stream: lh://HOST/NAME
    #[arg(value_name = "URL")]
    url: Location,
    /// Write the frames to stdout (-), into one file, or into one file each in an existing folder
    /// [default: only report]
    #[arg(short, long, value_name = "-|FILE|FOLDER")]
    output: Option<PathBuf>,
    /// Check that the frames are those of `send --test-pattern`
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    link: LiveArgs,
}

pub(crate) fn run(args: &StreamArgs, settings: &[Setting]) -> u8 {
    let (link, done) = match &args.what {
        What::Send(args) => (&args.link, send(args, settings)),
        What::Receive(args) => (&args.link, receive(args, settings)),
    };
    link.status(done)
}

/// The error and the advice for a URL that names no server.
const WRONG: (&str, &str) =
    ("is not a server with streams", "name a stream of a server: lh://host/name");

/// Returns the source and the URL.
fn places(args: &SendArgs) -> Result<(Source, Location), Error> {
    let usage = |what: &str, advice: &str| Error::new(ErrorKind::Usage, what).advise(advice);
    let (source, url) = match (&args.places[..], args.test_pattern) {
        ([url], true) => (Source::Pattern, url),
        ([source, url], false) => (Source::open(source, args.frame)?, url),
        ([_, _], _) => {
            return Err(usage("--test-pattern takes no SOURCE", "leave one of the two out"));
        }
        _ => {
            let advice = "longhaul stream send SOURCE lh://host/name, or --test-pattern";
            return Err(usage("SOURCE or URL is missing", advice));
        }
    };
    let url = url.to_str().ok_or_else(|| usage("the URL is not UTF-8", "write lh://host/name"))?;
    Ok((source, url.parse()?))
}

fn send(args: &SendArgs, settings: &[Setting]) -> Result<u8, Error> {
    let (source, url) = places(args)?;
    let (client, cancel) = args.link.client(&url, settings, WRONG)?;
    let mut settings = StreamSettings::new(args.frame, args.fps, args.deadline);
    settings.when_behind = match args.when_behind {
        Behind::Block => WhenBehind::Block,
        Behind::Skip => WhenBehind::Skip,
        Behind::Thin => WhenBehind::Thin,
    };
    settings.way = match args.way {
        Way::Auto => StreamWay::Auto,
        Way::Payloads => StreamWay::Payloads,
        Way::Repair => StreamWay::Repair,
        Way::Code => StreamWay::Code,
    };
    (settings.receivers, settings.datagram) = (args.receivers, args.datagram);
    let lines = Lines::new(args.link.notes());
    let request = client.send_stream(url, settings).reach(args.link.reach.options());
    let request = request.retry_for(args.link.retry_for()).cancel_with(&cancel);
    let sender = blocking::wait(request.into_future())?;
    lines.way(&sender.status());
    let (input, stop) = (sender.input(), cancel.clone());
    let (frame, fps, most) = (args.frame, args.fps, args.frames.unwrap_or(u64::MAX));
    let fed = Feeding::start(move || feed(source, frame, fps, most, &input, &stop))?;
    let read = watch(&sender, &fed, &cancel, &lines);
    let sent = blocking::wait(sender.finish())?;
    read?;
    lines.sent(&sent);
    Ok(exit::DONE)
}

fn watch(
    sender: &StreamSender,
    fed: &Feeding,
    cancel: &CancelHandle,
    lines: &Lines,
) -> Result<(), Error> {
    let mut before = sender.status();
    loop {
        if let Some(ended) = fed.ended() {
            return ended;
        }
        let now = sender.status();
        if now.connected != before.connected {
            lines.notes.connected(now.connected);
        }
        if (now.repairs, now.receivers) != (before.repairs, before.receivers) {
            lines.way(&now);
        }
        lines.sending(&now);
        before = now;
        if sender.is_over() || cancel.is_cancelled() {
            // The stream's `finish` returns the reason.
            return Ok(());
        }
    }
}

fn receive(args: &ReceiveArgs, settings: &[Setting]) -> Result<u8, Error> {
    let (client, cancel) = args.link.client(&args.url, settings, WRONG)?;
    let mut output = Output::open(args.output.as_deref())?;
    if args.link.json && output.is_stdout() {
        let what = "frames and JSON lines cannot both go to stdout";
        return Err(Error::new(ErrorKind::Usage, what).advise("write frames to a file or folder"));
    }
    // If frames go to files, the command continues after the reader of stdout has gone.
    if output.is_stdout() || args.link.json && args.output.is_none() {
        console::cancel_with_stdout(&cancel)?;
    }
    let lines = Lines::new(args.link.notes());
    let request = client.receive_stream(args.url.clone()).reach(args.link.reach.options());
    let request = request.retry_for(args.link.retry_for()).cancel_with(&cancel);
    let mut stream = blocking::wait(request.into_future())?;
    lines.notes.waiting(&plain::text(&args.url.to_string()));
    let ended = read(&mut stream, &mut output, args.check, &lines, &cancel);
    let is_shown = ended.as_ref().err().is_none_or(|error| error.kind == ErrorKind::Cancelled);
    let wrong = ended.as_ref().copied().unwrap_or(0);
    let status = is_shown.then(|| lines.received(&stream.status(), wrong));
    blocking::wait(stream.close());
    ended.map(|_| status.unwrap_or(exit::DONE))
}

/// With `check`, returns the number of frames that do not match the test pattern, otherwise 0.
fn read(
    stream: &mut StreamReceiver,
    output: &mut Output,
    check: bool,
    lines: &Lines,
    cancel: &CancelHandle,
) -> Result<u64, Error> {
    let mut wrong = 0;
    while let Some(event) = blocking::wait(stream.next()) {
        let event = match event {
            Err(_) if cancel.is_cancelled() => {
                return Err(Error::new(ErrorKind::Cancelled, "interrupted"));
            }
            event => event?,
        };
        lines.came(&event);
        if let StreamEvent::Frame(frame) = &event {
            wrong += u64::from(check && !pattern::is_right(&frame.bytes));
            output.write(frame)?;
        }
    }
    Ok(wrong)
}
