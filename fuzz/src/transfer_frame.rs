//! The messages of a transfer, from the stream or an encrypted datagram, and their validation.

use longhaul_files::CHUNK;
use longhaul_files::filter::CompiledFilters;
use longhaul_files::manifest::MAX_OBJECT;
use longhaul_proto::layout::Layout;
use longhaul_proto::units::Bytes;
use longhaul_transfer::control::{
    ChunkPiece, Frame, Message, Offer, Pass, Pieces, Plan, Ranges, Request,
};
use longhaul_transfer::options::Filter;
use prost::Message as _;

const LIMITS: [u64; 5] = [0, 1, 100, MAX_OBJECT / CHUNK, u64::MAX];
/// Maximum number of patterns compiled in one run; each compilation is slow.
const PATTERNS: usize = 4;

/// Checks that a parsed frame can be encoded and parsed again, and that its validation does not
/// panic.
pub fn run(bytes: &[u8]) {
    let Ok(frame) = Frame::decode(bytes) else { return };
    assert_eq!(Frame::decode(frame.encode_to_vec().as_slice()).as_ref(), Ok(&frame));
    match frame.message {
        Some(Message::Request(request)) => check_request(&request),
        Some(Message::Offer(offer)) => check_offer(&offer),
        Some(Message::Pass(pass)) => check_pass(&pass),
        Some(Message::Plan(plan)) => check_plan(&plan),
        Some(Message::Digests(digests)) => {
            if let Ok(pairs) = digests.pairs() {
                assert_eq!(pairs.count(), digests.chunks.len());
            }
        }
        Some(Message::Relay(relay)) => super::control_message::run(&relay.control),
        Some(Message::PassEnd(end)) => end.failed.iter().for_each(check_ranges),
        Some(Message::Lease(lease)) => lease.chunks.iter().for_each(check_ranges),
        Some(Message::Named(named)) => named.entries.iter().for_each(check_ranges),
        Some(Message::ProbeRun(run)) if run.check().is_ok() => {
            assert!(run.stream || u16::try_from(run.datagram).is_ok());
        }
        Some(Message::ChunkPiece(piece)) => check_piece(&piece),
        _ => {}
    }
}

fn check_request(request: &Request) {
    let _ = request.direction();
    let filters = request.filters.iter().take(PATTERNS).map(Filter::from);
    if let Ok(filters) = CompiledFilters::new(&filters.collect::<Vec<_>>()) {
        for path in &request.paths {
            let _ = filters.takes(path, request.recursive);
        }
    }
}

fn check_offer(offer: &Offer) {
    super::manifest::run(&offer.manifest);
    if offer.check().is_ok() {
        let layout =
            Layout::new(Bytes::new(offer.object_len), Bytes::ZERO, Bytes::new(CHUNK), 1440);
        assert!(layout.is_ok() || offer.object_len.div_ceil(1440) > u32::MAX.into());
    }
}

fn check_pass(pass: &Pass) {
    let _ = longhaul_proto::registry::find(&pass.protocol);
    for object in [0, 1, CHUNK + 1, 300 << 30, MAX_OBJECT] {
        let (object, segment) = (Bytes::new(object), Bytes::new(pass.segment));
        if let Ok(layout) = Layout::new(object, segment, Bytes::new(CHUNK), pass.block) {
            look_at(&layout);
        }
    }
}

fn look_at(layout: &Layout) {
    let blocks = layout.blocks();
    for number in [0, blocks / 2, blocks.saturating_sub(1), blocks, u64::MAX] {
        let block = layout.block(number);
        assert_eq!(block.is_some(), number < blocks);
        let Some(block) = block else { continue };
        assert_eq!(layout.number(block), number);
        let (extent, chunk) = (layout.extent(block), layout.chunk_of(block));
        assert!(extent.len > 0 && extent.offset + u64::from(extent.len) <= layout.object().get());
        assert_eq!(extent.offset / CHUNK, chunk);
        let (first, count) = layout.blocks_of_chunk(chunk);
        assert!((first.index..first.index + count).contains(&block.index));
    }
    assert_eq!(layout.blocks_of_chunk(layout.chunks()).1, 0);
    assert_eq!(layout.blocks_of_chunk(u64::MAX).1, 0);
    assert_eq!(layout.blocks_in(u32::MAX), 0);
}

fn check_plan(plan: &Plan) {
    plan.have.iter().chain(&plan.skipped).for_each(check_ranges);
    for ask in &plan.compare {
        if let Ok((entry, asked)) = ask.question() {
            assert_eq!(u64::from(entry), ask.entry);
            assert_eq!(asked.len(), ask.chunks.len());
        }
    }
}

fn check_ranges(ranges: &Ranges) {
    for limit in LIMITS {
        let Ok(decoded) = ranges.decode(limit) else { continue };
        let mut end = None;
        for range in &decoded {
            assert!(range.start < range.end && range.end <= limit);
            assert!(end.is_none_or(|end| end < range.start), "ranges touch, or go back");
            end = Some(range.end);
        }
        assert_eq!(Ranges::encode(decoded), *ranges);
    }
}

fn check_piece(piece: &ChunkPiece) {
    let mut pieces = Pieces::new(piece.chunk);
    assert!(pieces.take(piece.clone()).is_err());
    let mut pieces = Pieces::new(piece.chunk.saturating_add(1));
    for _ in 0..3 {
        if let Ok(Some((chunk, content))) = pieces.take(piece.clone()) {
            assert_eq!((chunk, content.len() as u64 <= CHUNK), (piece.chunk, true));
        }
    }
}
