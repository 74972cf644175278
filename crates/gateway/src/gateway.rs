//! The gateway's handle: start, address, change of tokens, stop.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_files::Root;
use longhaul_text::reason;

use crate::accept::{self, Serving};
use crate::error::Error;
use crate::listening::Listening;
use crate::shared::{AccessRecord, Shared};
use crate::tokens::Token;
use crate::traffic::Traffic;

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address to listen on; without TLS it must be loopback.
    pub listen: SocketAddr,
    /// The served folder.
    pub root: PathBuf,
    /// Tokens and their rights.
    pub tokens: Vec<Token>,
    /// Whether everybody may read.
    pub public: bool,
    /// Whether the gateway refuses all writes, even with a token that allows them.
    pub read_only: bool,
    /// The PEM files of TLS: certificates and private key; `None` for HTTP without TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// How long the gateway waits for a client that neither receives nor sends a byte, before it
    /// disconnects the client.
    pub idle: Duration,
}

/// A running gateway. Dropping this value stops the gateway and ends pending requests.
pub struct Gateway {
    listening: Listening,
    is_tls: bool,
    shared: Arc<Shared>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gateway({})", self.url())
    }
}

impl Gateway {
    /// Starts a gateway on a separate thread. The thread calls `report` for each request that is
    /// refused (status 401 or 403), that has changed the folder, or whose client was disconnected
    /// because it did not read the reply or send the body. Refusals beyond 60 a minute are not
    /// reported, nor are disconnected clients beyond 60 a minute.
    ///
    /// # Errors
    /// A usage error: no client would have a right, or the address needs TLS. Any other error: the
    /// address, the root, or a TLS file cannot be used.
    pub fn start(
        settings: Settings,
        report: impl Fn(AccessRecord) + Send + Sync + 'static,
    ) -> Result<Gateway, Error> {
        let Settings { listen, root, tokens, public, read_only, tls, idle } = settings;
        if tokens.is_empty() && !public {
            let advice = "name a file of tokens, or let everybody read";
            return Err(Error::usage("without a token no client could use HTTP", advice));
        }
        if tls.is_none() && !listen.ip().is_loopback() {
            let what = format!("{listen} would serve HTTP in the clear, tokens included");
            let advice = "name a certificate and its key, or listen on 127.0.0.1";
            return Err(Error::usage(what, advice));
        }
        let acceptor = tls.map(|(cert, key)| accept::tls(&cert, &key)).transpose()?;
        let opened = Root::open(&root).map_err(|error| {
            let what = format!("cannot serve {}: {}", root.display(), reason(&error));
            Error::host(what, "name a folder that exists")
        })?;
        let is_tls = acceptor.is_some();
        let mut shared = Shared::new(opened, tokens, (public, read_only), idle, report);
        shared.is_loopback_only = !is_tls;
        let shared = Arc::new(shared);
        let (answers, traffic) = (shared.clone(), shared.traffic().clone());
        let serving = Serving { acceptor, answers, idle, traffic };
        let listening = Listening::start("longhaul http", listen, serving)?;
        Ok(Gateway { listening, is_tls, shared })
    }

    /// Returns the address that the gateway listens on.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    /// Returns the URL of the gateway.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}/", self.address())
    }

    /// Returns the counters of requests and connections.
    pub fn traffic(&self) -> Arc<Traffic> {
        self.shared.traffic().clone()
    }

    /// Replaces the tokens for new requests.
    pub fn set_tokens(&self, tokens: Vec<Token>) {
        self.shared.set_tokens(tokens);
    }
}
