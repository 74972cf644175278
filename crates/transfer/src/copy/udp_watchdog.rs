//! UDP that stops passing altogether, the control stream with it.
//!
//! A network that is out is waited for. But where the same server still answers by TCP, something
//! on the way has begun to swallow UDP, and nothing that is waited for will come.

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

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);
/// A longer time between two looks is this process's own pause, and no silence.
const PAUSE: Duration = Duration::from_millis(500);
/// After silence of this long, and four round trips, TCP is tried: the other end speaks ten times a
/// second.
const SILENT: Duration = Duration::from_millis(1200);
/// A network that was out for TCP too may be back: UDP is asked so many times more, and two round
/// trips.
const LOOKS_AFTER: u32 = 3;

/// Looks at a session for as long as it is kept.
pub(super) struct UdpWatchdog(AbortHandle);

impl Drop for UdpWatchdog {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a server is asked by TCP whether it is there.
pub(super) struct Knock {
    pub(super) identity: Identity,
    pub(super) trust: Trust,
}

impl UdpWatchdog {
    /// Sets `cut` when nothing of `session` comes any more, what `board` counts included, though
    /// the server answers to `knock`. Nothing for a session that goes by TCP itself.
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
            let mut tick = interval(LOOK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                let patience = SILENT + rtt.now().unwrap_or_default() * 4;
                if silence.look(Sign::now(&board, &rtt)) < patience {
                    continue;
                }
                let is_there = knock.is_answered(&host, port).await;
                for _ in 0..LOOKS_AFTER {
                    rtt.nudge();
                    tick.tick().await;
                    silence.look(Sign::now(&board, &rtt));
                }
                sleep(rtt.now().unwrap_or_default() * 2).await;
                if is_there && silence.look(Sign::now(&board, &rtt)) >= patience {
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

/// What shows that something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sign {
    /// When the other end last said something, by any way.
    lived: Time,
    /// Datagrams of the session itself.
    received: u64,
}

impl Sign {
    fn now(board: &Board, rtt: &RttWatch) -> Sign {
        Sign { lived: board.lived(), received: rtt.received().unwrap_or(0) }
    }
}

/// For how long no sign has come.
struct Silence {
    sign: Option<Sign>,
    looked: Instant,
    lasts: Duration,
}

impl Silence {
    fn new() -> Silence {
        Silence { sign: None, looked: Instant::now(), lasts: Duration::ZERO }
    }

    /// Nothing lasts before the other end has spoken: until then it may have nothing to say.
    fn look(&mut self, sign: Sign) -> Duration {
        let passed = self.looked.elapsed().min(PAUSE);
        self.looked = Instant::now();
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

    fn look(silence: &mut Silence, sign: Sign, ago: Duration) -> Duration {
        let before = Instant::now().checked_sub(ago);
        silence.looked = before.expect("the clock has run for longer");
        silence.look(sign)
    }

    #[test]
    fn silence_is_what_lasts_while_this_process_looks_and_begins_once_the_other_end_has_spoken() {
        let mut silence = Silence::new();
        let mute = Sign { lived: Time::ZERO, received: 9 };
        for _ in 0..3 {
            assert_eq!(look(&mut silence, mute, LOOK), Duration::ZERO);
        }
        let spoke = Sign { lived: Time::from_nanos(7), ..mute };
        assert_eq!(look(&mut silence, spoke, LOOK), Duration::ZERO);
        assert!(look(&mut silence, spoke, LOOK) >= LOOK);
        // This process was frozen.
        assert!(look(&mut silence, spoke, PAUSE * 40) <= PAUSE + LOOK * 2);
        // The session's own sign is one too.
        let beat = Sign { received: 10, ..spoke };
        assert_eq!(look(&mut silence, beat, LOOK), Duration::ZERO);
    }
}
