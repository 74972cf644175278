//! Reports refused clients. A limit keeps clients from filling a log.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_net::clock;
use longhaul_net::network::Network;
use longhaul_proto::time::{Span, Time};

use super::{ServerEvent, Tell};
use crate::error::Error;
use longhaul_net::meter::{Meter, Tariff};

/// Reports about one network: five in a burst, then one a minute.
const OF_ONE: Tariff = Tariff {
    each: Span::from_secs(60),
    free: Span::from_secs(5 * 60),
    longest: Span::from_secs(60),
};
/// All reports: fifty in a burst, then one in six seconds.
const OF_ALL: Tariff =
    Tariff { each: Span::from_secs(6), free: Span::from_secs(50 * 6), longest: Span::from_secs(6) };

pub(super) struct Refusals {
    tell: Tell,
    limit: Mutex<Limit>,
}

impl Refusals {
    pub(super) fn new(tell: Tell) -> Refusals {
        Refusals { tell, limit: Mutex::new(Limit::default()) }
    }

    /// Reports that a client at `address` was refused, unless the limit on reports is reached.
    pub(super) fn report(&self, address: SocketAddr, error: &Error) {
        let passed = self.limit().pass(clock::now(), Network::of(address.ip()));
        if let Some(suppressed) = passed {
            self.report_suppressed(suppressed);
            (self.tell)(ServerEvent::Refused { address, error: error.clone().into() });
        }
    }

    /// Reports the number of refusals beyond the limit, if any.
    pub(super) fn flush(&self) {
        let suppressed = std::mem::take(&mut self.limit().suppressed);
        self.report_suppressed(suppressed);
    }

    fn report_suppressed(&self, count: u64) {
        if count > 0 {
            (self.tell)(ServerEvent::RefusedMore { count });
        }
    }

    fn limit(&self) -> MutexGuard<'_, Limit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limit on reports, without a clock.
struct Limit {
    of_one: Meter<Network>,
    of_all: Meter<()>,
    suppressed: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { of_one: Meter::new(OF_ONE), of_all: Meter::new(OF_ALL), suppressed: 0 }
    }
}

impl Limit {
    /// Decides whether to report the refusal of a client in `network`. If so, returns the number of
    /// earlier refusals that were not reported; otherwise `None`.
    fn pass(&mut self, now: Time, network: Network) -> Option<u64> {
        if !self.of_one.has_room(now, network) || !self.of_all.has_room(now, ()) {
            self.suppressed += 1;
            return None;
        }
        self.of_one.add(now, network);
        self.of_all.add(now, ());
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn network(n: u32) -> Network {
        Network::of(IpAddr::V4(Ipv4Addr::from_bits(n)))
    }

    fn at(secs: u64) -> Time {
        Time::from_nanos(1) + Span::from_secs(secs)
    }

    #[test]
    fn a_network_gets_five_reports_then_one_a_minute_with_the_number_of_unreported_refusals() {
        let mut limit = Limit::default();
        let reported = (0..1000).filter(|_| limit.pass(at(0), network(1)).is_some()).count();
        assert_eq!((reported, limit.suppressed), (5, 995));
        assert_eq!(limit.pass(at(0), network(2)), Some(995), "another network has its own limit");
        assert_eq!(limit.pass(at(59), network(1)), None);
        assert_eq!(limit.pass(at(60), network(1)), Some(1));
        assert_eq!(limit.pass(at(60), network(1)), None);
    }

    #[test]
    fn all_networks_together_get_fifty_reports_at_once_then_one_in_six_seconds() {
        let mut limit = Limit::default();
        let reported = (0..10_000).filter(|n| limit.pass(at(0), network(*n)).is_some()).count();
        assert_eq!((reported, limit.suppressed), (50, 9_950));
        assert_eq!(limit.pass(at(5), network(20_000)), None);
        assert_eq!(limit.pass(at(6), network(20_001)), Some(9_951));
    }
}
