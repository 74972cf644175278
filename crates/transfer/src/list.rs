//! The client's side of listings, and the task that serves all calls over one connection to a host.

use std::cell::LazyCell;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::calls::{Calls, Peer, connected};
use crate::control::list::{self, List, Listed, ListedName};
use crate::error::{Error, ErrorKind};
use crate::file::{self, Opened, Opening};
use crate::progress::{Cancel, or_cancelled};
use crate::reactor;
use crate::server_status::ServerStatus;
use crate::session::{Connection, Session};
use crate::watching;

pub use longhaul_files::list::{NameKind, Named};
pub use longhaul_files::manifest::FileTime;
use longhaul_proto::remembered::Remembered;

/// Timeout for a server, which gives a sign of life twice a second.
const SILENT: Duration = Duration::from_secs(30);
/// How long the first stream of a connection may wait for a call. The server closes a stream
/// without a first message after 15 s.
const UNUSED: Duration = Duration::from_secs(5);
/// How long a cancelled connection waits for its calls to say goodbye.
const GOODBYE: Duration = Duration::from_secs(3);

struct Listing {
    session: Session,
    done: bool,
}

impl Listing {
    async fn ask(mut session: Session, path: &[u8]) -> Result<Listing, Error> {
        session.ask_for(list::SERVICE, list::VERSION);
        session.write(&List { path: path.to_vec() }).await?;
        Ok(Listing { session, done: false })
    }

    async fn next(&mut self) -> Result<Option<Vec<Named>>, Error> {
        let early = || Error::new(ErrorKind::Unfinished, "the server ended the listing early");
        while !self.done {
            let silent = |_| {
                let what = format!("the server was silent for {} s", SILENT.as_secs());
                Error::new(ErrorKind::Unfinished, what)
            };
            let piece = timeout(SILENT, self.session.read::<Listed>()).await.map_err(silent)??;
            let Listed { names, done } = piece.ok_or_else(early)?;
            self.done = done;
            if !names.is_empty() {
                return names
                    .into_iter()
                    .map(ListedName::check)
                    .collect::<Result<_, _>>()
                    .map(Some);
            }
        }
        Ok(None)
    }

    async fn end(self) {
        // The listing is complete, so a failed goodbye does not matter.
        let _ = self.session.leave().await;
    }
}

pub(crate) enum Order {
    /// List the names at a path; the last answer is empty.
    List(Vec<u8>, mpsc::Sender<Result<Vec<Named>, Error>>),
    Status(Duration, mpsc::Sender<Result<Vec<ServerStatus>, Error>>),
    OpenFile(Opening, oneshot::Sender<Result<Opened, Error>>),
}

/// Opens a connection, reports the result on `ready`, and answers `orders` until all senders are
/// dropped or the caller cancels. Then closes the connection, so that the server learns at once
/// that the calls have ended.
pub(crate) fn serve_orders(calls: Calls<Peer, Order>) {
    let Calls { options, observer, cancel, ready, mut orders } = calls;
    let work = async {
        let opened = or_cancelled(connected(&options, &*observer), &cancel).await;
        let (connection, mut first, peer) = match opened {
            Ok((connection, first, peer)) => (connection, Some(first), peer),
            Err(error) => {
                let _ = ready.send(Err(error));
                return Ok(());
            }
        };
        let _ = ready.send(Ok(peer));
        let address = first.as_ref().map(|first| first.remote.ip());
        let paths = options.path_memory.as_ref().zip(address);
        // The path memory is read when the first file is opened.
        let path = LazyCell::new(|| paths.and_then(|(memory, at)| memory.find_for_reads(at)));
        let mut calls = JoinSet::new();
        let unused = sleep(UNUSED);
        tokio::pin!(unused);
        loop {
            let order = tokio::select! {
                () = cancel.wished() => break,
                order = orders.recv() => order,
                () = &mut unused, if first.is_some() => {
                    // Close the unused stream before the server treats it as lost.
                    let ended = first.take().map(Session::knock);
                    calls.spawn_local(async move {
                        if let Some(ended) = ended {
                            let _ = ended.await;
                        }
                    });
                    continue;
                }
                Some(_) = calls.join_next() => continue,
            };
            let Some(order) = order else { break };
            let remembered = matches!(order, Order::OpenFile(..)).then(|| *path).flatten();
            let (connection, first) = (connection.clone(), first.take());
            let cancel = cancel.clone();
            calls.spawn_local(async move {
                answer(&connection, first, remembered, order, &cancel).await;
            });
        }
        let last = async { while calls.join_next().await.is_some() {} };
        let late = async {
            cancel.wished().await;
            sleep(GOODBYE).await;
        };
        tokio::select! {
            () = last => {}
            () = late => {}
        }
        // The connection is closed only once nothing else uses it.
        calls.shutdown().await;
        drop(first);
        connection.close().await;
        Ok(())
    };
    // If the runtime cannot start, `ready` is dropped, so the caller gets an error.
    let _ = reactor::block_on("the connection", work);
}

/// Serves one call until its caller drops it, or until `cancel`. `remembered` has the rate,
/// round-trip time and loss that a copy over the same path has found.
async fn answer(
    connection: &Connection,
    first: Option<Session>,
    remembered: Option<Remembered>,
    order: Order,
    cancel: &Cancel,
) {
    let (path, tell) = match order {
        Order::List(path, tell) => (path, tell),
        Order::Status(every, tell) => {
            return watching::serve(connection, first, every, tell, cancel).await;
        }
        Order::OpenFile(what, tell) => {
            return file::serve(connection, first, (what, remembered), tell, cancel).await;
        }
    };
    let listed = listed(connection, first, &path, &tell);
    // Stop reading when the caller has dropped its receiver.
    let ended = tokio::select! {
        ended = listed => ended,
        () = tell.closed() => Ok(()),
        () = cancel.wished() => Ok(()),
    };
    if let Err(error) = ended {
        let _ = tell.send(Err(error.at_requested(&path))).await;
    }
}

async fn listed(
    connection: &Connection,
    first: Option<Session>,
    path: &[u8],
    tell: &mpsc::Sender<Result<Vec<Named>, Error>>,
) -> Result<(), Error> {
    let session = match first {
        Some(session) => session,
        None => connection.open(list::SERVICE, list::VERSION).await?,
    };
    let mut listing = Listing::ask(session, path).await?;
    while let Some(names) = listing.next().await? {
        if tell.send(Ok(names)).await.is_err() {
            return Ok(());
        }
    }
    // An empty batch marks the listing's end; without it the listing was cut off.
    let _ = tell.send(Ok(Vec::new())).await;
    listing.end().await;
    Ok(())
}
