//! `longhaul doctor`: finds causes of slow copies on this host.

mod cpu;
mod disk;
mod kernel;
mod links;
mod ports;

use std::path::PathBuf;

use crate::error::{Error, ErrorKind};
use longhaul::Location;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use serde_json::json;

use crate::quantity::{parse_rate, parse_span};
use crate::reach::parse_host;
use crate::{console, exit, json};

const AFTER: &str = "\
Examples:
  longhaul doctor --rate 10G --rtt 100ms --dir /data
  longhaul doctor lh://dtn.example.org        also test the server's ports

Exit status:
  0    nothing is bad
  1    something is bad
  2    invalid command line
  3    the server's name has no address
  4    this host's identity cannot be read";

/// Default of `--rate`.
const USUAL_RATE: Rate = Rate::from_mbps(1_000);

/// Check this host for causes of slow copies, and print the fix for each
///
/// Checks socket buffers, UDP offloads, network interfaces, encryption speed, the disk, the clock,
/// and what the emulator needs; with HOST also that server's ports. Writes and removes a file of
/// at most 128 MB in --dir.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct DoctorArgs {
    /// Test the ports of this server: lh://HOST or lh://HOST:PORT
    #[arg(value_name = "HOST", value_parser = parse_server)]
    host: Option<Location>,
    /// The rate that you want to reach [default: 1G]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// The round-trip time of the path
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_span)]
    rtt: Span,
    /// Measure the disk of this folder
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// UDP port of the server's data [default: its control port + 1]
    #[arg(long, value_name = "PORT", requires = "host")]
    data_port: Option<u16>,
    /// Write findings as JSON to stdout, one object a line; the last one is the summary or an
    /// error
    #[arg(long)]
    json: bool,
    /// Print the values in force and the origin of each, and check nothing
    #[arg(long = "show-config", id = "show_config")]
    _show_config: bool,
}

fn parse_server(text: &str) -> Result<Location, String> {
    match parse_host(text) {
        Ok(place @ Location::Daemon { .. }) => Ok(place),
        Ok(place) => {
            let name = place.to_string();
            let name = name.trim_end_matches(':');
            let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
            Err(format!("doctor tests only servers; did you mean lh://{host}?"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Ok,
    /// Costs performance.
    Warn,
    /// Prevents the wanted rate.
    Bad,
}

impl Grade {
    fn name(self) -> &'static str {
        match self {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Bad => "bad",
        }
    }

    fn unless(well: bool, grade: Grade) -> Grade {
        if well { Grade::Ok } else { grade }
    }
}

/// Result of one check.
#[derive(Clone, Debug)]
struct Finding {
    name: &'static str,
    grade: Grade,
    /// The finding, with its figures.
    what: String,
    /// The command that fixes the problem, or other advice.
    mend: Option<String>,
}

impl Finding {
    /// Drops `mend` if the grade is `Ok`.
    fn new(
        name: &'static str,
        grade: Grade,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        let mend = (grade > Grade::Ok).then(|| mend.into());
        Finding { name, grade, what: what.into(), mend }
    }
}

#[derive(Clone, Copy, Debug)]
struct Want {
    rate: Rate,
    rtt: Span,
    /// Whether the user gave the rate.
    is_asked: bool,
}

impl Want {
    /// The bandwidth-delay product.
    fn bdp(self) -> Bytes {
        self.rate.over(self.rtt)
    }
}

/// Printed after advice with `sysctl -w`, whose settings are lost at a restart.
const KEEPING: &str = "to keep the settings of sysctl -w after a restart, write the same KEY = \
                       VALUE into /etc/sysctl.d/90-longhaul.conf";

pub(crate) fn run(args: &DoctorArgs) -> u8 {
    match look(args) {
        Ok((worst, None)) => u8::from(worst == Grade::Bad),
        Ok((_, Some(error))) | Err(error) => {
            if args.json {
                console::out(json::error(&error, exit::status(error.kind)));
            }
            exit::fail(&error)
        }
    }
}

/// Returns the worst grade, and the reason if a server's ports could not be tested.
fn look(args: &DoctorArgs) -> Result<(Grade, Option<Error>), Error> {
    let rate = args.rate.unwrap_or(USUAL_RATE);
    let want = Want { rate, rtt: args.rtt, is_asked: args.rate.is_some() };
    if want.rate == Rate::ZERO {
        return Err(
            Error::new(ErrorKind::Usage, "--rate 0 is not a rate").advise("leave it out for 1G")
        );
    }
    let mut counts = [0u32; 3];
    let mut worst = Grade::Ok;
    let mut sets_kernel = false;
    let mut tell = |findings: Vec<Finding>| {
        for finding in findings {
            worst = worst.max(finding.grade);
            sets_kernel |= finding.mend.as_ref().is_some_and(|mend| mend.contains("sysctl -w"));
            counts[finding.grade as usize] += 1;
            say(&finding, args.json);
        }
    };
    tell(kernel::look(want));
    tell(links::look(want));
    tell(cpu::look(want));
    tell(disk::look(want, &args.dir));
    #[cfg(target_os = "linux")]
    tell(kernel::emulator());
    let ports = match &args.host {
        Some(server) => ports::look(server, args.data_port),
        None => Ok(Vec::new()),
    };
    let trouble = ports.map(&mut tell).err();
    let [ok, warn, bad] = counts;
    if args.json {
        // If the ports could not be tested, the error is the last event.
        if trouble.is_none() {
            let status = u8::from(worst == Grade::Bad);
            let summary = "summary";
            console::out(
                json!({"event": summary, "status": status, "ok": ok, "warn": warn, "bad": bad}),
            );
        }
    } else {
        let bdp = want.bdp();
        console::out(format_args!(
            "\nfor {} at {} ({bdp} in flight): {ok} ok, {warn} warning{}, {bad} bad",
            want.rate,
            want.rtt,
            if warn == 1 { "" } else { "s" }
        ));
        if sets_kernel {
            console::out(KEEPING);
        }
    }
    Ok((worst, trouble))
}

fn say(finding: &Finding, json: bool) {
    let Finding { name, grade, what, mend } = finding;
    let grade = grade.name();
    if json {
        let event = "finding";
        console::out(
            json!({"event": event, "name": name, "grade": grade, "what": what, "mend": mend}),
        );
        return;
    }
    console::out(format_args!("{grade:<5} {name:<16} {what}"));
    if let Some(mend) = mend {
        console::out(format_args!("{:<22} {mend}", ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ok_finding_has_no_advice() {
        assert!(Finding::new("x", Grade::Ok, "w", "m").mend.is_none());
        assert_eq!(Finding::new("x", Grade::Warn, "w", "m").mend.as_deref(), Some("m"));
        assert_eq!(Grade::unless(true, Grade::Bad), Grade::Ok);
        assert!(Grade::Bad > Grade::Warn && Grade::Warn > Grade::Ok);
    }

    #[test]
    fn the_bandwidth_delay_product_is_in_bytes() {
        let rtt = Span::from_millis(100);
        let want = Want { rate: Rate::from_mbps(1000), rtt, is_asked: true };
        assert_eq!(want.bdp(), Bytes::new(12_500_000));
    }

    #[test]
    fn doctor_accepts_only_the_location_of_a_server() {
        assert_eq!(parse_server("lh://[::1]:9").unwrap().to_string(), "lh://[::1]:9/");
        for wrong in ["host", "me@host:x", "http://h"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }
}
