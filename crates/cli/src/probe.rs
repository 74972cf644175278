//! `longhaul probe`: measures the path to a server.

use std::sync::Arc;

use longhaul::{
    CancelHandle, Location, Measured, PathFound, ProbeEvent, ProbeRequest, Trips, Way, blocking,
};
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use serde_json::{Value, json};

use crate::config::{self, Setting};
use crate::error::{Error, ErrorKind};
use crate::quantity::{parse_rate, parse_span};
use crate::reach::{ReachArgs, parse_host};
use crate::screen::{Screen, Show};
use crate::{console, exit, json, signals};

const EXAMPLES: &str = "\
Examples:
  longhaul probe lh://dtn.example.org                 round trips, MTU, UDP at rising rates, TCP
  longhaul probe --app --rate 900M,950M lh://10.0.0.2:9
  longhaul probe --json me@dtn.example.org            over ssh, without a running server
";

const ABOUT: &str = "\
Measure the path to a server: round trips, MTU, throughput and loss at rising rates

Needs a longhaul serve that allows this host's id, or a host that ssh reaches. Measures both \
directions: UDP and TCP by default, or only what --udp, --app and --tcp name. Rates are bits a \
second of UDP payload, as in cp --rate; each measurement sends for --time. Without --rate the \
rates rise until the path is full. A probe takes at most 600 s. If one measurement fails, the \
others still run, and the exit status reports the failure: 3 if UDP is blocked.";

const TIMES: std::ops::RangeInclusive<Span> = Span::from_millis(10)..=Span::from_secs(10);

/// Measure the path to a server: round trips, MTU, throughput and loss at rising rates
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct ProbeArgs {
    /// A server, lh://HOST or lh://HOST:PORT, or an ssh host, HOST or USER@HOST
    #[arg(value_name = "HOST", value_parser = parse_host)]
    host: Location,
    /// Measure UDP; the receiver drops the datagrams, as iperf does
    #[arg(long)]
    udp: bool,
    /// Measure UDP; the receiver copies each payload once, as an application does
    #[arg(long)]
    app: bool,
    /// Measure one TCP connection
    #[arg(long)]
    tcp: bool,
    /// Measure at these rates, rising: 100M,500M,1G
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = parse_rate)]
    rate: Vec<Rate>,
    /// Duration of each measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    time: Span,
    /// UDP payload of a datagram in bytes [default: the largest that passes]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(512..=65000))]
    datagram: Option<u16>,
    #[command(flatten)]
    reach: ReachArgs,
    /// Write findings as JSON to stdout, one object a line; the last one is the summary or an error
    #[arg(long)]
    json: bool,
}

fn parse_time(text: &str) -> Result<Span, String> {
    let time = parse_span(text)?;
    if TIMES.contains(&time) { Ok(time) } else { Err("expected 10ms to 10s".into()) }
}

pub(crate) fn run(args: &ProbeArgs, settings: &[Setting]) -> u8 {
    let cancel = CancelHandle::default();
    let show = Show { quiet: args.json, ..Show::errors(args.json) };
    let screen = Arc::new(Screen::new(show, cancel.clone()));
    match start(args, settings, &screen, cancel) {
        Ok(status) => status,
        Err(error) => {
            screen.failed(&error);
            exit::status(error.kind)
        }
    }
}

