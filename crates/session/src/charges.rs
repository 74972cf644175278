//! Limits on the handshakes of each network.

use longhaul_net::clock::{Span, Time};
use longhaul_net::meter::{Meter, Tariff};
use longhaul_net::network::Network;

/// The charge to a network for each handshake without rights. Twenty at once, or one every three
/// seconds, are free. Beyond that the network pauses, for a minute at most.
const UNAUTHORISED: Tariff =
    Tariff { each: Span::from_secs(3), free: Span::from_secs(60), longest: Span::from_secs(60) };

/// The charge to a network for each handshake that stops before its client has proven an id. A
/// hundred at once, or ten a second, are free.
const STOPPED: Tariff = Tariff {
    each: Span::from_millis(100),
    free: Span::from_secs(10),
    longest: Span::from_secs(60),
};

/// A network that has to pause may still start one handshake a second. The admission of a client
/// clears the charges of its network.
const PAUSED: Tariff =
    Tariff { each: Span::from_secs(1), free: Span::from_secs(1), longest: Span::from_secs(1) };

/// The charges of all networks.
pub(super) struct Charges {
    unauthorised: Meter<Network>,
    stopped: Meter<Network>,
    /// The handshakes of networks that have to pause.
    paused: Meter<Network>,
}

impl Charges {
    pub(super) fn new() -> Charges {
        let [unauthorised, stopped, paused] = [UNAUTHORISED, STOPPED, PAUSED].map(Meter::new);
        Charges { unauthorised, stopped, paused }
    }

    /// Returns whether a handshake of `network` must be dropped. If not, and the network has to
    /// pause, counts the handshake.
    pub(super) fn is_barred(&mut self, now: Time, network: Network) -> bool {
        if !self.unauthorised.is_over(now, network) && !self.stopped.is_over(now, network) {
            return false;
        }
        let is_barred = !self.paused.has_room(now, network);
        if !is_barred {
            self.paused.add(now, network);
        }
        is_barred
    }

    /// Charges `network` for a client without rights. If this client makes the network pause,
    /// returns how long.
    pub(super) fn add_unauthorised(&mut self, now: Time, network: Network) -> Option<Span> {
        let meter = &mut self.unauthorised;
        meter.add(now, network).then(|| meter.over_for(now, network))
    }

    /// Charges `network` for a handshake that stopped before its client had proven an id.
    pub(super) fn add_stopped(&mut self, now: Time, network: Network) {
        self.stopped.add(now, network);
    }

    /// Forgets the charges of `network`.
    pub(super) fn forgive(&mut self, network: Network) {
        self.unauthorised.forgive(network);
        self.stopped.forgive(network);
    }
}
