//! Where the control plane runs: one tokio runtime on the calling thread.

use std::future::Future;

use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::error::{Error, ErrorKind};

/// Runs `work` to its end; `what` names it where that cannot begin.
pub(crate) fn block_on<T>(
    what: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Unfinished, format!("cannot start {what}: {error}"))
    })?;
    let done = LocalSet::new().block_on(&runtime, work);
    // A thread that waits for a disk which does not answer must not keep the process.
    runtime.shutdown_background();
    done
}
