//! The client's side of the shared tree: the connections for `longhaul_share`.

use std::time::Duration;

use longhaul_share::client::{self, Order};

use crate::calls::{Calls, connected, or_cancelled};
use crate::error::Error;
use crate::reactor;
use crate::session;

/// Opens a connection, reports it on `ready`, and answers `orders` over it and its successors,
/// until all senders of orders are dropped. Retries a lost connection for `retry_for`.
pub(crate) fn serve_share(calls: Calls<(), Order>, retry_for: Duration) {
    let Calls { options, observer, cancel, ready, orders } = calls;
    let connect = async || {
        let (connection, first, _) = connected(&options, &*observer).await?;
        Ok((connection, first))
    };
    let work = async {
        let first = match or_cancelled(connect(), &cancel).await {
            Ok(first) => first,
            Err(error) => {
                // The receiver may be gone.
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let _ = ready.send(Ok(()));
        let again = async || {
            connect().await.map_err(|error: Error| {
                let is_silence = error.is_silence;
                session::Error { is_silence, ..session::Error::from(&error) }
            })
        };
        client::run(first, again, retry_for, orders, cancel.wished()).await;
        Ok(())
    };
    // If it ends early, by cancellation or without a runtime, its callers get an error.
    let _ = reactor::block_on("the shared tree", work);
}
