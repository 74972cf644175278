//! Copies by the real `longhaul`: a server per receiving host, a client per flow.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::registry;
use longhaul_proto::units::{Bytes, Rate};
use serde_json::Value;

use super::copy_events::CopyEvents;
use super::end::FlowEnd;
use super::scratch::Scratch;
use super::{Run, Stop};
use crate::emu::{Emulation, EmulationError};
use crate::link::UDP_IP;
use crate::random::Random;
use crate::scenario::{Amount, Flow, Scenario, Strategy, Traffic, Transfer};
use crate::sim::check_copy;

pub(super) const CONFIG: &str = "LONGHAUL_CONFIG_DIR";
/// `--memory` of a client, and of a server unless the scenario sets it: enough for an object in one
/// segment.
const BUDGET: &str = "4Gi";
/// Header and tag of a sealed datagram.
const OVERHEAD: u32 = 32;
/// Timeout of a server's start; long enough for a busy machine.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(60);
/// Interval of checks for a stop or a reached deadline.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct Copies {
    // Drop order: servers end before their folders are removed.
    servers: BTreeMap<usize, Server>,
    binary: PathBuf,
    scratch: Scratch,
}

/// A running server; killed when dropped.
struct Server {
    _child: Kept,
    id: String,
}

/// A child process, killed on drop.
pub(super) struct Kept(pub(super) Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn failed(what: &str, error: &dyn std::fmt::Display) -> EmulationError {
    EmulationError::Program(format!("{what}: {error}"))
}

impl Copies {
    /// Prepares identities, objects and servers for the scenario's copies that can end, if any.
    pub(super) fn prepare(
        emulation: &Emulation,
        scenario: &Scenario,
        binary: &Path,
        stop: &Stop,
    ) -> Result<Option<Copies>, EmulationError> {
        let mut sizes = Vec::new();
        for (place, flow) in scenario.flows.iter().enumerate() {
            if let Traffic::Protocol(transfer) = &flow.traffic {
                check_copy(transfer).map_err(|error| {
                    EmulationError::Program(format!("flow {}: {error}", flow.name))
                })?;
                sizes.extend(size(scenario, flow, transfer)?.map(|size| (place, size)));
            }
        }
        if sizes.is_empty() {
            return Ok(None);
        }
        let scratch = objects(scenario, &sizes, stop)?;
        let mut copies = Copies { servers: BTreeMap::new(), binary: binary.into(), scratch };
        let client = copies.identity()?;
        for (place, _) in sizes {
            let host = scenario.flows[place].to;
            if !copies.servers.contains_key(&host) {
                let server = copies.serve(emulation, &scenario.hosts[host], &client, stop)?;
                copies.servers.insert(host, server);
            }
        }
        Ok(Some(copies))
    }

    /// Creates the clients' common identity; returns its id.
    fn identity(&self) -> Result<String, EmulationError> {
        let output = Command::new(&self.binary).arg("id").env(CONFIG, self.client()).output();
        let output = output.map_err(|error| failed("run longhaul id", &error))?;
        if !output.status.success() {
            return Err(failed("run longhaul id", &output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn client(&self) -> PathBuf {
        self.scratch.path().join("client")
    }

    fn serve(
        &self,
        emulation: &Emulation,
        host: &crate::scenario::Host,
        client: &str,
        stop: &Stop,
    ) -> Result<Server, EmulationError> {
        let name = &host.name;
        let what = format!("start a server on {name}");
        let failed = |error: &dyn std::fmt::Display| failed(&what, error);
        let root = self.scratch.path().join(format!("root-{name}"));
        fs::create_dir(&root).map_err(|error| failed(&error))?;
        let child = emulation
            .command(name, &self.binary)?
            .args(["serve", "--json", "--listen", "0.0.0.0:7717", "--memory"])
            .arg(host.memory.map_or(BUDGET.to_owned(), |memory| memory.get().to_string()))
            .args(["--allow", client, "--root"])
            .arg(&root)
            .env(CONFIG, self.scratch.path().join(format!("server-{name}")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut child = Kept(child);
        let lines = lines(&mut child.0).map_err(|error| failed(&error))?;
        let deadline = Instant::now() + READY_WITHIN;
        let line = loop {
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout)
                    if Instant::now() < deadline && !stop.is_stopped() => {}
                Err(_) => break String::new(),
            }
        };
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        match (ready["event"].as_str(), ready["id"].as_str()) {
            (Some("ready"), Some(id)) => Ok(Server { id: id.to_owned(), _child: child }),
            _ => Err(failed(&"it printed no readiness event")),
        }
    }

    pub(super) fn run(
        &self,
        run: &Run<'_>,
        transfer: &Transfer,
        end: &mut FlowEnd,
    ) -> Result<(), String> {
        let Some(server) = self.servers.get(&run.flow.to) else {
            return Err("no server was started for this copy".into());
        };
        let text = |error: &dyn std::fmt::Display| error.to_string();
        // The server listens on IPv4 only; by name, the client would first wait 250 ms for IPv6.
        let address = run.emulation.addresses(run.to()).map_err(|error| text(&error))?.v4;
        let command = run.emulation.command(run.from(), &self.binary);
        let child = command
            .map_err(|error| text(&error))?
            .args(["cp", "--json", "-q", "--memory", BUDGET, "--server-id", &server.id])
            // Scenarios use the same addresses for different paths, so a remembered rate may belong
            // to another path.
            .arg("--no-path-memory")
            .args(arguments(run.flow, transfer))
            .args(limit(run.scenario, run.flow, transfer))
            .arg(self.scratch.path().join(object(run.place)))
            .arg(format!("lh://{address}/"))
            .env(CONFIG, self.client())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| text(&error))?;
        let mut child = Kept(child);
        let (lines, mut events) =
            (lines(&mut child.0).map_err(|error| text(&error))?, CopyEvents::default());
        let over = run.over();
        loop {
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => events.take(&line, run.took()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if run.stop.is_stopped() || over.is_some_and(|over| over <= Instant::now()) {
                drop(child);
                // Stores the copy's last report, because its later progress is unknown.
                events.store(end)?;
                end.finished = over.is_some_and(|over| over <= Instant::now());
                return Ok(());
            }
        }
        let status = child.0.wait().map_err(|error| text(&error))?;
        match events.store(end)? {
            true => Ok(()),
            false => Err(format!("the copy reported no end: {status}")),
        }
    }
}

/// Creates a folder with the objects of all copies, if there is room for these objects and for the
/// data that the receivers store. Copies that last for a time share one object, and their receivers
/// store nothing unless the flow sets `receive`.
fn objects(
    scenario: &Scenario,
    sizes: &[(usize, Bytes)],
    stop: &Stop,
) -> Result<Scratch, EmulationError> {
    let lasts = |place: usize| matches!(scenario.flows[place].amount, Amount::Lasts(_));
    let largest = sizes.iter().filter(|(place, _)| lasts(*place)).max_by_key(|(_, size)| *size);
    let whole = sizes.iter().filter(|(place, _)| !lasts(*place));
    // Each complete object is at its sender and its receiver.
    let all = whole.fold(0u64, |sum, (_, size)| sum.saturating_add(2 * size.get()));
    let stored = sizes.iter().filter(|(place, _)| lasts(*place) && stores(&scenario.flows[*place]));
    let all = stored.fold(all, |sum, (_, size)| sum.saturating_add(size.get()));
    let all = all.saturating_add(largest.map_or(0, |(_, size)| size.get()));
    let scratch = Scratch::new(Bytes::new(all)).map_err(|error| failed("copies", &error))?;
    let path = |place: usize| scratch.path().join(object(place));
    let trouble = |error: io::Error| failed("make an object", &error);
    for (place, size) in sizes {
        match largest {
            Some((first, _)) if lasts(*place) && first != place => continue,
            _ => make_object(&path(*place), *size, stop).map_err(trouble)?,
        }
    }
    let Some((first, _)) = largest else { return Ok(scratch) };
    for (place, _) in sizes.iter().filter(|(place, _)| lasts(*place) && place != first) {
        fs::hard_link(path(*first), path(*place)).map_err(trouble)?;
    }
    Ok(scratch)
}

/// A child's lines on stdout, as they arrive.
pub(super) fn lines(child: &mut Child) -> io::Result<Receiver<String>> {
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("its output is not piped"))?;
    let (sender, receiver) = channel();
    let read = move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("copy".into()).spawn(read)?;
    Ok(receiver)
}

fn object(place: usize) -> String {
    format!("object-{place}")
}

/// The size of a copy's object; with a time limit, more than it can send in that time. `None` for
/// an endless copy.
fn size(
    scenario: &Scenario,
    flow: &Flow,
    transfer: &Transfer,
) -> Result<Option<Bytes>, EmulationError> {
    match flow.amount {
        Amount::Size(size) => Ok(Some(size)),
        Amount::Endless => Ok(None),
        Amount::Lasts(span) => {
            let rate = narrowest(scenario, flow, transfer.rate).ok_or_else(|| {
                let name = &flow.name;
                let what =
                    format!("flow {name} has 'lasts', which needs a rate of the flow or of a link");
                EmulationError::Program(what)
            })?;
            Ok(Some(rate.over(span) + Bytes::mebi(1)))
        }
    }
}

/// The lowest rate of a flow, its hosts' cards and its links; `None` if nothing limits it.
fn narrowest(scenario: &Scenario, flow: &Flow, own: Option<Rate>) -> Option<Rate> {
    let way = scenario.routes().between(flow.from, flow.to).unwrap_or_default();
    let links = way.into_iter().filter_map(|link| scenario.network.links[link].link.fastest());
    let cards = [flow.from, flow.to].into_iter().filter_map(|host| scenario.hosts[host].nic);
    links.chain(cards).chain(own).min()
}

fn make_object(path: &Path, size: Bytes, stop: &Stop) -> io::Result<()> {
    let mut random = Random::new(7);
    let piece: Vec<u8> = (0..1 << 17).flat_map(|_| random.bits().to_le_bytes()).collect();
    let mut file = File::create(path)?;
    let mut left = size.get();
    while left > 0 {
        if stop.is_stopped() {
            return Err(io::Error::other("interrupted"));
        }
        let now = left.min(piece.len() as u64);
        file.write_all(&piece[..now as usize])?;
        left -= now;
    }
    Ok(())
}

fn arguments(flow: &Flow, transfer: &Transfer) -> Vec<String> {
    let mut arguments = vec!["--protocol".to_owned(), transfer.protocol.clone()];
    if let Some(rate) = transfer.rate {
        arguments.extend(["--rate".to_owned(), rate.as_bps().to_string()]);
    }
    arguments.extend(transfer.share.map(|share| format!("--share={share}")));
    if let Some(segment) = transfer.segment {
        let whole = matches!(flow.amount, Amount::Size(size) if segment >= size);
        let mebi = segment.get().div_ceil(1 << 20);
        let size = if whole { "0".to_owned() } else { format!("{mebi}Mi") };
        arguments.extend(["--segment".to_owned(), size]);
    }
    if let Some(block) = transfer.block {
        arguments.extend(["--datagram".to_owned(), (block + OVERHEAD).to_string()]);
    }
    // See `stores`.
    let counted = matches!(flow.amount, Amount::Lasts(_)).then_some(Strategy::Fake);
    let receive = transfer.receive.or(counted);
    arguments.extend(receive.map(|strategy| format!("--receive={}", strategy.name())));
    arguments.extend(transfer.tail_copies.map(|count| format!("--tail-copies={count}")));
    arguments.extend(settings(transfer));
    arguments
}

/// Whether the receiver stores the data of a copy that lasts for a time; not so by default.
fn stores(flow: &Flow) -> bool {
    let Traffic::Protocol(transfer) = &flow.traffic else { return false };
    transfer.receive.is_some_and(|strategy| strategy != Strategy::Fake)
}

/// The protocol's settings as flags, with full precision.
fn settings(transfer: &Transfer) -> impl Iterator<Item = String> {
    let row = registry::find(&transfer.protocol);
    transfer.settings.iter().map(move |(name, value)| {
        let option = row.and_then(|row| row.option(name).ok());
        let text = option.map_or_else(|| value.to_string(), |option| option.written(*value));
        format!("--{name}={text}")
    })
}

/// The sending program's limit as a flag with its value; empty without a limit, or if another flow
/// also leaves the host.
fn limit(scenario: &Scenario, flow: &Flow, transfer: &Transfer) -> Vec<String> {
    let full = Bytes::new(u64::from(scenario.mtu) - u64::from(UDP_IP));
    let payload = transfer.block.map_or(full, |block| Bytes::new((block + OVERHEAD).into()));
    let rate = scenario.hosts[flow.from].sends.keeps_up_with(payload, payload);
    let rate = rate.filter(|_| is_alone(scenario, flow.from));
    rate.map_or(Vec::new(), |rate| vec!["--bwlimit".to_owned(), format!("{}bit", rate.as_bps())])
}

/// Whether exactly one flow, a copy, leaves a host.
pub(super) fn is_alone(scenario: &Scenario, host: usize) -> bool {
    let mut leaving = scenario.flows.iter().filter(|flow| flow.from == host);
    let first = leaving.next();
    first.is_some_and(|flow| matches!(flow.traffic, Traffic::Protocol(_)))
        && leaving.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Reading;

    fn scenario(flow: &str) -> Scenario {
        let flow = format!("{{ from = \"a\", to = \"b\", protocol = \"rbudp\", {flow} }}");
        let text = format!(
            "flow = [{flow}]\nall-hosts = {{ nic = \"200M\" }}\n\
             [topology]\nkind = \"pair\"\nlink = {{ rate = \"80M\" }}"
        );
        Scenario::parse("copies", &text, &Reading::PLAIN).unwrap()
    }

    #[test]
    fn a_transfer_becomes_flags() {
        let words = |flow: &str| {
            let scenario = scenario(flow);
            let Traffic::Protocol(transfer) = &scenario.flows[0].traffic else { unreachable!() };
            arguments(&scenario.flows[0], transfer)[2..].join(" ")
        };
        let whole = r#"size = 1000, rate = "1M", segment = "1MB", tail-copies = 1"#;
        assert_eq!(words(whole), "--rate 1000000 --segment 0 --tail-copies=1");
        assert_eq!(words(r#"size = 1000, receive = "scatter""#), "--receive=scatter");
        assert_eq!(words(r#"lasts = "1s", share = "low""#), "--share=low --receive=fake");
        assert_eq!(words(r#"size = 1000, share = 4"#), "--share=4");
        let cut =
            r#"size = "9MB", block = 1400, segment = "1500KB", settings = { tail-copies = 2 }"#;
        assert_eq!(words(cut), "--segment 2Mi --datagram 1432 --tail-copies=2");
    }

    #[test]
    fn settings_become_flags_with_their_units() {
        let given = [
            ("receive-rate", 957e6),
            ("loss-threshold", 0.003),
            ("interval", 2.5),
            ("own-loss", 0.0),
            ("others", 1.0),
        ];
        let own = Transfer {
            protocol: "gtp".into(),
            settings: given.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Transfer::default()
        };
        assert_eq!(
            settings(&own).collect::<Vec<_>>().join(" "),
            "--interval=2.5 --loss-threshold=0.3% --others=fair --own-loss=off \
             --receive-rate=957Mbit/s"
        );
    }

    #[test]
    fn a_send_limit_applies_to_a_copy_only_if_no_other_flow_leaves_its_host() {
        let words = |sends: &str, flows: &str| {
            let text = format!(
                "host = [{{ name = \"a\", {sends} }}, {{ name = \"b\" }}]\nflow = [{flows}]\n\
                 [[link]]\nbetween = [\"a\", \"b\"]"
            );
            let scenario = Scenario::parse("copies", &text, &Reading::PLAIN).unwrap();
            let Traffic::Protocol(transfer) = &scenario.flows[0].traffic else { unreachable!() };
            limit(&scenario, &scenario.flows[0], transfer).join(" ")
        };
        let copy = r#"{ from = "a", to = "b", protocol = "rbudp", size = 1000 }"#;
        assert_eq!(words("nic = \"1G\"", copy), "");
        assert_eq!(words("sends-rate = \"5M\"", copy), "--bwlimit 5000000bit");
        assert_eq!(words("sends-packets = 1000", copy), "--bwlimit 11776000bit");
        assert_eq!(words("sends-rate = \"5M\"", &format!("{copy}, {copy}")), "");
    }

    #[test]
    fn a_copy_with_a_time_limit_gets_a_larger_object_than_it_can_send() {
        let of = |flow: &str| {
            let scenario = scenario(flow);
            let Traffic::Protocol(transfer) = &scenario.flows[0].traffic else { unreachable!() };
            size(&scenario, &scenario.flows[0], transfer).unwrap()
        };
        assert_eq!(of("size = 1000"), Some(Bytes::new(1_000)));
        assert_eq!(of("lasts = \"2s\""), Some(Bytes::new(20_000_000) + Bytes::mebi(1)));
        assert_eq!(
            of("rate = \"8M\", lasts = \"2s\""),
            Some(Bytes::new(2_000_000) + Bytes::mebi(1))
        );
        assert_eq!(of("rate = \"8M\""), None);
    }
}
