//! Copies between memory and another host: [`Client::read`](super::Client::read) and
//! [`Client::write`](super::Client::write).

use std::ffi::OsString;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;

use futures_io::AsyncRead;
use longhaul_files::MemoryFolder;

use super::client::Client;
use super::copy::CopyRequest;
use crate::error::public::{Error, ErrorKind};
use crate::location::Location;
use crate::summary::Summary;

/// How many bytes are read or written where the caller names no limit.
const MOST: u64 = 256 << 20;
/// How much of a reader is asked for at once.
const PIECE: usize = 1 << 16;
/// The content's name in memory, where its location has none.
const NAME: &str = "content";

type Configure = Box<dyn FnOnce(CopyRequest) -> CopyRequest + Send>;
type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A file of another host to be read into memory: await it. Dropping the future cancels the
/// transfer.
#[must_use = "a file is read once its request is awaited"]
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

    /// How large the file may be (256 MiB). A larger one is refused before its content is sent.
    pub fn max_bytes(self, most: u64) -> ReadRequest {
        ReadRequest { most, ..self }
    }

    /// Sets options of the copy: `configure` gets it and returns it.
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
        let summary = ended.map_err(|error| match error.kind {
            ErrorKind::LocalFile => {
                let what = format!("{source} does not fit {} bytes: {}", self.most, error.what());
                Error::new(ErrorKind::LocalFile, what)
            }
            _ => error,
        })?;
        let taken = folder.take(&name).filter(|_| summary.failed_files == 0);
        taken.ok_or_else(|| Error::new(ErrorKind::RemoteFile, format!("{source} is no file")))
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

/// Content to be written into a file of another host: await it. Dropping the future cancels the
/// transfer.
#[must_use = "content is written once its request is awaited"]
pub struct WriteRequest<'a> {
    client: Client,
    reader: Pin<Box<dyn AsyncRead + Send + 'a>>,
    destination: Result<Location, Error>,
    most: u64,
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
        WriteRequest { client, reader, destination, most: MOST, configure }
    }

    /// How much the reader may bring (256 MiB): its content is held in memory.
    pub fn max_bytes(self, most: u64) -> WriteRequest<'a> {
        WriteRequest { most, ..self }
    }

    /// Sets options of the copy: `configure` gets it and returns it.
    pub fn with(
        self,
        configure: impl FnOnce(CopyRequest) -> CopyRequest + Send + 'static,
    ) -> WriteRequest<'a> {
        WriteRequest { configure: Box::new(configure), ..self }
    }

    async fn run(self) -> Result<Summary, Error> {
        let destination = self.destination?;
        let bytes = read_all(self.reader, self.most).await?;
        let (folder, name) = (MemoryFolder::new(self.most), name(&destination));
        folder.put(&name, bytes);
        let copy = self.client.copy([PathBuf::from(name)], destination);
        (self.configure)(copy.local_files(&folder)).start()?.finish().await
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

/// The last component of a path, without which the other end could not name the file.
fn name(location: &Location) -> OsString {
    location.path().file_name().unwrap_or(NAME.as_ref()).to_owned()
}

/// All that `reader` brings.
async fn read_all(
    mut reader: Pin<Box<dyn AsyncRead + Send + '_>>,
    most: u64,
) -> Result<Vec<u8>, Error> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let read = poll_fn(|context| reader.as_mut().poll_read(context, &mut piece)).await;
        let read = match read {
            Ok(0) => return Ok(bytes),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let what = format!("cannot read what is to be written: {error}");
                return Err(Error::new(ErrorKind::LocalFile, what).caused_by(error));
            }
        };
        bytes.extend_from_slice(&piece[..read]);
        if bytes.len() as u64 > most {
            let what = format!("what is to be written is larger than {most} bytes");
            return Err(Error::new(ErrorKind::Usage, what));
        }
    }
}
