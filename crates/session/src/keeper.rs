//! Keeps the QUIC connection of a session responsive, and ends it with the session.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::{Connection, ConnectionError, ConnectionStats, RecvStream, SendStream, VarInt};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::window::{BULK, Window};

/// Limit on unacknowledged bytes, until much data is announced.
pub(super) const SEND_WINDOW: u64 = 1 << 20;

/// Limit on unread and on unacknowledged bytes, once much data is announced.
pub(super) const MUCH: u32 = 4 << 20;

/// Interval of pulses (datagrams of one byte) on a silent connection. Pulses keep NATs open, and
/// revive the connection soon after an outage: QUIC's own timeout doubles during the outage.
const BEAT: Duration = Duration::from_secs(1);

/// The pause before each of the three pulses after a write. QUIC declares a packet lost when the
/// third later packet is acknowledged (RFC 9002 section 6.1.1). So three pulses reveal the loss of
/// the written packet without a timeout.
const PULSES: [Duration; 3] =
    [Duration::from_millis(4), Duration::from_millis(8), Duration::from_millis(16)];

/// How long the last packets of a connection may take to reach the kernel.
const LAST_PACKETS: Duration = Duration::from_millis(5);

/// Code of a normal end, for QUIC's close and reset.
pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0);

/// Code of a QUIC close by a server that shuts down.
pub(super) const SHUTTING_DOWN: VarInt = VarInt::from_u32(1);

pub(super) struct Keeper {
    connection: Connection,
    many: AtomicBool,
    window: Mutex<SendWindow>,
    wrote: Arc<Notify>,
    pulse: AbortHandle,
}

struct SendWindow {
    /// The limit while `bulk` is 0.
    usual: u64,
    /// Number of streams that send much data: files, or messages of a channel.
    bulk: usize,
}

impl SendWindow {
    fn bytes(&self) -> u64 {
        if self.bulk > 0 { BULK } else { self.usual }
    }
}

impl Keeper {
    pub(super) fn new(connection: Connection) -> Keeper {
        let wrote = Arc::new(Notify::new());
        let pulse = tokio::spawn(pulse(connection.clone(), wrote.clone())).abort_handle();
        let window = Mutex::new(SendWindow { usual: SEND_WINDOW, bulk: 0 });
        Keeper { connection, many: AtomicBool::new(false), window, wrote, pulse }
    }

    /// Allows the other side `streams` streams, with at most `unread` unread bytes in total.
    pub(super) fn carry(&self, streams: usize, unread: u32) {
        self.many.store(true, Ordering::Relaxed);
        self.connection.set_max_concurrent_bi_streams(VarInt::from_u32(streams as u32));
        self.connection.set_receive_window(VarInt::from_u32(unread));
    }

    pub(super) fn has_many(&self) -> bool {
        self.many.load(Ordering::Relaxed)
    }

    pub(super) async fn open(&self) -> io::Result<(SendStream, RecvStream)> {
        Ok(self.connection.open_bi().await?)
    }

    pub(super) async fn ended(&self) {
        self.connection.closed().await;
    }

    pub(super) async fn accept(&self) -> Option<(SendStream, RecvStream)> {
        self.connection.accept_bi().await.ok()
    }

    pub(super) fn wrote(&self) {
        self.wrote.notify_one();
    }

    /// Prepares for much data: allows [`MUCH`] unacknowledged bytes and, with one stream, as many
    /// unread bytes.
    pub(super) fn expect_much(&self) {
        // With several streams, `carry` has already set a larger limit on unread bytes.
        if !self.has_many() {
            self.connection.set_receive_window(VarInt::from_u32(MUCH));
        }
        self.change_window(|window| window.usual = MUCH.into());
    }

    /// Counts a stream that sends files or messages of a channel. While there is such a stream,
    /// [`BULK`] unacknowledged bytes are allowed.
    pub(super) fn begin_bulk(&self) {
        self.change_window(|window| window.bulk += 1);
    }

    pub(super) fn end_bulk(&self) {
        self.change_window(|window| window.bulk -= 1);
    }

    fn change_window(&self, change: impl FnOnce(&mut SendWindow)) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut window);
        self.connection.set_send_window(window.bytes());
    }

    #[cfg(test)]
    pub(super) fn send_window(&self) -> u64 {
        self.window.lock().unwrap().bytes()
    }

    /// Allows a jump to `bytes` in flight; see [`Window::resume`].
    pub(super) fn resume(&self, bytes: u64) {
        if let Ok(window) = self.connection.congestion_state().into_any().downcast::<Window>() {
            window.resume(bytes, Instant::now());
        }
    }

    pub(super) fn close_reason(&self) -> Option<String> {
        Some(match self.connection.close_reason()? {
            ConnectionError::TimedOut => "it was silent for too long".to_owned(),
            ConnectionError::ApplicationClosed(close) if close.error_code == SHUTTING_DOWN => {
                "it is shutting down".to_owned()
            }
            ConnectionError::ApplicationClosed(_) => "it went away".to_owned(),
            other => other.to_string(),
        })
    }

    pub(super) fn frames_sent(&self) -> u64 {
        self.connection.stats().frame_tx.stream
    }

    /// Waits at most [`LAST_PACKETS`] for more than `before` STREAM frames.
    pub(super) async fn sent_more_than(&self, before: u64) {
        self.until_more(|stats| stats.frame_tx.stream, before).await;
    }

    /// Ends the connection; waits at most [`LAST_PACKETS`] for its last packet.
    pub(super) async fn close(&self) {
        if self.connection.close_reason().is_some() {
            return;
        }
        let before = self.connection.stats().udp_tx.datagrams;
        self.connection.close(NO_ERROR, b"");
        self.until_more(|stats| stats.udp_tx.datagrams, before).await;
    }

    async fn until_more(&self, sent: impl Fn(&ConnectionStats) -> u64, before: u64) {
        let sent = async {
            while sent(&self.connection.stats()) <= before {
                yield_now().await;
            }
        };
        let _ = timeout(LAST_PACKETS, sent).await;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.pulse.abort();
        self.connection.close(NO_ERROR, b"");
    }
}