/// Returns the exit status of the first failed measurement, or success.
fn start(
    args: &ProbeArgs,
    settings: &[Setting],
    screen: &Arc<Screen>,
    cancel: CancelHandle,
) -> Result<u8, Error> {
    let probe = resolve(args, settings, screen)?;
    signals::cancel_on_signal(cancel.clone(), signals::ENDING)?;
    let mut probe = probe.cancel_with(&cancel).start()?;
    let mut events = probe.events();
    let mut all = Vec::new();
    let (mut path, mut status) = (None, exit::DONE);
    while let Some(event) = blocking::wait(events.next()) {
        if args.json
            && let Some(event) = self::event(&event)
        {
            console::out(event);
        }
        match event {
            ProbeEvent::Path(found) => {
                if !args.json {
                    path_lines(&found).into_iter().for_each(console::out);
                }
                path = Some(found);
            }
            ProbeEvent::Measured(measured) => {
                if !args.json {
                    if all.is_empty() {
                        console::out(heading());
                    }
                    console::out(row(&measured));
                }
                all.push(measured);
            }
            ProbeEvent::Missing(error) => {
                if status == exit::DONE {
                    status = exit::status(error.kind);
                }
                if !args.json {
                    console::error(&error.into());
                }
            }
            ProbeEvent::Session(event) => screen.see(event),
            _ => {}
        }
    }
    blocking::wait(probe.finish())?;
    if args.json {
        console::out(summary(path.as_ref(), &all, status));
    }
    Ok(status)
}

fn resolve(
    args: &ProbeArgs,
    settings: &[Setting],
    screen: &Arc<Screen>,
) -> Result<ProbeRequest, Error> {
    let is_invalid = |rate: &Rate| *rate == Rate::ZERO || rate.as_bps() > 100_000_000_000;
    if let Some(rate) = args.rate.iter().find(|rate| is_invalid(rate)) {
        let what = format!("a probe cannot run at {rate}");
        return Err(Error::new(ErrorKind::Usage, what).advise("ask for 1 bit/s to 100 Gbit/s"));
    }
    args.reach.check(&[&args.host], &|flag| config::has(settings, flag))?;
    let any = args.udp || args.app || args.tcp;
    let asking = screen.clone();
    let client = args.reach.client(&[&args.host], move |server| asking.trusts(server))?.build()?;
    Ok(client
        .probe(args.host.clone())
        .udp(args.udp || !any)
        .app(args.app)
        .tcp(args.tcp || !any)
        .rates(args.rate.clone())
        .time(args.time)
        .datagram(args.datagram)
        .reach(args.reach.options()))
}

fn path_lines(path: &PathFound) -> [String; 3] {
    let PathFound { peer, address, carrier, datagram, mtu, cipher, trips, .. } = path;
    let Trips { asked, answered, min, mean, max, deviation, .. } = trips;
    let mtu = match mtu {
        Some(mtu) => format!("{mtu} B pass"),
        None => "unknown".to_owned(),
    };
    let trips = match answered {
        0 => format!("none of {asked} datagrams came back"),
        _ => format!(
            "{mean} (from {min} to {max}, deviation {deviation}), {answered} of {asked} came back"
        ),
    };
    [
        format!("server   {peer} at {address} by {carrier}"),
        format!("RTT      {trips}"),
        format!("packets  {mtu}; {datagram} B of UDP payload in a datagram, {cipher}"),
    ]
}

fn heading() -> String {
    format!(
        "\n{:<4} {:<5} {:>15} {:>15} {:>15} {:>9} {:>11} {:>10}",
        "by", "way", "asked", "sent", "received", "lost", "in buffer", "reordered"
    )
}

fn row(measured: &Measured) -> String {
    let Measured { asked, sent_rate, received_rate, loss, socket_lost, reordered, .. } = measured;
    let (by, way) = (measured.way.name(), direction(measured));
    if measured.way == Way::Tcp {
        return format!("{by:<4} {way:<5} {:>15} {:>15} {:>15}", "", "", received_rate.to_string());
    }
    let shown = |rate: &Option<Rate>| rate.map(|rate| rate.to_string()).unwrap_or_default();
    format!(
        "{by:<4} {way:<5} {:>15} {:>15} {:>15} {:>9} {socket_lost:>11} {reordered:>10}",
        shown(asked),
        shown(sent_rate),
        received_rate.to_string(),
        loss.to_string(),
    )
}

fn direction(measured: &Measured) -> &'static str {
    if measured.up { "up" } else { "down" }
}

