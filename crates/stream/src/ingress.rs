//! A sender's flow at the server: opens (decrypts) datagrams, and passes them to the relay in
//! buffers of up to 64 KiB.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::clock::{Span, Time};
use longhaul_net::port::{Datagram, Datagrams, FlowSink};
use longhaul_net::sealing::open::Opener;
use longhaul_net::sealing::seal::SEALED_OVERHEAD;
use longhaul_proto::fec::Losses;
use longhaul_proto::stream::{Arrivals, Head, Meter};
use longhaul_proto::units::Rate;
use longhaul_proto::wire::header::Kind;

use crate::relay::{Buffer, Work};
use crate::terms::Terms;

/// Counters of a sender's flow, for other threads.
#[derive(Debug)]
pub(crate) struct Came {
    datagrams: AtomicU64,
    /// The newest frame with a received datagram, plus one.
    next: AtomicU32,
    path: Mutex<(Losses, Rate)>,
}

impl Came {
    pub(crate) fn new(terms: &Terms) -> Came {
        let losses = Meter::new(terms.interval()).losses();
        let path = Mutex::new((losses, Rate::ZERO));
        Came { datagrams: AtomicU64::new(0), next: AtomicU32::new(0), path }
    }

    pub(crate) fn datagrams(&self) -> u64 {
        self.datagrams.load(Ordering::Relaxed)
    }

    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(crate) fn losses(&self) -> Losses {
        self.path().0
    }

    /// Returns the highest recent rate at which a frame arrived; zero if unknown.
    pub(crate) fn carried(&self) -> Rate {
        self.path().1
    }

    fn path(&self) -> MutexGuard<'_, (Losses, Rate)> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Ingress {
    data: Opener,
    terms: Terms,
    meter: Meter,
    arrivals: Arrivals,
    came: Arc<Came>,
    /// Free buffers from the relay. Their number is fixed. While a slow relay has all of them,
    /// datagrams are lost.
    spare: Receiver<Buffer>,
    relay: Sender<Work>,
    filling: Option<Buffer>,
    /// When to look for a free buffer again.
    again: Option<Time>,
}

/// Interval of checks for a free buffer.
const LOOK: Span = Span::from_millis(1);

impl Ingress {
    pub(crate) fn new(
        data: Opener,
        terms: Terms,
        came: Arc<Came>,
        spare: Receiver<Buffer>,
        relay: Sender<Work>,
    ) -> Ingress {
        let meter = Meter::new(terms.interval());
        let (arrivals, filling, again) = (Arrivals::default(), None, None);
        Ingress { data, terms, meter, arrivals, came, spare, relay, filling, again }
    }

    /// Opens a datagram into a buffer. If there is no free buffer, the datagram is lost.
    fn take(&mut self, now: Time, datagram: &Datagram<'_>) {
        if self.filling.as_ref().is_some_and(|buffer| buffer.room() < datagram.bytes.len()) {
            self.forward();
        }
        if self.filling.is_none() {
            self.filling = self.spare.try_recv().ok();
        }
        let Some(buffer) = &mut self.filling else { return };
        let header = &datagram.header;
        let opened = self.data.open(now, header, datagram.bytes, buffer.free());
        let Ok(len) = opened else { return };
        self.meter.on_datagram(datagram.at, header.number.0);
        self.came.datagrams.fetch_add(1, Ordering::Relaxed);
        let symbol = self.terms.symbol;
        let Ok(head) = Head::decode(header.block, &buffer.free()[..len], symbol) else { return };
        let is_whole = head.symbol_len(symbol).is_ok_and(|symbol| Head::LEN + symbol == len);
        if is_whole && head.length <= self.terms.frame {
            buffer.keep(header.block, len);
            let bytes = (len + SEALED_OVERHEAD) as u64;
            self.arrivals.on_symbol(datagram.at, head.frame, head.index, bytes);
            self.came.next.fetch_max(head.frame.saturating_add(1), Ordering::Relaxed);
        }
    }

    fn forward(&mut self) {
        if let Some(buffer) = self.filling.take() {
            // Cannot fail: the relay thread ends only after this flow.
            let _ = self.relay.send(Work::Forward(buffer));
        }
    }
}

impl Ingress {
    /// Forwards the current buffer if another one is free. If none is free, continues to fill the
    /// current one, so that nearly empty buffers do not wait at a paused relay.
    fn end_batch(&mut self, now: Time) {
        self.again = None;
        if self.filling.as_ref().is_none_or(Buffer::is_empty) {
            return;
        }
        match self.spare.try_recv() {
            Ok(next) => {
                self.forward();
                self.filling = Some(next);
            }
            Err(_) => self.again = Some(now + LOOK),
        }
    }
}

impl FlowSink for Ingress {
    fn on_batch(&mut self, now: Time, datagrams: &mut Datagrams<'_>) {
        for datagram in datagrams.filter(|datagram| datagram.header.kind == Kind::Data) {
            self.take(now, &datagram);
        }
        self.end_batch(now);
        *self.came.path() = (self.meter.losses(), self.arrivals.carried());
    }

    fn on_wake(&mut self, now: Time) {
        self.end_batch(now);
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.again
    }

    fn on_port_closed(&mut self, _: &str) {}
}
