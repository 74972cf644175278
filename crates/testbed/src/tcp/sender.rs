//! The sending end: what to send, and when to send it again.

use longhaul_proto::time::{Span, Time};

use super::bbr;
use super::board::Board;
use super::prr::Reduction;
use super::rto::Rto;
use super::window::{Acked, Window};
use super::{Ack, Data, Segment};
use crate::scenario::Tcp;

/// RFC 8985, 7.2: how long a receiver may delay the acknowledgement of one segment; as in Linux.
const PROBE_SINGLE: Span = Span::from_millis(200);
/// Linux's minimum time before a tail loss probe.
const MIN_PROBE: Span = Span::from_millis(2);

/// A sender's counters, in segments with data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderCounts {
    pub sent: u64,
    /// Sent for the first time.
    pub first: u64,
    /// Declared lost, repeatedly if retransmissions are lost.
    pub lost: u64,
    /// Recoveries after losses, without timeouts.
    pub recoveries: u64,
    /// Retransmission timeouts, including those of the SYN.
    pub timeouts: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No SYN is answered yet; the next one is due at this time.
    Opening(Time),
    Open,
    /// Losses are being repaired, until all segments below this number are acknowledged.
    Recovery(u32, Reduction),
    /// The losses of a timeout are being repaired, until all segments below this number are
    /// acknowledged.
    Loss(u32),
}

#[derive(Debug)]
pub(crate) struct Sender {
    state: State,
    board: Board,
    window: Window,
    rto: Rto,
    /// Segments to send; `None` for an endless connection.
    total: Option<u32>,
    /// The configured window, in segments.
    limit: u32,
    initial: u32,
    /// When the SYN was first sent; `None` before.
    syn: Option<Time>,
    /// Number of SYNs sent.
    syns: u32,
    /// When the retransmission timer expires.
    deadline: Option<Time>,
    /// When to send a tail loss probe (RFC 8985, 7); `None` during a repair, if the retransmission
    /// timer expires first, or after a probe without new acknowledgements.
    probe: Option<Time>,
    probed: bool,
    /// Whether the congestion window, or its reduction during a recovery, stopped the last poll.
    limited: bool,
    last_sent: Time,
    /// For a paced flow: when the next burst may leave, how many segments of the current burst are
    /// left, and whether pacing stopped the last poll.
    paced: (Time, u32, bool),
    counts: SenderCounts,
}

