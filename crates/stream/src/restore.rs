//! The thread that restores the lost originals of frames, and passes frames to their reader. The
//! originals of a frame are the datagrams with its bytes; further datagrams have repairs.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::clock;
use longhaul_proto::fec::Decoder;
use longhaul_proto::stream::Delays;
use tokio::sync::mpsc;

use crate::gather::{Frame, Gathered};
use crate::item::{Item, Received};

/// Maximum number of complete frames queued for the thread. Further frames are dropped, so a
/// slow reader loses frames of its own stream only.
const WAITING: usize = 4;
/// Maximum number of items queued for the reader.
const UNREAD: usize = 1;

/// Counts of frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) missed: u64,
    pub(crate) unread: u64,
    /// Originals that were restored.
    pub(crate) restored: u64,
    pub(crate) delays: Delays,
}

/// Locks the tally. No code panics while it holds the lock.
pub(crate) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread. The thread ends with the stream, or with the stream's reader.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn start(
    tally: Arc<Mutex<Tally>>,
) -> std::io::Result<(SyncSender<Gathered>, mpsc::Receiver<Item>)> {
    let (gathered_end, gathered) = sync_channel(WAITING);
    let (items, reader) = mpsc::channel(UNREAD);
    let restore = Restore { decoder: Decoder::new(), tally, items };
    let builder = std::thread::Builder::new().name("stream restore".into());
    builder.spawn(move || restore.run(&gathered))?;
    Ok((gathered_end, reader))
}

struct Restore {
    decoder: Decoder,
    tally: Arc<Mutex<Tally>>,
    items: mpsc::Sender<Item>,
}

impl Restore {
    fn run(mut self, gathered: &Receiver<Gathered>) {
        while let Ok(gathered) = gathered.recv() {
            let item = match gathered {
                Gathered::Whole(frame) => self.whole(frame),
                Gathered::Gap(first, last, unread) => self.gap(first, last, unread),
                Gathered::Begun(terms) => Item::Begun(terms),
                Gathered::Ended => Item::Ended,
            };
            if self.items.blocking_send(item).is_err() {
                return;
            }
        }
    }

    fn gap(&mut self, first: u32, last: u32, unread: u32) -> Item {
        let mut tally = lock(&self.tally);
        tally.missed += (u64::from(last - first) + 1).saturating_sub(unread.into());
        tally.unread += u64::from(unread);
        Item::Missed { first, last, unread }
    }

    fn whole(&mut self, mut frame: Frame) -> Item {
        let Some(restored) = self.restore(&mut frame) else {
            // The symbols contradict each other, so the sender is faulty.
            return self.gap(frame.number, frame.number, 0);
        };
        let Frame { number, originals: bytes, at, took, deadline, .. } = frame;
        let delay = took + clock::now().since(at);
        let is_late = delay > deadline;
        let mut tally = lock(&self.tally);
        tally.restored += u64::from(restored);
        *(if is_late { &mut tally.late } else { &mut tally.on_time }) += 1;
        tally.delays.add(delay);
        Item::Frame(Received { number, bytes, delay, is_late, restored })
    }

    /// Restores the missing originals; returns their number, or `None` if that fails.
    fn restore(&mut self, frame: &mut Frame) -> Option<u16> {
        let missing = frame.here.iter().filter(|here| !**here).count() as u16;
        if missing == 0 {
            return Some(0);
        }
        let symbol = usize::from(frame.shape.symbol());
        let mut restored = Vec::with_capacity(usize::from(missing) * symbol);
        let mut numbers = Vec::with_capacity(missing.into());
        let originals = frame.originals.chunks(symbol).enumerate();
        let originals = originals
            .filter(|(number, _)| frame.here[*number])
            .map(|(number, bytes)| (number as u16, bytes));
        let repairs = frame.numbers.iter().copied().zip(frame.repairs.chunks_exact(symbol));
        let left = self.decoder.decode(frame.shape, originals, repairs, |number, bytes| {
            numbers.push(number);
            restored.extend_from_slice(bytes);
        });
        if left != Ok(0) {
            return None;
        }
        for (number, bytes) in numbers.iter().zip(restored.chunks_exact(symbol)) {
            let start = usize::from(*number) * symbol;
            let end = frame.length.min(start + symbol);
            frame.originals[start..end].copy_from_slice(&bytes[..end - start]);
        }
        Some(missing)
    }
}
