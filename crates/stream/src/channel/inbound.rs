//! The receiving end of a flow of datagrams: at a server for a client that sends, and at a
//! subscriber.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_net::clock::{Span, Time};
use longhaul_net::port::{Datagrams, FlowSink};
use longhaul_net::sealing::open::Opener;
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, Socket};
use longhaul_proto::channel::{Joined, Joiner, Message, decode};
use longhaul_proto::wire::header::Kind;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::place::CONTENT;

/// Messages that wait for the task that takes them; later ones are lost.
const WAITING: usize = 1_024;
/// Content of them.
const WAITING_BYTES: usize = 32 << 20;
/// How often a subscriber says where it is.
const HELLO: Span = Span::from_millis(250);
/// Content of the largest datagram.
const MOST: usize = u16::MAX as usize;

/// A message that came in datagrams.
pub(crate) struct Came {
    pub(crate) message: Message,
    /// Bytes of it that count until it is taken.
    held: Arc<AtomicU64>,
    /// A datagram of it was lost and restored.
    pub(crate) restored: bool,
    /// A message that was sent later came before it.
    pub(crate) late: bool,
}

impl Drop for Came {
    fn drop(&mut self) {
        self.held.fetch_sub(self.message.cost() as u64, Ordering::Relaxed);
    }
}

/// Counts of a flow, for other threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// UDP payload that came.
    pub(crate) bytes: AtomicU64,
    /// Messages that did not come.
    pub(crate) lost: AtomicU64,
    /// Messages that came, but found no room.
    pub(crate) dropped: AtomicU64,
}

/// Says where this end is.
pub(crate) struct Hello {
    pub(crate) seal: Sealer,
    pub(crate) socket: Arc<Socket>,
    pub(crate) contact: Path,
}

/// See the [module](self).
pub(crate) struct Inbound {
    data: Opener,
    /// Only datagrams of this address, if it is known.
    peer: Option<IpAddr>,
    joiner: Joiner,
    out: mpsc::Sender<Came>,
    counts: Arc<Counts>,
    held: Arc<AtomicU64>,
    hello: Option<(Hello, Time)>,
    scratch: Vec<u8>,
    joined: Vec<Joined>,
}

impl Inbound {
    /// A flow of messages of `peer`; at a subscriber with its `hello`.
    pub(crate) fn new(
        data: Opener,
        peer: Option<IpAddr>,
        hello: Option<Hello>,
    ) -> (Inbound, mpsc::Receiver<Came>, Arc<Counts>) {
        let (out, came) = mpsc::channel(WAITING);
        let counts = Arc::<Counts>::default();
        let inbound = Inbound {
            data,
            peer,
            joiner: Joiner::default(),
            out,
            counts: counts.clone(),
            held: Arc::default(),
            hello: hello.map(|hello| (hello, Time::ZERO)),
            scratch: vec![0; MOST],
            joined: Vec::new(),
        };
        (inbound, came, counts)
    }

    fn pass(&mut self) {
        for Joined { message, restored, late } in self.joined.drain(..) {
            // What no honest end sends.
            let Some(message) = decode(&message) else { continue };
            let cost = message.cost() as u64;
            let held = self.held.fetch_add(cost, Ordering::Relaxed) + cost;
            let came = Came { message, held: self.held.clone(), restored, late };
            let full = held > WAITING_BYTES as u64;
            if full || matches!(self.out.try_send(came), Err(TrySendError::Full(_))) {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn say_hello(&mut self, now: Time) {
        if let Some((hello, due)) = &mut self.hello
            && now >= *due
        {
            *due = now + HELLO;
            let mut out = [0; CONTENT + SEALED_OVERHEAD];
            let sealed = hello.seal.seal(Kind::Control, 0, &1_u64.to_be_bytes(), &mut out);
            if let Ok(len) = sealed {
                // What cannot be sent is lost, as it may be on the path.
                let _ = hello.socket.send(hello.contact, &out[..len]);
            }
        }
    }
}

impl FlowSink for Inbound {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams.filter(|datagram| datagram.header.kind == Kind::Data) {
            let from = datagram.path.remote.ip().to_canonical();
            if self.peer.is_some_and(|peer| peer != from) {
                continue;
            }
            let opened = self.data.open(now, &datagram.header, datagram.bytes, &mut self.scratch);
            if let Ok(len) = opened {
                self.counts.bytes.fetch_add(datagram.bytes.len() as u64, Ordering::Relaxed);
                let payload = &self.scratch[..len];
                self.joiner.take(datagram.header.block, payload, &mut self.joined);
            }
        }
        self.counts.lost.store(self.joiner.lost(), Ordering::Relaxed);
        self.pass();
    }

    fn on_wake(&mut self, now: Time) {
        self.say_hello(now);
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.hello.as_ref().map(|(_, due)| *due)
    }

    fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    fn on_port_closed(&mut self, _: &str) {}
}
