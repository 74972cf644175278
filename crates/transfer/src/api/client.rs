//! The client: its identity, the servers it trusts, and its calls.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_io::AsyncRead;
use longhaul_proto::units::Bytes;

use super::copy::CopyRequest;
use super::engine;
use super::identity::Identity;
use super::memory::{ReadRequest, WriteRequest};
use super::probe::ProbeRequest;
use super::trust::Trust;
use crate::error::public::{Error, ErrorKind};
use crate::location::Location;
use crate::options::{HostOptions, OwnKey, ReachOptions, SharedMemory};
use crate::path_memory::PathMemory;
use crate::probe::{Ports, look_at_ports};
use crate::write::budget::Budget;

/// A client of other hosts. Clones share its identity, its trust and its memory limit.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) key: OwnKey,
    pub(super) trust: Arc<Trust>,
    pub(super) memory: Option<SharedMemory>,
    pub(super) paths: Option<PathMemory>,
}

/// Makes a [`Client`].
#[derive(Debug, Default)]
pub struct ClientBuilder {
    key: Option<OwnKey>,
    trust: Trust,
    memory: Option<Bytes>,
    paths: Option<PathMemory>,
}

impl Client {
    /// Returns a builder.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Describes a copy of `sources` to `destination`. At least one end must be on this host.
    /// Several sources need a folder as destination, unless they are replicas
    /// ([`CopyRequest::replicas`]).
    pub fn copy<S: IntoLocation>(
        &self,
        sources: impl IntoIterator<Item = S>,
        destination: impl IntoLocation,
    ) -> CopyRequest {
        let sources: Result<Vec<_>, _> =
            sources.into_iter().map(IntoLocation::into_location).collect();
        let ends = sources.and_then(|sources| Ok((sources, destination.into_location()?)));
        CopyRequest::new(self, ends)
    }

    pub(super) fn host(&self, location: Location) -> HostOptions {
        let (trust, key) = (self.trust.options(), self.key.clone());
        let path_memory = self.paths.clone();
        HostOptions { location, trust, key, reach: ReachOptions::default(), path_memory }
    }

    /// Describes a read of the file at `source` on another host into memory; await the request.
    pub fn read(&self, source: impl IntoLocation) -> ReadRequest {
        ReadRequest::new(self, source.into_location())
    }

    /// Describes a write to the file `destination` on another host. The content is everything that
    /// `reader` returns, of any length. A byte slice is a reader. Await the request, which polls
    /// the reader.
    pub fn write<'a>(
        &self,
        reader: impl AsyncRead + Send + 'a,
        destination: impl IntoLocation,
    ) -> WriteRequest<'a> {
        WriteRequest::new(self, reader, destination.into_location())
    }

    /// Describes a probe of the path to `host`: a server `lh://host[:port]`, or `host:` over ssh.
    pub fn probe(&self, host: impl IntoLocation) -> ProbeRequest {
        ProbeRequest::new(self, host.into_location())
    }

    /// Tries each port of the server `lh://host[:port]` for a few seconds. The client needs no
    /// right at the server. `data_port` is `None` for the port after the control port.
    ///
    /// # Errors
    /// `server` is not a server's location, its name cannot be resolved, or the client's key cannot
    /// be loaded.
    pub async fn look_at_ports(
        &self,
        server: impl IntoLocation,
        data_port: Option<u16>,
    ) -> Result<Ports, Error> {
        let Location::Daemon { host, port, .. } = server.into_location()? else {
            let what = "cannot test ports: the location is not a server; use lh://host[:port]";
            return Err(Error::new(ErrorKind::Usage, what));
        };
        let identity = self.key.identity()?;
        let done = engine::start("longhaul look", move || {
            look_at_ports(&host, port, data_port, identity).map_err(Error::from)
        })?;
        done.await.unwrap_or_else(|_| Err(engine::vanished("the port test")))
    }
}

impl ClientBuilder {
    /// Sets the client's identity; servers list its id in their access lists.
    #[must_use]
    pub fn identity(self, identity: Identity) -> ClientBuilder {
        ClientBuilder { key: Some(OwnKey::Given(identity.0)), ..self }
    }

    /// Uses the key in `folder`. The first call that needs the key loads or creates it; see
    /// [`Identity::load_or_create`].
    #[must_use]
    pub fn identity_in(self, folder: impl Into<PathBuf>) -> ClientBuilder {
        ClientBuilder { key: Some(OwnKey::In(folder.into())), ..self }
    }

    /// Sets which servers the client trusts; by default none.
    #[must_use]
    pub fn trust(self, trust: Trust) -> ClientBuilder {
        ClientBuilder { trust, ..self }
    }

    /// Limits the memory for incomplete data, for all copies of the client and its clones together.
    /// A copy waits up to 10 s for memory, then retries. By default each copy has a separate limit.
    #[must_use]
    pub fn memory(self, memory: Bytes) -> ClientBuilder {
        ClientBuilder { memory: Some(memory), ..self }
    }

    /// Stores the rate that a copy finds for its path, in the file of `paths`. A later copy over
    /// the same path, or a read of a remote file, can then start at half of the stored rate.
    #[must_use]
    pub fn path_memory(self, paths: PathMemory) -> ClientBuilder {
        ClientBuilder { paths: Some(paths), ..self }
    }

    /// Makes the client.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] without an identity, or with less memory than one copy needs.
    pub fn build(self) -> Result<Client, Error> {
        let none = || Error::new(ErrorKind::Usage, "a client needs an identity");
        let key = self.key.ok_or_else(none)?;
        let memory = self.memory.map(Budget::new).transpose()?.map(SharedMemory::new);
        Ok(Client { key, trust: Arc::new(self.trust), memory, paths: self.paths })
    }
}

/// A value that names a file, a folder or a host. Text is parsed as on the command line:
/// `lh://host/path`, `host:path` over ssh, `https://host/path`, or a local path. A [`Path`] is
/// always local.
pub trait IntoLocation {
    /// Returns the location.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: the address is invalid.
    fn into_location(self) -> Result<Location, Error>;
}

impl IntoLocation for Location {
    fn into_location(self) -> Result<Location, Error> {
        Ok(self)
    }
}

macro_rules! from_text {
    ($($text:ty),*) => {$(
        impl IntoLocation for $text {
            fn into_location(self) -> Result<Location, Error> {
                Location::parse(OsStr::new(&self))
            }
        }
    )*};
}
from_text!(&str, String, &String, &OsStr, OsString);

impl IntoLocation for &Path {
    fn into_location(self) -> Result<Location, Error> {
        self.to_owned().into_location()
    }
}

impl IntoLocation for &PathBuf {
    fn into_location(self) -> Result<Location, Error> {
        self.clone().into_location()
    }
}

impl IntoLocation for PathBuf {
    fn into_location(self) -> Result<Location, Error> {
        match self.as_os_str().is_empty() {
            true => Err(Error::new(ErrorKind::Usage, "an empty path names no file")),
            false => Ok(Location::Local(self)),
        }
    }
}
