//! Bodies of replies: a text, or a stream of pieces.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

const WAITING: usize = 1;

#[derive(Debug)]
pub(crate) enum Body {
    /// The whole body; `None` if the body is empty or was sent.
    Whole(Option<Bytes>),
    /// Pieces, and `None` at the end. If the sender fails, or is dropped before the end, the server
    /// closes the connection. A client then knows that the body is incomplete.
    Pieces(mpsc::Receiver<io::Result<Option<Bytes>>>),
}

impl Body {
    pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
        Body::Whole(Some(text.into()).filter(|bytes| !bytes.is_empty()))
    }

    pub(crate) fn pieces() -> (Pieces, Body) {
        let (pieces, body) = mpsc::channel(WAITING);
        (Pieces(pieces), Body::Pieces(body))
    }
}

pub(crate) struct Pieces(mpsc::Sender<io::Result<Option<Bytes>>>);

impl Pieces {
    /// Sends a piece, or the error that ends the body; `false` if the client has disconnected.
    pub(crate) async fn send(&self, piece: io::Result<Vec<u8>>) -> bool {
        self.0.send(piece.map(|bytes| Some(bytes.into()))).await.is_ok()
    }

    /// Waits until there is room for a piece, so that a piece is not read before it can be sent;
    /// `false` if the client has disconnected.
    pub(crate) async fn has_room(&self) -> bool {
        self.0.reserve().await.is_ok()
    }

    /// Ends the body and marks it as complete.
    pub(crate) async fn end(&self) {
        let _ = self.0.send(Ok(None)).await;
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
                let incomplete = || Err(io::ErrorKind::UnexpectedEof.into());
                let piece = pieces.poll_recv(cx).map(|piece| piece.unwrap_or_else(incomplete));
                piece.map(|piece| piece.transpose().map(|piece| piece.map(Frame::data)))
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

/// A body, and a mark that the connection is busy until the body is dropped.
pub(crate) struct WorkBody {
    pub(crate) body: Body,
    pub(crate) _work: Arc<()>,
}

impl hyper::body::Body for WorkBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Body as _;
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_body_is_complete_only_if_its_sender_says_so() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for is_complete in [true, false] {
                let (pieces, mut body) = Body::pieces();
                let mut next =
                    async || std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                assert!(pieces.send(Ok(vec![7])).await);
                assert_eq!(next().await.unwrap().unwrap().into_data().unwrap(), [7][..]);
                if is_complete {
                    pieces.end().await;
                }
                drop(pieces);
                let end = next().await.map(|end| end.map(|_| ()).unwrap_err().kind());
                assert_eq!(end, (!is_complete).then_some(io::ErrorKind::UnexpectedEof));
            }
        });
    }
}