/// The `--json` line of a finding; `None` for other events.
fn event(event: &ProbeEvent) -> Option<Value> {
    Some(match event {
        ProbeEvent::Path(path) => {
            let mut event = path_fields(path);
            event["event"] = "path".into();
            event
        }
        ProbeEvent::Missing(error) => {
            let mut event = json!({"event": "missing"});
            json::put_error(&mut event, &Error::from(error.clone()));
            event
        }
        ProbeEvent::Measured(measured) if measured.way == Way::Tcp => json!({
            "event": "measured",
            "by": measured.way.name(),
            "way": direction(measured),
            "received_bps": measured.received_rate.as_bps(),
        }),
        ProbeEvent::Measured(measured) => json!({
            "event": "measured",
            "by": measured.way.name(),
            "way": direction(measured),
            "asked_bps": measured.asked.map(Rate::as_bps),
            "sent_bps": measured.sent_rate.map(Rate::as_bps),
            "received_bps": measured.received_rate.as_bps(),
            "sent": measured.sent,
            "received": measured.received,
            "loss": measured.loss.get(),
            "socket_lost": measured.socket_lost,
            "reordered": measured.reordered,
        }),
        _ => return None,
    })
}

fn path_fields(path: &PathFound) -> Value {
    let trips = &path.trips;
    json!({
        "peer": path.peer,
        "address": path.address,
        "carrier": path.carrier,
        "datagram_bytes": path.datagram,
        "mtu_bytes": path.mtu,
        "cipher": path.cipher,
        "asked": trips.asked,
        "answered": trips.answered,
        "rtt_seconds": trips.mean.as_secs_f64(),
        "rtt_min_seconds": trips.min.as_secs_f64(),
        "rtt_max_seconds": trips.max.as_secs_f64(),
        "rtt_deviation_seconds": trips.deviation.as_secs_f64(),
    })
}

/// The path, and the highest received rate of each kind of measurement in each direction, such as
/// `udp_up_bps`.
fn summary(path: Option<&PathFound>, all: &[Measured], status: u8) -> Value {
    let mut summary = path.map_or_else(|| json!({}), path_fields);
    for measured in all {
        let name = format!("{}_{}_bps", measured.way.name(), direction(measured));
        let most = summary[&name].as_u64().unwrap_or(0).max(measured.received_rate.as_bps());
        summary[&name] = most.into();
    }
    summary["event"] = "summary".into();
    summary["status"] = status.into();
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::but;
    use longhaul_proto::units::LossRatio;

    fn measured(way: Way, up: bool, megabits: u64) -> Measured {
        but!(
            Measured::default(),
            way: way,
            up: up,
            asked: Some(Rate::from_mbps(1000)),
            sent_rate: Some(Rate::from_mbps(999)),
            received_rate: Rate::from_mbps(megabits),
            sent: 1000,
            received: 990,
            loss: LossRatio::of(10, 1000),
            socket_lost: 4,
            reordered: 2,
        )
    }

    #[test]
    fn rows_are_aligned_with_their_heading() {
        let [heading, udp, tcp] = [
            heading().trim_start().to_owned(),
            row(&measured(Way::Udp, true, 990)),
            row(&measured(Way::Tcp, false, 700)),
        ];
        assert_eq!(heading.len(), udp.len());
        let column = |text: &str, word: &str| text.find(word).map(|at| at + word.len());
        assert_eq!(column(&heading, "received"), column(&udp, "990.00 Mbit/s"));
        assert_eq!(column(&heading, "received"), column(&tcp, "700.00 Mbit/s"));
        assert_eq!(column(&heading, "lost"), column(&udp, "1.00 %"));
    }

    #[test]
    fn the_summary_has_the_highest_rate_of_each_kind_and_direction() {
        let all = [
            measured(Way::Udp, true, 10),
            measured(Way::Udp, true, 30),
            measured(Way::Udp, true, 20),
            measured(Way::Tcp, false, 7),
        ];
        let summary = summary(None, &all, 3);
        assert_eq!(summary["status"], 3);
        assert_eq!(summary["udp_up_bps"], 30_000_000);
        assert_eq!(summary["tcp_down_bps"], 7_000_000);
        assert!(summary.get("udp_down_bps").is_none());
        assert_eq!(summary["event"], "summary");
    }
}
