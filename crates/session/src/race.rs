//! Tries the addresses of one server over UDP and TCP. The first complete session wins, as in
//! RFC 8305.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use quinn::Endpoint;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::id::PeerId;
use super::identity::Identity;
use super::tls::Expect;
use super::{Session, Settings, quic, stream};

/// How long to wait for an answer before trying the next address (RFC 8305 section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// How long UDP may take to answer after TCP was refused.
const AFTER_REFUSAL: Duration = Duration::from_secs(3);

/// Why no attempt led to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// A server with another id answered.
    Stranger(PeerId),
    /// The attempts, and the result of each.
    Tried(String),
}

#[derive(Clone)]
struct Race {
    identity: Identity,
    expect: Expect,
    settings: Settings,
    deadline: Instant,
    ipv4: Result<Endpoint, String>,
    ipv6: Result<Endpoint, String>,
}

/// Opens a session to the first of `addresses` that answers. A server with another id ends all
/// attempts.
pub(super) async fn run(
    addresses: &[SocketAddr],
    identity: &Identity,
    expect: Expect,
    settings: &Settings,
    limit: Duration,
) -> Result<Session, Lost> {
    let race = Race {
        identity: identity.clone(),
        expect,
        settings: settings.clone(),
        deadline: Instant::now() + limit,
        ipv4: endpoint(settings, false, addresses),
        ipv6: endpoint(settings, true, addresses),
    };
    let mut waiting = alternating(addresses).into_iter();
    let mut running = JoinSet::new();
    let mut tried = Vec::new();
    let mut next = Instant::now();
    loop {
        let more = !waiting.as_slice().is_empty();
        tokio::select! {
            () = sleep_until(next), if more => {
                if let Some(address) = waiting.next() {
                    running.spawn(race.clone().address(address));
                }
                next += NEXT_ADDRESS;
            }
            done = running.join_next(), if !running.is_empty() => match done {
                Some(Ok(Ok(session))) => return Ok(session),
                Some(Ok(Err(Lost::Stranger(id)))) => return Err(Lost::Stranger(id)),
                Some(Ok(Err(Lost::Tried(text)))) => {
                    tried.push(text);
                    next = Instant::now();
                }
                Some(Err(broken)) => tried.push(broken.to_string()),
                None => {}
            },
            else => return Err(Lost::Tried(tried.join("; "))),
        }
    }
}

/// Returns each address once, with alternating families (RFC 8305 section 4).
fn alternating(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let of = |same: bool| {
        let mut seen = Vec::new();
        for address in addresses.iter().filter(|a| (a.is_ipv6() == first.is_ipv6()) == same) {
            if !seen.contains(address) {
                seen.push(*address);
            }
        }
        seen
    };
    let (mine, others) = (of(true), of(false));
    let mut all = Vec::new();
    for at in 0..mine.len().max(others.len()) {
        all.extend(mine.get(at));
        all.extend(others.get(at));
    }
    all
}

fn endpoint(settings: &Settings, ipv6: bool, addresses: &[SocketAddr]) -> Result<Endpoint, String> {
    if !settings.carriers.quic() || !addresses.iter().any(|a| a.is_ipv6() == ipv6) {
        return Err("not tried".to_owned());
    }
    let socket = match &settings.socket {
        Some(given) => given.local_addr().and_then(|local| match local.is_ipv6() == ipv6 {
            true => given.try_clone(),
            false => Err(std::io::Error::other("the socket given is of the other IP version")),
        }),
        None if ipv6 => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
        None => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
    };
    socket.and_then(quic::client_endpoint).map_err(|error| error.to_string())
}

impl Race {
    /// Tries UDP, and TCP after a while or after a failure of UDP.
    async fn address(self, address: SocketAddr) -> Result<Session, Lost> {
        let (mut udp, mut tcp) = (None, None);
        let mut over_udp = std::pin::pin!(self.udp(address));
        let mut over_tcp = std::pin::pin!(self.tcp(address));
        let mut tcp_from = Instant::now();
        if self.settings.carriers.quic() {
            tcp_from += self.settings.tcp_after;
        }
        let mut deadline = self.deadline;
        while udp.is_none() || tcp.is_none() {
            let tcp_now = udp.is_some() || tcp_from <= Instant::now();
            let failed = tokio::select! {
                done = &mut over_udp, if udp.is_none() => (&mut udp, done),
                done = &mut over_tcp, if tcp.is_none() && tcp_now => (&mut tcp, done),
                () = sleep_until(tcp_from), if !tcp_now => continue,
                () = sleep_until(deadline) => break,
            };
            match failed.1 {
                Ok(session) => return Ok(session),
                Err(Failure::Stranger(id)) => return Err(Lost::Stranger(id)),
                Err(Failure::Refused) => {
                    deadline = deadline.min(Instant::now() + AFTER_REFUSAL);
                    *failed.0 = Some(Failure::Refused);
                }
                Err(failure) => *failed.0 = Some(failure),
            }
        }
        let text = |failure: Option<Failure>| {
            failure.map_or("no answer".to_owned(), |failure| failure.text())
        };
        Err(Lost::Tried(format!("UDP {address}: {}; TCP {address}: {}", text(udp), text(tcp))))
    }

    async fn udp(&self, address: SocketAddr) -> Result<Session, Failure> {
        let endpoint = if address.is_ipv6() { &self.ipv6 } else { &self.ipv4 };
        let endpoint = endpoint.as_ref().map_err(Failure::other)?;
        quic::connect(endpoint, address, &self.identity, self.expect, &self.settings).await
    }

    async fn tcp(&self, address: SocketAddr) -> Result<Session, Failure> {
        if !self.settings.carriers.tcp() {
            return Err(Failure::other("not tried"));
        }
        stream::connect(address, &self.identity, self.expect, &self.settings).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Carriers;

    #[test]
    fn families_alternate_and_no_address_repeats() {
        let parse = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().expect("an address")).collect()
        };
        let given = parse(&["[::1]:1", "[::2]:1", "[::1]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let turns = parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(alternating(&given), turns);
        assert!(alternating(&[]).is_empty());
    }

    #[test]
    fn only_a_family_with_an_address_gets_a_udp_socket_and_only_if_udp_is_allowed() {
        let addresses = ["1.1.1.1:1".parse().expect("an address")];
        let why = |settings: &Settings, ipv6| endpoint(settings, ipv6, &addresses).err();
        let settings = Settings::default();
        assert_eq!(why(&settings, true).as_deref(), Some("not tried"));
        let tcp = Settings { carriers: Carriers::Tcp, ..settings.clone() };
        assert_eq!(why(&tcp, false).as_deref(), Some("not tried"));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let given = Settings { socket: Some(socket.into()), ..settings };
        let addresses = ["[::1]:1".parse().expect("an address")];
        let error = endpoint(&given, true, &addresses).expect_err("the socket is of IPv4");
        assert!(error.contains("other IP version"), "{error}");
        crate::tests::run(async {
            for (ipv6, address) in [(false, "1.1.1.1:1"), (true, "[::1]:1")] {
                let addresses = [address.parse().expect("an address")];
                let endpoint = endpoint(&Settings::default(), ipv6, &addresses).expect("a port");
                assert_eq!(endpoint.local_addr().expect("bound").is_ipv6(), ipv6);
            }
        });
    }
}
