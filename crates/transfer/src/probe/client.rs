//! The client's side of a probe.

use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use tokio::time::timeout;

use super::blast::Blast;
use super::count::Counter;
use super::echo::{Asking, QUESTIONS};
use super::{
    FAREWELL, Found, Measured, PathFound, ProbeOptions, Trips, Way, flow_keys, next_count, stream,
};
use crate::control::{Frame, Message, Probe, ProbeCount, ProbeRun};
use crate::copy::reach::{Look, Reach, Reached, usual_datagram};
use crate::copy::route::Host;
use crate::datapath::clock;
use crate::datapath::keys::{Suite, has_fast_aes};
use crate::datapath::mtu::packet_overhead;
use crate::datapath::socket::Path;
use crate::driver::{random_flow, random_u64};
use crate::error::{Class, Error};
use crate::options::{Cipher, Trust};
use crate::progress::{Cancel, Observer};
use crate::reactor;
use crate::session::{self, Carriers, Identity, Session, Settings};

/// The ladder of rates where none are named, in Mbit/s.
const LADDER: [u64; 8] = [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000];
/// A ladder ends where the loss is above this,
const FULL: f64 = 0.05;
/// or where less than so many times as much came as at the best rate before.
const MORE: f64 = 1.1;

/// Measures what `options` ask for and tells it by `tell` as it comes; blocks until the end.
///
/// # Errors
/// The server cannot be reached or does not allow it; the connection is lost; `cancel` is wished.
pub fn probe(
    options: &ProbeOptions,
    observer: Arc<dyn Observer>,
    tell: &mut dyn FnMut(Found),
    cancel: Cancel,
) -> Result<(), Error> {
    let work = async {
        tokio::select! {
            ended = run(options, &*observer, tell) => ended,
            () = cancel.wished() => Err(Error::new(Class::Interrupted, "interrupted")),
        }
    };
    reactor::block_on("the probe", work)
}

async fn run(
    options: &ProbeOptions,
    observer: &dyn Observer,
    tell: &mut dyn FnMut(Found),
) -> Result<(), Error> {
    let host = Host::of(&options.location).ok_or_else(|| {
        Error::new(Class::Usage, format!("{} is on this host", options.location))
            .advise("name a server as lh://host[:port], or a host of ssh as host:")
    })?;
    let identity = Identity::load_or_create(&options.trust.config_dir)?;
    let reach = Reach {
        host: &host,
        identity: &identity,
        trust: &options.trust,
        observer,
        data_port: options.data_port,
        ssh_command: &options.ssh_command,
        remote_path: &options.remote_path,
        ports: options.ports,
    };
    let look = if options.datagram.is_some() { Look::No } else { Look::Whole };
    let reached = reach.open(&Settings::default(), look).await?;
    if reached.session.carrier == "ssh" {
        let advice = reached.session.advice.unwrap_or_default();
        let what = "nothing but ssh itself gets through: there is nothing to measure";
        return Err(Error::new(Class::Unreachable, what).advise(advice));
    }
    let mut probing = Probing::begin(options, reached).await?;
    let measured = probing.measure(observer, &identity, tell).await;
    let Probing { reached, .. } = probing;
    // All that was wanted has come.
    let _ = timeout(FAREWELL, reached.session.close(None)).await;
    measured
}

struct Probing<'a> {
    options: &'a ProbeOptions,
    reached: Reached,
    suite: Suite,
    number: u64,
    echo: FlowId,
    datagram: u16,
    rtt: Duration,
}

