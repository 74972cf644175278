//! The client's side of channels: the connections for `longhaul_stream`.

use longhaul_stream::Link;
use longhaul_stream::channel::{publish, subscribe};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Error;
use crate::progress::{cancelled, or_cancelled};
use crate::reactor;
use crate::session::random_u64;
use crate::stream::Connector;

pub(crate) type Sending = (publish::Source, watch::Receiver<publish::Status>);

/// Sends messages until the source is finished, or the call is cancelled.
pub(crate) fn send_channel(
    connector: &Connector,
    wish: publish::Wish,
    ready: oneshot::Sender<Result<Sending, Error>>,
) -> Result<publish::Status, Error> {
    let work = async {
        let make = |_: &Link| {
            let (source, control, status) = publish::new(wish, random_u64());
            Ok(((source, status), control))
        };
        let (first, control) = connector.begin(ready, make).await?;
        let again = async || connector.again().await;
        let sent = async { Ok(control.run(first, again, connector.retry_for).await?) };
        or_cancelled(sent, &connector.cancel).await
    };
    reactor::block_on("the channel", work)
}

pub(crate) type Receiving = (mpsc::Receiver<subscribe::Item>, subscribe::Board);

/// Receives messages until the program drops the receiver, or the call is cancelled.
pub(crate) fn receive_channel(
    connector: &Connector,
    wish: subscribe::Wish,
    ready: oneshot::Sender<Result<Receiving, Error>>,
) -> Result<(), Error> {
    let work = async {
        let make = |_: &Link| {
            let (items, control, board) = subscribe::new(wish);
            Ok(((items, board), control))
        };
        let (first, control) = connector.begin(ready, make).await?;
        let again = async || connector.again().await;
        control.run(first, again, connector.retry_for, connector.cancel.wished()).await?;
        // A cancelled receiver has already told the server that it leaves.
        if connector.cancel.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    };
    reactor::block_on("the channel", work)
}
