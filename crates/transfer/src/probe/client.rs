//! The client's side of a probe.

use std::sync::Arc;
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::port::mtu::{packet_overhead, unanswered};
use longhaul_net::sealing::keys::Suite;
use longhaul_net::socket::Path;
use longhaul_net::zone;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_text::CallOption;
use tokio::time::timeout;

use super::blast::Blast;
use super::count::Counter;
use super::echo::{Asking, QUESTIONS};
use super::{
    FAREWELL, Found, LONGEST, Measured, PathFound, ProbeOptions, Trips, Way, flow_keys, next_count,
    stream,
};
use crate::control::{Frame, Message, Probe, ProbeCount, ProbeRun};
use crate::error::{Error, ErrorKind};
use crate::options::Cipher;
use crate::progress::{Cancel, Observer, or_cancelled};
use crate::random::random_flow;
use crate::reach::{self, Reached, SizeSearch, usual_datagram};
use crate::reactor;
use crate::session::trust::ask_nobody;
use crate::session::{self, Carriers, Session, Settings, random_u64};

/// Maximum time that a measurement may take in addition to its sending time: the server's count may
/// arrive late.
const OTHER_TIME: Span = Span::from_secs(10);
/// The default series of rates, in Mbit/s.
const LADDER: [u64; 8] = [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000];
/// The default series ends at the first rate with a loss above this.
const FULL: f64 = 0.05;
/// The default series also ends if the received rate is below this multiple of the best earlier
/// received rate.
const MORE: f64 = 1.1;

/// Runs the measurements of `options` and passes each result to `report`, including failures;
/// blocks until the last measurement has ended.
///
/// # Errors
/// The measurements would take longer than [`LONGEST`]; the server cannot be reached or does not
/// allow them; `cancel` is set.
pub fn probe(
    options: &ProbeOptions,
    observer: Arc<dyn Observer>,
    report: &mut dyn FnMut(Found),
    cancel: Cancel,
) -> Result<(), Error> {
    check(options)?;
    let work = run(options, &*observer, report);
    reactor::block_on("the probe", or_cancelled(work, &cancel))
}

fn check(options: &ProbeOptions) -> Result<(), Error> {
    let ways = u64::from(options.udp) + u64::from(options.app);
    let runs = 2 * ways * options.rates.len() as u64;
    let takes = Span::from_nanos(options.span.as_nanos().saturating_mul(runs));
    if takes <= LONGEST {
        return Ok(());
    }
    let what =
        format!("{runs} measurements of {} take {takes}; the limit is {LONGEST}", options.span);
    Err(Error::new(ErrorKind::Usage, what)
        .advise(format!("name fewer rates, or a shorter {}", CallOption::Time)))
}

async fn run(
    options: &ProbeOptions,
    observer: &dyn Observer,
    report: &mut dyn FnMut(Found),
) -> Result<(), Error> {
    let search = if options.datagram.is_some() { SizeSearch::No } else { SizeSearch::Whole };
    let reached = reach::open(&options.host, observer, &Settings::default(), search).await?;
    if reached.session.carrier == "ssh" {
        let advice = reached.session.advice.unwrap_or_default();
        let what = "only ssh gets through, so there is nothing to measure";
        return Err(Error::new(ErrorKind::Unreachable, what).advise(advice));
    }
    let mut probing = Probing::begin(options, reached).await?;
    probing.measure(report).await?;
    let Probing { reached, .. } = probing;
    // The results are complete, so a failed goodbye does not matter.
    let _ = timeout(FAREWELL, reached.session.close(None)).await;
    Ok(())
}

struct Probing<'a> {
    options: &'a ProbeOptions,
    reached: Reached,
    suite: Suite,
    number: u64,
    echo: FlowId,
    datagram: u16,
    rtt: Duration,
    begun: Time,
}

