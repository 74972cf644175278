//! The service of pipes. A pipe is content that a client writes to a file without knowing its
//! length at the start. The client sends the content as several parts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Server;
use super::dispatch::first;
use super::door::Access;
use super::events::{Moved, ServedClient};
use super::running::{Running, attend};
use crate::control::pipe::{self, Extent, Pipe, PipeEnd, Piped};
use crate::error::{Error, ErrorKind};
use crate::session::{PeerId, Service, Session, allow};
use crate::write::extent::{ExtentOf, PipedFile};
use longhaul_files::CHUNK;
use longhaul_files::digest::Digest;
use longhaul_files::manifest::MAX_OBJECT;

/// Maximum number of open pipes of one client, because each keeps a file open.
const MOST: usize = 16;

/// The open pipes, by client and pipe id.
#[derive(Default)]
pub(super) struct Pipes(RefCell<HashMap<(PeerId, u64), Arc<PipedFile>>>);

impl Pipes {
    /// Registers a pipe until the entry is dropped.
    fn enter(&self, peer: PeerId, number: u64, file: Arc<PipedFile>) -> Result<Entered<'_>, Error> {
        let mut pipes = self.0.borrow_mut();
        let refused = |what: String| Err(Error::new(ErrorKind::Usage, what));
        if pipes.contains_key(&(peer, number)) {
            return refused(format!("{peer} already has a pipe of this number"));
        }
        if pipes.keys().filter(|(other, _)| *other == peer).count() >= MOST {
            return refused(format!("{peer} has {MOST} pipes open, which is the limit"));
        }
        pipes.insert((peer, number), file.clone());
        Ok(Entered { pipes: self, key: (peer, number), file })
    }

    pub(super) fn part(&self, peer: PeerId, extent: &Extent) -> Result<ExtentOf, Error> {
        let pipes = self.0.borrow();
        let file = pipes.get(&(peer, extent.pipe)).ok_or_else(|| {
            Error::new(ErrorKind::Usage, "the part belongs to no open pipe")
                .advise("run the pipe again")
        })?;
        if !extent.offset.is_multiple_of(CHUNK) || extent.offset > MAX_OBJECT {
            return Err(Error::new(ErrorKind::Usage, "the part starts at an impossible offset"));
        }
        Ok(ExtentOf { file: file.clone(), first: extent.offset / CHUNK })
    }
}

/// An open pipe. Dropping it ends the pipe, and removes the file unless it has its final name.
struct Entered<'a> {
    pipes: &'a Pipes,
    key: (PeerId, u64),
    file: Arc<PipedFile>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.pipes.0.borrow_mut().remove(&self.key);
        // Closing a file may block on its disk.
        let file = self.file.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || file.end())),
            Err(_) => file.end(),
        }
    }
}

pub(super) struct Piping {
    server: Rc<Server>,
    ended: mpsc::UnboundedSender<Result<(), Error>>,
}

impl Service for Piping {
    fn name(&self) -> &'static str {
        pipe::SERVICE
    }

    fn version(&self) -> u32 {
        pipe::VERSION
    }

    fn right(&self) -> &'static str {
        allow::FILES
    }

    fn serve(self: Rc<Self>, stream: Session) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            let Some((session, asked)) = first::<Pipe>(&self.server, stream).await else {
                return;
            };
            let server = &self.server;
            let client = ServedClient::of_pipe(&session, &asked);
            let answer = async |running: &Running, session: &mut Session| {
                self.answer(running, session, &asked).await
            };
            let ended = attend(server, session, client, Access::Write, answer).await;
            // The server's main loop, which takes the result, may have ended.
            let _ = self.ended.send(ended);
        })
    }
}

impl Piping {
    /// Returns the service, which sends the result of each pipe to `ended`.
    pub(super) fn new(
        server: Rc<Server>,
        ended: mpsc::UnboundedSender<Result<(), Error>>,
    ) -> Piping {
        Piping { server, ended }
    }

    async fn answer(
        &self,
        running: &Running,
        session: &mut Session,
        asked: &Pipe,
    ) -> Result<(), Error> {
        let path = Path::new(OsStr::from_bytes(&asked.path));
        let place = self.server.door.place(&session.peer, path, Access::Write)?;
        let file = Arc::new(PipedFile::default());
        let entered = self.server.pipes.enter(session.peer, asked.pipe, file.clone())?;
        at_disk(move || file.begin(&place)).await?;
        session.write(&Piped { done: false }).await?;
        // The client may be as slow as its input, so there is no timeout.
        let next = async { Ok::<_, Error>(session.read::<PipeEnd>().await?) };
        let PipeEnd { total, digest } = running.or(next).await?.ok_or_else(|| {
            Error::new(ErrorKind::Unfinished, "the client disconnected before the end of its pipe")
        })?;
        let digest: Digest = digest
            .try_into()
            .map_err(|_| Error::new(ErrorKind::Usage, "the digest of the pipe is malformed"))?;
        let file = entered.file.clone();
        at_disk(move || file.finish(total, &digest)).await?;
        running.note(Moved { bytes: total, files: 1, failed: 0 });
        Ok(session.write(&Piped { done: true }).await?)
    }
}

async fn at_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let ended = |_| Error::new(ErrorKind::Unfinished, "the disk thread ended early");
    tokio::task::spawn_blocking(work).await.map_err(ended)?
}
