//! The runtime of the control plane: tokio on the calling thread.

use std::future::Future;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::error::{Error, ErrorKind};

/// Runs `work` to its end; `what` names it in the error if the runtime cannot start.
pub(crate) fn block_on<T>(
    what: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Unfinished, format!("cannot start {what}: {error}"))
    })?;
    let done = LocalSet::new().block_on(&runtime, work);
    // A thread that waits for a hanging disk must not keep the process alive.
    runtime.shutdown_background();
    done
}
