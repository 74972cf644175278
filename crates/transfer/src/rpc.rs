//! The client's side of remote procedure calls: the connections for `longhaul_rpc`.

use std::convert::Infallible;
use std::time::Duration;

use longhaul_rpc::client::Program;

use crate::calls::{Again, Calls, keep};

/// Opens a connection, reports the result on `calls.ready`, and makes the calls of `program` over
/// this and later connections. After a loss, tries to reconnect for `retry_for`.
pub(crate) fn serve_rpc(calls: Calls<(), Infallible>, program: Program, retry_for: Duration) {
    keep(calls, "calls", async |first, again: &Again, _, cancel| {
        program.run(first, async || again.connect().await, retry_for, cancel.wished()).await;
    });
}
