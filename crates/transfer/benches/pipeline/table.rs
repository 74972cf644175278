//! The table: each variant of the data path at the highest rate that it sustains.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Arguments, CHUNK, Result, VARIANTS};

/// Maximum number of runs at a rate. One run with less than 0.1 % of loss suffices, so a single
/// scheduler stall does not rule a rate out.
const TRIES: u32 = 3;

#[derive(Clone, Copy)]
struct Figures {
    /// Payload that arrived, in Gbit/s.
    goodput: f64,
    /// Fraction of the datagrams that did not arrive.
    lost: f64,
    /// CPU seconds of the sender per GB.
    send_cpu: f64,
    /// CPU seconds of the receiver per GB.
    receive_cpu: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let dir = PathBuf::from(arguments.text("dir", "/dev/shm/longhaul-pipeline"));
    std::fs::create_dir_all(&dir)?;
    let size = arguments.number("size", 1024)?;
    let mut source = File::create(dir.join("source"))?;
    let noise: Vec<u8> = (0..CHUNK).map(|n| ((n * n) >> 7) as u8).collect();
    for _ in 0..size {
        source.write_all(&noise)?;
    }
    println!("{:<28} {:>7} {:>9} {:>9} {:>7}", "variant", "Gbit/s", "send", "receive", "loss");
    println!("{:<28} {:>7} {:>9} {:>9} {:>7}", "", "", "CPU s/GB", "CPU s/GB", "%");
    let only = arguments.0.get("variant").map(|text| text.parse::<usize>()).transpose()?;
    for (index, variant) in VARIANTS.iter().enumerate() {
        if only.is_some_and(|only| only != index) {
            continue;
        }
        let best = highest_rate(|mbps| run_once(arguments, &dir, index, mbps))?;
        println!(
            "{:<28} {:>7.1} {:>9.2} {:>9.2} {:>7.3}",
            variant.name,
            best.goodput,
            best.send_cpu,
            best.receive_cpu,
            best.lost * 100.0,
        );
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Returns the fastest run with less than 0.1 % of loss, by bisection between 0.5 and 100 Gbit/s.
fn highest_rate(run: impl Fn(u64) -> Result<Figures>) -> Result<Figures> {
    let (mut low, mut high) = (500.0f64, 100_000.0f64);
    let mut best: Option<Figures> = None;
    while high / low > 1.08 {
        let mbps = (low * high).sqrt();
        let mut clean = None;
        for _ in 0..TRIES {
            let figures = run(mbps as u64)?;
            if figures.lost < 0.001 {
                clean = Some(figures);
                break;
            }
        }
        match clean {
            Some(figures) => {
                low = mbps;
                let better = best.is_none_or(|best| figures.goodput > best.goodput);
                // Above the sender's maximum, a higher requested rate only repeats the same run.
                if figures.goodput * 1000.0 < mbps * 0.85 {
                    high = mbps;
                }
                best = if better { Some(figures) } else { best };
            }
            None => high = mbps,
        }
    }
    best.ok_or("even the slowest rate lost 0.1 % of the datagrams or more".into())
}

fn run_once(arguments: &Arguments, dir: &Path, index: usize, mbps: u64) -> Result<Figures> {
    let netns = arguments.text("netns", ",");
    let (sender, receiver) = netns.split_once(',').ok_or("give netns as SENDER,RECEIVER")?;
    let to = arguments.text("to", "127.0.0.1");
    let (size, datagram) = (arguments.number("size", 1024)?, arguments.number("datagram", 1472)?);
    let shared =
        [format!("variant={index}"), format!("size={size}"), format!("datagram={datagram}")];
    let copy = dir.join("copy");
    let _ = std::fs::remove_file(&copy);
    let mut receive = start(receiver, "receive")
        .args(&shared)
        .arg(format!("listen={}", SocketAddr::new(to.parse()?, 0)))
        .arg(format!("file={}", copy.display()))
        .spawn()?;
    let mut lines = BufReader::new(receive.stdout.take().ok_or("no output")?).lines();
    let ready = figures(&lines.next().ok_or("the receiver did not start")??);
    let to = SocketAddr::new(to.parse()?, ready["ready"] as u16);
    let send = start(sender, "send")
        .args(&shared)
        .arg(format!("to={to}"))
        .arg(format!("mbps={mbps}"))
        .arg(format!("file={}", dir.join("source").display()))
        .spawn()?;
    let sent = figures(&output(send)?);
    let came = figures(&lines.next().ok_or("the receiver printed no result")??);
    receive.wait()?;
    let giga = size as f64 * 1048576.0 / 1e9;
    let seconds = came["seconds"].max(sent["seconds"]);
    Ok(Figures {
        goodput: giga * 8.0 * came["came"] / came["blocks"] / seconds,
        lost: 1.0 - came["came"] / came["blocks"],
        send_cpu: sent["cpu"] / giga,
        receive_cpu: came["cpu"] / giga,
    })
}

fn start(netns: &str, role: &str) -> Command {
    let myself = std::env::current_exe().unwrap_or_default();
    let mut command = if netns.is_empty() {
        Command::new(myself)
    } else {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns]).arg(myself);
        command
    };
    command.arg(role).stdout(Stdio::piped());
    command
}

fn output(child: Child) -> Result<String> {
    Ok(String::from_utf8(child.wait_with_output()?.stdout)?)
}

fn figures(line: &str) -> HashMap<String, f64> {
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect()
}
