//! The receiving end of a flow of datagrams, at a server or a subscriber.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_net::clock::{Span, Time};
use longhaul_net::port::{Datagrams, FlowSink};
use longhaul_net::sealing::open::Opener;
use longhaul_proto::channel::{Departure, Joined, Joiner, Judge, Message, decode};
use longhaul_proto::fec::Losses;
use longhaul_proto::stream::Meter;
use longhaul_proto::wire::header::Kind;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

use super::messages::Hop;
use crate::announcer::Announcer;
use crate::terms::{micros, written};

/// The epoch that a subscriber announces. A flow of a channel has one set of keys: any number
/// except 0 ("no keys yet") would do.
const EPOCH: u64 = 1;
/// Maximum number of queued messages. A message that arrives while the queue is full is dropped.
const WAITING: usize = 1_024;
/// Maximum bytes of the queued messages.
const WAITING_BYTES: usize = 32 << 20;
/// The message interval that the loss meter assumes. After a pause of more than 4.25 s (four
/// intervals plus 0.25 s), the meter assumes an outage and counts no losses.
const OUTAGE: Span = Span::from_secs(1);
/// Interval of [`Joiner::expire`]. A call drops the incomplete messages that got no datagram since
/// the previous call. So such a message is dropped at most two intervals after its last datagram.
const STALE: Span = Span::from_secs(5);
const MOST: usize = u16::MAX as usize;

pub(crate) struct Came {
    pub(crate) message: Message,
    /// On drop, the message's bytes are subtracted from `queued`.
    counts: Arc<Counts>,
    /// Whether a lost datagram of the message was restored.
    pub(crate) restored: bool,
    /// Whether a later message arrived first.
    pub(crate) overtaken: bool,
}

