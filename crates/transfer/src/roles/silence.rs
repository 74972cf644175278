//! Detects that datagrams do not pass although the network works.
//!
//! A copy waits for a network that is down. But if the control stream works and no datagrams
//! arrive, a firewall or NAT on the path drops them.

use std::time::{Duration, Instant};

use longhaul_net::clock;
use longhaul_proto::time::{Span, Time};

use super::wire::End;
use crate::counters::board::Board;

/// How long a data port that never delivered anything may be silent. Four round trips are added.
const NEVER: Duration = Duration::from_millis(1500);
/// How long a data port that has delivered datagrams may be silent. Four round trips are added.
const NOW: Duration = Duration::from_millis(2000);
/// Added after an outage of both channels: after a long silence a protocol may wait this long
/// before it sends its next datagram (`proto::gtp`, `longest_silence`).
const BACKED_OFF: Duration = Duration::from_secs(4);
/// The control stream works if a message arrived on it within this time plus two round trips.
const SPEAKS: Duration = Duration::from_millis(1000);
/// After a silence of this time plus two round trips, the other end's count includes all data that
/// were sent before the silence. If the count grows later, data were sent and did not arrive.
const COUNTED: Duration = Duration::from_millis(500);
/// Maximum time that one check counts as silence. A longer gap between two checks is a pause of
/// this process.
const MOST_COUNTED: Duration = Duration::from_millis(500);

pub(super) struct Silence {
    spoke: Option<Instant>,
    looked: Instant,
    last_received: Option<Time>,
    /// Whether the control stream has been silent too since the last datagram arrived.
    outage: bool,
    /// How long messages have arrived only on the control stream.
    alone: Duration,
    /// The other end's count of sent datagrams, updated until the silence has lasted [`COUNTED`]
    /// plus two round trips.
    sent: u64,
}

impl Silence {
    pub(super) fn new() -> Silence {
        let (alone, looked) = (Duration::ZERO, Instant::now());
        Silence { spoke: None, looked, last_received: None, outage: false, alone, sent: 0 }
    }

    pub(super) fn control_spoke(&mut self) {
        self.spoke = Some(Instant::now());
    }

    /// Judges both channels; to be called several times a second. Fails if the control stream
    /// works, but datagrams do not arrive. `always`: the other end sends datagrams at all times,
    /// not only if it has data and may send them.
    pub(super) fn judge(&mut self, board: &Board, rtt: Span, always: bool) -> Result<(), End> {
        let rtt = clock::duration(rtt);
        let passed = self.looked.elapsed().min(MOST_COUNTED);
        self.looked = Instant::now();
        let speaks = self.spoke.is_some_and(|at| at.elapsed() < SPEAKS + rtt * 2);
        let last_received = board.last_received();
        if last_received != self.last_received || !speaks {
            // The time of silence (`alone`) counts only while the control stream works.
            self.outage = !speaks && last_received == self.last_received;
            self.last_received = last_received;
            self.alone = Duration::ZERO;
        } else {
            self.alone += passed;
        }
        let sent = board.theirs().sender.sent;
        if self.alone < COUNTED + rtt * 2 {
            self.sent = sent;
        }
        let patience = match last_received {
            None => NEVER,
            Some(_) if self.outage => NOW + BACKED_OFF,
            Some(_) => NOW,
        };
        let due = always || last_received.is_none() || sent > self.sent;
        if due && self.alone >= patience + rtt * 4 { Err(End::NoDatagrams) } else { Ok(()) }
    }
}

/// A sender that has received nothing for this time or this many round trips, whichever is longer,
/// stops sending.
const STOPS: (Span, u64) = (Span::from_secs(3), 8);

/// Tells a receiver when the sender falls silent for so long that it must have stopped.
#[derive(Default)]
pub(super) struct Quiet {
    reported: bool,
}

