//! Sends and receives a long manifest (the list of files) on the control stream. This stream is
//! encrypted even if the data are not, so nobody on the path can read or change the names.

use std::time::Duration;

use tokio::sync::mpsc::error::SendError;

use super::Hooks;
use super::wire::{BULK, End, Wire};
use crate::control::{Card, ChunkPiece, Message, Offer};
use crate::error::{Error, ErrorKind};
use longhaul_files::Watch;

const PIECE: usize = 64 << 10;
/// Interval at which to check whether to continue.
const TICK: Duration = Duration::from_millis(100);

/// Sends `encoded`, the offered manifest, in pieces. Returns when the stream has taken all pieces,
/// so that no later message can overtake them. Returns the [`Card`] (the speed of the receiver's
/// network card) if the receiver sent it in the meantime. `watch` counts each piece.
pub(super) async fn send_list(
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
        // After the last piece wait until the whole queue is free: then the stream has taken all.
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
                (Err(SendError(())), _) => return Err(End::Lost("no message can be sent".into())),
            },
            message = wire.next() => {
                let message = message?;
                hooks.on_message(&message);
                if let Message::Card(peer_card) = message {
                    card = Some(peer_card);
                }
            }
            _ = tick.tick() => hooks.tick()?,
        }
    }
}

/// Receives the pieces that [`send_list`] sends, and appends them to the manifest of `offer`.
/// `watch` counts each piece.
pub(super) async fn hear(
    wire: &mut Wire,
    hooks: &dyn Hooks,
    watch: &Watch,
    offer: &mut Offer,
) -> Result<(), End> {
    let len = std::mem::take(&mut offer.streamed_len);
    if len > 0 {
        wire.expect_much();
    }
    let mut tick = tokio::time::interval(TICK);
    while (offer.manifest.len() as u64) < len {
        tokio::select! {
            message = wire.next() => {
                let message = message?;
                hooks.on_message(&message);
                if goes_on(&message) {
                    let have = offer.manifest.len();
                    let what = "the other side announced a manifest of";
                    let what = format!("{what} {len} bytes, and sent {have} of them");
                    return Err(Error::new(ErrorKind::Unreachable, what).into());
                }
                let Message::ChunkPiece(piece) = message else { continue };
                let have = offer.manifest.len() as u64;
                let follows = u64::from(piece.offset) == have && !piece.bytes.is_empty();
                if !follows || have + piece.bytes.len() as u64 > len {
                    let what = match follows {
                        false => "the other side sent the pieces of its manifest out of order",
                        true => "the other side sent more of its manifest than it announced",
                    };
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

/// Returns whether `message` is of a kind that the other side, once it has sent the offer, sends
/// only after the manifest.
fn goes_on(message: &Message) -> bool {
    use Message::{Digests, EntryFailed, Outcome, Pass, Relay};
    matches!(message, Pass(_) | Digests(_) | Relay(_) | EntryFailed(_) | Outcome(_))
}
