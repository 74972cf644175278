//! Bodies of replies: a text, or a stream of pieces.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::patient::UNREAD;

/// Maximum number of queued pieces.
const WAITING: usize = 2;

#[derive(Debug)]
pub(crate) enum Body {
    /// The whole body; `None` after it was sent.
    Whole(Option<Bytes>),
    /// Pieces until their sender is dropped. An error closes the connection. A client then knows
    /// that the body is incomplete.
    Pieces(mpsc::Receiver<io::Result<Bytes>>),
}

impl Body {
    pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
        Body::Whole(Some(text.into()).filter(|bytes| !bytes.is_empty()))
    }

    /// Returns a body of pieces, and its sender.
    pub(crate) fn pieces() -> (Pieces, Body) {
        let (pieces, body) = mpsc::channel(WAITING);
        (Pieces(pieces), Body::Pieces(body))
    }
}

/// Sends the pieces of a body.
pub(crate) struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Pieces {
    /// Sends a piece, or the error that ends the body; `false` if the client no longer reads.
    pub(crate) async fn send(&self, piece: io::Result<Vec<u8>>) -> bool {
        matches!(timeout(UNREAD, self.0.send(piece.map(Bytes::from))).await, Ok(Ok(())))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Pieces(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Body::Pieces(_) => SizeHint::default(),
        }
    }
}