impl Sender {
    /// A sender of `total` segments of `mss` bytes, or without end.
    pub(crate) fn new(now: Time, tcp: &Tcp, mss: u32, total: Option<u32>) -> Sender {
        let limit = tcp.window.map_or(u64::MAX, |bytes| bytes.get() / u64::from(mss.max(1)));
        Sender {
            state: State::Opening(now),
            board: Board::default(),
            window: Window::new(tcp.congestion, tcp.initial_window),
            rto: Rto::new(),
            total,
            limit: u32::try_from(limit).unwrap_or(u32::MAX).max(1),
            initial: tcp.initial_window,
            syn: None,
            syns: 0,
            deadline: None,
            probe: None,
            probed: false,
            limited: false,
            last_sent: now,
            paced: (now, 0, false),
            counts: SenderCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> &SenderCounts {
        &self.counts
    }

    pub(crate) fn is_done(&self) -> bool {
        self.total.is_some_and(|total| self.board.first() >= total)
    }

    pub(crate) fn window(&self) -> u32 {
        self.window.size().min(self.limit)
    }

    pub(crate) fn rtt(&self) -> Span {
        self.rto.smoothed()
    }

    /// Processes the SYN-ACK: the connection is open.
    pub(crate) fn on_syn_ack(&mut self, now: Time) {
        if let State::Opening(_) = self.state {
            self.state = State::Open;
            // A SYN that was sent twice gives no sample (Karn).
            if let Some(syn) = self.syn.filter(|_| self.syns == 1) {
                self.rto.sample(now.since(syn));
            }
            self.rto.relax();
            self.last_sent = now;
        }
    }

    pub(crate) fn on_ack(&mut self, now: Time, ack: &Ack) {
        let (flight, was_limited) = (self.board.flight(), self.limited);
        let pipe = self.board.pipe();
        let reordering = self.rto.min_rtt.min(Span::from_secs(1)) / 4;
        let change = self.board.on_ack(now, ack, reordering);
        self.counts.lost += u64::from(change.lost);
        let sample = (change.arrived > 0).then(|| now.since(ack.echo));
        if let Some(rtt) = sample {
            self.rto.sample(rtt);
        }
        if change.acked > 0 {
            // RFC 7323: timestamps make samples of retransmissions valid, so the back-off ends.
            self.rto.relax();
            self.restart_timer(now);
        }
        if let State::Recovery(end, _) | State::Loss(end) = self.state
            && self.board.first() >= end
        {
            self.state = State::Open;
        }
        if change.lost > 0 && matches!(self.state, State::Open) {
            // RFC 6675, 5, (4): RecoveryPoint = HighData.
            self.window.on_loss();
            let reduction = Reduction::new(flight, self.window.size());
            self.state = State::Recovery(self.board.next(), reduction);
            self.counts.recoveries += 1;
        }
        if self.window.bbr().is_some() {
            let in_recovery = matches!(self.state, State::Recovery(..));
            let acked = bbr::Acked {
                arrived: change.arrived,
                lost: change.lost,
                delivered: self.board.delivered(),
                flight: (pipe, self.board.pipe()),
                rtt: sample,
                sample: change.sample,
                in_recovery,
            };
            self.window.on_bbr_ack(now, &acked);
            return;
        }
        if let State::Recovery(_, reduction) = &mut self.state {
            let clean = change.acked > 0 && change.lost == 0;
            reduction.on_ack(change.arrived, self.board.pipe(), clean);
        }
        // RFC 7661: an unused window says nothing about the path.
        let used = was_limited || (self.window.is_slow_start() && self.window.size() < 2 * flight);
        if change.acked > 0 && used && !matches!(self.state, State::Recovery(..)) {
            self.window.on_ack(
                now,
                Acked {
                    count: change.arrived,
                    next: self.board.first(),
                    sent: self.board.next(),
                    rtt: sample,
                    min_rtt: self.rto.min_rtt,
                },
            );
        }
    }

    /// RFC 6298, 5.2 and 5.3: stops the timer when nothing is in flight, otherwise restarts it.
    fn restart_timer(&mut self, now: Time) {
        self.probed = false;
        let flight = self.board.flight();
        if flight == 0 {
            (self.deadline, self.probe) = (None, None);
            return;
        }
        self.deadline = Some(now + self.rto.timeout());
        self.set_probe(now);
    }

    /// RFC 8985, 7.2: schedules a probe after two round trips or more, if nothing is being
    /// repaired.
    fn set_probe(&mut self, now: Time) {
        let single = if self.board.flight() == 1 { PROBE_SINGLE } else { Span::ZERO };
        let wait = (self.rto.smoothed() * 2 + single).max(MIN_PROBE);
        let at = now + wait;
        let useful = matches!(self.state, State::Open) && !self.probed;
        self.probe = Some(at).filter(|at| useful && self.deadline.is_none_or(|end| *at < end));
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self.state {
            State::Opening(at) => Some(at),
            _ => {
                let timer = self.probe.or(self.deadline);
                let paced = Some(self.paced.0).filter(|_| self.paced.2);
                timer.into_iter().chain(paced).min()
            }
        }
    }

    pub(crate) fn poll(&mut self, now: Time) -> Option<Segment> {
        if let State::Opening(at) = self.state {
            return self.open(now, at);
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.time_out(now);
        }
        if self.probe.is_some_and(|at| at <= now) {
            // RFC 8985, 7.3: the probe restarts the retransmission timer.
            (self.probe, self.probed) = (None, true);
            self.deadline = Some(now + self.rto.timeout());
            let number = self.board.probe(now)?;
            return Some(self.send(now, number));
        }
        self.paced.2 = false;
        self.limited = match &self.state {
            State::Recovery(_, reduction) if self.window.bbr().is_none() => !reduction.allows(),
            _ => self.board.pipe() >= self.window.size(),
        };
        if self.limited {
            return None;
        }
        if self.is_paced(now) {
            return None;
        }
        if let Some(number) = self.board.repair(now) {
            return Some(self.send(now, number));
        }
        let next = self.board.next();
        if self.total.is_some_and(|total| next >= total) || self.board.flight() >= self.limit {
            return None;
        }
        if self.board.flight() == 0 && now.since(self.last_sent) > self.rto.timeout() {
            self.window.restart(self.initial);
        }
        self.board.on_sent(now);
        self.counts.first += 1;
        Some(self.send(now, next))
    }

    fn is_paced(&mut self, now: Time) -> bool {
        let Some(bbr) = self.window.bbr().filter(|bbr| bbr.pace().is_some()) else { return false };
        let (next, left, waits) = &mut self.paced;
        if *left == 0 {
            if *next > now {
                *waits = true;
                return true;
            }
            (*next, *left) = (now, bbr.at_once());
        }
        false
    }

    fn open(&mut self, now: Time, at: Time) -> Option<Segment> {
        if at > now {
            return None;
        }
        if self.syn.is_some() {
            self.counts.timeouts += 1;
            self.rto.back_off();
        }
        self.syn.get_or_insert(now);
        self.syns += 1;
        self.state = State::Opening(now + self.rto.timeout());
        Some(Segment::Syn)
    }

    fn send(&mut self, now: Time, number: u32) -> Segment {
        self.counts.sent += 1;
        self.last_sent = now;
        if let Some(pace) = self.window.bbr().and_then(bbr::Bbr::pace) {
            self.paced.0 += Span::from_secs_f64(1.0 / pace);
            self.paced.1 = self.paced.1.saturating_sub(1);
        }
        if let State::Recovery(_, reduction) = &mut self.state {
            reduction.on_sent();
        }
        if self.deadline.is_none() {
            self.deadline = Some(now + self.rto.timeout());
        }
        // The probe timer starts at the last segment.
        self.set_probe(now);
        Segment::Data(Data { number, sent: now })
    }

    fn time_out(&mut self, now: Time) {
        self.counts.timeouts += 1;
        let again = matches!(self.state, State::Loss(_));
        self.window.on_timeout(again);
        self.counts.lost += u64::from(self.board.lose_all());
        self.state = State::Loss(self.board.next());
        self.rto.back_off();
        self.probe = None;
        self.deadline = Some(now + self.rto.timeout());
    }
}
