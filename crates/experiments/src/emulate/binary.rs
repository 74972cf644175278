//! The real binary on emulated hosts: a server on each that receives, a copy for each flow.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use longhaul_testbed::emu::Emulation;
use longhaul_testbed::random::Random;
use longhaul_testbed::scenario::{Amount, Flow, Scenario, Traffic, Transfer};
use serde_json::Value;
use tempfile::TempDir;

use super::EmulateError;
use crate::outcome::{Count, FlowOutcome, Sample};

/// The folder in memory that Linux has.
const MEMORY: &str = "/dev/shm";
/// What a server may hold of an object in one segment.
const BUDGET: &str = "4Gi";
const CONFIG: &str = "LONGHAUL_CONFIG_DIR";

/// Identities, objects and folders of all ends of a case; gone when dropped.
pub(super) struct Ends {
    binary: PathBuf,
    folder: TempDir,
    /// The copying side's id.
    id: String,
}

/// A running server; killed when dropped.
pub(super) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ends {
    /// Makes identities, and the objects that the flows will send.
    pub(super) fn new(binary: &Path, scenario: &Scenario) -> Result<Ends, EmulateError> {
        let failed = |error: &dyn std::fmt::Display| EmulateError::of("make a folder", error);
        let above = Some(Path::new(MEMORY)).filter(|folder| folder.is_dir());
        let folder = match above {
            Some(above) => tempfile::tempdir_in(above),
            None => tempfile::tempdir(),
        };
        let folder = folder.map_err(|error| failed(&error))?;
        let config = folder.path().join("client");
        let output = Command::new(binary).arg("id").env(CONFIG, &config).output();
        let output = output.map_err(|error| EmulateError::of("run longhaul id", &error))?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let ends = Ends { binary: binary.into(), folder, id };
        for flow in &scenario.flows {
            if matches!(flow.traffic, Traffic::Protocol(_)) {
                ends.make_object(flow)
                    .map_err(|error| EmulateError::of("make an object", &error))?;
            }
        }
        Ok(ends)
    }

    fn path(&self, kind: &str, name: &str) -> PathBuf {
        self.folder.path().join(format!("{kind}-{name}"))
    }

    fn make_object(&self, flow: &Flow) -> std::io::Result<()> {
        let Amount::Size(size) = flow.amount else {
            return Err(std::io::Error::other(format!("flow {} has no size", flow.name)));
        };
        let mut random = Random::new(7);
        let piece: Vec<u8> = (0..1 << 17).flat_map(|_| random.bits().to_le_bytes()).collect();
        let mut file = File::create(self.path("object", &flow.name))?;
        let mut left = size.get();
        while left > 0 {
            let now = left.min(piece.len() as u64);
            file.write_all(&piece[..now as usize])?;
            left -= now;
        }
        Ok(())
    }

    /// Starts a server on each host that receives a copy, and waits until it is ready.
    pub(super) fn serve(
        &self,
        emulation: &Emulation,
        scenario: &Scenario,
    ) -> Result<Vec<Server>, EmulateError> {
        let copies = scenario.flows.iter().filter(|f| matches!(f.traffic, Traffic::Protocol(_)));
        let mut hosts: Vec<usize> = copies.map(|flow| flow.to).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts.into_iter().map(|host| self.serve_on(emulation, &scenario.hosts[host].name)).collect()
    }

    fn serve_on(&self, emulation: &Emulation, host: &str) -> Result<Server, EmulateError> {
        let failed = |error: &dyn std::fmt::Display| EmulateError::of("start a server", error);
        let root = self.path("root", host);
        fs::create_dir(&root).map_err(|error| failed(&error))?;
        let mut child = emulation
            .command(host, &self.binary)?
            .args(["serve", "--json", "--listen", "0.0.0.0:7717", "--memory", BUDGET])
            .args(["--allow", &self.id, "--root"])
            .arg(&root)
            .env(CONFIG, self.path("server", host))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let stdout = child.stdout.take().expect("it was piped");
        let server = Server(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|error| failed(&error))?;
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        match ready["event"].as_str() {
            Some("ready") => Ok(server),
            _ => Err(EmulateError::new(format!("the server on {host} did not start"))),
        }
    }

    /// Runs the copy of `flow` to its end.
    pub(super) fn copy(
        &self,
        emulation: &Emulation,
        scenario: &Scenario,
        flow: &Flow,
        transfer: &Transfer,
        began: Instant,
    ) -> Result<FlowOutcome, EmulateError> {
        let failed = |error: &dyn std::fmt::Display| EmulateError::of("run a copy", error);
        let (from, to) = (&scenario.hosts[flow.from].name, &scenario.hosts[flow.to].name);
        let mut child = emulation
            .command(from, &self.binary)?
            .args(["cp", "--json", "-q", "--accept-new", "--memory", BUDGET])
            .args(arguments(flow, transfer))
            .arg(self.path("object", &flow.name))
            .arg(format!("lh://{to}/"))
            .env(CONFIG, self.folder.path().join("client"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let stdout = child.stdout.take().expect("it was piped");
        let mut reading = Reading::default();
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| failed(&error))?;
            let event = serde_json::from_str(&line).unwrap_or_default();
            reading.take(event, began.elapsed().as_secs_f64());
        }
        let status = child.wait().map_err(|error| failed(&error))?;
        let outcome = reading.outcome(flow);
        outcome.ok_or_else(|| {
            let why = reading.error.unwrap_or_else(|| status.to_string());
            EmulateError::new(format!("the copy of flow {} failed: {why}", flow.name))
        })
    }
}

