//! Detects the loss of a server, and connects again.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::RttWatch;
use crate::{Error, Kind};

/// The first and the longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Interval of checks for a datagram of the server.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Number of failed checks in sequence that mean silence.
const CHECKS: u32 = 4;

/// The reconnections of one client of a service, such as one subscription.
#[derive(Debug)]
pub struct Retries {
    pause: Duration,
    retry_for: Duration,
    /// When the last attempt ended.
    connected: Option<Instant>,
}

impl Retries {
    /// Creates a value that retries each lost connection for up to `retry_for`.
    pub const fn new(retry_for: Duration) -> Retries {
        Retries { pause: PAUSES.0, retry_for, connected: None }
    }

    /// Calls `connect` until it succeeds or the time for retries is over. Retries only after a lost
    /// connection or a missing answer. Pauses first if the last connection was short.
    ///
    /// # Errors
    /// The last error of `connect`.
    pub async fn again<T>(
        &mut self,
        connect: &impl AsyncFn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        if let Some(pause) = self.first(self.connected.map(|at| at.elapsed())) {
            sleep(pause.min(self.retry_for.max(PAUSES.0))).await;
        }
        loop {
            let ended = connect().await;
            match ended.as_ref().err().and_then(|error| self.next(error, begun.elapsed())) {
                Some(pause) => sleep(pause).await,
                None => {
                    self.connected = Some(Instant::now());
                    return ended;
                }
            }
        }
    }

    /// Returns the pause before the first attempt, if the last connection `lasted` less than the
    /// longest pause. A short connection counts as a failed attempt: a server that shuts down, for
    /// instance, still accepts sessions and ends them at once. After a longer connection, pauses
    /// begin with the shortest.
    fn first(&mut self, lasted: Option<Duration>) -> Option<Duration> {
        if lasted.is_some_and(|lasted| lasted < PAUSES.1) {
            return Some(self.take_pause());
        }
        self.pause = PAUSES.0;
        None
    }

    /// Returns the next pause, and doubles the pause after it, up to the longest.
    fn take_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSES.1);
        pause
    }

    /// Returns the pause after a failed attempt; `None` after the last one. `elapsed` is the time
    /// since the retries began.
    fn next(&mut self, error: &Error, elapsed: Duration) -> Option<Duration> {
        let may_pass = error.kind == Kind::Lost || error.is_silence;
        let pause = self.take_pause();
        (may_pass && elapsed + pause < self.retry_for).then_some(pause)
    }
}

/// Completes after `CHECKS` checks in sequence without a datagram of the server; over TCP and ssh,
/// never.
pub async fn silence(rtt: RttWatch) -> Error {
    let mut checks = Checks { seen: rtt.received(), failed: 0 };
    let mut tick = interval(CHECK_EVERY);
    // Do not count checks that a suspended host missed.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if checks.is_silent(rtt.received()) {
            return Error::new(Kind::Lost, "the server is silent");
        }
        rtt.nudge();
    }
}

struct Checks {
    seen: Option<u64>,
    failed: u32,
}

impl Checks {
    /// Records a check that found `received` datagrams. Returns whether the server is silent.
    fn is_silent(&mut self, received: Option<u64>) -> bool {
        // Over TCP and ssh, `received` is `None`; there the system reports a lost connection.
        let is_failed = received.is_some() && received == self.seen;
        self.failed = if is_failed { self.failed + 1 } else { 0 };
        self.seen = received;
        self.failed == CHECKS
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_last_attempt_begins_before_the_time_for_retries_is_over() {
        let lost = Error::new(Kind::Lost, "it broke");
        let next = |elapsed| {
            let mut retries = Retries { pause: millis(400), ..Retries::new(millis(701)) };
            retries.next(&lost, elapsed)
        };
        assert_eq!(next(millis(300)), Some(millis(400)));
        assert_eq!(next(millis(301)), None);
        let mut none = Retries::new(Duration::ZERO);
        assert_eq!(none.next(&lost, Duration::ZERO), None);
    }

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let mut retries = Retries::new(Duration::MAX);
        let lost = Error::new(Kind::Lost, "it broke");
        let pauses = [100, 200, 400, 800, 1600, 3200, 5000, 5000]
            .map(|wanted| (retries.next(&lost, Duration::ZERO), Some(millis(wanted))));
        assert!(pauses.iter().all(|(pause, wanted)| pause == wanted), "{pauses:?}");
    }

