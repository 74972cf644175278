//! Detects the loss of a server, and connects again.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::RttWatch;
use crate::{Error, Kind};

/// The first and the longest pause between attempts to reconnect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Interval of checks for a datagram of the server.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of failed checks in sequence after which the server counts as silent.
const LOOKS: u32 = 4;

/// Calls `connect` until it succeeds, fails permanently, or `retry_for` is over. Only a lost
/// connection and a missing answer are not permanent.
///
/// # Errors
/// The last error of `connect`.
pub async fn again<T>(
    connect: &impl AsyncFn() -> Result<T, Error>,
    retry_for: Duration,
) -> Result<T, Error> {
    let (begun, (mut pause, longest)) = (Instant::now(), PAUSES);
    loop {
        match connect().await {
            Err(error)
                if (error.kind == Kind::Lost || error.is_silence)
                    && is_early(begun.elapsed(), pause, retry_for) =>
            {
                sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
            ended => return ended,
        }
    }
}

/// Returns whether there is time for one more attempt after a `pause`.
fn is_early(elapsed: Duration, pause: Duration, retry_for: Duration) -> bool {
    elapsed + pause < retry_for
}

/// Completes after `LOOKS` checks in sequence without a datagram of the server; never completes
/// over TCP and ssh. This detects the end of a server even if no process at its address reports the
/// end.
pub async fn silence(rtt: RttWatch) -> Error {
    let (mut seen, mut looks) = (rtt.received(), 0);
    let mut tick = interval(LOOK_EVERY);
    // After a suspension of this host, do not count the checks that it missed.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Without datagrams (TCP, ssh) the system reports a lost connection.
    while seen.is_some() && looks < LOOKS {
        tick.tick().await;
        let now = rtt.received();
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        rtt.nudge();
    }
    match seen {
        Some(_) => Error::new(Kind::Lost, "the server is silent"),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempt_begins_before_the_time_for_retries_is_over() {
        let millis = Duration::from_millis;
        assert!(is_early(millis(300), millis(400), millis(701)));
        assert!(!is_early(millis(300), millis(400), millis(700)));
        assert!(!is_early(millis(0), millis(100), millis(0)));
    }
}
