//! Decides whether a copy sends its first data before its session is open. These data are its first
//! flight; see [`crate::roles::flight`].

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_net::access;
use longhaul_net::port::PortHandle;
use longhaul_net::sealing::keys::{Suite, has_fast_aes};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::registry;
use longhaul_proto::time::Span;

use super::attempt::Attempt;
use crate::error::Error;
use crate::flow::payloads::Payloads;
use crate::many::part::To;
use crate::options::Protocol;
use crate::path_memory::KnownFlight;
use crate::random::random_flow;
use crate::reach::route::{Host, Route};
use crate::reach::transport::Transport;
use crate::roles::flight::{Flight, FlightSecret};
use crate::roles::prepared::Description;
use crate::roles::sending::FirstPass;
use crate::roles::wire::{End, lost_or_fatal};
use crate::roles::{DEFAULT_SEGMENT, Hooks, Terms, ticking};
use crate::session::random_u64;

/// Time from the start of the handshake to the start of the first flight. The server keeps early
/// data only from addresses whose handshake has reached it.
pub(super) const LEAD: Duration = Duration::from_millis(3);
/// On a path with a shorter round trip a first flight saves too little.
const SHORTEST: Span = Span::from_millis(20);

/// The first pass of an attempt, before its session is open.
pub(super) struct Opening<'a> {
    description: &'a Description,
    first: RefCell<Option<FirstPass>>,
}

impl<'a> Opening<'a> {
    pub(super) fn new(description: &'a Description, payloads: Box<Payloads>) -> Opening<'a> {
        Opening { description, first: RefCell::new(Some(FirstPass::Payloads(payloads))) }
    }

    pub(super) fn into_first(self) -> Option<FirstPass> {
        self.first.into_inner()
    }
}

impl Attempt<'_> {
    /// Starts a first flight to the data port at `to`, if [`Attempt::flight_terms`] allows one;
    /// otherwise does nothing. After an error, the payloads are lost, and the attempt fails.
    pub(super) fn take_off(
        &self,
        transport: Transport<'_>,
        opening: &Opening<'_>,
        (port, to): (PortHandle, SocketAddr),
    ) -> Result<(), Error> {
        let Some(terms) = self.flight_terms(transport, to) else { return Ok(()) };
        let mut first = opening.first.borrow_mut();
        let Some(FirstPass::Payloads(payloads)) = first.take() else { return Ok(()) };
        let (board, charge) = (self.hooks.board.clone(), self.part.shared.memory.messages());
        let flight = Flight::start(terms, opening.description, payloads, port, to, board, charge)?;
        *first = Some(FirstPass::Flight(Box::new(flight)));
        Ok(())
    }

    /// Returns the terms of a first flight to the data port at `to`. Returns `None` if no earlier
    /// copy has measured the path to that server, or if this copy cannot use the measurement.
    fn flight_terms(&self, transport: Transport<'_>, to: SocketAddr) -> Option<Terms> {
        let options = self.options;
        let Transport::Datagrams(name) = transport else { return None };
        let (Route::Push { .. }, Host::Daemon { .. }) = (self.route, self.route.host()) else {
            return None;
        };
        // The other protocols do not start from a remembered rate.
        let is_default = registry::all().first().is_some_and(|row| row.name == name);
        let is_alone = !matches!(self.part.to, To::Replicas(_)) && options.part.is_none();
        let is_first = self.hooks.state.borrow().attempts == 1;
        let finds_rate = options.rate.is_none() && options.rate_limit.is_none();
        if !is_default || !is_alone || !finds_rate || options.dry_run || !is_first {
            return None;
        }
        let memory = options.path_memory.as_ref()?;
        let KnownFlight { path, datagram } = memory.find_flight(to.ip())?;
        let suite = self.flight_suite();
        if path.rtt < SHORTEST || suite == Suite::Plain {
            return None;
        }
        let datagram = options.datagram.unwrap_or(datagram);
        let secret = FlightSecret::draw(random_flow());
        Some(Terms {
            transfer: random_u64(),
            suite,
            exporter: secret.exporter(),
            flight: Some(secret),
            peer: to.ip(),
            protocol: Some(registry::find(name)?),
            settings: options.settings.clone(),
            streams: 0,
            try_streams: options.protocol == Protocol::TcpTried,
            rate: None,
            rate_limit: None,
            remembered: Some(path),
            weight: options.weight,
            segment: options.segment.unwrap_or(DEFAULT_SEGMENT),
            datagram,
            rtt: path.rtt,
            card: access::card_towards(to.ip(), datagram),
        })
    }

    /// Returns the cipher of a first flight. The client does not know yet whether the server has
    /// AES in hardware, so it assumes that the server is like this host.
    pub(super) fn flight_suite(&self) -> Suite {
        Suite::choose(self.options.cipher, has_fast_aes())
    }

    /// Returns the first pass for a session with the parameters `terms`, and its flow. A first
    /// flight becomes this pass if [`is_right`] accepts it and none of its messages were dropped;
    /// `terms` then get the secret and the transfer id of the flight. Otherwise the flight is
    /// recalled, and another pass sends its data again.
    pub(super) async fn land(
        &self,
        source: Option<(Description, FirstPass)>,
        terms: &mut Terms,
    ) -> Result<(Option<(Description, FirstPass)>, FlowId), End> {
        self.first_flight.set(false);
        let Some((description, FirstPass::Flight(flight))) = source else {
            return Ok((source, random_flow()));
        };
        if !is_right(&flight.terms, terms) || flight.has_lost_messages() {
            // Cancellation and the stall limit work even if the disk hangs.
            let recalled = ticking(flight.recall(), || self.hooks.tick()).await?;
            let first = FirstPass::Payloads(recalled.map_err(lost_or_fatal)?);
            return Ok((Some((description, first)), random_flow()));
        }
        self.first_flight.set(true);
        terms.flight = flight.terms.flight.clone();
        terms.transfer = flight.terms.transfer;
        let flow = flight.flow;
        Ok((Some((description, FirstPass::Flight(flight))), flow))
    }
}

/// Whether a flight with the terms `flight` can be the first pass of a transfer with `terms`: the
/// flight went to the right address, with the right cipher and protocol and a datagram size that
/// passes, over a path that is still the remembered one.
fn is_right(flight: &Terms, terms: &Terms) -> bool {
    let name = |terms: &Terms| terms.protocol.map(|row| row.name);
    flight.peer.to_canonical() == terms.peer.to_canonical()
        && flight.suite == terms.suite
        && name(flight) == name(terms)
        && flight.datagram <= terms.datagram
        && terms.remembered.is_some()
}
