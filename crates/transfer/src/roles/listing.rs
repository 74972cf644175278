//! A long manifest on the control stream. Where the data go in the clear the names do not, and
//! nothing on the way can change them unnoticed.

use std::time::Duration;

use tokio::sync::mpsc::error::SendError;

use super::Hooks;
use super::wire::{BULK, End, Wire};
use crate::control::{Card, ChunkPiece, MAX_MANIFEST, Message, Offer};
use crate::error::{Error, ErrorKind};
use longhaul_files::Watch;

/// Bytes of one piece.
const PIECE: usize = 64 << 10;
/// How often it is asked whether to go on.
const TICK: Duration = Duration::from_millis(100);

/// Sends `encoded`, the manifest that was offered; returns when nothing told later can overtake it,
/// with the card that the receiver has told of meanwhile. `watch` is told of each piece.
pub(super) async fn tell(
    wire: &mut Wire,
    hooks: &dyn Hooks,
    watch: &Watch,
    encoded: &[u8],
) -> Result<Option<Card>, End> {
    wire.expect_much();
    let mut card = None;
    let bulk = wire.bulk();
    let mut pieces = encoded.chunks(PIECE).enumerate();
    let mut tick = tokio::time::interval(TICK);
    let mut next = pieces.next();
    loop {
        // Once all have gone, all of the queue free: the stream has taken the last.
        let room = if next.is_some() { 1 } else { BULK };
        tokio::select! {
            permits = bulk.reserve_many(room) => match (permits, next) {
                (Ok(mut permits), Some((number, bytes))) => {
                    let (offset, bytes) = ((number * PIECE) as u32, bytes.to_vec());
                    let piece = ChunkPiece { offset, bytes, ..ChunkPiece::default() };
                    permits.next().expect("one was reserved").send(piece);
                    next = pieces.next();
                    watch.step();
                }
                (Ok(_), None) => return Ok(card),
                (Err(SendError(())), _) => return Err(End::Lost("nothing more can be told".into())),
            },
            message = wire.next() => {
                let message = message?;
                hooks.heard(&message);
                if let Message::Card(told) = message {
                    card = Some(told);
                }
            }
            _ = tick.tick() => hooks.tick()?,
        }
    }
}

/// Takes what [`tell`] sends into the offer it belongs to. `watch` is told of each piece.
pub(super) async fn hear(
    wire: &mut Wire,
    hooks: &dyn Hooks,
    watch: &Watch,
    offer: &mut Offer,
) -> Result<(), End> {
    let len = std::mem::take(&mut offer.streamed_len);
    if len > MAX_MANIFEST {
        let what = format!("the other side offers a manifest of {len} bytes; {MAX_MANIFEST} is");
        return Err(Error::new(ErrorKind::Unreachable, format!("{what} the limit")).into());
    }
    if len > 0 {
        wire.expect_much();
    }
    let mut tick = tokio::time::interval(TICK);
    while (offer.manifest.len() as u64) < len {
        tokio::select! {
            message = wire.next() => {
                let message = message?;
                hooks.heard(&message);
                if goes_on(&message) {
                    let have = offer.manifest.len();
                    let what = "the other side announced a list of files of";
                    let what = format!("{what} {len} bytes, and sent {have} of them");
                    return Err(Error::new(ErrorKind::Unreachable, what).into());
                }
                let Message::ChunkPiece(piece) = message else { continue };
                let have = offer.manifest.len() as u64;
                let follows = u64::from(piece.offset) == have && !piece.bytes.is_empty();
                if !follows || have + piece.bytes.len() as u64 > len {
                    let what = "the other side's manifest came in pieces that do not follow";
                    return Err(Error::new(ErrorKind::Unreachable, what).into());
                }
                offer.manifest.extend(piece.bytes);
                watch.step();
            },
            _ = tick.tick() => hooks.tick()?,
        }
    }
    Ok(())
}

/// Whether this is what follows the list: nothing overtakes that, so no more of it comes.
fn goes_on(message: &Message) -> bool {
    use Message::{Digests, EntryFailed, Outcome, Pass, Relay};
    matches!(message, Pass(_) | Digests(_) | Relay(_) | EntryFailed(_) | Outcome(_))
}