/// The flags that a transfer asks for.
fn arguments(flow: &Flow, transfer: &Transfer) -> Vec<String> {
    let mut arguments = vec!["--protocol".to_owned(), transfer.protocol.clone()];
    if let Some(rate) = transfer.rate {
        arguments.extend(["--rate".to_owned(), rate.as_bps().to_string()]);
    }
    if let Some(segment) = transfer.segment {
        let whole = matches!(flow.amount, Amount::Size(size) if segment >= size);
        let size = if whole { 0 } else { segment.get() };
        arguments.extend(["--segment".to_owned(), size.to_string()]);
    }
    if let Some(block) = transfer.block {
        let payload = block + crate::paths::OVERHEAD;
        arguments.extend(["--datagram".to_owned(), payload.to_string()]);
    }
    arguments.extend(transfer.tail_copies.map(|count| format!("--tail-copies={count}")));
    arguments.extend(transfer.settings.iter().map(|(name, value)| format!("--{name}={value}")));
    arguments
}

/// What a copy tells on its way.
#[derive(Default)]
struct Reading {
    summary: Option<Value>,
    error: Option<String>,
    series: Vec<Sample>,
    /// The last report: when, and how many bytes.
    last: Option<(f64, f64)>,
}

impl Reading {
    fn take(&mut self, event: Value, at: f64) {
        match event["event"].as_str() {
            Some("summary") => self.summary = Some(event),
            Some("error") => self.error = event["what"].as_str().map(str::to_owned),
            Some("progress") => {
                let bytes = event["bytes"].as_f64().unwrap_or_default();
                if let Some((before, had)) = self.last.filter(|(before, _)| at > *before) {
                    let goodput = (bytes - had) * 8.0 / (at - before) / 1e6;
                    self.series.push(Sample { at, goodput, ..Sample::default() });
                }
                self.last = Some((at, bytes));
            }
            _ => {}
        }
    }

    /// The summary as an outcome. Its time begins with the first datagram: the simulation has no
    /// session to set up.
    fn outcome(&self, flow: &Flow) -> Option<FlowOutcome> {
        let summary = self.summary.as_ref()?;
        let number = |name: &str| summary[name].as_f64().unwrap_or_default();
        let count = |name: &str| Count(summary[name].as_u64());
        let elapsed = Span::from_secs_f64(number("seconds") - number("setup_seconds"));
        Some(FlowOutcome {
            name: flow.name.clone(),
            bytes: Bytes::new(count("bytes").0.unwrap_or_default()),
            started: flow.start,
            elapsed,
            finished: true,
            sent: count("sent"),
            retransmitted: count("retransmitted"),
            reported_lost: count("reported_lost"),
            received: count("received"),
            duplicates: count("duplicates"),
            lost: count("path_lost"),
            blocks: count("blocks"),
            rounds: count("rounds"),
            series: self.series.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::vary;
    use longhaul_testbed::scenario::Flow;
    use serde_json::json;

    fn only_flow(variant: crate::scenarios::Variant) -> Flow {
        variant.scenario().expect("it is committed").flows.swap_remove(0)
    }

    #[test]
    fn a_transfer_becomes_flags() {
        let flow = only_flow(vary("quanta-streaming").set("flow.frames.rate", "1M"));
        let Traffic::Protocol(asked) = &flow.traffic else { unreachable!("it is a copy") };
        let words = ["--protocol", "rbudp", "--rate", "1000000", "--segment", "0"];
        let words = [&words[..], &["--tail-copies=1"]].concat();
        assert_eq!(arguments(&flow, asked), words);
        let settings = [("ack-frequency".to_owned(), 8.0)].into_iter().collect();
        let asked = Transfer {
            block: Some(1_400),
            segment: None,
            rate: None,
            tail_copies: None,
            settings,
            ..asked.clone()
        };
        assert_eq!(arguments(&flow, &asked)[2..], ["--datagram", "1432", "--ack-frequency=8"]);
    }

    #[test]
    fn a_copy_is_timed_from_its_first_datagram() {
        let flow = only_flow(vary("gtp-fig1"));
        let mut reading = Reading::default();
        for (at, bytes) in [(1.0, 0), (2.0, 125_000_000)] {
            reading.take(json!({"event": "progress", "bytes": bytes}), at);
        }
        assert_eq!(reading.outcome(&flow), None);
        let summary = json!({"event": "summary", "bytes": 250_000_000, "seconds": 2.5,
            "setup_seconds": 0.5, "sent": 12, "path_lost": 3, "rounds": 2});
        reading.take(summary, 3.0);
        let outcome = reading.outcome(&flow).unwrap();
        assert_eq!(
            (outcome.goodput(), outcome.loss(), outcome.rounds.number()),
            (1000.0, 25.0, 2.0)
        );
        assert_eq!(outcome.series.len(), 1);
        assert_eq!(outcome.series[0].goodput, 1000.0);
    }
}
