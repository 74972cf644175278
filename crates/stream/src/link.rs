//! The connection of a client of streams or channels.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use longhaul_net::port::{Port, mtu};
use longhaul_net::sealing::keys::{Cipher, Suite};
use longhaul_net::socket::Path;
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_session::{Error, Kind, RttWatch, Session};
use tokio::sync::oneshot;

/// The server's port for data must answer within this time.
const PATIENCE: Span = Span::from_secs(5);
/// UDP payload of the probes of the port: a datagram that every path carries.
const PROBE: u16 = 500;

/// A session with a server, and the port for data.
pub struct Link {
    /// The session, unused so far.
    pub session: Session,
    /// The port for data on this host.
    pub port: Rc<Port>,
    /// The address of the server's port for data.
    pub contact: SocketAddr,
    /// A random id for the data flow.
    pub flow: FlowId,
    /// The largest UDP payload in bytes that is known to pass, if any.
    pub datagram: Option<u16>,
}

impl Link {
    /// Returns the cipher for data: AES-128-GCM if both ends have it in hardware, otherwise
    /// ChaCha20-Poly1305.
    pub(crate) fn suite(&self) -> Suite {
        Suite::choose(Cipher::Auto, self.session.both_fast_aes)
    }
}

/// Completes when the server's port for data at `contact` has answered a probe, which shows that
/// datagrams pass in both directions; at once if the port `has_answered` the search for the
/// datagram size.
///
/// # Errors
/// The port did not answer. If an earlier link of this stream `was_reached`, the error counts as a
/// lost connection (the network may be down for a moment), so that the client tries again.
pub(crate) async fn answers(
    port: &Port,
    contact: SocketAddr,
    has_answered: bool,
    was_reached: bool,
) -> Result<(), Error> {
    if has_answered {
        return Ok(());
    }
    let (tell, found) = oneshot::channel();
    mtu::search(port, Path::from(contact), PROBE, PATIENCE, move |found| {
        let _ = tell.send(found.is_some());
    })?;
    match found.await {
        Ok(true) => Ok(()),
        _ => {
            let error = Error::from(mtu::unanswered(contact));
            Err(if was_reached { Error { kind: Kind::Lost, ..error } } else { error })
        }
    }
}

/// A session's lowest round-trip time; zero while unknown.
#[derive(Debug)]
pub(crate) struct LeastRtt {
    watch: RttWatch,
    least: Cell<Option<Duration>>,
}

impl LeastRtt {
    pub(crate) fn new(watch: RttWatch) -> LeastRtt {
        LeastRtt { watch, least: Cell::new(None) }
    }

    pub(crate) fn now(&self) -> Span {
        let both = [self.least.get(), self.watch.now()];
        let least = both.into_iter().flatten().min();
        self.least.set(least);
        Span::from_nanos(least.unwrap_or_default().as_nanos() as u64)
    }
}