impl Quiet {
    /// Takes the current time and the time `lived` of the other end's last sign of life. Returns
    /// `Some(Some(length))` when a silence begins, `Some(None)` when the other end answers again,
    /// and `None` if nothing changed.
    pub(super) fn look(&mut self, now: Time, lived: Time, rtt: Span) -> Option<Option<Span>> {
        if lived == Time::ZERO {
            return None;
        }
        let since = now.since(lived);
        let silent = since >= STOPS.0.max(rtt * STOPS.1);
        let reported = std::mem::replace(&mut self.reported, silent);
        (silent != reported).then(|| silent.then_some(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Status;

    const RTT: Span = Span::from_millis(1);

    struct Rig {
        silence: Silence,
        board: Board,
    }

    impl Rig {
        fn new() -> Rig {
            let rig = Rig { silence: Silence::new(), board: Board::default() };
            rig.board.note_received(Time::from_nanos(7));
            rig
        }

        /// Checks for `seconds`; the control stream works if `speaks`. Returns whether the silence
        /// counted as a blocked path.
        fn look(&mut self, seconds: f64, speaks: bool, always: bool) -> bool {
            let looks = (seconds / 0.1) as u32;
            (0..looks).any(|_| {
                self.silence.looked = Instant::now() - Duration::from_millis(100);
                self.silence.spoke = speaks.then(Instant::now);
                self.silence.judge(&self.board, RTT, always).is_err()
            })
        }
    }

    #[test]
    fn silence_of_the_datagrams_alone_is_judged_a_blocked_data_path_after_2_s() {
        let mut rig = Rig::new();
        assert!(!rig.look(2.0, true, true));
        assert!(rig.look(1.0, true, true));
    }

    #[test]
    fn an_outage_of_both_channels_is_not_judged_a_blocked_data_path() {
        let mut rig = Rig::new();
        assert!(!rig.look(2.0, true, true));
        assert!(!rig.look(20.0, false, true));
        assert!(!rig.look(2.0, true, true));
    }

    #[test]
    fn after_an_outage_datagrams_may_return_up_to_6_s_after_the_control_stream() {
        let mut rig = Rig::new();
        assert!(!rig.look(0.1, true, true));
        assert!(!rig.look(20.0, false, true));
        // Datagrams may be silent for 2 s, and after an outage for 4 s more.
        assert!(!rig.look(5.9, true, true));
        assert!(rig.look(0.2, true, true));
        let mut rig = Rig::new();
        assert!(!rig.look(20.0, false, true));
        rig.board.note_received(Time::from_nanos(8));
        assert!(!rig.look(2.0, true, true));
        assert!(rig.look(0.2, true, true), "the outage ended with the first datagram");
    }

    #[test]
    fn silence_without_newly_sent_datagrams_is_not_judged_a_blocked_data_path() {
        let mut rig = Rig::new();
        rig.board.set_theirs(&Status { sent: 100, ..Status::default() });
        assert!(!rig.look(60.0, true, false));
        rig.board.set_theirs(&Status { sent: 101, ..Status::default() });
        assert!(rig.look(0.1, true, false));
    }

    #[test]
    fn a_pause_of_this_process_is_not_silence() {
        let mut rig = Rig::new();
        rig.silence.looked = Instant::now() - Duration::from_secs(20);
        rig.silence.spoke = Some(Instant::now());
        assert!(rig.silence.judge(&rig.board, RTT, true).is_ok());
    }

    #[test]
    fn a_silent_sender_is_reported_once_and_its_return_once() {
        let mut quiet = Quiet::default();
        let now = Time::from_nanos(10_000_000_000);
        let mut after = |seconds: u64, rtt| {
            let lived = Time::from_nanos(10_000_000_000 - seconds * 1_000_000_000);
            quiet.look(now, lived, rtt)
        };
        assert_eq!(after(10, RTT), None, "it has never been heard");
        assert_eq!(after(1, RTT), None);
        assert_eq!(after(3, RTT), Some(Some(Span::from_secs(3))));
        assert_eq!(after(4, RTT), None);
        assert_eq!(after(0, RTT), Some(None));
        assert_eq!(after(3, Span::from_secs(1)), None);
    }
}
