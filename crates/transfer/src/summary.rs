//! What a finished copy says of itself.

use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
use longhaul_proto::endpoint::ReceiveCapacity;
use longhaul_proto::law::Found;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use crate::progress::SourceRow;
pub use longhaul_net::socket::Segments;

/// What bounded a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoundBy {
    /// The path's capacity.
    Path,
    /// `--rate` or `--bwlimit`.
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
    /// The other side's own limit (its memory budget, its rate).
    PeerLimit,
    /// Too short to tell, or nothing was sent.
    #[default]
    Nothing,
}

impl BoundBy {
    /// The one of this name; [`BoundBy::Nothing`] if a newer release has invented it.
    pub(crate) fn named(name: &str) -> BoundBy {
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

    /// The name in `--json`.
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

/// The end of a copy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Bytes of the object, holes and resumed parts included.
    pub bytes: u64,
    /// Regular files of the object.
    pub files: u64,
    /// Those of them that got their names in this run.
    pub copied_files: u64,
    /// Bytes of the object that this run brought: neither what was there before nor what belongs
    /// to files that failed.
    pub copied_bytes: u64,
    /// Symbolic links that this run made.
    pub links: u64,
    /// Folders that this run made.
    pub folders: u64,
    /// Names that the source lacks and that this run removed, or would in a dry run.
    pub deleted: u64,
    /// From the call to the end.
    pub elapsed: Span,
    /// From the call to the first data datagram sent or received.
    pub setup: Span,
    /// From the call to the last block's arrival at the receiver, which knows it best: where this
    /// end receives, by its clock; where it sends, when it was told that all stands, less what the
    /// receiver says had passed since that block, less half a round trip for the telling. Nothing
    /// where no block was awaited.
    pub last_block: Option<Span>,
    /// Bytes of the object that this run moved, over its time.
    pub goodput: Rate,
    /// What carried the data, as in `--protocol`.
    pub protocol: String,
    /// The sending rate at the end, in bits a second of UDP payload.
    pub rate: Rate,
    /// What the search for the rate knew about the path in the end; nothing with a fixed rate.
    pub found: Option<Found>,
    /// The rate that an earlier copy found on the path. This copy began at half of it.
    pub remembered: Option<Rate>,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Object bytes in a full data datagram.
    pub payload_bytes: u32,
    /// Blocks that this run had to move, each once. What was sent before it was known to be there
    /// is not among them, though it is among the sender's first sends.
    pub blocks: u64,
    /// Data datagrams that the receiver knows were sent and that never came.
    pub path_lost: u64,
    /// Datagrams that the receiver's kernel dropped for want of socket buffer; where transfers
    /// share the port, this one's part by what came for each.
    pub socket_lost: u64,
    /// Genuine datagrams that the receiver dropped because the memory for incomplete data had no
    /// room for their chunk: the sender sent more than it was granted. They came over the path, and
    /// are no loss of it, though like all that was not kept they are in `path_lost`.
    pub memory_lost: u64,
    /// Datagrams with data that came before the receiver had let the copy in, and did not fit the
    /// memory for early datagrams. They are in `path_lost`, as `memory_lost` is.
    pub early_lost: u64,
    /// Datagrams that the receiver refused: of nobody it knows, forged, malformed, or copies made
    /// on the way. What no transfer knows is told to every transfer of the port.
    pub refused_datagrams: u64,
    /// The sender's columns.
    pub sender: SenderAccounting,
    /// The receiver's columns.
    pub receiver: ReceiverAccounting,
    /// (sent − blocks) / blocks; zero where nothing had to go.
    pub waste: f64,
    /// Where TCP carried the data from here over connections that this end opened: what they sent.
    pub segments: Option<Segments>,
    /// What bounded the copy.
    pub bound_by: BoundBy,
    /// Bytes that an earlier run had brought, or that were there and equal.
    pub resumed_bytes: u64,
    /// Files left out because they were there and equal.
    pub skipped_files: u64,
    /// Those of them that nobody has read: their size and time were the source's.
    pub unread_files: u64,
    /// Files of a tree that failed.
    pub failed_files: u64,
    /// Cipher of the data: `aes-128-gcm`, `chacha20-poly1305`, `none`, `tls`, `ssh`.
    pub cipher: String,
    /// BLAKE3 of the object (of one file: what `b3sum` prints), where all of it was hashed.
    pub blake3: Option<String>,
    /// Everything was hashed and compared at the receiving end, in this run: no file was left out
    /// because of its size and time alone.
    pub verified: bool,
    /// CPU time of this process.
    pub cpu: Span,
    /// CPU time of the other end's threads that received datagrams and wrote; nothing of an end
    /// that sent, which tells no CPU time.
    pub far_cpu: Option<Span>,
    /// What this host took in all and where that was known from, if the protocol shares it out.
    pub receives: Option<ReceiveCapacity>,
    /// Where the copy had several sources, each of them.
    pub sources: Vec<SourceRow>,
    /// How many of them failed for good, with what only they have.
    pub failed_sources: u64,
}

/// A digest as people write it; nothing for an empty one.
pub(crate) fn hex(digest: &[u8]) -> Option<String> {
    (!digest.is_empty()).then(|| data_encoding::HEXLOWER.encode(digest))
}
