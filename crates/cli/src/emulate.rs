//! `longhaul emulate`: runs programs over an emulated network on this machine.

mod file;
mod play;
mod print;
mod programs;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use crate::error::Error;
use clap::{Args, Command, Id};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::emu::{Emulation, EmulationError, EmulationSpec, Verdict};
use longhaul_testbed::link::{ETHERNET_FRAMING, Jitter, LinkSpec, Loss, Reorder};
use longhaul_testbed::scenario::Scenario;

use programs::{CaughtSignals, Program};

use crate::quantity::{parse_bytes, parse_loss, parse_rate, parse_span};
use crate::{console, exit};

/// The command line is invalid, a program fails to start, or the emulation fails.
const EXIT_USAGE: u8 = 2;
/// The kernel forbids emulation on this machine or for this user.
const EXIT_FORBIDDEN: u8 = 3;

/// Text of `--help` and of the man page.
const AFTER: &str = "\
Examples:
  longhaul emulate --rate 1G --rtt 100ms --loss 0.1% -- ping -c 3 b
  longhaul emulate --rate 1G --rtt 100ms --run b 'iperf3 -s -1' --run a 'iperf3 -c b -t 5'
  longhaul emulate dumbbell.toml
  longhaul emulate dumbbell.toml --no-flows -- ping -c 3 right1

Exit status:
  N    the status of COMMAND, or of the last --run; if that is 0, the status of the first other
       --run that failed (stderr names it)
  0    with flows only: every flow with an end has finished
  1    with flows only: a flow has not finished
  2    invalid command line or scenario, or COMMAND cannot be started
  3    the kernel forbids emulation on this machine or for this user
  4    the scenario cannot be read, or stdout cannot be written
  124  stopped by the time limit
  128  plus the number of the signal that ended COMMAND
COMMAND may itself return 2, 3, 4 or 124. If the status is the emulator's, stderr has a line that
begins with 'longhaul'.";

/// Run programs over an emulated network: one path between hosts a and b, or a scenario
///
/// Each host is a network namespace with its own address (a: 10.77.0.1, fd77::1; b: 10.77.0.2,
/// fd77::2; the names resolve). Without a command, a shell runs on the first host.
///
/// A scenario is a TOML file of hosts, links and flows. Its flows run for real: longhaul copies
/// from and to memory, the kernel's TCP, UDP, and shell commands. Without a command, a scenario
/// with flows starts no shell: the emulation ends with the flows, and prints a table of their
/// results.
///
/// Ctrl-C gives the command 2 s to end; then, or at a second Ctrl-C, everything is stopped.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct EmulateArgs {
    /// Emulate the hosts and links of this TOML file instead of one path
    #[arg(value_name = "SCENARIO", conflicts_with_all = path_flags())]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    path: PathArgs,
    /// Seed of all random choices (default: the scenario's, or 1)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run a shell command on a host. Commands start in the order of these flags. When the command
    /// of the last flag ends, the emulation ends with its exit status; if this status is 0, with
    /// the status of the first other command that failed
    #[arg(long, num_args = 2, value_names = ["HOST", "COMMAND"], conflicts_with = "command")]
    run: Vec<String>,
    /// Stop after this long with exit status 124 (default: the scenario's limit, but no limit if
    /// this command line starts a command or a shell)
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    time_limit: Option<Span>,
    /// Do not start the scenario's flows and commands, only its network
    #[arg(long, requires = "scenario")]
    no_flows: bool,
    /// Write the result of each flow as JSON to stdout, one object a line; the last object
    /// has the emulator's counters
    #[arg(long)]
    json: bool,
    /// Do not print the emulator's counters at the end
    #[arg(long)]
    quiet: bool,
    /// Command to run on the first host
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The path between two hosts. A scenario has its own links, so it conflicts with these flags.
#[derive(Args, Debug)]
struct PathArgs {
    /// Bits a second on the wire, Ethernet framing included: IP packets of 1500 bytes get 1500/1538
    /// of this rate (default: unlimited)
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Round-trip time of an idle path
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "0ms")]
    rtt: Span,
    /// Ratio of packets lost in each direction; losses are independent of each other
    #[arg(long, value_name = "LOSS", value_parser = parse_loss, default_value = "0%")]
    loss: LossRatio,
    /// Loss from a to b, instead of --loss
    #[arg(long, value_name = "LOSS", value_parser = parse_loss)]
    loss_forward: Option<LossRatio>,
    /// Loss from b to a, instead of --loss
    #[arg(long, value_name = "LOSS", value_parser = parse_loss)]
    loss_back: Option<LossRatio>,
    /// Queue before the link, as a size or a multiple of rate × RTT (2bdp), at least one packet
    /// (default: 1bdp, at least 100 packets)
    #[arg(long, value_name = "SIZE|Nbdp")]
    queue: Option<String>,
    /// Extra random delay of each packet, uniform from 0 to this; packets keep their order
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "0ms")]
    jitter: Span,
    /// Ratio of packets that are delayed by --reorder-by, so that later ones overtake them
    #[arg(long, value_name = "SHARE", value_parser = parse_loss, default_value = "0%")]
    reorder: LossRatio,
    /// Delay of a reordered packet
    #[arg(long, value_name = "TIME", value_parser = parse_span, default_value = "1ms")]
    reorder_by: Span,
    /// Ratio of packets that arrive twice
    #[arg(long, value_name = "SHARE", value_parser = parse_loss, default_value = "0%")]
    duplicate: LossRatio,
    /// Ratio of packets with one flipped payload bit that checksums do not detect
    #[arg(long, value_name = "SHARE", value_parser = parse_loss, default_value = "0%")]
    corrupt: LossRatio,
    /// Largest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u16,
}

