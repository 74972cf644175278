//! What a client works over.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use longhaul_net::port::Port;
use longhaul_net::sealing::keys::{Cipher, Suite};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::time::Span;
use longhaul_session::{RttWatch, Session};

/// A session with a server, and the port for data beside it.
pub struct Link {
    /// The session: nothing was said on it yet.
    pub session: Session,
    /// This side's port for data.
    pub port: Rc<Port>,
    /// The server's.
    pub contact: SocketAddr,
    /// A random number for the flow of the data.
    pub flow: FlowId,
    /// The UDP payload that is known to pass.
    pub datagram: Option<u16>,
}

impl Link {
    /// The cipher that suits both ends.
    pub(crate) fn suite(&self) -> Suite {
        Suite::choose(Cipher::Auto, self.session.both_fast_aes)
    }
}

/// The least round-trip time of a session.
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
