//! A measurement of the path to a server.

use std::fmt;
use std::sync::Arc;

use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use super::client::Client;
use super::engine::{Reporter, Sink};
use super::events::Event;
use super::queue::{Queue, Queued, Reader, stream};
use super::running::Running;
use crate::error::public::Error;
use crate::location::Location;
use crate::options::ReachOptions;
use crate::probe::{Found, Measured, PathFound, ProbeOptions, probe};
use crate::progress::Cancel;

const EVENTS: usize = 1024;

/// An event of a running probe.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ProbeEvent {
    /// The properties of the path and its round trips; this event comes before all
    /// measurements of throughput.
    Path(PathFound),
    /// One measurement.
    Measured(Measured),
    /// A requested measurement failed, or only a part of it succeeded. Never dropped.
    Missing(Error),
    /// An event of the session.
    Session(Event),
    /// The reader was too slow: this many events were dropped at this position.
    Lagged(u64),
}

impl Queued for ProbeEvent {
    fn must_arrive(&self) -> bool {
        matches!(self, ProbeEvent::Missing(_))
    }

    fn is_latest_only(&self) -> bool {
        false
    }

    fn lagged(count: u64) -> ProbeEvent {
        ProbeEvent::Lagged(count)
    }
}

impl From<Event> for ProbeEvent {
    fn from(event: Event) -> ProbeEvent {
        ProbeEvent::Session(event)
    }
}

impl From<Found> for ProbeEvent {
    fn from(found: Found) -> ProbeEvent {
        match found {
            Found::Path(path) => ProbeEvent::Path(path),
            Found::Measured(measured) => ProbeEvent::Measured(measured),
            Found::Missing(error) => ProbeEvent::Missing(error.into()),
        }
    }
}

stream! {
    /// The events of a probe, as a `Stream`.
    ProbeEvents of ProbeEvent, read by Reader<ProbeEvent>
}

/// A probe that can be configured and started. It measures round trips, path MTU, throughput and
/// loss in both directions. By default it measures UDP at rates that rise until the path is full,
/// and one TCP connection, for 1 s each.
#[derive(Clone, Debug)]
#[must_use = "a probe does nothing before it is started"]
pub struct ProbeRequest {
    client: Client,
    options: Result<ProbeOptions, Error>,
    cancel: Cancel,
    see: Option<Sink<ProbeEvent>>,
}

impl ProbeRequest {
    pub(super) fn new(client: &Client, location: Result<Location, Error>) -> ProbeRequest {
        let options = location.map(|location| ProbeOptions {
            host: client.host(location),
            udp: true,
            app: false,
            tcp: true,
            rates: Vec::new(),
            span: Span::from_secs(1),
            datagram: None,
        });
        ProbeRequest { client: client.clone(), options, cancel: Cancel::default(), see: None }
    }

    fn with(mut self, set: impl FnOnce(&mut ProbeOptions)) -> ProbeRequest {
        if let Ok(options) = &mut self.options {
            set(options);
        }
        self
    }

    /// Selects the measurement with UDP datagrams that the receiver drops.
    pub fn udp(self, on: bool) -> ProbeRequest {
        self.with(|options| options.udp = on)
    }

    /// Selects the measurement with UDP datagrams whose payload the receiver copies once, as an
    /// application does.
    pub fn app(self, on: bool) -> ProbeRequest {
        self.with(|options| options.app = on)
    }

    /// Selects the measurement of one TCP connection.
    pub fn tcp(self, on: bool) -> ProbeRequest {
        self.with(|options| options.tcp = on)
    }

    /// Sets the rates of UDP payload, measured in this order (normally ascending); an empty list
    /// means rates that rise until the path is full.
    pub fn rates(self, rates: Vec<Rate>) -> ProbeRequest {
        self.with(|options| options.rates = rates)
    }

    /// Sets how long each measurement sends, at most 10 s. By default 1 s.
    pub fn time(self, time: Span) -> ProbeRequest {
        self.with(|options| options.span = time)
    }

    /// Sets the UDP payload of a datagram in bytes; `None` searches the path for the largest.
    pub fn datagram(self, datagram: Option<u16>) -> ProbeRequest {
        self.with(|options| options.datagram = datagram)
    }

    /// Sets how the other host is reached.
    pub fn reach(self, reach: ReachOptions) -> ProbeRequest {
        self.with(|options| options.host.reach = reach)
    }

    /// Ends the probe when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> ProbeRequest {
        ProbeRequest { cancel: handle.clone(), ..self }
    }

    /// Passes each event to `see` instead of [`Probe::events`]; see
    /// [`CopyRequest::on_event`](super::CopyRequest::on_event).
    pub fn on_event(self, see: impl Fn(ProbeEvent) + Send + Sync + 'static) -> ProbeRequest {
        ProbeRequest { see: Some(Sink::Call(Arc::new(see))), ..self }
    }

    /// Starts the probe on its own thread, inside or outside a tokio runtime.
    ///
    /// # Errors
    /// The address is invalid, or the system cannot start a thread. [`Probe::finish`] reports all
    /// other errors.
    pub fn start(self) -> Result<Probe, Error> {
        let (options, queue) = (self.options?, Queue::new(EVENTS));
        let cancel = self.cancel.child();
        let sink = self.see.unwrap_or_else(|| Sink::Queue(queue.clone()));
        let reporter = Reporter::new(sink.clone(), self.client.trust.clone(), cancel.clone());
        let wish = cancel.clone();
        let running = Running::start("longhaul probe", queue, cancel, move || {
            let mut tell = |found: Found| sink.push(found.into());
            probe(&options, Arc::new(reporter), &mut tell, wish).map_err(Error::from)
        })?;
        Ok(Probe(running))
    }
}

/// A running probe. Dropping the handle cancels the probe without waiting for its end.
#[must_use = "dropping a probe cancels it"]
pub struct Probe(Running<ProbeEvent, ()>);

impl Probe {
    /// Returns the probe's events, from the first unread one; a second call ends the first stream.
    pub fn events(&self) -> ProbeEvents {
        ProbeEvents::over(self.0.queue.reader())
    }

    /// Waits until the measurements end; a second call returns the same result.
    ///
    /// # Errors
    /// The server cannot be reached or does not allow a probe, the requested UDP rates would take
    /// longer than 600 s, or the probe was cancelled. A failed measurement is not an error
    /// but a [`ProbeEvent::Missing`]. If the remaining UDP measurements of a running probe no
    /// longer fit into 600 s, a [`ProbeEvent::Missing`] takes their place too.
    pub async fn finish(&mut self) -> Result<(), Error> {
        self.0.finish().await
    }

    /// Returns a handle that cancels the probe.
    pub fn cancel_handle(&self) -> Cancel {
        self.0.cancel.clone()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("result", &self.0.result).finish_non_exhaustive()
    }
}
