//! Sends messages to a multicast group.

use std::net::SocketAddr;

use longhaul_net::clock::{self, Span, Time};
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_proto::channel::{Code, Cutter, Datagram, Message, encode};
use longhaul_proto::wire::header::Kind;
use tokio::net::UdpSocket;

use super::author::{Author, CODE};
use crate::channel::outbound::{Sending, WAIT};

/// Delay before a sender uses a new key: the other members must receive the key first.
const SWITCH: Span = Span::from_millis(200);

pub(super) struct Voice {
    to: SocketAddr,
    cutter: Cutter,
    seal: Sealer,
    /// Authenticates the sender to the server; `None` at the server.
    author: Option<Author>,
    /// The next key and author, and when they replace the present ones.
    next: Option<(Sealer, Option<Author>, Time)>,
    cut: Vec<Datagram>,
    sent: usize,
}

impl Voice {
    pub(super) fn new(
        to: SocketAddr,
        size: u16,
        code: Code,
        seal: Sealer,
        author: Option<Author>,
    ) -> Voice {
        let payload = usize::from(size).saturating_sub(SEALED_OVERHEAD);
        let cutter = Cutter::new(payload, code, WAIT);
        Voice { to, cutter, seal, author, next: None, cut: Vec::new(), sent: 0 }
    }

    /// Sets a new key, to be used after [`SWITCH`], or with `at_once` for the next message. An
    /// earlier new key that is waiting for its time is used at once: epochs (each has its own keys)
    /// may follow each other faster than [`SWITCH`].
    pub(super) fn renew(&mut self, seal: Sealer, author: Option<Author>, at_once: bool) {
        let (now, wait) = (clock::now(), if at_once { Span::ZERO } else { SWITCH });
        self.switch(Time::NEVER);
        self.next = Some((seal, author, now + wait));
    }

    /// Uses the next key, if it is due.
    fn switch(&mut self, now: Time) {
        if let Some((seal, author, _)) = self.next.take_if(|(.., at)| *at <= now) {
            (self.seal, self.author) = (seal, author);
        }
    }

    /// Splits a message into datagrams. Returns whether this succeeded.
    fn cut(&mut self, now: Time, message: &Message) -> bool {
        self.switch(now);
        let mut blob = encode(message);
        let code = self.author.as_ref().map_or([0; CODE], |author| author.code(&blob));
        blob.extend(code);
        self.cutter.message(now, &blob, &mut self.cut).is_ok()
    }

    fn seal(&mut self, datagram: Datagram, out: &mut Vec<u8>) -> bool {
        let Datagram { block, payload } = datagram;
        out.resize(payload.len() + SEALED_OVERHEAD, 0);
        self.seal.seal(Kind::Data, block, &payload, out).is_ok()
    }

    async fn flush_to(&mut self, socket: &UdpSocket) -> bool {
        let (mut out, mut sent) = (Vec::new(), true);
        for datagram in std::mem::take(&mut self.cut) {
            self.sent += datagram.payload.len() + SEALED_OVERHEAD;
            sent &= self.seal(datagram, &mut out) && socket.send_to(&out, self.to).await.is_ok();
        }
        sent
    }

    pub(super) async fn send(&mut self, socket: &UdpSocket, message: &Message) -> Sending {
        let cut = self.cut(clock::now(), message);
        match cut && self.flush_to(socket).await {
            true => Sending::Left,
            false => Sending::Failed,
        }
    }

    /// Sends the repairs (redundant datagrams) of an incomplete group of the erasure code, when
    /// due.
    pub(super) async fn flush(&mut self, socket: &UdpSocket) {
        self.cutter.flush(clock::now(), &mut self.cut);
        // A failed send is like a loss on the path.
        let _ = self.flush_to(socket).await;
    }

    /// Returns the bytes of UDP payload sent since the last call.
    pub(super) fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.cutter.next_wakeup()
    }

    #[cfg(test)]
    pub(super) fn datagrams(&mut self, now: Time, message: &Message) -> Vec<Vec<u8>> {
        assert!(self.cut(now, message));
        let mut sealed = Vec::new();
        for datagram in std::mem::take(&mut self.cut) {
            let mut out = Vec::new();
            assert!(self.seal(datagram, &mut out));
            sealed.push(out);
        }
        sealed
    }
}