impl Probing<'_> {
    async fn begin(options: &ProbeOptions, mut reached: Reached) -> Result<Probing<'_>, Error> {
        let suite = Suite::choose(Cipher::Auto, has_fast_aes());
        let ip = reached.session.remote.ip();
        let rtt = reached.session.rtt.unwrap_or_default();
        let number = random_u64();
        let found = options.datagram.or(reached.datagram);
        let echo = random_flow();
        greet(&mut reached.session, number, echo, suite).await?;
        let datagram = found.unwrap_or_else(|| usual_datagram(ip));
        Ok(Probing { options, reached, suite, number, echo, datagram, rtt })
    }

    async fn measure(
        &mut self,
        observer: &dyn Observer,
        identity: &Identity,
        tell: &mut dyn FnMut(Found),
    ) -> Result<(), Error> {
        let options = self.options;
        let trips = self.ask().await?;
        tell(Found::Path(self.path(trips)));
        let wanted = [(options.udp, Way::Udp), (options.app, Way::App)];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, way)| way);
        let (address, port) = (self.reached.contact.ip(), self.reached.contact.port());
        if trips.answered == 0 && (options.udp || options.app) {
            tell(Found::Missing(format!(
                "no datagram came back from UDP {port} of {address}: open it on the way"
            )));
        } else {
            for way in wanted {
                self.climb(way, true, tell).await?;
                self.climb(way, false, tell).await?;
            }
        }
        if options.tcp {
            self.measure_tcp(observer, identity, tell).await?;
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

    /// Round trips, on the flow that the server echoes.
    async fn ask(&self) -> Result<Trips, Error> {
        let session = &self.reached.session;
        let flow = self.echo;
        let keys = flow_keys(&session.exporter(), self.suite, self.number, flow).receiving_end();
        let (data, path) = (&self.reached.data, Path::from(self.reached.contact));
        let socket = data.socket().clone();
        let (asking, trips) = Asking::new(clock::now(), keys.reports, keys.control, socket, path);
        data.register(flow, Box::new(asking))?;
        let lost = |_| Error::new(Class::Unfinished, "the port of the data has closed");
        Ok(Trips::of(&trips.await.map_err(lost)?))
    }

    /// One direction at rising rates.
    async fn climb(
        &mut self,
        way: Way,
        up: bool,
        tell: &mut dyn FnMut(Found),
    ) -> Result<(), Error> {
        let ladder: Vec<Rate> = LADDER.map(Rate::from_mbps).to_vec();
        let named = !self.options.rates.is_empty();
        let mut best = Rate::ZERO;
        for rate in if named { self.options.rates.clone() } else { ladder } {
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
                let error = Error::new(Class::Unreachable, what);
                return Err(error.advise("give a smaller --datagram, or none"));
            }
            let measured = self.measured(way, &run, &count);
            tell(Found::Measured(measured));
            let full = measured.loss.get() > FULL || measured.received_rate < best.scale(MORE);
            if full && !named {
                break;
            }
            best = best.max(measured.received_rate);
        }
        Ok(())
    }

    /// Sends, and hears what has come.
    async fn send(&mut self, run: &ProbeRun) -> Result<ProbeCount, Error> {
        let span = Span::from_micros(run.micros);
        let session = &mut self.reached.session;
        session.write(&Frame::from(Message::ProbeRun(run.clone()))).await?;
        // It is ready.
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
        let told = ProbeCount { sent, too_large, ..ProbeCount::default() };
        session.write(&Frame::from(Message::ProbeCount(told))).await?;
        next_count(session, Duration::ZERO).await
    }

    /// Has the server send, and counts.
    async fn receive(&mut self, run: &ProbeRun) -> Result<ProbeCount, Error> {
        let span = Span::from_micros(run.micros);
        let session = &mut self.reached.session;
        let flow = FlowId(run.flow);
        let keys = flow_keys(&session.exporter(), self.suite, self.number, flow).receiving_end();
        let counter = Counter::start(&self.reached.data, flow, keys.data, run.copies).await?;
        session.write(&Frame::from(Message::ProbeRun(run.clone()))).await?;
        let told = next_count(session, clock::duration(span)).await?;
        let count = counter.finish(told.sent, span, self.rtt).await;
        Ok(ProbeCount { too_large: told.too_large, ..count })
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

    /// A connection of its own to the same server, used one way and then the other.
    async fn measure_tcp(
        &self,
        observer: &dyn Observer,
        identity: &Identity,
        tell: &mut dyn FnMut(Found),
    ) -> Result<(), Error> {
        let first = &self.reached.session;
        let trust = Trust { server_id: Some(first.peer.to_string()), ..self.options.trust.clone() };
        let settings = Settings { carriers: Carriers::Tcp, ..Settings::default() };
        let (host, port) = (first.remote.ip().to_string(), first.remote.port());
        let opened = session::connect(&host, port, identity, &trust, observer, &settings).await;
        let mut session = match opened {
            Ok(session) => session,
            Err(error) => {
                tell(Found::Missing(format!("TCP {port} of {host}: {}", error.what)));
                return Ok(());
            }
        };
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
            tell(Found::Measured(Measured {
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

/// Opens a session as a probe's; the server is ready then.
async fn greet(session: &mut Session, probe: u64, flow: FlowId, suite: Suite) -> Result<(), Error> {
    let cipher = suite.name().to_owned();
    let probe = Probe { probe, flow: flow.0, cipher };
    session.write(&Frame::from(Message::Probe(probe))).await?;
    next_count(session, Duration::ZERO).await.map(drop)
}

impl Trips {
    /// Sums up round trips, of which lost ones are nothing.
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
