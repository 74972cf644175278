//! The client's request: the first message of a transfer.

use super::pipe::Extent;
use longhaul_files::filter::Filter;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Direction {
    /// From the client to the server.
    Push = 0,
    /// From the server to the client.
    Pull = 1,
}

/// The client's request for a transfer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Request {
    /// The direction.
    #[prost(enumeration = "Direction", tag = "1")]
    pub direction: i32,
    /// The destination (push, one path) or the sources (pull), relative to the server's root; over
    /// ssh relative to the home folder, or absolute.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub paths: Vec<Vec<u8>>,
    /// The transfer's id in key derivation and in [`Attach`](super::Attach); random.
    #[prost(fixed64, tag = "3")]
    pub transfer: u64,
    /// The flow id of the first pass (a run over the missing chunks); random. The client chooses it
    /// so that both sides can use it before any other message.
    #[prost(fixed32, tag = "4")]
    pub flow: u32,
    /// Copy folders with their content.
    #[prost(bool, tag = "5")]
    pub recursive: bool,
    /// Keep permissions, and times of folders and links; times of files are kept in any case.
    #[prost(bool, tag = "6")]
    pub preserve: bool,
    /// Compare existing files by content.
    #[prost(bool, tag = "7")]
    pub checksum: bool,
    /// Plan only; transfer and write nothing.
    #[prost(bool, tag = "8")]
    pub dry_run: bool,
    /// Filters for a pull, or globs that protect names from `delete`; in order.
    #[prost(message, repeated, tag = "9")]
    pub filters: Vec<FilterWire>,
    /// The protocol by its registry name; empty if the data go over a stream.
    #[prost(string, tag = "10")]
    pub protocol: String,
    /// The data cipher, by name; never `auto`.
    #[prost(string, tag = "11")]
    pub cipher: String,
    /// How the server moves payloads when it receives (in a push): `naive`, `scatter`, `fake`.
    #[prost(string, tag = "12")]
    pub receive: String,
    /// The rate of a pull, in bits a second; zero: search for the rate.
    #[prost(uint64, tag = "13")]
    pub rate_bps: u64,
    /// The limit for the search, in bits a second; zero: none.
    #[prost(uint64, tag = "14")]
    pub rate_limit_bps: u64,
    /// Segment size of a pull in bytes; absent: the default; zero: the whole object.
    #[prost(uint64, optional, tag = "15")]
    pub segment: Option<u64>,
    /// UDP payload size, in bytes, of a full data datagram: set by the user, or known to fit the
    /// path, or otherwise the size for Ethernet.
    #[prost(uint32, tag = "16")]
    pub datagram: u32,
    /// The session's round-trip time as the client measured it, in nanoseconds.
    #[prost(uint64, tag = "17")]
    pub rtt_nanos: u64,
    /// The number of streams that carry the data if `protocol` is empty; zero: the control stream.
    #[prost(uint32, tag = "18")]
    pub streams: u32,
    /// The protocol's own settings, for both sides.
    #[prost(message, repeated, tag = "19")]
    pub settings: Vec<Setting>,
    /// Report with [`Named`](super::Named) which files have their final names.
    #[prost(bool, tag = "20")]
    pub names: bool,
    /// The client has the manifest from a [`Survey`](super::Survey) and also takes the object from
    /// other sources: the object has the survey's layout, and leases ([`Lease`](super::Lease))
    /// assign its chunks.
    #[prost(bool, tag = "21")]
    pub surveyed: bool,
    /// Find the best number of streams, up to `streams`, and use it.
    #[prost(bool, tag = "22")]
    pub try_streams: bool,
    /// The id of the client's earlier transfer, now over, which this transfer resumes. Zero: none.
    #[prost(fixed64, tag = "23")]
    pub replaces: u64,
    /// The object is a part of a pipe, and is written to the pipe's file. Needs version 2 of the
    /// service.
    #[prost(message, optional, tag = "24")]
    pub extent: Option<Extent>,
    /// A push creates missing parent folders of its destination. Needs version 3 of the service.
    #[prost(bool, tag = "25")]
    pub make_path: bool,
    /// The rate that an earlier pull found on this path, in bits a second; zero: none. The sender
    /// starts at half of this rate, until the report on the first packet train (datagrams sent back
    /// to back) arrives.
    #[prost(uint64, tag = "26")]
    pub remembered_bps: u64,
    /// The round-trip time of the pull that found `remembered_bps`, in nanoseconds.
    #[prost(uint64, tag = "27")]
    pub remembered_rtt_nanos: u64,
    /// A push removes names at its destination that the source lacks, after the whole copy is
    /// written; `filters` are the globs that protect names. Needs version 5 of the service.
    #[prost(message, optional, tag = "28")]
    pub delete: Option<DeleteWire>,
    /// The weight of a pull on a shared path, in equivalents of a TCP flow; zero: almost nothing;
    /// absent: one.
    #[prost(uint32, optional, tag = "29")]
    pub share: Option<u32>,
    /// The share of datagrams lost in the pull that found `remembered_bps`, in millionths. The
    /// sender expects this loss until it has enough reports.
    #[prost(uint32, tag = "30")]
    pub remembered_loss_ppm: u32,
    /// The secret of a push whose first pass began before the session was open: the keys of this
    /// pass are derived from the secret, those of other passes from the session. 32 bytes; empty
    /// without such a pass. A server that does not know this field cannot read the pass. Its plan
    /// then has no `takes_flight`, and the client sends another pass.
    #[prost(bytes = "vec", tag = "31")]
    pub flight_secret: Vec<u8>,
}

