//! What a copy and a server are told; `ends` are those of a copy that are no files.

mod ends;

use std::any::Any;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::law::Weight;
use longhaul_proto::registry;
use longhaul_proto::settings::Settings;
use longhaul_proto::units::{Bytes, Rate};

use crate::error::Error;
use crate::location::{DEFAULT_PORT, Location};
use crate::path_memory::PathMemory;
use crate::session::Identity;
pub use crate::session::allow::Allow;
pub use crate::session::trust::{ServerPin, Trust};
pub use ends::{Input, Output};
pub use longhaul_files::filter::Filter;
use longhaul_files::{MemoryFolder, Place};
pub use longhaul_net::sealing::keys::Cipher;

/// How the receiver moves payloads (RBUDP, Quanta section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receive {
    /// Look at each header, then move the payload.
    #[default]
    Naive,
    /// Let the kernel scatter payloads to their predicted places; move only what was mispredicted.
    Scatter,
    /// Account for each datagram, never move a payload, write nothing: a measurement.
    Fake,
}

/// Which files, folders and links are named as they are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Names {
    /// None.
    #[default]
    None,
    /// Those that got their names.
    Done,
    /// Those, and those that were left out because they are there and equal.
    All,
}

/// How a copy removes names at the destination that the source lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delete {
    /// The most names to remove. Where there are more, none is removed and the copy is refused.
    pub most: Option<u64>,
}

impl Delete {
    /// Removes any number of names.
    pub fn all() -> Delete {
        Delete { most: None }
    }

    /// Removes `most` names or, where there are more, none.
    pub fn at_most(most: u64) -> Delete {
        Delete { most: Some(most) }
    }

    /// For the destination, where `filters` protect names.
    pub(crate) fn with(self, filters: Vec<Filter>) -> longhaul_files::Delete {
        longhaul_files::Delete { filters, most: self.most }
    }
}

/// How many connections carry the data by TCP where nobody said how many.
pub const TCP_STREAMS: u16 = 8;

/// How many connections are open while the best number of them is found out.
pub const MOST_TRIED: u16 = 16;

/// What carries the data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// A protocol of the registry, over UDP.
    Registry(&'static str),
    /// Parallel TCP.
    Tcp {
        /// How many connections.
        streams: u16,
    },
    /// Parallel TCP over as many connections as are found to be best, up to [`MOST_TRIED`].
    TcpTried,
}

/// By what another host is reached, beside its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReachOptions {
    /// The ssh command, as words (`-e`).
    pub ssh_command: Vec<String>,
    /// `longhaul` on the far side (`--remote-path`).
    pub remote_path: String,
    /// UDP port of the server's data; nothing for the one after its control port.
    pub data_port: Option<u16>,
    /// UDP ports that the far side of ssh may open.
    pub ports: Option<(u16, u16)>,
}

impl Default for ReachOptions {
    fn default() -> ReachOptions {
        ReachOptions {
            ssh_command: vec!["ssh".to_owned()],
            remote_path: "longhaul".to_owned(),
            data_port: None,
            ports: None,
        }
    }
}

/// The key of this end: at hand, or in a folder.
#[derive(Clone, Debug)]
pub enum OwnKey {
    /// The key itself.
    Given(Identity),
    /// The folder that keeps it; the first call that needs the key makes it there.
    In(PathBuf),
}

impl OwnKey {
    /// Returns the identity of the key.
    ///
    /// # Errors
    /// As [`Identity::load_or_create`].
    pub fn identity(&self) -> Result<Identity, Error> {
        match self {
            OwnKey::Given(identity) => Ok(identity.clone()),
            OwnKey::In(folder) => Ok(Identity::load_or_create(folder)?),
        }
    }
}

/// The other host and how it is reached.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The server, or the host of ssh; the path is ignored.
    pub location: Location,
    /// Whom to trust there.
    pub trust: Trust,
    /// Who we are.
    pub key: OwnKey,
    /// How the host is reached.
    pub reach: ReachOptions,
}

/// A limit on incomplete data in memory that several copies share. Clones are the same limit. The
/// limit itself belongs to the module that counts, above this one.
#[derive(Clone)]
pub struct SharedMemory(Arc<dyn Any + Send + Sync>);

impl SharedMemory {
    /// A limit that `counter` counts.
    pub(crate) fn new(counter: impl Any + Send + Sync) -> SharedMemory {
        SharedMemory(Arc::new(counter))
    }

    /// Returns what counts.
    pub(crate) fn counter<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedMemory")
    }
}

/// The place of a part in a pipe that the other host has begun.
#[derive(Clone, Copy, Debug)]
pub struct PartOfPipe {
    /// The number of the pipe.
    pub pipe: u64,
    /// Where the part begins, in bytes.
    pub offset: u64,
}