impl Drop for Came {
    fn drop(&mut self) {
        self.counts.queued.fetch_sub(self.message.cost() as u64, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Messages that were lost.
    pub(crate) lost: AtomicU64,
    /// Received messages that the full queue dropped.
    pub(crate) dropped: AtomicU64,
    /// Messages that arrived after their deadline.
    pub(crate) late: AtomicU64,
    /// Half of the round-trip time in microseconds, set by the flow's task.
    pub(crate) path: AtomicU64,
    /// Bytes of incomplete messages.
    incomplete: AtomicU64,
    /// Bytes of complete messages in the queue.
    queued: AtomicU64,
    /// Notified when the size of the incomplete messages, in whole MiB, changes, because memory is
    /// charged in MiB.
    pub(crate) changed: Notify,
    /// Whether the flow must drop its incomplete messages.
    clear: AtomicBool,
    /// Losses and spread of delays; `None` without a deadline, and before the first datagram.
    seen: Mutex<Option<(Losses, Span)>>,
}

impl Counts {
    /// Returns the report for the other end; `None` without a deadline, and before the first
    /// datagram.
    pub(crate) fn hop(&self) -> Option<Hop> {
        let (losses, jitter) = (*self.seen.lock().unwrap_or_else(PoisonError::into_inner))?;
        let (loss_ppm, burst_milli) = written(losses);
        Some(Hop { loss_ppm, burst_milli, jitter_micros: micros(jitter) })
    }

    /// Returns how many messages were lost or dropped. Saturates: a hostile sender can leave out
    /// 2^64 numbers.
    pub(crate) fn missed(&self) -> u64 {
        self.lost.load(Ordering::Relaxed).saturating_add(self.dropped.load(Ordering::Relaxed))
    }

    /// Returns the bytes of incomplete and queued messages.
    pub(crate) fn held(&self) -> usize {
        let incomplete = self.incomplete.load(Ordering::Relaxed);
        (incomplete + self.queued.load(Ordering::Relaxed)) as usize
    }

    /// Makes the flow drop its incomplete messages when it is woken.
    pub(crate) fn clear(&self) {
        self.clear.store(true, Ordering::Relaxed);
    }

    fn set_incomplete(&self, bytes: u64) {
        if self.incomplete.swap(bytes, Ordering::Relaxed) >> 20 != bytes >> 20 {
            self.changed.notify_one();
        }
    }

    pub(crate) fn set_rtt(&self, rtt: Span) {
        self.path.store(micros(rtt / 2), Ordering::Relaxed);
    }
}

pub(crate) struct Inbound {
    data: Opener,
    /// The only accepted source; `None` for any.
    peer: Option<IpAddr>,
    joiner: Joiner,
    out: mpsc::Sender<Came>,
    counts: Arc<Counts>,
    /// The time of the last call of [`Joiner::expire`].
    expired: Time,
    announcer: Option<Announcer>,
    scratch: Vec<u8>,
    joined: Vec<Joined>,
    /// `None` if messages have no deadline.
    judge: Option<(Judge, Meter)>,
}

impl Inbound {
    /// Creates the receiving end of a flow of messages from `peer`.
    pub(crate) fn new(
        data: Opener,
        peer: Option<IpAddr>,
        announcer: Option<Announcer>,
        deadline: Option<Span>,
    ) -> (Inbound, mpsc::Receiver<Came>, Arc<Counts>) {
        let (out, came) = mpsc::channel(WAITING);
        let counts = Arc::<Counts>::default();
        let inbound = Inbound {
            data,
            peer,
            joiner: Joiner::default(),
            out,
            counts: counts.clone(),
            expired: Time::ZERO,
            announcer,
            scratch: vec![0; MOST],
            joined: Vec::new(),
            judge: deadline.map(|deadline| (Judge::new(deadline), Meter::new(OUTAGE))),
        };
        (inbound, came, counts)
    }

    /// Returns the flow without the expiry of incomplete messages.
    #[cfg(test)]
    pub(crate) fn without_expiry(self) -> Inbound {
        Inbound { expired: Time::NEVER, ..self }
    }

    fn pass(&mut self, now: Time) {
        let path = self.counts.path.load(Ordering::Relaxed);
        let arrived = (now.as_nanos() / 1_000) as i64;
        for Joined { message: blob, restored, late: overtaken } in self.joined.drain(..) {
            let message = match &mut self.judge {
                None => {
                    let born = arrived.saturating_sub_unsigned(path);
                    decode(&blob).map(|message| Message { born, ..message })
                }
                Some((judge, meter)) => {
                    let Some((departure, blob)) = Departure::decode(&blob) else { continue };
                    if !restored {
                        meter.on_stamp(now, departure.stamp);
                    }
                    let Some(born) = judge.born(now, departure, Span::from_micros(path)) else {
                        self.counts.late.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    decode(blob).map(|message| Message { born, ..message })
                }
            };
            // Only a faulty sender sends a message that cannot be decoded.
            let Some(message) = message else { continue };
            let cost = message.cost() as u64;
            let queued = self.counts.queued.fetch_add(cost, Ordering::Relaxed) + cost;
            let came = Came { message, counts: self.counts.clone(), restored, overtaken };
            let full = queued > WAITING_BYTES as u64;
            if full || matches!(self.out.try_send(came), Err(TrySendError::Full(_))) {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
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
                let payload = &self.scratch[..len];
                self.joiner.take(datagram.header.block, payload, &mut self.joined);
                if let Some((_, meter)) = &mut self.judge {
                    meter.on_datagram(datagram.at, datagram.header.number.0);
                }
            }
        }
        self.counts.lost.store(self.joiner.lost(), Ordering::Relaxed);
        self.pass(now);
        self.counts.set_incomplete(self.joiner.held() as u64);
        if let Some((_, meter)) = &self.judge {
            let seen = Some((meter.losses(), meter.spread()));
            *self.counts.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
    }

    fn on_wake(&mut self, now: Time) {
        if let Some(announcer) = &mut self.announcer {
            announcer.send_if_due(now, EPOCH);
        }
        if self.counts.clear.swap(false, Ordering::Relaxed) {
            self.joiner.clear();
        }
        if now >= self.expired + STALE {
            self.joiner.expire();
            self.expired = now;
        }
        self.counts.set_incomplete(self.joiner.held() as u64);
    }

    fn next_wakeup(&self) -> Option<Time> {
        let expiry = (self.joiner.held() > 0).then(|| self.expired + STALE);
        expiry.into_iter().chain(self.announcer.as_ref().map(Announcer::due)).min()
    }

    fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    fn on_port_closed(&mut self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use longhaul_net::sealing::keys::{FlowKeys, Suite};
    use longhaul_proto::endpoint::FlowId;

    use super::*;

    #[test]
    fn an_incomplete_message_that_gets_no_datagram_for_ten_seconds_takes_no_memory() {
        let keys = FlowKeys::new(&[7; 32], Suite::Aes128Gcm, 1, FlowId(1));
        let data = keys.receiving_end().data;
        let (mut inbound, _came, counts) = Inbound::new(data, None, None, None);
        let part = [&[0; 11][..], &[2], &[7; 100]].concat();
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        inbound.joiner.take(0, &part, &mut Vec::new());
        assert_eq!(inbound.next_wakeup(), Some(at(5)));
        for (seconds, held) in [(5, 164), (9, 164), (10, 0)] {
            inbound.on_wake(at(seconds));
            assert_eq!(counts.held(), held, "after {seconds} s");
        }
        assert_eq!(inbound.next_wakeup(), None);
    }
}
