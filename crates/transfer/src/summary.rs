//! The summary of a finished copy. The object of a copy is the content of all of its files. A block
//! is the payload of one datagram.

use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
use longhaul_proto::endpoint::ReceiveCapacity;
use longhaul_proto::law::Found;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use crate::progress::SourceRow;
pub use longhaul_net::socket::Segments;

/// The bottleneck of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoundBy {
    /// The path's capacity.
    Path,
    /// `--rate`, `--bwlimit` or `--receive-rate`.
    RateOption,
    /// The sending host's CPU.
    SenderCpu,
    /// The receiving host's CPU.
    ReceiverCpu,
    /// Reading at the source.
    SourceDisk,
    /// Writing at the destination.
    DestinationDisk,
    /// The creation of many small files.
    SmallFiles,
    /// The receiving end's limit on memory.
    PeerLimit,
    /// Unknown, for example because the copy was too short or sent nothing.
    #[default]
    Nothing,
}

impl BoundBy {
    /// Returns the bottleneck called `name`; [`BoundBy::Nothing`] for a name of a newer release.
    pub fn named(name: &str) -> BoundBy {
        let all = [
            BoundBy::Path,
            BoundBy::RateOption,
            BoundBy::SenderCpu,
            BoundBy::ReceiverCpu,
            BoundBy::SourceDisk,
            BoundBy::DestinationDisk,
            BoundBy::SmallFiles,
            BoundBy::PeerLimit,
        ];
        all.into_iter().find(|bound| bound.name() == name).unwrap_or_default()
    }

    /// Returns the name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            BoundBy::Path => "path",
            BoundBy::RateOption => "rate",
            BoundBy::SenderCpu => "sender-cpu",
            BoundBy::ReceiverCpu => "receiver-cpu",
            BoundBy::SourceDisk => "source-disk",
            BoundBy::DestinationDisk => "destination-disk",
            BoundBy::SmallFiles => "small-files",
            BoundBy::PeerLimit => "peer-limit",
            BoundBy::Nothing => "nothing",
        }
    }
}

/// The result of a copy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Bytes of the object, including holes and resumed parts.
    pub bytes: u64,
    /// Regular files of the object.
    pub files: u64,
    /// Files that got their final name in this run, or would get it in a dry run.
    pub copied_files: u64,
    /// Bytes of the object that this run copied, or would copy in a dry run. Existing bytes and
    /// bytes of failed files do not count.
    pub copied_bytes: u64,
    /// Symbolic links that this run created.
    pub links: u64,
    /// Folders that this run created.
    pub folders: u64,
    /// Names that the source lacks and that this run removed, or would remove in a dry run.
    pub deleted: u64,
    /// Time from the call to the transfer's end.
    pub elapsed: Span,
    /// Time from the call until this end sends or receives the first data datagram, or the first
    /// chunk over a stream.
    pub setup: Span,
    /// Time from the call to the arrival of the last block at the receiver. A receiving end
    /// measures this time by its own clock. A sending end takes the time until the outcome arrives,
    /// and subtracts RTT/2 and the time that the receiver reports: from its last block to the
    /// outcome. `None` if no block was needed.
    pub last_block: Option<Span>,
    /// The object's bytes that this run moved, divided by the duration of the run.
    pub goodput: Rate,
    /// The carrier of the data, as in `--protocol`.
    pub protocol: String,
    /// The sending rate at the transfer's end, in bits a second of UDP payload.
    pub rate: Rate,
    /// The result of the rate search; `None` without a search, or if the search found no rate.
    pub found: Option<Found>,
    /// The rate that an earlier copy found on the path. This copy started at half of that rate, but
    /// at most at its rate limit.
    pub remembered: Option<Rate>,
    /// Whether the first data left before the session was open.
    pub first_flight: bool,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Object bytes in a full data datagram.
    pub payload_bytes: u32,
    /// Blocks that this run had to move, each counted once. Blocks that the receiver already had
    /// are not included, even if the sender sent them before it learned this.
    pub blocks: u64,
    /// Data datagrams that were sent but did not arrive, according to the receiver.
    pub path_lost: u64,
    /// Datagrams that the receiver's kernel dropped because a socket buffer was full. If transfers
    /// share the port, each counts a part of the drops, in proportion to its arrivals.
    pub socket_lost: u64,
    /// Genuine datagrams that the receiver dropped because the memory for incomplete data was full:
    /// the sender sent more than it was granted. The path did carry them, but like all dropped
    /// datagrams they are included in `path_lost`.
    pub memory_lost: u64,
    /// Datagrams with data that arrived before the receiver admitted the copy, and were dropped:
    /// they did not fit the memory for early datagrams, or more than 2 s had passed since the first
    /// datagram of their flow. Included in `path_lost`, like `memory_lost`.
    pub early_lost: u64,
    /// Datagrams that the receiver refused: forged, malformed, replayed, too old to check, of an
    /// unknown flow, or early and beyond the limits (these are in `early_lost` too). Datagrams of
    /// the last two kinds count for every transfer of the port.
    pub refused_datagrams: u64,
    /// The sender's counters.
    pub sender: SenderAccounting,
    /// The receiver's counters.
    pub receiver: ReceiverAccounting,
    /// (sent − blocks) / blocks; zero if no block was needed.
    pub waste: f64,
    /// Counts of TCP segments, if this end sent the data over TCP connections that it had opened.
    pub segments: Option<Segments>,
    /// The bottleneck of the copy.
    pub bound_by: BoundBy,
    /// Bytes that an earlier run had copied, or that existed and were equal.
    pub resumed_bytes: u64,
    /// Files skipped because equal ones exist.
    pub skipped_files: u64,
    /// Skipped files that were not read, because size and time were equal.
    pub unread_files: u64,
    /// Files of a tree that failed.
    pub failed_files: u64,
    /// Cipher of the data: `aes-128-gcm`, `chacha20-poly1305`, `none`, `tls`, `ssh`.
    pub cipher: String,
    /// BLAKE3 of the object (for one file as `b3sum` prints it), if all of it was hashed.
    pub blake3: Option<String>,
    /// Whether the receiving end hashed and compared everything in this run. Then no file was
    /// skipped because of its size and time only.
    pub verified: bool,
    /// CPU time of this process.
    pub cpu: Span,
    /// CPU time of the other end's receiving and writing threads; `None` if the other end sent,
    /// because a sending end does not report CPU time.
    pub far_cpu: Option<Span>,
    /// The receive capacity of this host and how it was found; `None` unless the receiver divides
    /// the capacity among its flows.
    pub receives: Option<ReceiveCapacity>,
    /// The sources, if the copy had several.
    pub sources: Vec<SourceRow>,
    /// Sources that failed permanently; of replicas of one object, also those that were lost and
    /// not reached again. Their objects are missing, unless all sources are replicas.
    pub failed_sources: u64,
}

/// Returns a digest in hex; `None` for an empty one.
pub(crate) fn hex(digest: &[u8]) -> Option<String> {
    (!digest.is_empty()).then(|| data_encoding::HEXLOWER.encode(digest))
}
