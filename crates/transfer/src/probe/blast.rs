//! The sending end of a measurement: a thread that sends encrypted datagrams at a rate.

use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError, channel};

use longhaul_net::batch::Batch;
use longhaul_net::clock;
use longhaul_net::sealing::seal::{SEALED_OVERHEAD, Sealer};
use longhaul_net::socket::{Path, SendError, Socket};
use longhaul_net::wait::{self, Woken};
use longhaul_proto::pace::Pacer;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::header::Kind;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};

pub(super) struct Blast {
    pub(super) socket: Arc<Socket>,
    pub(super) path: Path,
    pub(super) sealer: Sealer,
    /// UDP payload of a datagram, in bytes.
    pub(super) datagram: u16,
    pub(super) rate: Rate,
    pub(super) span: Span,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Blasted {
    pub(super) sent: u64,
    /// Whether datagrams of this size are too large for the first link.
    pub(super) too_large: bool,
}

/// The running thread, which ends when this value is dropped.
pub(super) struct Blasting {
    _stop: Sender<()>,
    done: oneshot::Receiver<Blasted>,
}

impl Blasting {
    /// Waits until the thread ends: after the whole time, or earlier after an error.
    pub(super) async fn ended(self) -> Result<Blasted, Error> {
        let lost = |_| Error::new(ErrorKind::Unfinished, "the sending thread ended early");
        self.done.await.map_err(lost)
    }
}

impl Blast {
    pub(super) fn start(self) -> Result<Blasting, Error> {
        let (stop, stopped) = channel();
        let (ended, done) = oneshot::channel();
        let work = move || {
            // Nobody waits if the probe was cancelled.
            let _ = ended.send(self.run(&stopped));
        };
        std::thread::Builder::new().name("probe".into()).spawn(work).map_err(|error| {
            Error::new(ErrorKind::Unfinished, format!("cannot start a sending thread: {error}"))
        })?;
        Ok(Blasting { _stop: stop, done })
    }

    fn run(mut self, stopped: &std::sync::mpsc::Receiver<()>) -> Blasted {
        wait::be_punctual();
        let mut batch = Batch::new(self.datagram);
        let payload = vec![0x55; usize::from(self.datagram).saturating_sub(SEALED_OVERHEAD)];
        let mut pacer = Pacer::new(self.rate, Bytes::new(self.datagram.into()));
        let begun = clock::now();
        pacer.idle(begun);
        let mut blasted = Blasted::default();
        loop {
            let now = clock::now();
            let is_over = now.since(begun) >= self.span;
            if is_over || stopped.try_recv() != Err(TryRecvError::Empty) {
                return blasted;
            }
            let due = pacer.allowance(now).min(batch.capacity() as u64);
            if due == 0 {
                let until = pacer.next().min(begun + self.span);
                match wait::until(stopped, until) {
                    Woken::Due => continue,
                    Woken::Message(()) | Woken::Closed => return blasted,
                }
            }
            for number in blasted.sent..blasted.sent + due {
                if batch.push(&mut self.sealer, Kind::Data, number, &payload).is_err() {
                    return blasted;
                }
            }
            pacer.spend(now, Bytes::new(batch.bytes() as u64));
            match batch.send(&self.socket, self.path) {
                // Datagrams that the kernel refuses count as lost on the path.
                Ok(_) => blasted.sent += due,
                Err(SendError::TooLarge) => return Blasted { too_large: true, ..blasted },
                Err(SendError::Broken(_)) => return blasted,
            }
        }
    }
}
