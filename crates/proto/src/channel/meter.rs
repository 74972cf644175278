//! A subscriber's measurements of its channel. A sender measures its content and rates in the same
//! way.

use super::Message;
use crate::stream;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Rates are measured over one to two of these windows.
const WINDOW: Span = Span::from_secs(1);

/// Measurements of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Messages that have arrived; at a sender, messages that have left its queue.
    pub messages: u64,
    /// Content of these messages.
    pub bytes: Bytes,
    /// Messages that were lost: on the path, or because the subscriber was too slow or
    /// disconnected.
    pub lost: u64,
    /// Messages that arrived after a message that was sent later.
    pub reordered: u64,
    /// Rate of the content over the last one to two seconds.
    pub goodput: Rate,
    /// Rate of the bytes that [`Meter::on_bytes`] counted over the last one to two seconds.
    pub throughput: Rate,
    /// The smoothed difference between the delays of successive messages (RFC 3550, section 6.4.1).
    pub jitter: Span,
}

impl Stats {
    /// The loss ratio of messages.
    pub fn loss(&self) -> f64 {
        let all = self.messages.saturating_add(self.lost);
        if all == 0 { 0.0 } else { self.lost as f64 / all as f64 }
    }
}

/// Measures a channel at a subscriber or a sender.
#[derive(Clone, Debug)]
pub struct Meter {
    stats: Stats,
    jitter: stream::Meter,
    origin: Option<u64>,
    missing: u64,
    /// Bytes of content and all bytes, in the previous and in the current window.
    windows: [(u64, u64); 2],
    begun: Time,
}

impl Default for Meter {
    fn default() -> Meter {
        let jitter = stream::Meter::new(WINDOW);
        let (stats, begun) = (Stats::default(), Time::ZERO);
        Meter { stats, jitter, origin: None, missing: 0, windows: [(0, 0); 2], begun }
    }
}

impl Meter {
    fn turn(&mut self, now: Time) {
        let passed = now.since(self.begun);
        if passed >= WINDOW * 2 {
            (self.windows, self.begun) = ([(0, 0); 2], now);
        } else if passed >= WINDOW {
            (self.windows, self.begun) = ([self.windows[1], (0, 0)], self.begun + WINDOW);
        }
    }

    /// Notes a message that has arrived or, at a sender, has left the queue. The message counts for
    /// the jitter only if the previous message had the same sender.
    pub fn on_message(&mut self, now: Time, message: &Message) {
        self.stats.messages += 1;
        let len = message.bytes.len() as u64;
        self.stats.bytes += Bytes::new(len);
        self.turn(now);
        self.windows[1].0 += len;
        if self.origin.replace(message.origin) == Some(message.origin) {
            let arrived = (now.as_nanos() / 1_000) as i64;
            self.jitter.on_frame(arrived.wrapping_sub(message.at as i64));
        }
    }

    /// Notes that `bytes` bytes arrived or, at a sender, were sent, in datagrams or in a stream.
    pub fn on_bytes(&mut self, now: Time, bytes: usize) {
        self.turn(now);
        self.windows[1].1 += bytes as u64;
    }

    /// Notes lost messages.
    pub fn on_lost(&mut self, lost: u64) {
        self.stats.lost = self.stats.lost.saturating_add(lost);
    }

    /// Sets how many of the messages sent in datagrams have not arrived so far.
    pub fn set_missing(&mut self, missing: u64) {
        self.missing = missing;
    }

    /// Notes a message that arrived after a message with a higher number.
    pub fn on_late(&mut self) {
        self.stats.reordered += 1;
    }

    /// The measurements at `now`.
    pub fn stats(&mut self, now: Time) -> Stats {
        self.turn(now);
        let time = WINDOW + now.since(self.begun);
        let rate = |count: fn(&(u64, u64)) -> u64| {
            let bytes = self.windows.iter().map(count).fold(0, u64::saturating_add);
            Rate::from_bps((bytes as f64 * 8.0 / time.as_secs_f64()) as u64)
        };
        let (goodput, throughput) = (rate(|w| w.0), rate(|w| w.1));
        let lost = self.stats.lost.saturating_add(self.missing);
        Stats { lost, goodput, throughput, jitter: self.jitter.jitter(), ..self.stats }
    }
}