/// The limit on removing names that the source lacks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteWire {
    /// The maximum number of names to remove; if there are more, none is removed. Absent: no limit.
    #[prost(uint64, optional, tag = "1")]
    pub most: Option<u64>,
    /// Nanoseconds since the client began this copy; absent in its first request. Names that have
    /// changed since then stay. Needs version 5 of the service.
    #[prost(uint64, optional, tag = "2")]
    pub age_nanos: Option<u64>,
}

/// A setting of a protocol.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Setting {
    /// The setting's name in the registry.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The value in base units: bit/s, seconds, bytes, fractions of 1; 1 for a switch that is on;
    /// for a choice, the index of the word in the registry. Tag 2 had other units.
    #[prost(double, optional, tag = "3")]
    pub value: Option<f64>,
}

/// One filter of a tree copy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FilterWire {
    /// Whether to include matching paths; otherwise they are excluded.
    #[prost(bool, tag = "1")]
    pub include: bool,
    /// The glob. A filter of the kinds below has an empty glob, so an older release refuses the
    /// filter.
    #[prost(string, tag = "2")]
    pub glob: String,
    /// Instead of a glob: exclude files with more bytes than this.
    #[prost(uint64, optional, tag = "3")]
    pub max_size: Option<u64>,
    /// Instead of a glob: exclude files with fewer bytes than this.
    #[prost(uint64, optional, tag = "4")]
    pub min_size: Option<u64>,
    /// Instead of a glob: include only this path (relative to the top of the copy) with its content
    /// and its parent folders. Several filters of this kind add up.
    #[prost(bytes = "vec", optional, tag = "5")]
    pub only: Option<Vec<u8>>,
}

impl From<&Filter> for FilterWire {
    fn from(filter: &Filter) -> FilterWire {
        let mut wire = FilterWire::default();
        match filter {
            Filter::Include(glob) => (wire.include, wire.glob) = (true, glob.clone()),
            Filter::Exclude(glob) => wire.glob = glob.clone(),
            Filter::MaxSize(size) => wire.max_size = Some(*size),
            Filter::MinSize(size) => wire.min_size = Some(*size),
            Filter::Only(path) => wire.only = Some(path.clone()),
        }
        wire
    }
}

impl From<&FilterWire> for Filter {
    fn from(wire: &FilterWire) -> Filter {
        match (wire.max_size, wire.min_size, &wire.only) {
            (Some(size), ..) => Filter::MaxSize(size),
            (None, Some(size), _) => Filter::MinSize(size),
            (None, None, Some(path)) => Filter::Only(path.clone()),
            (None, None, None) if wire.include => Filter::Include(wire.glob.clone()),
            (None, None, None) => Filter::Exclude(wire.glob.clone()),
        }
    }
}
