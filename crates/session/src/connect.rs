//! A client's connection to a server: names, trust, and advice.

use std::net::SocketAddr;

use longhaul_net::zone;
use tokio::time::timeout;

use super::id::PeerId;
use super::identity::Identity;
use super::known::{KnownServers, server_name};
use super::race::{self, Lost};
use super::tls::Expect;
use super::trust::{AskTrust, Trust};
use super::{Session, Settings};
use crate::{Error, Kind};
use longhaul_text::CallOption;

/// Opens a session to the server at `host` and `port`. A pin in `trust` decides on trust, else the
/// id in `known_servers`, else `trust.accept_new` or the user's answer from `ask`. An untrusted
/// server does not get this client's id.
///
/// # Errors
/// [`Kind::Unreachable`]; [`Kind::Usage`] for an invalid pin; [`Kind::LocalFile`] if
/// `known_servers` cannot be used.
pub async fn connect(
    host: &str,
    port: u16,
    identity: &Identity,
    trust: &Trust,
    ask: &AskTrust<'_>,
    settings: &Settings,
) -> Result<Session, Error> {
    let name = server_name(host, port);
    let addresses = resolve(host, port, settings).await?;
    let reach = async |expect| {
        let session = race::run(&addresses, identity, expect, settings, settings.handshake).await;
        session.inspect(|session| session.call(&name))
    };
    let unreachable = |tried| unreachable(&name, port, tried);
    if let Some(pin) = trust.pin(host, port) {
        let id = parse_pin(&pin.id)?;
        return reach(Expect::Only(id)).await.map_err(|lost| match lost {
            Lost::Stranger(shown) => wrong_pin(&name, id, shown, pin.server.is_none()),
            Lost::Tried(tried) => unreachable(tried),
        });
    }
    let servers = KnownServers::new(&trust.config_dir);
    if let Some(known) = servers.find(&name)? {
        return reach(Expect::Only(known.id)).await.map_err(|lost| match lost {
            Lost::Stranger(shown) => servers.changed(&name, known, shown),
            Lost::Tried(tried) => unreachable(tried),
        });
    }
    if trust.accept_new {
        let session = reach(Expect::Anyone).await.map_err(|lost| match lost {
            Lost::Stranger(shown) => refused(&name, shown),
            Lost::Tried(tried) => unreachable(tried),
        })?;
        servers.remember(&name, session.peer)?;
        return Ok(session);
    }
    let shown = match reach(Expect::Nobody).await {
        Ok(session) => session.peer,
        Err(Lost::Stranger(shown)) => shown,
        Err(Lost::Tried(tried)) => return Err(unreachable(tried)),
    };
    if !ask(&name, &shown.to_string()) {
        return Err(refused(&name, shown));
    }
    let session = reach(Expect::Only(shown)).await.map_err(|lost| match lost {
        Lost::Stranger(other) => wrong_id(&name, &format!("the accepted {shown}"), other),
        Lost::Tried(tried) => unreachable(tried),
    })?;
    // Store the server only after it has proven that it owns the key.
    servers.remember(&name, shown)?;
    Ok(session)
}

/// Returns the id of the server at `addresses`. Does not send this side's id.
pub async fn look(
    addresses: &[SocketAddr],
    identity: &Identity,
    settings: &Settings,
) -> Result<PeerId, String> {
    match race::run(addresses, identity, Expect::Nobody, settings, settings.handshake).await {
        Ok(session) => Ok(session.peer),
        Err(Lost::Stranger(shown)) => Ok(shown),
        Err(Lost::Tried(tried)) => Err(tried),
    }
}

/// Returns the addresses of `host`, at least one.
///
/// # Errors
/// [`Kind::Unreachable`].
pub async fn resolve(host: &str, port: u16, settings: &Settings) -> Result<Vec<SocketAddr>, Error> {
    if let Some(address) = zone::address(host, port)? {
        return Ok(vec![address]);
    }
    let failed = |reason: String| {
        Error::new(Kind::Unreachable, format!("cannot resolve the name {host}: {reason}"))
            .advise("check the spelling, and that this host can resolve names")
    };
    match timeout(settings.handshake, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(addresses)) => {
            let addresses: Vec<_> = addresses.collect();
            if addresses.is_empty() { Err(failed("none found".into())) } else { Ok(addresses) }
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer in {} s", settings.handshake.as_secs()))),
    }
}

fn parse_pin(pin: &str) -> Result<PeerId, Error> {
    pin.parse().map_err(|error| {
        Error::new(Kind::Usage, format!("{} {pin}: {error}", CallOption::Pin))
            .advise("the server prints its id at start; `longhaul id` on its host prints it too")
    })
}

fn wrong_pin(name: &str, pinned: PeerId, shown: PeerId, of_all: bool) -> Error {
    let mut error = wrong_id(name, &format!("the pinned {pinned}"), shown);
    if of_all && let Some(advice) = &mut error.advice {
        let pin = CallOption::Pin;
        *advice += &format!("; for several servers, {pin} HOST=ID pins each");
    }
    error
}

fn wrong_id(name: &str, expected: &str, shown: PeerId) -> Error {
    let what = format!("{name} shows the id {shown}, not {expected}; nothing was sent");
    Error::new(Kind::Unreachable, what)
        .advise("somebody may intercept the connection; ask the server's owner")
}

fn refused(name: &str, shown: PeerId) -> Error {
    let what = format!("the unknown server {name} with the id {shown} was not accepted");
    let (pin, new) = (CallOption::Pin, CallOption::AcceptNew);
    Error::new(Kind::Unreachable, what)
        .advise(format!("if it is the right one, give {pin} or {new}"))
}

fn unreachable(name: &str, port: u16, tried: String) -> Error {
    let error = Error::new(Kind::Unreachable, format!("cannot reach {name}: {tried}"));
    error.silence().advise(format!(
        "check that `longhaul serve` runs there and that firewalls let UDP {port} and UDP {} (or \
         the server's own data port) in, or at least TCP {port}",
        u32::from(port) + 1
    ))
}
