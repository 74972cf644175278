//! The thread that restores lost originals (datagrams with a frame's bytes) from repairs, and
//! passes frames to their reader. A payload is a group of frames that the sender sends as one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::clock;
use longhaul_proto::fec::Decoder;
use longhaul_proto::stream::Delays;
use tokio::sync::mpsc;

use crate::gather::{Frame, Gathered};
use crate::item::{Item, Received};
use crate::queue::{Inlet, Outlet, queue};
use crate::terms::LENGTH;

/// Number of items that may wait for the reader.
const UNREAD: usize = 1;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    pub(crate) missed: u64,
    pub(crate) unread: u64,
    pub(crate) restored: u64,
    pub(crate) delays: Delays,
}

pub(crate) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread; returns the sender of its queue, and the receiver of its items. The thread
/// ends when the queue is closed, or when an item finds no receiver.
pub(crate) fn start(
    tally: Arc<Mutex<Tally>>,
) -> std::io::Result<(Outlet<Gathered>, mpsc::Receiver<Item>)> {
    let (outlet, inlet) = queue();
    let (items, reader) = mpsc::channel(UNREAD);
    let restore = Restore { group: 1, decoder: Decoder::new(), tally, items };
    let builder = std::thread::Builder::new().name("stream restore".into());
    builder.spawn(move || restore.run(&inlet))?;
    Ok((outlet, reader))
}

/// Returns the frames of a payload; `None` if the payload is invalid or has more than `group`
/// frames.
fn split(mut payload: &[u8], group: u32) -> Option<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = payload.split_first_chunk::<LENGTH>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || frames.len() == group as usize {
            return None;
        }
        let (frame, rest) = rest.split_at_checked(length)?;
        frames.push(frame.to_vec());
        payload = rest;
    }
    (payload.is_empty() && !frames.is_empty()).then_some(frames)
}

struct Restore {
    group: u32,
    decoder: Decoder,
    tally: Arc<Mutex<Tally>>,
    items: mpsc::Sender<Item>,
}

impl Restore {
    fn run(mut self, inlet: &Inlet<Gathered>) {
        while let Some(gathered) = inlet.next() {
            let items = match gathered {
                Gathered::Whole(frame) => self.on_complete(frame),
                Gathered::Gap(first, last, unread) => vec![self.gap(first, last, unread)],
                Gathered::Begun(terms) => {
                    self.group = terms.group;
                    vec![Item::Begun(terms)]
                }
                Gathered::Ended => vec![Item::Ended],
            };
            for item in items {
                if self.items.blocking_send(item).is_err() {
                    return;
                }
            }
        }
    }

    /// Converts the numbers of missing payloads to numbers of frames, and counts these frames.
    fn gap(&mut self, first: u32, last: u32, unread: u32) -> Item {
        let (first, unread) = (first.saturating_mul(self.group), unread.saturating_mul(self.group));
        let last = last.saturating_mul(self.group).saturating_add(self.group - 1);
        let mut tally = lock(&self.tally);
        tally.missed += (u64::from(last.saturating_sub(first)) + 1).saturating_sub(unread.into());
        tally.unread += u64::from(unread);
        Item::Missed { first, last, unread }
    }

    fn on_complete(&mut self, mut frame: Frame) -> Vec<Item> {
        let restored = self.restore(&mut frame);
        let frames = match frame.group {
            1 => Some(vec![std::mem::take(&mut frame.originals)]),
            _ => split(&frame.originals, frame.group),
        };
        let (Some(restored), Some(frames)) = (restored, frames) else {
            // The sender is faulty.
            return vec![self.gap(frame.number, frame.number, 0)];
        };
        let Frame { number, at, took, deadline, group, .. } = frame;
        let delay = took + clock::now().since(at);
        let is_late = delay > deadline;
        let mut tally = lock(&self.tally);
        tally.restored += u64::from(restored);
        *(if is_late { &mut tally.late } else { &mut tally.on_time }) += frames.len() as u64;
        let first = number.saturating_mul(group);
        let item = |(number, bytes): (u32, Vec<u8>)| {
            tally.delays.add(delay);
            // Only the first frame of a payload reports the payload's restored datagrams.
            let restored = if number == 0 { restored } else { 0 };
            let number = first.saturating_add(number);
            Item::Frame(Received { number, bytes, delay, is_late, restored })
        };
        (0..).zip(frames).map(item).collect()
    }

    /// Restores the missing originals; returns their number, or `None` if that is impossible.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_split_into_whole_frames_and_never_into_more_than_its_sender_announced() {
        let payload = [0, 0, 0, 2, 7, 8, 0, 0, 0, 1, 9];
        assert_eq!(split(&payload, 2), Some(vec![vec![7, 8], vec![9]]));
        assert_eq!(split(&payload, 1), None);
        for wrong in [&payload[..10], &payload[..8], &[], &[0, 0, 0, 0], &[255, 255, 255, 255, 1]] {
            assert_eq!(split(wrong, 9), None, "{wrong:?}");
        }
    }
}