/// The ids of all flags of [`PathArgs`]. With the id of their group, the error for one flag would
/// list all of them.
fn path_flags() -> Vec<Id> {
    let command = PathArgs::augment_args(Command::new("path"));
    command.get_arguments().map(|flag| flag.get_id().clone()).collect()
}

struct Plan {
    spec: EmulationSpec,
    programs: Vec<Program>,
    limit: Option<Span>,
    /// The scenario, if it has flows other than commands.
    flows: Option<Scenario>,
}

enum Trouble {
    /// Invalid command line.
    Usage(String),
    File(Error),
    Emulation(EmulationError),
}

impl From<EmulationError> for Trouble {
    fn from(error: EmulationError) -> Trouble {
        Trouble::Emulation(error)
    }
}

pub(crate) fn run(args: &EmulateArgs) -> u8 {
    let (text, status) = match emulate(args) {
        Ok(status) => return status,
        Err(Trouble::Usage(what)) => (what, EXIT_USAGE),
        Err(Trouble::File(error)) => (error.to_string(), exit::status(error.kind)),
        Err(Trouble::Emulation(error @ EmulationError::Forbidden(_))) => {
            (error.to_string(), EXIT_FORBIDDEN)
        }
        Err(Trouble::Emulation(error)) => (error.to_string(), EXIT_USAGE),
    };
    console::note(format_args!("longhaul emulate: {text}"));
    status
}

fn emulate(args: &EmulateArgs) -> Result<u8, Trouble> {
    let plan = match &args.scenario {
        Some(file) => file::plan(file, args)?,
        None => pair(args)?,
    };
    // Signals are caught from here on, before anything exists that must be removed at the end.
    let signals = CaughtSignals::watch()?;
    // No thread may have started yet: without root the process enters a user namespace, which the
    // kernel permits only to a process with a single thread.
    let emulation = Emulation::start(plan.spec.clone())?;
    for notice in emulation.notices() {
        console::note(format_args!("longhaul emulate: NOTE: {notice}"));
    }
    let alone = args.run.is_empty() && plan.programs.len() == 1;
    if alone && !args.quiet && console::is_terminal() && io::stdin().is_terminal() {
        console::note(banner(&emulation, &plan.programs[0].host));
    }
    let played = play::play(&emulation, &plan, signals)?;
    let statistics = emulation.statistics()?;
    if args.json {
        played.flows.iter().for_each(|flow| console::out(print::flow(flow)));
        console::out(print::truth(&played, &statistics));
    } else if !played.flows.is_empty() {
        print::table(&played.flows).into_iter().for_each(console::out);
    }
    if !args.quiet && !args.json {
        console::note(statistics);
    } else if let Verdict::Invalid(reason) = statistics.verdict() {
        console::note(format_args!("longhaul emulate: this run is not valid: {reason}"));
    }
    Ok(played.status)
}

