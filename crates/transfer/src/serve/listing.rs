//! The service of listings: the names in a folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Server;
use super::dispatch::first;
use super::door::Access;
use super::events::ServedClient;
use super::reading::{send, signing};
use super::running::{Running, attend};
use crate::control::list::{self, List, Listed, ListedName, PIECE};
use crate::error::{Error, ErrorKind};
use crate::session::{PeerId, Service, Session, allow};
use longhaul_files::{DiskPermits, Place};

/// Maximum number of folders that are read at the same time; for one client at most half of this
/// number. Other listings wait.
const READING: usize = 16;
/// Maximum number of messages that wait for the stream.
const WAITING: usize = 2;
/// Maximum interval between messages to the client: names found so far, or a sign of life.
const SIGN: Duration = Duration::from_millis(500);
/// Approximate bytes of a name's attributes in a message.
const ATTRIBUTES: usize = 40;

pub(super) struct Listing {
    server: Rc<Server>,
    permits: DiskPermits<PeerId>,
}

impl Service for Listing {
    fn name(&self) -> &'static str {
        list::SERVICE
    }

    fn version(&self) -> u32 {
        list::VERSION
    }

    fn right(&self) -> &'static str {
        allow::FILES
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some((session, asked)) = first::<List>(&self.server, stream).await else {
                return;
            };
            let server = &self.server;
            let client = ServedClient::of_list(&session, &asked);
            let answer = async |running: &Running, session: &mut Session| {
                running.or(self.answer(session, &asked)).await
            };
            // The client and the server's observer have the result already.
            let _ = attend(server, session, client, Access::Read, answer).await;
        })
    }
}

impl Listing {
    pub(super) fn new(server: Rc<Server>) -> Listing {
        Listing { server, permits: DiskPermits::new(READING) }
    }

    async fn answer(&self, session: &mut Session, asked: &List) -> Result<(), Error> {
        let path = Path::new(OsStr::from_bytes(&asked.path));
        let place = self.server.door.place(&session.peer, path, Access::Read)?;
        let permit = self.permits.take(session.peer);
        let permit = signing::<Listed, _>(session, SIGN, permit).await?;
        let (pieces_end, mut pieces) = mpsc::channel(WAITING);
        let reading = tokio::task::spawn_blocking(move || {
            // Keep the permit until the reading ends, even if the client disconnects earlier.
            let _permit = permit;
            read(&place, &pieces_end)
        });
        loop {
            let piece = match timeout(SIGN, pieces.recv()).await {
                Ok(Some(names)) => Listed { names, done: false },
                Ok(None) => break,
                Err(_) => Listed::default(),
            };
            send(session, piece).await?;
        }
        let ended = |_| Error::new(ErrorKind::Unfinished, "the listing ended early");
        reading.await.map_err(ended)??;
        send(session, Listed { names: Vec::new(), done: true }).await
    }
}

fn read(place: &Place, pieces: &mpsc::Sender<Vec<ListedName>>) -> Result<(), Error> {
    let (mut piece, mut bytes, mut last_sign) = (Vec::new(), 0, Instant::now());
    longhaul_files::list::list(place, &mut |named| {
        let target = named.target.as_ref().map_or(0, Vec::len);
        bytes += named.name.len() + target + ATTRIBUTES;
        piece.push(ListedName::from(named));
        if bytes < PIECE && last_sign.elapsed() < SIGN {
            return true;
        }
        (bytes, last_sign) = (0, Instant::now());
        // Fails when the answer has ended, for example because the client disconnected.
        pieces.blocking_send(std::mem::take(&mut piece)).is_ok()
    })?;
    let _ = pieces.blocking_send(piece);
    Ok(())
}