/// A copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// What to copy; several only into one folder. All local, or all remote, and then on one host
    /// or many.
    pub sources: Vec<Location>,
    /// Where to.
    pub destination: Location,
    /// The sources all hold the same object, which is taken from all of them together.
    pub replicas: bool,
    /// Whom we trust.
    pub trust: Trust,
    /// Who we are.
    pub key: OwnKey,
    /// Take folders with all that is in them.
    pub recursive: bool,
    /// Keep permissions and times.
    pub preserve: bool,
    /// Compare files that are there already, and what an earlier run left of them, by content and
    /// not by size and time.
    pub checksum: bool,
    /// Say what would be copied, copy nothing.
    pub dry_run: bool,
    /// Make the folders that lead to the destination where they are missing.
    pub make_path: bool,
    /// Remove names at the destination that the source lacks.
    pub delete: Option<Delete>,
    /// Which files of a tree.
    pub filters: Vec<Filter>,
    /// Which files the observer is told of by name.
    pub names: Names,
    /// What carries the data.
    pub protocol: Protocol,
    /// The protocol's own settings.
    pub settings: Settings,
    /// The same for each of the sources, where they differ; else empty.
    pub source_settings: Vec<Settings>,
    /// A fixed rate in bits a second of UDP payload, which each of several sources has.
    pub rate: Option<Rate>,
    /// An upper limit for the rate that is found (`--bwlimit`), for all sources together.
    pub rate_limit: Option<Rate>,
    /// The part of a shared path that a found rate takes; nothing where it need not share.
    pub weight: Option<Weight>,
    /// Where the rates of paths are kept from copy to copy; nothing to begin each as on a new path.
    pub path_memory: Option<PathMemory>,
    /// How data is sealed.
    pub cipher: Cipher,
    /// How payloads are moved at the receiving end.
    pub receive: Receive,
    /// The size of a segment; zero for the whole object, nothing for the default.
    pub segment: Option<Bytes>,
    /// How much incomplete data may wait in memory.
    pub memory: Bytes,
    /// The memory that several copies share, instead.
    pub shared_memory: Option<SharedMemory>,
    /// Where local paths are, if not in the file system of this host.
    pub local: Option<MemoryFolder>,
    /// What is sent in place of the one source, which then only has a name.
    pub input: Option<Input>,
    /// What the one source is written to, in place of the destination.
    pub output: Option<Output>,
    /// The copy is a part of a pipe.
    pub part: Option<PartOfPipe>,
    /// The UDP payload of a data datagram; nothing to probe the path for it.
    pub datagram: Option<u16>,
    /// How long a lost connection is taken up again.
    pub retry_for: Duration,
    /// How long without progress before the copy is given up.
    pub stall: Duration,
    /// The way to the other hosts.
    pub reach: ReachOptions,
}

impl CopyOptions {
    /// Returns the place of a local path.
    pub(crate) fn place(&self, path: PathBuf) -> Place {
        match &self.local {
            Some(folder) => Place::Stored { root: folder.into(), path },
            None => Place::Ambient(path),
        }
    }

    /// A copy of `sources` to `destination` as RBUDP does it where the user says nothing more: at
    /// the rate that is found, sealed, within 512 MiB, patient for minutes; with the key in the
    /// folder of `trust`.
    pub fn new(sources: Vec<Location>, destination: Location, trust: Trust) -> CopyOptions {
        CopyOptions {
            sources,
            destination,
            replicas: false,
            key: OwnKey::In(trust.config_dir.clone()),
            trust,
            recursive: false,
            preserve: false,
            checksum: false,
            dry_run: false,
            make_path: false,
            delete: None,
            filters: Vec::new(),
            names: Names::None,
            protocol: Protocol::Registry(registry::all()[0].name),
            settings: Settings::default(),
            source_settings: Vec::new(),
            rate: None,
            rate_limit: None,
            weight: None,
            path_memory: None,
            cipher: Cipher::Auto,
            receive: Receive::Naive,
            segment: None,
            memory: Bytes::mebi(512),
            shared_memory: None,
            local: None,
            input: None,
            output: None,
            part: None,
            datagram: None,
            retry_for: Duration::from_secs(300),
            stall: Duration::from_secs(60),
            reach: ReachOptions::default(),
        }
    }
}

/// A server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The control port (UDP and TCP).
    pub listen: SocketAddr,
    /// The UDP port of all data; nothing for the one after the control port.
    pub data_port: Option<u16>,
    /// All that is served lies below it.
    pub root: PathBuf,
    /// Nobody may write.
    pub read_only: bool,
    /// Who may do what.
    pub allow: Vec<Allow>,
    /// Who the server is.
    pub key: OwnKey,
    /// End after one transfer.
    pub once: bool,
    /// Allow data in the clear where the client asks for it.
    pub allow_plain: bool,
    /// How much incomplete data of all transfers may wait in memory.
    pub memory: Bytes,
    /// The file of the tree that clients share; nothing for a server without one.
    pub share: Option<PathBuf>,
}

impl Default for ServeOptions {
    /// A server of nothing to nobody on the default port.
    fn default() -> ServeOptions {
        ServeOptions {
            listen: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), DEFAULT_PORT),
            data_port: None,
            root: PathBuf::new(),
            read_only: false,
            allow: Vec::new(),
            key: OwnKey::In(PathBuf::new()),
            once: false,
            allow_plain: false,
            memory: Bytes::mebi(512),
            share: None,
        }
    }
}
