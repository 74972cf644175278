//! Sends state updates between two emulated hosts, over a channel of the real program or the
//! kernel's TCP.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::channel::Code;
use longhaul_proto::stream::Meter;
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use serde_json::Value;

use super::copies::{CONFIG, Kept, READY_WITHIN, failed, lines};
use super::duration;
use super::scratch::Scratch;
use crate::emu::{Emulation, EmulationError, EmulationSpec, Verdict};
use crate::link::LinkSpec;
use crate::sim::updates::{Carrier, UpdatesOutcome, UpdatesRun};

/// How long to wait for another arrival after the last update was due; then missing updates count
/// as lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Interval of tests whether the channel is open; also the pause before the first update.
const KNOCK: Duration = Duration::from_millis(200);
const PORT: u16 = 7_717;
/// The text of uncounted test updates.
const HELLO: &str = "hello";

type Arrivals = Receiver<(String, Instant)>;

/// Runs updates over a channel of `binary` or the kernel's TCP. A delay counts from the time at
/// which the update is due.
///
/// # Errors
/// This machine cannot emulate, a program failed, or the emulator disturbed the path.
pub fn run(run: &UpdatesRun, binary: &Path) -> Result<UpdatesOutcome, EmulationError> {
    let back = LinkSpec { loss: LinkSpec::default().loss, ..run.link.clone() };
    let seed = run.seed;
    let spec = EmulationSpec { seed, ..EmulationSpec::pair(run.link.clone(), back) };
    let emulation = Emulation::start(spec)?;
    let offered = || -> Result<(u64, Bytes), EmulationError> {
        let statistics = emulation.statistics()?;
        let tally = statistics.link("a", "b");
        Ok(tally.map_or((0, Bytes::ZERO), |tally| (tally.offered, tally.offered_bytes)))
    };
    let mode = match run.carrier {
        Carrier::Tcp => None,
        Carrier::Datagrams(Code::None) => {
            Some(["--mode=datagram", "--code=none"].map(str::to_owned))
        }
        Carrier::Datagrams(Code::Xor { group }) => {
            Some(["--mode=datagram".to_owned(), format!("--code=xor:{group}")])
        }
        Carrier::Datagrams(Code::ReedSolomon { group, repairs }) => {
            Some(["--mode=datagram".to_owned(), format!("--code=rs:{group}+{repairs}")])
        }
        Carrier::Deadline(deadline) => {
            let deadline = format!("--deadline={}us", deadline.as_nanos() / 1_000);
            Some(["--mode=deadline".to_owned(), deadline])
        }
    };
    let mut outcome = UpdatesOutcome::default();
    let before;
    if let Some(mode) = mode {
        let mut channel = Channel::open(&emulation, binary, &mode)?;
        before = offered()?;
        channel.feed(run, &mut outcome)?;
    } else {
        let (mut out, came) = tcp(&emulation)?;
        before = offered()?;
        feed(run, &mut out, &came, &mut outcome)?;
    }
    let after = offered()?;
    (outcome.packets, outcome.bytes) = (after.0 - before.0, (after.1 - before.1).get());
    match emulation.statistics()?.verdict() {
        Verdict::Valid => Ok(outcome),
        Verdict::Invalid(why) => Err(failed("not valid", &why)),
    }
}

fn feed(
    run: &UpdatesRun,
    out: &mut (impl Write + Send),
    came: &Arrivals,
    outcome: &mut UpdatesOutcome,
) -> Result<(), EmulationError> {
    let began = Instant::now() + KNOCK;
    let at = |number: u32| began + duration(run.interval * u64::from(number));
    let last = at(run.count.saturating_sub(1));
    let mut meter = Meter::new(run.interval);
    let mut seen = vec![false; run.count as usize];
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..run.count {
                thread::sleep(at(number).saturating_duration_since(Instant::now()));
                // One write for each update: TCP without Nagle's algorithm sends it immediately.
                let line = format!("{number:0>width$}\n", width = run.size);
                out.write_all(line.as_bytes())?;
            }
            Ok::<(), io::Error>(())
        });
        let mut left = run.count;
        while left > 0 {
            let wait = last.saturating_duration_since(Instant::now()) + SILENCE;
            let Ok((text, arrived)) = came.recv_timeout(wait) else { break };
            let Ok(number) = text.parse::<u32>() else { continue };
            let Some(seen @ false) = seen.get_mut(number as usize) else { continue };
            *seen = true;
            left -= 1;
            let delay = arrived.saturating_duration_since(at(number));
            let delay = Span::from_nanos(delay.as_nanos() as u64);
            meter.on_frame((delay.as_nanos() / 1_000) as i64);
            outcome.delays.push(delay);
        }
        outcome.lost = left;
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .map_err(|error| failed("write an update", &error))?;
    outcome.jitter = meter.jitter();
    outcome.delays.sort_unstable();
    Ok(())
}

