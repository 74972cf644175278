//! Detects that UDP, and therefore the control stream, no longer passes.
//!
//! A copy waits for a network that is down. But if the server still answers over TCP, something on
//! the path drops UDP, and waiting does not help.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_net::zone;
use longhaul_proto::time::Time;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::counters::board::Board;
use crate::options::Trust;
use crate::session::trust::ask_nobody;
use crate::session::{self, Carriers, Identity, RttWatch, Session, Settings};

const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The most time that one check counts as silence. If more time has passed since the previous
/// check, this process may have been suspended.
const PAUSE: Duration = Duration::from_millis(500);
/// TCP is tried after a silence of this constant plus four round trips. The other end sends ten
/// times a second.
const SILENT: Duration = Duration::from_millis(1200);
/// After the attempt over TCP, UDP gets this many more checks, and then two round trips: the
/// network may just have recovered from an outage of both TCP and UDP.
const CHECKS_AFTER: u32 = 3;

pub(super) struct UdpWatchdog(AbortHandle);

impl Drop for UdpWatchdog {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) struct Knock {
    pub(super) identity: Identity,
    pub(super) trust: Trust,
}

impl UdpWatchdog {
    /// Sets `cut` when `session` and the flows that report to `board` receive nothing more,
    /// although the server answers `knock` over TCP. Returns `None` for a session over TCP or ssh.
    pub(super) fn begin(
        session: &Session,
        board: Arc<Board>,
        mut knock: Knock,
        cut: Rc<Cell<bool>>,
    ) -> Option<UdpWatchdog> {
        let rtt = session.rtt();
        rtt.received()?;
        knock.trust = knock.trust.only(session.peer.to_string());
        let (host, port) = (zone::host(session.remote), session.remote.port());
        let task = tokio::task::spawn_local(async move {
            let mut silence = Silence::new();
            let mut tick = interval(CHECK_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                let patience = SILENT + rtt.now().unwrap_or_default() * 4;
                if silence.check(Sign::now(&board, &rtt)) < patience {
                    continue;
                }
                let is_there = knock.is_answered(&host, port).await;
                for _ in 0..CHECKS_AFTER {
                    rtt.nudge();
                    tick.tick().await;
                    silence.check(Sign::now(&board, &rtt));
                }
                sleep(rtt.now().unwrap_or_default() * 2).await;
                if is_there && silence.check(Sign::now(&board, &rtt)) >= patience {
                    cut.set(true);
                    return;
                }
            }
        });
        Some(UdpWatchdog(task.abort_handle()))
    }
}

impl Knock {
    async fn is_answered(&self, host: &str, port: u16) -> bool {
        let settings = Settings { carriers: Carriers::Tcp, ..Settings::default() };
        let Knock { identity, trust } = self;
        session::connect(host, port, identity, trust, &ask_nobody, &settings).await.is_ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sign {
    /// When the other end last gave a sign of life, on any channel.
    lived: Time,
    /// Datagrams received by the session itself.
    received: u64,
}

impl Sign {
    fn now(board: &Board, rtt: &RttWatch) -> Sign {
        Sign { lived: board.lived(), received: rtt.received().unwrap_or(0) }
    }
}

struct Silence {
    sign: Option<Sign>,
    checked: Instant,
    lasts: Duration,
}

impl Silence {
    fn new() -> Silence {
        Silence { sign: None, checked: Instant::now(), lasts: Duration::ZERO }
    }

    /// Returns the length of the silence. It is zero before the other end's first sign of life,
    /// because at the start the other end may have nothing to send.
    fn check(&mut self, sign: Sign) -> Duration {
        let passed = self.checked.elapsed().min(PAUSE);
        self.checked = Instant::now();
        if self.sign.replace(sign) != Some(sign) || sign.lived == Time::ZERO {
            self.lasts = Duration::ZERO;
        } else {
            self.lasts += passed;
        }
        self.lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(silence: &mut Silence, sign: Sign, ago: Duration) -> Duration {
        let before = Instant::now().checked_sub(ago);
        silence.checked = before.expect("the clock has run for longer");
        silence.check(sign)
    }

    #[test]
    fn silence_counts_only_after_the_first_sign_of_life_and_while_this_process_runs() {
        let mut silence = Silence::new();
        let mute = Sign { lived: Time::ZERO, received: 9 };
        for _ in 0..3 {
            assert_eq!(check(&mut silence, mute, CHECK_EVERY), Duration::ZERO);
        }
        let spoke = Sign { lived: Time::from_nanos(7), ..mute };
        assert_eq!(check(&mut silence, spoke, CHECK_EVERY), Duration::ZERO);
        assert!(check(&mut silence, spoke, CHECK_EVERY) >= CHECK_EVERY);
        // This process was frozen.
        assert!(check(&mut silence, spoke, PAUSE * 40) <= PAUSE + CHECK_EVERY * 2);
        // The session's own traffic is a sign of life, too.
        let beat = Sign { received: 10, ..spoke };
        assert_eq!(check(&mut silence, beat, CHECK_EVERY), Duration::ZERO);
    }
}
