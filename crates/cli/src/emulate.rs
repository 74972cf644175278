//! `longhaul emulate`: programs across a path that this machine pretends to have.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use clap::Args;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::emu::{Emulation, EmulationError, EmulationSpec, Verdict};
use longhaul_testbed::link::{Jitter, LinkSpec, Loss, Reorder};

use crate::quantity::{parse_bytes, parse_loss, parse_rate, parse_span};

/// The emulation could not be, or its programs not be started.
const EXIT_USAGE: u8 = 2;
/// This machine or user may not emulate.
const EXIT_FORBIDDEN: u8 = 3;

/// Run programs across an emulated wide-area path between two hosts, a and b
///
/// Each host is a network namespace with an address of its own (a: 10.77.0.1, fd77::1; b:
/// 10.77.0.2, fd77::2; both resolve by name). Without a command, a shell runs on a.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  longhaul emulate --rate 1G --rtt 100ms --loss 0.1% -- ping -c 3 b
  longhaul emulate --rate 1G --rtt 100ms --run b 'iperf3 -s -1' --run a 'iperf3 -c b -t 5'")]
pub(crate) struct EmulateArgs {
    /// Bits a second on the wire, Ethernet framing included (1500-byte packets fill 1500/1538 of
    /// it); without it packets pass at once
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Round-trip time of an idle path
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "0ms")]
    rtt: Span,
    /// Share of packets lost, each for itself, in each direction
    #[arg(long, value_name = "LOSS", value_parser = parse_loss, default_value = "0%")]
    loss: LossRatio,
    /// Loss from a to b, in place of --loss
    #[arg(long, value_name = "LOSS", value_parser = parse_loss)]
    loss_forward: Option<LossRatio>,
    /// Loss from b to a, in place of --loss
    #[arg(long, value_name = "LOSS", value_parser = parse_loss)]
    loss_back: Option<LossRatio>,
    /// Queue before the rate, as a size or in products of rate and RTT (default: 1bdp, at least
    /// 100 packets)
    #[arg(long, value_name = "SIZE|Nbdp")]
    queue: Option<String>,
    /// Extra delay of each packet, evenly between nothing and this, order kept
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "0ms")]
    jitter: Span,
    /// Share of packets held back by --reorder-by so that later ones overtake them
    #[arg(long, value_name = "SHARE", value_parser = parse_loss, default_value = "0%")]
    reorder: LossRatio,
    /// How long a reordered packet is held back
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1ms")]
    reorder_by: Span,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", value_parser = parse_loss, default_value = "0%")]
    duplicate: LossRatio,
    /// Share of packets that arrive with one bit of the payload turned, past the checksum
    #[arg(long, value_name = "SHARE", value_parser = parse_loss, default_value = "0%")]
    corrupt: LossRatio,
    /// Largest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u16,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run a shell command on a host; started in this order, and all ends, with its exit status,
    /// when the last one ends
    #[arg(long, num_args = 2, value_names = ["HOST", "COMMAND"], conflicts_with = "command")]
    run: Vec<String>,
    /// Say nothing at the end about what the path did
    #[arg(long)]
    quiet: bool,
    /// Command to run on a
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the programs and gives the exit status: the last program's, or 2 for a path that cannot
/// be, 3 where this machine or user may not emulate.
pub(crate) fn run(args: &EmulateArgs) -> u8 {
    match emulate(args) {
        Ok(status) => exit_code(status),
        Err(error) => {
            say(&format!("longhaul emulate: {error}"));
            match error {
                EmulationError::Forbidden(_) => EXIT_FORBIDDEN,
                _ => EXIT_USAGE,
            }
        }
    }
}

fn emulate(args: &EmulateArgs) -> Result<ExitStatus, EmulationError> {
    let forward = link(args, args.loss_forward.unwrap_or(args.loss))?;
    let back = link(args, args.loss_back.unwrap_or(args.loss))?;
    let spec =
        EmulationSpec { mtu: args.mtu, seed: args.seed, ..EmulationSpec::pair(forward, back) };
    let emulation = Emulation::start(spec)?;
    let started = |e: io::Error| EmulationError::System("run a program", e);
    let mut last = None;
    for (host, command) in programs(args) {
        // Killed with the emulation; only the last one's end matters.
        last = Some(start(&emulation, &host, &command)?);
    }
    let mut last = last.ok_or_else(|| EmulationError::Spec("nothing to run".into()))?;
    let status = last.wait().map_err(started)?;
    let statistics = emulation.statistics()?;
    if !args.quiet {
        say(&statistics.to_string());
    } else if let Verdict::Invalid(reason) = statistics.verdict() {
        say(&format!("longhaul emulate: this run is not valid: {reason}"));
    }
    Ok(status)
}

/// Each program as its host and its words.
fn programs(args: &EmulateArgs) -> Vec<(String, Vec<String>)> {
    let shell = |command: &str| vec!["/bin/sh".into(), "-c".into(), command.into()];
    if !args.run.is_empty() {
        let pairs = args.run.chunks_exact(2);
        return pairs.map(|pair| (pair[0].clone(), shell(&pair[1]))).collect();
    }
    let words = match args.command.as_slice() {
        [] => vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into())],
        words => words.to_vec(),
    };
    vec![("a".into(), words)]
}

fn start(emulation: &Emulation, host: &str, words: &[String]) -> Result<Child, EmulationError> {
    let command = emulation.command(host, &words[0])?.args(&words[1..]);
    let prompted = command.env("LONGHAUL_EMULATED_HOST", host);
    prompted.spawn().map_err(|error| {
        let error = io::Error::new(error.kind(), format!("{}: {error}", words[0]));
        EmulationError::System("start a program", error)
    })
}

fn link(args: &EmulateArgs, loss: LossRatio) -> Result<LinkSpec, EmulationError> {
    let mut link = match args.rate {
        Some(rate) => LinkSpec::path(rate, args.rtt),
        None => LinkSpec { delay: args.rtt / 2, ..LinkSpec::default() },
    };
    if let Some(queue) = &args.queue {
        link.queue = queue_of(queue, args).map_err(EmulationError::Spec)?;
    }
    link.loss = Loss::independent(loss);
    link.jitter = Jitter { spread: args.jitter, overtakes: false };
    link.reorder = Reorder { share: args.reorder.get(), by: args.reorder_by };
    link.duplicate = args.duplicate.get();
    link.corrupt = args.corrupt.get();
    Ok(link)
}

fn queue_of(text: &str, args: &EmulateArgs) -> Result<Bytes, String> {
    let Some(times) = text.strip_suffix("bdp") else { return parse_bytes(text) };
    let rate = args.rate.ok_or_else(|| format!("--queue {text} needs --rate"))?;
    let times: f64 = times.parse().map_err(|_| format!("--queue {text}: no number before bdp"))?;
    Ok(rate.scale(times).over(args.rtt))
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn say(text: &str) {
    // Nobody is left to be told where standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}
