//! The client's side of the status service.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::control::server_status::{self, StatusAsk, StatusReport};
use crate::error::{Error, ErrorKind};
use crate::progress::Cancel;
use crate::server_status::ServerStatus;
use crate::session::{Connection, Session};

/// How long a server may be silent: it reports at least every 10 s.
const SILENT: Duration = Duration::from_secs(30);

/// Requests the status on the `first` stream of the connection or on a new one, and passes each
/// report to `tell`, until the receiver of `tell` is dropped or the work is cancelled. An error
/// ends the reports, and is passed to `tell` too.
pub(crate) async fn serve(
    connection: &Connection,
    first: Option<Session>,
    every: Duration,
    tell: mpsc::Sender<Result<Vec<ServerStatus>, Error>>,
    cancel: &Cancel,
) {
    if let Err(error) = watch(connection, first, every, &tell, cancel).await {
        let _ = tell.send(Err(error)).await;
    }
}

async fn watch(
    connection: &Connection,
    first: Option<Session>,
    every: Duration,
    tell: &mpsc::Sender<Result<Vec<ServerStatus>, Error>>,
    cancel: &Cancel,
) -> Result<(), Error> {
    let mut session = match first {
        Some(mut session) => {
            session.ask_for(server_status::SERVICE, server_status::VERSION);
            session
        }
        None => connection.open(server_status::SERVICE, server_status::VERSION).await?,
    };
    let interval_millis = u32::try_from(every.as_millis()).unwrap_or(u32::MAX);
    session.write(&StatusAsk { interval_millis }).await?;
    loop {
        let silent = |_| {
            let what = format!("the server was silent for {} s", SILENT.as_secs());
            Error::new(ErrorKind::Unfinished, what)
        };
        let status = tokio::select! {
            status = timeout(SILENT, session.read::<StatusReport>()) => status.map_err(silent)??,
            () = tell.closed() => break,
            () = cancel.wished() => break,
        };
        let early = || Error::new(ErrorKind::Unfinished, "the server has ended its reports");
        let status = ServerStatus::from(status.ok_or_else(early)?);
        if tell.send(Ok(vec![status])).await.is_err() {
            break;
        }
    }
    // Nobody waits for another report, so a failed goodbye does not matter.
    let _ = session.leave().await;
    Ok(())
}
