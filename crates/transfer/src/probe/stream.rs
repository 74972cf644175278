//! Measures TCP over the stream of a session.

use std::time::Duration;

use longhaul_net::clock;
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use tokio::time::timeout;

use super::GRACE;
use crate::control::{ChunkPiece, Frame, Message, ProbeCount};
use crate::error::{Error, ErrorKind};
use crate::session::Session;

/// Bytes of content in one message.
const PIECE: usize = 256 << 10;

/// Writes for `span`, as fast as the stream accepts. The caller then sends the returned (empty)
/// [`ProbeCount`], which ends [`receive`].
pub(super) async fn send(session: &mut Session, span: Duration) -> Result<ProbeCount, Error> {
    let piece = ChunkPiece { bytes: vec![0x55; PIECE], ..ChunkPiece::default() };
    let piece = Frame::from(Message::ChunkPiece(piece));
    let began = clock::now();
    let work = async {
        while clock::duration(clock::now().since(began)) < span {
            session.write(&piece).await?;
        }
        Ok(ProbeCount::default())
    };
    timeout(span + GRACE, work).await.map_err(|_| stuck())?
}

/// Reads until a [`ProbeCount`] arrives; returns the number of bytes after the first message, and
/// their rate.
pub(super) async fn receive(session: &mut Session, span: Duration) -> Result<ProbeCount, Error> {
    let mut bytes = 0;
    let mut first = None;
    let mut last = clock::now();
    let work = async {
        loop {
            match session.read::<Frame>().await?.and_then(|frame| frame.message) {
                Some(Message::ChunkPiece(piece)) => {
                    last = clock::now();
                    // The bytes of the first message do not count: it is unknown how long they took
                    // to arrive.
                    match first {
                        None => first = Some(last),
                        Some(_) => bytes += piece.bytes.len() as u64,
                    }
                }
                Some(Message::ProbeCount(_)) => break,
                Some(_) => {}
                None => return Err(Error::new(ErrorKind::Unfinished, "the other side hung up")),
            }
        }
        let span = first.map_or(Span::ZERO, |first| last.since(first));
        let rate_bps = if span == Span::ZERO { 0 } else { (Bytes::new(bytes) / span).as_bps() };
        Ok(ProbeCount { bytes, rate_bps, ..ProbeCount::default() })
    };
    timeout(span + GRACE, work).await.map_err(|_| stuck())?
}

fn stuck() -> Error {
    Error::new(ErrorKind::Stalled, "a measured stream got stuck")
        .advise("check whether a firewall on the path blocks TCP")
}
