//! The options of a copy and of a server. The object of a copy is the content of all of its files.
//! `ends` has readers and writers that replace the files of a copy.

mod ends;

use std::any::Any;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::multicast::Group;
use longhaul_proto::law::Weight;
use longhaul_proto::registry;
use longhaul_proto::settings::Settings;
use longhaul_proto::share::Key;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_rpc::Methods;
use longhaul_stream::channel::RoomLimits;

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
    /// Read each header, then move the payload.
    #[default]
    Naive,
    /// Let the kernel scatter payloads to their predicted places; move only what was mispredicted.
    Scatter,
    /// Account for each datagram, move no payload and write nothing: a measurement.
    Fake,
}

/// Which files, folders and links are reported by name when they are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Names {
    /// None.
    #[default]
    None,
    /// Created files, folders and links.
    Done,
    /// Created files, folders and links, and skipped files and links.
    All,
}

/// The removal of names at the destination that the source lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delete {
    /// The maximum number of names to remove. If there are more, none is removed and the copy is
    /// refused.
    pub most: Option<u64>,
}

impl Delete {
    /// Removes any number of names.
    pub fn all() -> Delete {
        Delete { most: None }
    }

    /// Removes at most `most` names. If the source lacks more names, removes none.
    pub fn at_most(most: u64) -> Delete {
        Delete { most: Some(most) }
    }

    pub(crate) fn with(self, filters: Vec<Filter>) -> longhaul_files::Delete {
        longhaul_files::Delete { filters, most: self.most, age: None }
    }
}

/// Default number of TCP connections.
pub const TCP_STREAMS: u16 = 8;

/// Maximum number of TCP connections during the search for the best number.
pub const MOST_TRIED: u16 = 16;

/// The protocol that carries the data.
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
    /// Parallel TCP; the best number of connections is found by trying, up to [`MOST_TRIED`].
    TcpTried,
}

/// How another host is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReachOptions {
    /// The ssh command, as words (`-e`).
    pub ssh_command: Vec<String>,
    /// Path of `longhaul` on the remote side (`--remote-path`).
    pub remote_path: String,
    /// UDP port of the server's data; `None` for the port after its control port.
    pub data_port: Option<u16>,
    /// First and last port (UDP and TCP) that the remote side of ssh may open; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// TCP connections of a channel or stream where UDP is blocked, 1 to 16.
    pub lanes: u8,
}

impl Default for ReachOptions {
    fn default() -> ReachOptions {
        ReachOptions {
            ssh_command: vec!["ssh".to_owned()],
            remote_path: "longhaul".to_owned(),
            data_port: None,
            ports: None,
            lanes: 1,
        }
    }
}

/// The key of this side: given, or in a folder.
#[derive(Clone, Debug)]
pub enum OwnKey {
    /// The key itself.
    Given(Identity),
    /// The folder of the key. The first call that needs the key creates a missing key.
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
    /// The server, or the ssh host; the path is ignored.
    pub location: Location,
    /// The servers to trust.
    pub trust: Trust,
    /// The key of this side.
    pub key: OwnKey,
    /// How the host is reached.
    pub reach: ReachOptions,
    /// The file of remembered paths.
    pub path_memory: Option<PathMemory>,
}

/// A limit on incomplete data in memory that several copies share. Clones refer to the same limit.
/// The counter is `Any`, because its type belongs to a higher module.
#[derive(Clone)]
pub struct SharedMemory(Arc<dyn Any + Send + Sync>);

impl SharedMemory {
    pub(crate) fn new(counter: impl Any + Send + Sync) -> SharedMemory {
        SharedMemory(Arc::new(counter))
    }

    pub(crate) fn counter<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedMemory")
    }
}

/// The place of a part in a pipe (a file of unknown length, sent in parts) that the other host has
/// opened.
#[derive(Clone, Copy, Debug)]
pub struct PartOfPipe {
    /// The id of the pipe.
    pub pipe: u64,
    /// Offset of the part in bytes.
    pub offset: u64,
}

