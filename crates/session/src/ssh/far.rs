//! The remote side of a session over ssh. ssh starts it for one client, and it ends with ssh.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::lines::{ContactOffer, Lines, Word};
use super::stdio::Stdio;
use crate::id::PeerId;
use crate::identity::Identity;
use crate::listen::{Listener, bind_both};
use crate::stream::{self, Under};
use crate::{Error, Kind};
use crate::{RttWatch, Session, Settings, tls};
use longhaul_text::CallOption;

/// How long the client may take to send its id.
const INTRODUCTION: Duration = Duration::from_secs(30);

/// The two ways by which one client reaches the process that ssh started: direct sessions, and
/// ssh's channel.
pub struct SshSide {
    /// Accepts direct sessions of this client only.
    pub listener: Listener,
    client: PeerId,
    tls: Arc<rustls::ServerConfig>,
    settings: Settings,
    /// ssh's channel, until it carries a session.
    channel: Option<BufReader<Stdio>>,
    lines: Lines,
}

/// Opens a UDP socket on all addresses of this host, on a port of `ports` or any port.
///
/// # Errors
/// No port of the range is free.
pub fn bind_udp(ports: Option<(u16, u16)>) -> Result<UdpSocket, Error> {
    in_range(ports, |address| Ok(bind_both(address)?.0))
}

/// Introduces this process to the client through ssh: takes over standard input and output, opens a
/// control port (one of `ports`, or any), sends its offer, and waits for the client's id. Needs a
/// running tokio runtime.
///
/// # Errors
/// ssh did not start this process, no port is free, or the client does not answer.
pub async fn accept_over_ssh(
    identity: &Identity,
    ports: Option<(u16, u16)>,
    data_port: u16,
    settings: &Settings,
) -> Result<SshSide, Error> {
    let stdio = Stdio::take().map_err(|error| {
        Error::new(Kind::Usage, format!("standard input and output are not ssh's: {error}"))
            .advise("a longhaul client starts this server through ssh; do not start it by hand")
    })?;
    let (udp, tcp) = in_range(ports, bind_both)?;
    let listener = Listener::from_sockets(udp, tcp, identity, settings)?;
    // A client has to wait until its id has arrived through ssh.
    listener.hold(true);
    let offer = ContactOffer {
        id: identity.id(),
        port: listener.local_addr().port(),
        data_port,
        addresses: contacted().into_iter().collect(),
    };
    let mut channel = BufReader::new(stdio);
    let mut lines = Lines::default();
    let introduced = async {
        channel.write_all(offer.line().as_bytes()).await?;
        channel.flush().await?;
        lines.next(&mut channel).await
    };
    let line = timeout(INTRODUCTION, introduced).await;
    match line.ok().and_then(Result::ok).flatten().as_deref().and_then(Word::parse) {
        Some(Word::Client(id)) => {
            listener.admit_by(move |peer| match *peer == id {
                true => Ok(()),
                false => Err(Error::new(Kind::Unreachable, "this port serves another id")),
            });
            listener.hold(false);
            Ok(SshSide {
                listener,
                client: id,
                tls: Arc::new(tls::server(identity, settings.fast_aes)),
                settings: settings.clone(),
                channel: Some(channel),
                lines,
            })
        }
        _ => Err(Error::new(Kind::Unreachable, "the client did not send its id through ssh")),
    }
}

impl SshSide {
    /// Returns the next session of the client; `None` if ssh has ended, ssh's channel was used for
    /// an earlier session, or the client left before its first message through that channel.
    /// Cancel-safe except while a session starts through ssh itself.
    ///
    /// # Errors
    /// The session through ssh itself failed.
    pub async fn accept(&mut self) -> Result<Option<Session>, Error> {
        loop {
            let Some(channel) = &mut self.channel else { return Ok(None) };
            let line = tokio::select! {
                session = self.listener.accept() => return Ok(Some(session)),
                line = self.lines.next(channel) => line,
            };
            match line {
                Ok(Some(line)) if Word::parse(&line) == Some(Word::Switch) => break,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Ok(None),
            }
        }
        let Some(channel) = self.channel.take() else { return Ok(None) };
        self.through(channel).await
    }

    async fn through(&self, channel: BufReader<Stdio>) -> Result<Option<Session>, Error> {
        let under = Under::ssh();
        let handshake = stream::server(channel, under, &self.tls, &self.settings);
        let late = |_| Error::new(Kind::Unreachable, "TLS through ssh: no handshake in time");
        let session = timeout(self.settings.handshake, handshake).await.map_err(late)??;
        if session.peer != self.client {
            let (came, expected) = (session.peer, self.client);
            let what = format!("the client behind ssh has the id {came} instead of {expected}");
            return Err(Error::new(Kind::Unreachable, what));
        }
        unless_lost(self.listener.carried(session).await)
    }
}

/// Returns `None` if the client left or sent no first message.
fn unless_lost<T>(carried: Result<T, Error>) -> Result<Option<T>, Error> {
    match carried {
        Err(error) if error.kind == Kind::Lost => Ok(None),
        carried => carried.map(Some),
    }
}

impl Under {
    pub(super) fn ssh() -> Under {
        Under {
            remote: SocketAddr::from(([0, 0, 0, 0], 0)),
            local_ip: None,
            carrier: "ssh",
            rtt: RttWatch::once(None),
            tcp: None,
        }
    }
}

/// Returns this host's address that the client's ssh has reached, according to sshd.
fn contacted() -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    // A zone of this host means nothing to the client.
    let address = connection.split(' ').nth(2)?.split('%').next()?;
    let address: IpAddr = address.parse().ok()?;
    Some(address.to_canonical())
}

/// Opens a free port, in the range if given, on all addresses.
fn in_range<T>(
    ports: Option<(u16, u16)>,
    open: impl Fn(SocketAddr) -> std::io::Result<T>,
) -> Result<T, Error> {
    let (first, last) = ports.unwrap_or((0, 0));
    let mut failure = "the range is empty".to_owned();
    for port in first..=last {
        match open(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
            Ok(opened) => return Ok(opened),
            Err(error) => failure = error.to_string(),
        }
    }
    let what = match ports {
        Some(_) => format!("no port from {first} to {last} can be opened: {failure}"),
        None => format!("no port can be opened: {failure}"),
    };
    let error = Error::new(Kind::Unreachable, what);
    Err(match ports {
        Some(_) => error.advise(format!("give a wider range as {}", CallOption::Ports)),
        None => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_has_left_is_no_error_and_any_other_failure_is() {
        let after = |kind| unless_lost::<u8>(Err(Error::new(kind, "x"))).map_err(|e| e.kind);
        assert_eq!(after(Kind::Lost), Ok(None));
        assert_eq!(after(Kind::Unreachable), Err(Kind::Unreachable));
        assert_eq!(unless_lost(Ok(7)), Ok(Some(7)));
    }

    #[test]
    fn the_error_advises_a_wider_range_only_if_a_range_was_given() {
        let refused = |ports| {
            let open = |_| Err::<(), _>(std::io::Error::from(std::io::ErrorKind::AddrInUse));
            in_range(ports, open).unwrap_err().advice
        };
        assert!(refused(Some((7_717, 7_718))).is_some_and(|advice| advice.contains("wider")));
        assert_eq!(refused(None), None);
    }
}
