//! What keeps a QUIC connection lively below a session, and ends it with the session.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quinn::{Connection, ConnectionError, ConnectionStats, RecvStream, SendStream, VarInt};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

/// What one side may have sent unread, and what the connection keeps, where much comes or goes.
pub(super) const MUCH: u32 = 4 << 20;

/// The same where the content of files goes: what a path of 1 Gbit/s and 100 ms holds, and some.
pub(super) const BULK: u32 = 16 << 20;

/// Silent connections are pulsed this often: an idle path stays open in NATs, and an outage ends
/// as soon as the path is back instead of at the next doubled time-out.
const BEAT: Duration = Duration::from_secs(1);

/// After a write, pulses follow at these distances: the third makes the loss of the written
/// packet certain by count (RFC 9002 section 6.1.1).
const PULSES: [Duration; 3] =
    [Duration::from_millis(4), Duration::from_millis(8), Duration::from_millis(16)];

/// How long the last packets of a connection may take to be handed to the kernel: pacing may hold
/// them.
const LAST_PACKETS: Duration = Duration::from_millis(5);

/// An end of normal kind, for QUIC's close.
const NO_ERROR: VarInt = VarInt::from_u32(0);

/// Keeps a connection lively, and ends it when the session is dropped.
pub(super) struct Keeper {
    connection: Connection,
    /// Further streams may be opened.
    many: AtomicBool,
    wrote: Arc<Notify>,
    pulse: AbortHandle,
}

impl Keeper {
    pub(super) fn new(connection: Connection) -> Keeper {
        let wrote = Arc::new(Notify::new());
        let pulse = tokio::spawn(pulse(connection.clone(), wrote.clone())).abort_handle();
        Keeper { connection, many: AtomicBool::new(false), wrote, pulse }
    }

    /// Lets the other side open so many streams at a time, and leave this much unread in all.
    pub(super) fn carry(&self, streams: usize, unread: u32) {
        self.many.store(true, Ordering::Relaxed);
        self.connection.set_max_concurrent_bi_streams(VarInt::from_u32(streams as u32));
        self.connection.set_receive_window(VarInt::from_u32(unread));
    }

    /// Whether the connection is to carry several streams.
    pub(super) fn has_many(&self) -> bool {
        self.many.load(Ordering::Relaxed)
    }

    /// Opens a stream, as soon as the other side lets one come.
    pub(super) async fn open(&self) -> io::Result<(SendStream, RecvStream)> {
        Ok(self.connection.open_bi().await?)
    }

    /// Completes when the connection has ended.
    pub(super) async fn ended(&self) {
        self.connection.closed().await;
    }

    /// The next stream that the other side opens; nothing once the connection has ended.
    pub(super) async fn accept(&self) -> Option<(SendStream, RecvStream)> {
        self.connection.accept_bi().await.ok()
    }

    /// Something was written to the stream.
    pub(super) fn wrote(&self) {
        self.wrote.notify_one();
    }

    /// The stream is to carry much, one way or the other: as much may be on its way as the path
    /// holds.
    pub(super) fn expect_much(&self) {
        self.connection.set_receive_window(VarInt::from_u32(MUCH));
        self.connection.set_send_window(MUCH.into());
    }

    /// The stream is to carry the content of files to the other side.
    pub(super) fn expect_bulk(&self) {
        self.connection.set_send_window(BULK.into());
    }

    /// Why the connection ended, if it has.
    pub(super) fn close_reason(&self) -> Option<String> {
        Some(match self.connection.close_reason()? {
            ConnectionError::TimedOut => "nothing came from it for too long".to_owned(),
            ConnectionError::ApplicationClosed(_) => "it went away".to_owned(),
            other => other.to_string(),
        })
    }

    /// How many frames of the stream have left this process.
    pub(super) fn frames_sent(&self) -> u64 {
        self.connection.stats().frame_tx.stream
    }

    /// Waits until more frames of the stream than `before` have left this process, and with them
    /// what else the path takes at once.
    pub(super) async fn sent_more_than(&self, before: u64) {
        self.until(|stats| stats.frame_tx.stream > before).await;
    }

    /// Ends the connection; its last packet has left this process then.
    pub(super) async fn close(&self) {
        if self.connection.close_reason().is_some() {
            return;
        }
        let before = self.connection.stats().udp_tx.datagrams;
        self.connection.close(NO_ERROR, b"");
        self.until(|stats| stats.udp_tx.datagrams > before).await;
    }

    /// Waits until so much has been handed to the kernel, for [`LAST_PACKETS`] at most: the
    /// connection's own task does it as soon as it has its turn.
    async fn until(&self, is_sent: impl Fn(&ConnectionStats) -> bool) {
        let sent = async {
            while !is_sent(&self.connection.stats()) {
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
    // A pulse that cannot be sent is none: the connection is closing.
    let send = || drop(connection.send_datagram(vec![0].into()));
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            // Read so that they never pile up, whatever the other side sends.
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