/// A TCP connection from `a` to `b` without Nagle's algorithm, and the texts that arrive.
fn tcp(emulation: &Emulation) -> Result<(TcpStream, Arrivals), EmulationError> {
    let trouble = |error: io::Error| failed("open a TCP connection", &error);
    let address = SocketAddr::new(IpAddr::V4(emulation.addresses("b")?.v4), PORT);
    let listener = emulation.enter_host("b", || TcpListener::bind(address))?.map_err(trouble)?;
    let out = emulation.enter_host("a", || TcpStream::connect(address))?.map_err(trouble)?;
    out.set_nodelay(true).map_err(trouble)?;
    let (inward, _) = listener.accept().map_err(trouble)?;
    let (sender, came) = channel();
    thread::spawn(move || {
        for line in BufReader::new(inward).lines().map_while(Result::ok) {
            if sender.send((line, Instant::now())).is_err() {
                return;
            }
        }
    });
    Ok((out, came))
}

/// A channel through a server on host `b`, where the subscriber is too.
struct Channel<'e> {
    emulation: &'e Emulation,
    binary: &'e Path,
    scratch: Scratch,
    mode: Vec<String>,
    _server: Kept,
    server_id: String,
}

impl<'e> Channel<'e> {
    fn open(
        emulation: &'e Emulation,
        binary: &'e Path,
        mode: &[String],
    ) -> Result<Channel<'e>, EmulationError> {
        let scratch = Scratch::new(Bytes::mebi(1)).map_err(|error| failed("updates", &error))?;
        let client = scratch.path().join("client");
        let id = Command::new(binary).arg("id").env(CONFIG, &client).output();
        let id = id.map_err(|error| failed("run longhaul id", &error))?;
        let allow = format!("{},channel=rw", String::from_utf8_lossy(&id.stdout).trim());
        let listen = format!("0.0.0.0:{PORT}");
        let words = ["reflect", "--json", "--listen", &listen, "--allow", &allow];
        let config = scratch.path().join("server");
        let (server, said) = start(emulation, "b", binary, &words, &config)?;
        let ready = said.recv_timeout(READY_WITHIN).unwrap_or_default();
        let ready: Value = serde_json::from_str(&ready).unwrap_or_default();
        let server_id = ready["id"].as_str().unwrap_or_default().to_owned();
        Ok(Channel { emulation, binary, scratch, mode: mode.to_vec(), _server: server, server_id })
    }

    fn start(
        &self,
        host: &str,
        words: &[&str],
    ) -> Result<(Kept, Receiver<String>), EmulationError> {
        let (id, url) = (format!("--server-id={}", self.server_id), format!("lh://b:{PORT}/x"));
        let words = [&["channel"], words, &["--json", &id, &url]].concat();
        let config: PathBuf = self.scratch.path().join("client");
        start(self.emulation, host, self.binary, &words, &config)
    }

    fn feed(
        &mut self,
        run: &UpdatesRun,
        outcome: &mut UpdatesOutcome,
    ) -> Result<(), EmulationError> {
        let (_receiver, said) = self.start("b", &["receive"])?;
        let (arrived, came) = channel();
        thread::spawn(move || listen(&said, &arrived));
        let mode: Vec<&str> = self.mode.iter().map(String::as_str).collect();
        let (mut sender, _progress) = self.start("a", &[&["send"], &mode[..]].concat())?;
        let trouble = |error: io::Error| failed("write an update", &error);
        let mut out =
            sender.0.stdin.take().ok_or_else(|| trouble(io::ErrorKind::NotFound.into()))?;
        // Repeat until the sender and the receiver have joined the channel.
        let late = Instant::now() + READY_WITHIN;
        loop {
            writeln!(out, "{HELLO}").map_err(trouble)?;
            match came.recv_timeout(KNOCK) {
                Ok(_) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() < late => {}
                Err(_) => return Err(failed("open a channel", &"no message arrived")),
            }
        }
        feed(run, &mut out, &came, outcome)
    }
}

fn listen(said: &Receiver<String>, arrived: &Sender<(String, Instant)>) {
    for line in said {
        let now = Instant::now();
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        let Some(text) = event["text"].as_str() else { continue };
        if arrived.send((text.to_owned(), now)).is_err() {
            return;
        }
    }
}

/// Starts the program on a host; returns it and its lines.
fn start(
    emulation: &Emulation,
    host: &str,
    binary: &Path,
    words: &[&str],
    config: &Path,
) -> Result<(Kept, Receiver<String>), EmulationError> {
    let what = format!("start longhaul {} on {host}", words[0]);
    let command = emulation.command(host, binary)?.args(words).env(CONFIG, config);
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&what, &error))?;
    let mut child = Kept(child);
    let lines = lines(&mut child.0).map_err(|error| failed(&what, &error))?;
    Ok((child, lines))
}
