//! Copies between memory and another host: [`Client::read`](super::Client::read) and
//! [`Client::write`](super::Client::write).

use std::ffi::OsString;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_io::AsyncRead;
use longhaul_files::MemoryFolder;
use longhaul_text::CallOption;
use tokio::sync::mpsc;

use super::client::Client;
use super::copy::CopyRequest;
use crate::error;
use crate::error::public::{Error, ErrorKind};
use crate::location::Location;
use crate::summary::Summary;

const MOST: u64 = 256 << 20;
const PIECE: usize = 1 << 16;
/// Maximum number of pieces from the reader that wait for the engine (the copy's thread).
const WAITING: usize = 4;
/// Name of the content in memory if its location has none.
const NAME: &str = "content";

type Configure = Box<dyn FnOnce(CopyRequest) -> CopyRequest + Send>;
type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A read of a remote file into memory: await it. Dropping the future cancels the transfer.
#[must_use = "a file is read when its request is awaited"]
pub struct ReadRequest {
    client: Client,
    source: Result<Location, Error>,
    most: u64,
    configure: Configure,
}

impl ReadRequest {
    pub(super) fn new(client: &Client, source: Result<Location, Error>) -> ReadRequest {
        let (client, configure) = (client.clone(), Box::new(|copy| copy));
        ReadRequest { client, source, most: MOST, configure }
    }

    /// Sets the maximum size of the file, by default 256 MiB. A larger file is refused as soon as
    /// its size is known.
    pub fn max_bytes(self, most: u64) -> ReadRequest {
        ReadRequest { most, ..self }
    }

    /// Sets options of the copy: `configure` receives the request and returns it. Only the last
    /// call has an effect.
    pub fn with(
        self,
        configure: impl FnOnce(CopyRequest) -> CopyRequest + Send + 'static,
    ) -> ReadRequest {
        ReadRequest { configure: Box::new(configure), ..self }
    }

    async fn run(self) -> Result<Vec<u8>, Error> {
        let source = self.source?;
        let (folder, name) = (MemoryFolder::new(self.most), name(&source));
        let copy = self.client.copy([source.clone()], PathBuf::from(&name));
        let copy = (self.configure)(copy.local_files(&folder));
        let ended = copy.start()?.finish().await;
        // Only the limit can prevent the content's file from being written.
        let is_limit = |error: &Error| {
            error.kind == ErrorKind::LocalFile && error.path.as_deref() == Some(name.as_ref())
        };
        let summary = ended.map_err(|error| match is_limit(&error) {
            true => {
                let (most, why) = (self.most, error.what());
                let what = format!("cannot read {source} into {most} bytes of memory: {why}");
                too_large(ErrorKind::LocalFile, what)
            }
            false => error,
        })?;
        let taken = folder.take(&name).filter(|_| summary.failed_files == 0);
        let what = match summary.failed_files {
            0 => "is not a file",
            _ => "cannot be read completely",
        };
        taken.ok_or_else(|| Error::new(ErrorKind::RemoteFile, format!("{source} {what}")))
    }
}

impl IntoFuture for ReadRequest {
    type Output = Result<Vec<u8>, Error>;
    type IntoFuture = Pending<'static, Vec<u8>>;

    fn into_future(self) -> Pending<'static, Vec<u8>> {
        Box::pin(self.run())
    }
}

impl fmt::Debug for ReadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRequest").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A write of content to a remote file: await it. Dropping the future cancels the transfer.
#[must_use = "content is written when its request is awaited"]
pub struct WriteRequest<'a> {
    client: Client,
    reader: Pin<Box<dyn AsyncRead + Send + 'a>>,
    destination: Result<Location, Error>,
    most: Option<u64>,
    configure: Configure,
}