async fn pulse(connection: Connection, wrote: Arc<Notify>) {
    // A failed pulse does no harm: the connection is closing.
    let send = || drop(connection.send_datagram(vec![0].into()));
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            _ = connection.read_datagram() => {}
            () = sleep(BEAT) => send(),
            () = wrote.notified() => {
                for distance in PULSES {
                    sleep(distance).await;
                    send();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::tests::{LOOPBACKS, pair, run};
    use crate::{Carriers, Session};

    #[test]
    fn a_write_wakes_the_pulse_task_even_if_the_task_does_not_wait_at_that_moment() {
        run(async {
            let (near, _far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
            let keeper = near.keeper().expect("it is QUIC");
            keeper.pulse.abort();
            while !keeper.pulse.is_finished() {
                yield_now().await;
            }
            let _ = timeout(Duration::ZERO, keeper.wrote.notified()).await;
            keeper.wrote();
            assert!(timeout(Duration::ZERO, keeper.wrote.notified()).await.is_ok());
        });
    }

    #[test]
    fn a_wait_for_sent_frames_ends_with_the_first_additional_frame() {
        run(async {
            let (mut near, _far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
            let before = near.keeper().expect("it is QUIC").frames_sent();
            assert!(before > 0, "the first message is sent");
            near.write(&1u32).await.expect("open");
            let keeper = near.keeper().expect("it is QUIC");
            while keeper.frames_sent() == before {
                yield_now().await;
            }
            let mut context = Context::from_waker(Waker::noop());
            let now = keeper.frames_sent();
            let mut is_over = |count| pin!(keeper.sent_more_than(count)).poll(&mut context);
            assert!(is_over(now - 1).is_ready() && is_over(now).is_pending());
        });
    }

    #[test]
    fn a_nudge_and_each_write_send_pulses() {
        run(async {
            let (mut near, _far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
            let pulses = |near: &Session| {
                near.keeper().expect("it is QUIC").connection.stats().frame_tx.datagram
            };
            let before = pulses(&near);
            near.write(&1u32).await.expect("open");
            while pulses(&near) < before + PULSES.len() as u64 {
                yield_now().await;
            }
            near.keeper().expect("it is QUIC").pulse.abort();
            while !near.keeper().expect("it is QUIC").pulse.is_finished() {
                yield_now().await;
            }
            let before = pulses(&near);
            near.rtt().nudge();
            while pulses(&near) == before {
                yield_now().await;
            }
        });
    }

    #[test]
    fn resume_passes_the_earlier_bytes_in_flight_to_the_congestion_window() {
        run(async {
            let (near, _far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
            near.resume(6_250_000);
            let state = near.keeper().expect("it is QUIC").connection.congestion_state();
            let window = state.into_any().downcast::<Window>().expect("it is ours");
            assert_eq!(window.cancel_permission(), Some(6_250_000));
        });
    }

    /// Returns how many bytes `session` takes before the other side can answer.
    fn takes(session: &mut Session) -> u32 {
        let part = vec![7u8; 16 << 10];
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = 0;
        while pin!(session.write(&part)).poll(&mut context).is_ready() {
            taken += part.len() as u32;
        }
        taken
    }

    /// Returns whether `bytes` is at most 64 KiB below `limit`.
    fn is_near(bytes: u32, limit: u32) -> bool {
        (limit - (64 << 10)..=limit).contains(&bytes)
    }

    #[test]
    fn an_announcement_of_much_data_raises_the_limits_on_unread_and_unacknowledged_bytes() {
        run(async {
            let (mut near, mut far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
            assert!(is_near(takes(&mut near), 256 << 10));
            assert!(is_near(takes(&mut far), 256 << 10));
            for (announce, limit) in [
                (None, 1 << 20),
                (Some(Session::expect_much as fn(&Session)), MUCH),
                (Some(Session::expect_bulk as fn(&Session)), MUCH),
            ] {
                let (mut near, mut far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
                far.expect_much();
                far.write(&1u32).await.expect("open");
                assert_eq!(near.read::<u32>().await, Ok(Some(1)));
                if let Some(announce) = announce {
                    announce(&near);
                }
                let taken = takes(&mut near);
                assert!(is_near(taken, limit), "{taken} of {limit}");
            }
        });
    }
}