impl Probing<'_> {
    async fn begin(options: &ProbeOptions, mut reached: Reached) -> Result<Probing<'_>, Error> {
        let suite = Suite::choose(Cipher::Auto, reached.session.both_fast_aes);
        let ip = reached.session.remote.ip();
        let (rtt, begun) = (reached.session.rtt.unwrap_or_default(), clock::now());
        let number = random_u64();
        let found = options.datagram.or(reached.datagram);
        let echo = random_flow();
        greet(&mut reached.session, number, echo, suite).await?;
        let datagram = found.unwrap_or_else(|| usual_datagram(ip));
        Ok(Probing { options, reached, suite, number, echo, datagram, rtt, begun })
    }

    async fn measure(&mut self, report: &mut dyn FnMut(Found)) -> Result<(), Error> {
        let options = self.options;
        let trips = self.ask().await?;
        report(Found::Path(self.path(trips)));
        // A failure of UDP must not prevent the measurement of TCP.
        if let Err(error) = self.measure_datagrams(trips, report).await {
            report(Found::Missing(error));
        }
        if options.tcp
            && let Err(error) = self.measure_tcp(report).await
        {
            let address = self.reached.session.remote;
            let what = format!("TCP {} of {}: {}", address.port(), address.ip(), error.what);
            report(Found::Missing(Error { what, ..error }));
        }
        Ok(())
    }

    async fn measure_datagrams(
        &mut self,
        trips: Trips,
        report: &mut dyn FnMut(Found),
    ) -> Result<(), Error> {
        let wanted = [(self.options.udp, Way::Udp), (self.options.app, Way::App)];
        for way in wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, way)| way) {
            if trips.answered == 0 {
                return Err(unanswered(self.reached.contact).into());
            }
            self.climb(way, true, report).await?;
            self.climb(way, false, report).await?;
        }
        Ok(())
    }

    fn path(&self, trips: Trips) -> PathFound {
        let session = &self.reached.session;
        let overhead = packet_overhead(session.remote.ip());
        PathFound {
            peer: session.peer.to_string(),
            address: session.remote.to_string(),
            carrier: session.carrier,
            datagram: self.datagram,
            mtu: self.reached.datagram.map(|datagram| datagram + overhead),
            cipher: self.suite.name(),
            trips,
        }
    }

    /// Measures round trips, on the flow that the server echoes.
    async fn ask(&self) -> Result<Trips, Error> {
        let session = &self.reached.session;
        let flow = self.echo;
        let keys = flow_keys(&session.exporter(), self.suite, self.number, flow).receiving_end();
        let (data, path) = (&self.reached.data, Path::from(self.reached.contact));
        let socket = data.socket().clone();
        let (asking, trips) = Asking::new(clock::now(), keys.reports, keys.control, socket, path);
        data.register(flow, Box::new(asking))?;
        let lost = |_| Error::new(ErrorKind::Unfinished, "the data port was closed");
        Ok(Trips::of(&trips.await.map_err(lost)?))
    }

    /// Measures one direction at the given rates, or at rising default rates until the path is
    /// full.
    async fn climb(
        &mut self,
        way: Way,
        up: bool,
        report: &mut dyn FnMut(Found),
    ) -> Result<(), Error> {
        let ladder: Vec<Rate> = LADDER.map(Rate::from_mbps).to_vec();
        let named = !self.options.rates.is_empty();
        let mut best = Rate::ZERO;
        for rate in if named { self.options.rates.clone() } else { ladder } {
            if clock::now().since(self.begun) + self.options.span + OTHER_TIME > LONGEST {
                let what =
                    format!("the probe reached its limit of {LONGEST} before its last measurement");
                return Err(Error::new(ErrorKind::Unfinished, what)
                    .advise(format!("name fewer rates, or a shorter {}", CallOption::Time)));
            }
            let run = ProbeRun {
                flow: random_flow().0,
                up,
                stream: false,
                rate_bps: rate.as_bps(),
                micros: self.options.span.as_nanos() / 1_000,
                datagram: self.datagram.into(),
                copies: way == Way::App,
            };
            let count = if up { self.send(&run).await? } else { self.receive(&run).await? };
            if count.too_large {
                let what = format!("datagrams of {} bytes are too large", self.datagram);
                let error = Error::new(ErrorKind::Unreachable, what);
                return Err(
                    error.advise(format!("give a smaller {}, or omit it", CallOption::Datagram))
                );
            }
            let measured = self.measured(way, &run, &count);
            report(Found::Measured(measured));
            let full = measured.loss.get() > FULL || measured.received_rate < best.scale(MORE);
            if full && !named {
                break;
            }
            best = best.max(measured.received_rate);
        }
        Ok(())
    }

    /// Sends datagrams, and returns the server's count of arrivals.
    async fn send(&mut self, run: &ProbeRun) -> Result<ProbeCount, Error> {
        let span = Span::from_micros(run.micros);
        let session = &mut self.reached.session;
        session.write(&Frame::from(Message::ProbeRun(run.clone()))).await?;
        // Wait until the server is ready.
        next_count(session, Duration::ZERO).await?;
        let flow = FlowId(run.flow);
        let keys = flow_keys(&session.exporter(), self.suite, self.number, flow).sending_end();
        let blast = Blast {
            socket: self.reached.data.socket().clone(),
            path: Path::from(self.reached.contact),
            sealer: keys.data,
            datagram: self.datagram,
            rate: Rate::from_bps(run.rate_bps),
            span,
        };
        let blasted = blast.start()?.ended().await?;
        let (sent, too_large) = (blasted.sent, blasted.too_large);
        let reported = ProbeCount { sent, too_large, ..ProbeCount::default() };
        session.write(&Frame::from(Message::ProbeCount(reported))).await?;
        next_count(session, Duration::ZERO).await
    }

    async fn receive(&mut self, run: &ProbeRun) -> Result<ProbeCount, Error> {
        let span = Span::from_micros(run.micros);
        let session = &mut self.reached.session;
        let flow = FlowId(run.flow);
        let keys = flow_keys(&session.exporter(), self.suite, self.number, flow).receiving_end();
        let counter = Counter::start(&self.reached.data, flow, keys.data, run.copies).await?;
        session.write(&Frame::from(Message::ProbeRun(run.clone()))).await?;
        let reported = next_count(session, clock::duration(span)).await?;
        let count = counter.finish(reported.sent, span, self.rtt).await;
        Ok(ProbeCount { too_large: reported.too_large, ..count })
    }

    fn measured(&self, way: Way, run: &ProbeRun, count: &ProbeCount) -> Measured {
        let bytes = Bytes::new(count.sent.saturating_mul(run.datagram.into()));
        Measured {
            way,
            up: run.up,
            asked: Some(Rate::from_bps(run.rate_bps)),
            sent_rate: Some(bytes / Span::from_micros(run.micros)),
            received_rate: Rate::from_bps(count.rate_bps),
            sent: count.sent,
            received: count.received,
            loss: LossRatio::of(count.sent.saturating_sub(count.received), count.sent),
            socket_lost: count.socket_lost,
            reordered: count.reordered,
        }
    }

    /// Opens a separate connection to the same server and measures it in both directions.
    async fn measure_tcp(&self, report: &mut dyn FnMut(Found)) -> Result<(), Error> {
        let first = &self.reached.session;
        let identity = self.options.host.key.identity()?;
        let trust = self.options.host.trust.only(first.peer.to_string());
        let settings = Settings { carriers: Carriers::Tcp, ..Settings::default() };
        let (host, port) = (zone::host(first.remote), first.remote.port());
        let mut session =
            session::connect(&host, port, &identity, &trust, &ask_nobody, &settings).await?;
        greet(&mut session, random_u64(), random_flow(), self.suite).await?;
        let span = clock::duration(self.options.span);
        for up in [true, false] {
            let micros = self.options.span.as_nanos() / 1_000;
            let run = ProbeRun { up, stream: true, micros, ..ProbeRun::default() };
            session.write(&Frame::from(Message::ProbeRun(run))).await?;
            let count = if up {
                let all = stream::send(&mut session, span).await?;
                session.write(&Frame::from(Message::ProbeCount(all))).await?;
                next_count(&mut session, Duration::ZERO).await?
            } else {
                stream::receive(&mut session, span).await?
            };
            report(Found::Measured(Measured {
                way: Way::Tcp,
                up,
                asked: None,
                sent_rate: None,
                received_rate: Rate::from_bps(count.rate_bps),
                sent: 0,
                received: 0,
                loss: LossRatio::of(0, 0),
                socket_lost: 0,
                reordered: 0,
            }));
        }
        let _ = timeout(FAREWELL, session.close(None)).await;
        Ok(())
    }
}