impl<'a> WriteRequest<'a> {
    pub(super) fn new(
        client: &Client,
        reader: impl AsyncRead + Send + 'a,
        destination: Result<Location, Error>,
    ) -> WriteRequest<'a> {
        let reader = Box::pin(reader);
        let (client, configure) = (client.clone(), Box::new(|copy| copy));
        WriteRequest { client, reader, destination, most: None, configure }
    }

    /// Sets the maximum number of bytes that the reader may return. By default there is no limit.
    pub fn max_bytes(self, most: u64) -> WriteRequest<'a> {
        WriteRequest { most: Some(most), ..self }
    }

    /// Sets options of the copy: `configure` receives the request and returns it. Only the last
    /// call has an effect.
    pub fn with(
        self,
        configure: impl FnOnce(CopyRequest) -> CopyRequest + Send + 'static,
    ) -> WriteRequest<'a> {
        WriteRequest { configure: Box::new(configure), ..self }
    }

    async fn run(self) -> Result<Summary, Error> {
        let destination = self.destination?;
        let (pieces, brought) = mpsc::channel(WAITING);
        let copy = self.client.copy([PathBuf::from(name(&destination))], destination);
        let brought = Brought { pieces: brought, piece: Vec::new(), at: 0, is_over: false };
        let mut transfer = (self.configure)(copy.input(brought)).start()?;
        let (mut finish, mut failed) = (pin!(transfer.finish()), None);
        let mut bringing = pin!(bring(self.reader, pieces, self.most));
        let mut is_over = false;
        let finished = poll_fn(|context| {
            if !is_over && let Poll::Ready(brought) = bringing.as_mut().poll(context) {
                (is_over, failed) = (true, brought.err());
            }
            finish.as_mut().poll(context)
        });
        let finished = finished.await;
        failed.map_or(finished, Err)
    }
}

impl<'a> IntoFuture for WriteRequest<'a> {
    type Output = Result<Summary, Error>;
    type IntoFuture = Pending<'a, Summary>;

    fn into_future(self) -> Pending<'a, Summary> {
        Box::pin(self.run())
    }
}

impl fmt::Debug for WriteRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteRequest").field("to", &self.destination).finish_non_exhaustive()
    }
}

fn name(location: &Location) -> OsString {
    location.path().file_name().unwrap_or(NAME.as_ref()).to_owned()
}

fn too_large(kind: ErrorKind, what: String) -> Error {
    error::Error::new(kind, what).advise(format!("raise {}", CallOption::MaxBytes)).into()
}

async fn bring(
    mut reader: Pin<Box<dyn AsyncRead + Send + '_>>,
    pieces: mpsc::Sender<io::Result<Vec<u8>>>,
    most: Option<u64>,
) -> Result<(), Error> {
    let (mut piece, mut bytes) = (vec![0; PIECE], 0);
    loop {
        let read = poll_fn(|context| reader.as_mut().poll_read(context, &mut piece)).await;
        let read = match read {
            // An empty piece marks the content's end. If the channel closes without an empty piece,
            // the caller dropped the future.
            Ok(0) => {
                let _ = pieces.send(Ok(Vec::new())).await;
                return Ok(());
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                // The engine must not mistake the error for the content's end.
                let _ = pieces.send(Err(error.kind().into())).await;
                let what = format!("cannot read the content to write: {error}");
                return Err(Error::new(ErrorKind::LocalFile, what).caused_by(error));
            }
        };
        bytes += read as u64;
        if let Some(most) = most.filter(|most| bytes > *most) {
            let _ = pieces.send(Err(io::ErrorKind::FileTooLarge.into())).await;
            let what = format!("the content to write is larger than {most} bytes");
            return Err(too_large(ErrorKind::Usage, what));
        }
        if pieces.send(Ok(piece[..read].to_vec())).await.is_err() {
            return Ok(());
        }
    }
}

struct Brought {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
    is_over: bool,
}

impl io::Read for Brought {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() && !self.is_over {
            let Some(piece) = self.pieces.blocking_recv() else {
                let what = "the write was dropped before the reader ended";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            };
            (self.piece, self.at) = (piece?, 0);
            self.is_over = self.piece.is_empty();
        }
        let read = io::Read::read(&mut &self.piece[self.at..], buf)?;
        self.at += read;
        Ok(read)
    }
}
