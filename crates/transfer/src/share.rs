//! The client's side of the shared tree: the connections for `longhaul_share`.

use std::time::Duration;

use longhaul_share::client::{self, Order};

use crate::calls::{Again, Calls, keep};

/// Opens a connection, reports the result on `calls.ready`, and answers the `orders` of `calls`
/// over this and later connections, until all senders of orders are dropped or `calls.cancel` is
/// set. Retries a lost connection for `retry_for`.
pub(crate) fn serve_share(calls: Calls<(), Order>, retry_for: Duration) {
    keep(calls, "the shared tree", async |first, again: &Again, orders, cancel| {
        let connect = async || again.connect().await;
        client::run(first, connect, retry_for, orders, cancel.wished()).await;
    });
}
