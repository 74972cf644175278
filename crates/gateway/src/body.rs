//! What is sent behind the head of a reply: a text, or pieces as they are made.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Pieces that wait for the connection.
const WAITING: usize = 2;
/// How long a client may leave a piece unread.
const UNREAD: Duration = Duration::from_secs(60);

/// The body of a reply.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it; nothing once it was sent.
    Whole(Option<Bytes>),
    /// Pieces until their sender is gone. An error ends the connection, so that a client takes no
    /// part for the whole.
    Pieces(mpsc::Receiver<io::Result<Bytes>>),
}

impl Body {
    pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
        Body::Whole(Some(text.into()).filter(|bytes| !bytes.is_empty()))
    }

    /// A body in pieces, and what takes them.
    pub(crate) fn pieces() -> (Pieces, Body) {
        let (pieces, body) = mpsc::channel(WAITING);
        (Pieces(pieces), Body::Pieces(body))
    }
}

/// Takes the pieces of a body.
pub(crate) struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Pieces {
    /// Sends a piece, or the error that ends the body; `false` once nobody reads any more.
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
