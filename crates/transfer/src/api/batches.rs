//! Items of a call, which the engine (the library's threads) sends in batches and a program reads
//! one by one.

use std::task::{Context, Poll};
use std::vec;

use tokio::sync::mpsc;

use crate::error::public::Error;

/// Returns the items of a batch; `None` when the call is complete. The argument is `None` if the
/// channel has closed.
type Open<B, T> = fn(Option<B>) -> Result<Option<Vec<T>>, Error>;

/// The reading end of a call's results. An error is the last item.
pub(super) struct Batches<B, T> {
    batches: mpsc::Receiver<B>,
    open: Open<B, T>,
    items: vec::IntoIter<T>,
    is_over: bool,
}

impl<B, T> Batches<B, T> {
    pub(super) fn new(batches: mpsc::Receiver<B>, open: Open<B, T>) -> Batches<B, T> {
        Batches { batches, open, items: Vec::new().into_iter(), is_over: false }
    }

    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<T, Error>>> {
        loop {
            if let Some(item) = self.items.next() {
                return Poll::Ready(Some(Ok(item)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let batch = std::task::ready!(self.batches.poll_recv(context));
            match (self.open)(batch) {
                Ok(Some(items)) => self.items = items.into_iter(),
                Ok(None) => self.is_over = true,
                Err(error) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

// No field is pinned.
impl<B, T> Unpin for Batches<B, T> {}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::error::public::ErrorKind;

    fn open(batch: Option<Vec<u32>>) -> Result<Option<Vec<u32>>, Error> {
        match batch {
            Some(items) if items == [0] => Ok(None),
            Some(items) => Ok(Some(items)),
            None => Err(Error::new(ErrorKind::Unfinished, "cut off")),
        }
    }

    fn read(batches: &[&[u32]]) -> Vec<Option<u32>> {
        let (sender, receiver) = mpsc::channel(8);
        batches.iter().for_each(|batch| sender.try_send(batch.to_vec()).expect("there is room"));
        drop(sender);
        let (mut reader, mut read) = (Batches::new(receiver, open), Vec::new());
        while let Poll::Ready(Some(item)) =
            reader.poll_next(&mut Context::from_waker(Waker::noop()))
        {
            read.push(item.ok());
        }
        read
    }

    #[test]
    fn items_are_returned_in_order_until_the_last_batch() {
        assert_eq!(read(&[&[1, 2], &[], &[3], &[0], &[4]]), [Some(1), Some(2), Some(3)]);
        assert_eq!(read(&[&[0]]), []);
    }

    #[test]
    fn a_channel_that_closes_before_the_call_is_complete_gives_an_error_as_the_last_item() {
        assert_eq!(read(&[&[1]]), [Some(1), None]);
        assert_eq!(read(&[]), [None]);
    }
}