/// The message to the user of an interactive shell.
fn banner(emulation: &Emulation, here: &str) -> String {
    const MOST: usize = 8;
    let named = |host: &str| match emulation.addresses(host) {
        Ok(addresses) => format!("{host} ({})", addresses.v4),
        Err(_) => host.to_owned(),
    };
    let others: Vec<&str> = emulation.hosts().filter(|host| *host != here).collect();
    let mut names: Vec<String> = others.iter().take(MOST).map(|host| named(host)).collect();
    if others.len() > MOST {
        names.push(format!("{} more", others.len() - MOST));
    }
    let beyond = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    format!(
        "longhaul emulate: you are on host {}; across the network: {beyond}. The network ends \
         with this program.",
        named(here)
    )
}

fn pair(args: &EmulateArgs) -> Result<Plan, Trouble> {
    let path = &args.path;
    let queue = match &path.queue {
        Some(queue) => Some(queue_of(queue, path).map_err(Trouble::Usage)?),
        None => None,
    };
    let forward = link(path, queue, path.loss_forward.unwrap_or(path.loss));
    let back = link(path, queue, path.loss_back.unwrap_or(path.loss));
    let seed = args.seed.unwrap_or(1);
    let spec = EmulationSpec { mtu: path.mtu, seed, ..EmulationSpec::pair(forward, back) };
    let programs = requested_programs(args, "a", true);
    Ok(Plan { spec, programs, limit: args.time_limit, flows: None })
}

/// The programs of the command line, or a shell on the host `first` if there are none and `shell`
/// is true.
fn requested_programs(args: &EmulateArgs, first: &str, shell: bool) -> Vec<Program> {
    if !args.run.is_empty() {
        let pairs = args.run.chunks_exact(2);
        return pairs.map(|pair| Program::shell(&pair[0], &pair[1])).collect();
    }
    let words = match args.command.as_slice() {
        [] if !shell => return Vec::new(),
        [] => vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into())],
        words => words.to_vec(),
    };
    vec![Program { host: first.into(), words, start: Span::ZERO, counts: true }]
}

fn link(path: &PathArgs, queue: Option<Bytes>, loss: LossRatio) -> LinkSpec {
    let mut link = match path.rate {
        Some(rate) => LinkSpec::path(rate, path.rtt),
        None => LinkSpec { delay: path.rtt / 2, ..LinkSpec::default() },
    };
    link.queue = queue.unwrap_or(link.queue);
    link.loss = Loss::independent(loss);
    link.jitter = Jitter { spread: path.jitter, overtakes: false };
    link.reorder = Reorder { share: path.reorder.get(), by: path.reorder_by };
    link.duplicate = path.duplicate.get();
    link.corrupt = path.corrupt.get();
    link
}

fn queue_of(text: &str, path: &PathArgs) -> Result<Bytes, String> {
    let Some(times) = text.strip_suffix("bdp") else { return parse_bytes(text) };
    let rate = path.rate.ok_or_else(|| format!("--queue {text} needs --rate"))?;
    if path.rtt == Span::ZERO {
        return Err(format!("--queue {text} needs --rtt: a bdp is the rate times the round trip"));
    }
    let times = times.parse::<f64>().ok().filter(|times| times.is_finite() && *times >= 0.0);
    let times = times.ok_or_else(|| format!("--queue {text}: no valid number before bdp"))?;
    let queue = rate.scale(times).over(path.rtt);
    let packet = Bytes::new(u64::from(path.mtu) + u64::from(ETHERNET_FRAMING));
    if queue < packet {
        console::note(format_args!(
            "longhaul emulate: --queue {text} is {queue} here; increased to one packet, {packet}"
        ));
    }
    Ok(queue.max(packet))
}