/// Starts a probe on `session`; returns when the server is ready.
async fn greet(session: &mut Session, probe: u64, flow: FlowId, suite: Suite) -> Result<(), Error> {
    let cipher = suite.name().to_owned();
    let probe = Probe { probe, flow: flow.0, cipher };
    session.write(&Frame::from(Message::Probe(probe))).await?;
    next_count(session, Duration::ZERO).await.map(drop)
}

impl Trips {
    /// Returns the statistics of round trips; `None` stands for a lost datagram.
    fn of(trips: &[Option<Span>]) -> Trips {
        let seconds: Vec<f64> = trips.iter().flatten().map(|trip| trip.as_secs_f64()).collect();
        let asked = trips.len().max(QUESTIONS) as u32;
        if seconds.is_empty() {
            return Trips { asked, ..Trips::default() };
        }
        let count = seconds.len() as f64;
        let mean = seconds.iter().sum::<f64>() / count;
        let variance = seconds.iter().map(|trip| (trip - mean).powi(2)).sum::<f64>() / count;
        Trips {
            asked,
            answered: seconds.len() as u32,
            min: trips.iter().flatten().copied().min().unwrap_or_default(),
            mean: Span::from_secs_f64(mean),
            max: trips.iter().flatten().copied().max().unwrap_or_default(),
            deviation: Span::from_secs_f64(variance.sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{HostOptions, OwnKey, ReachOptions, Trust};

    #[test]
    fn a_probe_that_would_take_too_long_is_refused_with_its_total_time() {
        let asked = |rates: usize, seconds, app| {
            check(&ProbeOptions {
                host: HostOptions {
                    location: "lh://h".parse().unwrap(),
                    trust: Trust { config_dir: "/".into(), pins: Vec::new(), accept_new: false },
                    key: OwnKey::In("/".into()),
                    reach: ReachOptions::default(),
                    path_memory: None,
                },
                udp: true,
                app,
                tcp: true,
                rates: vec![Rate::from_mbps(1); rates],
                span: Span::from_secs(seconds),
                datagram: None,
            })
        };
        // Each rate is measured in both directions: 60 measurements of 10 s, or 600 of 1 s, take
        // the longest permitted time. `app` doubles the number.
        assert_eq!(asked(30, 10, false), Ok(()));
        assert_eq!(asked(300, 1, false), Ok(()));
        let refused = asked(30, 10, true).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Usage);
        assert!(refused.what.contains("120 measurements of 10.00 s"), "{refused}");
        assert!(refused.what.contains("1200.00 s") && refused.what.contains("600.00 s"));
    }

    #[test]
    fn round_trips_have_a_mean_a_spread_and_losses() {
        let trips = [Some(10), None, Some(20), Some(30)].map(|trip| trip.map(Span::from_millis));
        let trips = Trips::of(&trips);
        assert_eq!(
            (trips.answered, trips.min, trips.max),
            (3, Span::from_millis(10), Span::from_millis(30))
        );
        assert!((trips.mean.as_secs_f64() - 0.02).abs() < 1e-9);
        assert!((trips.deviation.as_secs_f64() - 0.008_164_966).abs() < 1e-9);
        assert_eq!(Trips::of(&[None; QUESTIONS]).answered, 0);
    }
}
