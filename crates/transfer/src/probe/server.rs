//! The server's side of a probe: runs the requested measurements within limits, one after the
//! other.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_net::clock;
use longhaul_net::port::PortHandle;
use longhaul_net::sealing::keys::Suite;
use longhaul_net::socket::Path;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::blast::Blast;
use super::count::Counter;
use super::echo::Echo;
use super::{FAREWELL, LONGEST, flow_keys, stream};
use crate::control::{Frame, Message, Probe, ProbeCount, ProbeRun};
use crate::error::{Error, ErrorKind};
use crate::session::{Exporter, RttWatch, Session};

/// Maximum number of concurrent probe sessions: two clients, each with one session for datagrams
/// and one for TCP.
const MOST: usize = 4;
/// How long a client may take between two measurements.
const IDLE: Duration = Duration::from_secs(30);

pub(crate) struct Permits(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Permits {
        Permits(Arc::new(Semaphore::new(MOST)))
    }
}

impl Permits {
    fn take(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::Unreachable, "others are probing this server")
                .advise("try again in a minute")
        })
    }
}

/// Serves a probe until it ends, for at most [`LONGEST`], or until `stopped` returns a reason. The
/// client gets the error, if there is one.
///
/// # Errors
/// Why the probe was refused or ended early.
pub(crate) async fn answer(
    port: &PortHandle,
    permits: &Permits,
    mut session: Session,
    probe: &Probe,
    stopped: impl Future<Output = Error>,
) -> Result<(), Error> {
    // Announce the flow first, because its datagrams may be in flight already.
    port.announce(FlowId(probe.flow), session.remote.ip());
    let served = async {
        let _permit = permits.take()?;
        let serving = Serving::begin(port, &session, probe)?;
        session.write(&Frame::from(Message::ProbeCount(ProbeCount::default()))).await?;
        serving.run(&mut session).await
    };
    let longest = clock::duration(LONGEST);
    let ended = tokio::select! {
        ended = timeout(longest, served) => ended.unwrap_or_else(|_| {
            let what = format!("a probe may take at most {} s", longest.as_secs());
            Err(Error::new(ErrorKind::Unreachable, what))
        }),
        why = stopped => Err(why),
    };
    // The client may be gone.
    let _ = timeout(FAREWELL, session.close(ended.as_ref().err().map(Into::into))).await;
    ended
}

struct Serving {
    port: PortHandle,
    exporter: Exporter,
    probe: u64,
    suite: Suite,
    echo: FlowId,
    /// The source of the client's datagrams.
    path: Arc<OnceLock<Path>>,
    rtt: RttWatch,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.port.unregister(self.echo);
    }
}

impl Serving {
    fn begin(port: &PortHandle, session: &Session, probe: &Probe) -> Result<Serving, Error> {
        let suite = Suite::sealed(&probe.cipher).ok_or_else(|| {
            let what = format!("unknown cipher {}", probe.cipher);
            let error = Error::new(ErrorKind::Unreachable, what);
            error.advise("use the same release of longhaul on both sides")
        })?;
        let (exporter, echo) = (session.exporter(), FlowId(probe.flow));
        let keys = flow_keys(&exporter, suite, probe.probe, echo).sending_end();
        let path: Arc<OnceLock<Path>> = Arc::default();
        let sink = Echo {
            questions: keys.reports,
            answers: keys.control,
            peer: session.remote.ip(),
            socket: port.socket().clone(),
            path: path.clone(),
        };
        // Registering fails if another transfer has a flow of this id. `Serving` unregisters the id
        // on drop, so create the `Serving` only after the registration.
        port.register(echo, Box::new(sink))?;
        let (port, rtt) = (port.clone(), session.rtt());
        Ok(Serving { port, exporter, probe: probe.probe, suite, echo, path, rtt })
    }

    async fn run(&self, session: &mut Session) -> Result<(), Error> {
        loop {
            let frame = timeout(IDLE, session.read::<Frame>()).await.map_err(|_| {
                let what = format!("the client requested nothing for {} s", IDLE.as_secs());
                Error::new(ErrorKind::Unreachable, what)
            })??;
            match frame.map(|frame| frame.message) {
                None => return Ok(()),
                Some(Some(Message::ProbeRun(run))) => {
                    run.check()?;
                    let count = self.measure(session, &run).await?;
                    session.write(&Frame::from(Message::ProbeCount(count))).await?;
                }
                Some(_) => {}
            }
        }
    }

    async fn measure(&self, session: &mut Session, run: &ProbeRun) -> Result<ProbeCount, Error> {
        let span = Span::from_micros(run.micros);
        match (run.stream, run.up) {
            (true, true) => stream::receive(session, clock::duration(span)).await,
            (true, false) => stream::send(session, clock::duration(span)).await,
            (false, true) => self.receive(session, run, span).await,
            (false, false) => self.send(run, span).await,
        }
    }

    async fn receive(
        &self,
        session: &mut Session,
        run: &ProbeRun,
        span: Span,
    ) -> Result<ProbeCount, Error> {
        let flow = FlowId(run.flow);
        let keys = flow_keys(&self.exporter, self.suite, self.probe, flow).receiving_end();
        let counter = Counter::start(&self.port, flow, keys.data, run.copies).await?;
        session.write(&Frame::from(Message::ProbeCount(ProbeCount::default()))).await?;
        let reported = super::next_count(session, clock::duration(span)).await?;
        let count = counter.finish(reported.sent, span, self.rtt.now().unwrap_or_default()).await;
        Ok(ProbeCount { too_large: reported.too_large, ..count })
    }

    /// Sends to the address from which the client's round-trip datagrams came.
    async fn send(&self, run: &ProbeRun, span: Span) -> Result<ProbeCount, Error> {
        let Some(path) = self.path.get().copied() else {
            let what = "none of the client's datagrams arrived";
            return Err(
                Error::new(ErrorKind::Unreachable, what).advise("open the server's UDP data port")
            );
        };
        let flow = FlowId(run.flow);
        let keys = flow_keys(&self.exporter, self.suite, self.probe, flow).sending_end();
        let blast = Blast {
            socket: self.port.socket().clone(),
            path,
            sealer: keys.data,
            datagram: run.datagram as u16,
            rate: Rate::from_bps(run.rate_bps),
            span,
        };
        let blasted = blast.start()?.ended().await?;
        let (sent, too_large) = (blasted.sent, blasted.too_large);
        Ok(ProbeCount { sent, too_large, ..ProbeCount::default() })
    }
}