/// The options of a copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// The sources. Several sources that are not replicas need a folder as destination. All are
    /// local, or all are remote, on one host or several.
    pub sources: Vec<Location>,
    /// The destination.
    pub destination: Location,
    /// Whether all sources hold the same files. If so, each chunk of 1 MiB may come from any
    /// source.
    pub replicas: bool,
    /// The servers to trust.
    pub trust: Trust,
    /// The key of this side.
    pub key: OwnKey,
    /// Copy folders with their content.
    pub recursive: bool,
    /// Keep permissions, and times of folders and links. Times of files are kept in any case.
    pub preserve: bool,
    /// Compare existing files, and partial files of an earlier run, by content instead of size and
    /// time.
    pub checksum: bool,
    /// Report what would be copied; copy nothing.
    pub dry_run: bool,
    /// Create missing parent folders of the destination.
    pub make_path: bool,
    /// Remove names at the destination that the source lacks.
    pub delete: Option<Delete>,
    /// Selects files of a tree.
    pub filters: Vec<Filter>,
    /// Which files are reported by name.
    pub names: Names,
    /// The protocol that carries the data.
    pub protocol: Protocol,
    /// The protocol's own settings.
    pub settings: Settings,
    /// The settings for each source, if they differ; otherwise empty.
    pub source_settings: Vec<Settings>,
    /// The rate in bits a second of UDP payload (`--rate`): fixed, or an upper limit, as the
    /// protocol defines. With several sources, the rate of each.
    pub rate: Option<Rate>,
    /// The upper limit of the rate search (`--bwlimit`), for all sources together.
    pub rate_limit: Option<Rate>,
    /// The weight of the copy on a path that it shares with other traffic.
    pub weight: Weight,
    /// The file of remembered paths. With `None`, each copy starts as on a new path.
    pub path_memory: Option<PathMemory>,
    /// How data are sealed.
    pub cipher: Cipher,
    /// How the receiving end moves payloads.
    pub receive: Receive,
    /// The size of a segment. A protocol sends the object as a sequence of segments, several at a
    /// time. Zero sends the whole object as one segment; `None` uses the default.
    pub segment: Option<Bytes>,
    /// Limit on incomplete data in memory.
    pub memory: Bytes,
    /// A limit that several copies share, instead of `memory`.
    pub shared_memory: Option<SharedMemory>,
    /// Where local paths are, if not in this host's file system.
    pub local: Option<MemoryFolder>,
    /// The reader that replaces the content of the one source; the source only supplies a name.
    pub input: Option<Input>,
    /// The writer that replaces the destination.
    pub output: Option<Output>,
    /// The place of the copy in a pipe, if the copy is a part of one.
    pub part: Option<PartOfPipe>,
    /// The UDP payload of a data datagram; `None`: a search finds the largest that passes.
    pub datagram: Option<u16>,
    /// How long to keep retrying a lost connection.
    pub retry_for: Duration,
    /// Timeout for a copy that makes no progress.
    pub stall: Duration,
    /// How the other hosts are reached.
    pub reach: ReachOptions,
    /// The token for an HTTP source.
    pub token: Option<String>,
    /// Whether to follow HTTP redirects from https to http.
    pub allow_downgrade: bool,
}

impl CopyOptions {
    pub(crate) fn place(&self, path: PathBuf) -> Place {
        match &self.local {
            Some(folder) => Place::Stored { root: folder.into(), path },
            None => Place::Ambient(path),
        }
    }

    /// Returns the options of a copy from `sources` to `destination`, with the defaults: RBUDP, a
    /// search for the rate, sealed data, at most 512 MiB of incomplete data in memory, retries for
    /// 5 minutes, and the key in the folder of `trust`.
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
            weight: Weight::default(),
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
            token: None,
            allow_downgrade: false,
        }
    }
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The control port (UDP and TCP).
    pub listen: SocketAddr,
    /// The UDP port for data; `None` for the port after the control port.
    pub data_port: Option<u16>,
    /// The served folder; nothing outside of it can be reached.
    pub root: PathBuf,
    /// Refuse all writes of files.
    pub read_only: bool,
    /// The rights of clients.
    pub allow: Vec<Allow>,
    /// The server's key.
    pub key: OwnKey,
    /// End after one transfer. A transfer that lost its client does not count, because the client
    /// may reconnect.
    pub once: bool,
    /// Allow unsealed data for clients that ask for it.
    pub allow_plain: bool,
    /// Limit on the incomplete data of all transfers in memory.
    pub memory: Bytes,
    /// The file of the tree that clients share; `None` for a server without one.
    pub share: Option<PathBuf>,
    /// Serve only channels, streams, remote procedure calls and the status: there is no root, and
    /// no shared tree.
    pub rooms_only: bool,
    /// Limits of the rooms of channels.
    pub rooms: RoomLimits,
    /// Rooms that are bridged to multicast groups.
    pub groups: Vec<(Key, Group)>,
    /// The methods that clients may call.
    pub methods: Methods,
}

impl Default for ServeOptions {
    /// Returns the options of a server without a root and without clients, on the default port.
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
            rooms_only: false,
            rooms: RoomLimits::default(),
            groups: Vec::new(),
            methods: Methods::default(),
        }
    }
}