    #[test]
    fn short_connections_do_not_reset_the_pause_and_a_long_one_does() {
        let mut retries = Retries::new(Duration::MAX);
        let lasted = [None, Some(0), Some(4_999), Some(0), Some(5_000), Some(0)];
        let pauses = lasted.map(|lasted| retries.first(lasted.map(millis)));
        assert_eq!(
            pauses,
            [None, Some(100), Some(200), Some(400), None, Some(100)].map(|pause| pause.map(millis))
        );
    }

    #[test]
    fn a_connection_that_ends_at_once_is_followed_by_a_pause() {
        crate::tests::run(async {
            let mut retries = Retries::new(Duration::MAX);
            let connect = async || Ok(());
            retries.again(&connect).await.expect("it connects");
            let ended = Instant::now();
            retries.again(&connect).await.expect("it connects");
            assert!(ended.elapsed() >= PAUSES.0);
        });
    }

    /// Counts an attempt; only the one with the number `good` succeeds.
    fn succeed_at(good: u32, tried: &Cell<u32>) -> Result<u32, Error> {
        tried.set(tried.get() + 1);
        if tried.get() == good { Ok(good) } else { Err(Error::new(Kind::Lost, "it broke")) }
    }

    #[test]
    fn the_pause_before_the_first_attempt_is_part_of_the_time_for_retries() {
        crate::tests::run(async {
            let tried = Cell::new(0);
            let connect = async || succeed_at(1, &tried);
            let mut retries = Retries::new(millis(250));
            retries.again(&connect).await.expect("it connects");
            retries.again(&connect).await.unwrap_err();
            // The first pause took 100 ms. With the next pause of 200 ms, the retries would exceed
            // 250 ms.
            assert_eq!(tried.get(), 2);
        });
    }

    #[test]
    fn only_a_lost_session_and_a_missing_answer_are_retried() {
        let refused = Error::new(Kind::Unreachable, "no");
        for (error, retried) in [
            (Error::new(Kind::Lost, "it broke"), true),
            (refused.clone().silence(), true),
            (refused, false),
        ] {
            let mut retries = Retries::new(millis(200));
            assert_eq!(retries.next(&error, Duration::ZERO).is_some(), retried, "{error:?}");
        }
    }

    #[test]
    fn connecting_again_ends_with_the_first_success_or_the_last_error() {
        crate::tests::run(async {
            let tried = Cell::new(0);
            let connect = async || succeed_at(2, &tried);
            assert_eq!(Retries::new(Duration::MAX).again(&connect).await, Ok(2));
            let failed = Retries::new(Duration::ZERO).again(&connect).await;
            assert_eq!(failed.unwrap_err().what, "it broke");
            assert_eq!(tried.get(), 3);
        });
    }

    #[test]
    fn a_server_is_silent_after_four_checks_in_sequence_without_a_datagram() {
        let mut checks = Checks { seen: Some(7), failed: 0 };
        let silent = [7, 7, 7, 8, 8, 8, 8, 8].map(|received| checks.is_silent(Some(received)));
        assert_eq!(silent, [false, false, false, false, false, false, false, true]);
        let mut checks = Checks { seen: None, failed: 0 };
        assert!((0..10).all(|_| !checks.is_silent(None)), "TCP has no datagrams");
    }

    #[test]
    fn a_carrier_without_datagrams_is_not_reported_as_silent_at_once() {
        crate::tests::run(async {
            let silent = silence(RttWatch::once(None));
            assert!(tokio::time::timeout(millis(20), silent).await.is_err());
        });
    }
}
