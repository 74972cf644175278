//! Tests: chunks on the control stream wait for memory, and get it in turn.

use std::ops::Range;
use std::sync::Arc;

use longhaul_net::port::{Port, PortHandle};
use longhaul_net::sealing::keys::Suite;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{LocalSet, spawn_local, yield_now};

use super::lies::source;
use super::offer;
use super::receiving::{Received, ReceivingRole};
use super::wire::{End, Wire};
use super::{DEFAULT_SEGMENT, Hooks, Terms, There, Whence};
use crate::control::{ChunkPiece, Digests, Frame, Message, Outcome, Pass};
use crate::counters::board::Board;
use crate::flow::payloads::Payloads;
use crate::loopback::{LOOPBACKS, pair, run};
use crate::options::Receive;
use crate::session::{Carriers, FrameReader, FrameWriter, Session};
use crate::write::budget::{Budget, MemoryPart, MessageCharge};
use crate::write::files::Files;
use longhaul_files::{Asked, Manifest, Place, SinkOptions, Source};

pub(super) struct Alone;

impl Hooks for Alone {
    fn tick(&self) -> Result<(), End> {
        Ok(())
    }

    fn planned(&self, _: &Manifest, _: &[Range<u64>], _: There) {}

    fn named(&self, _: &Manifest, _: &[Range<u64>]) {}

    fn entry_failed(&self, _: &[u8], _: &str, _: Whence) {}
}

pub(super) fn terms(session: &Session) -> Terms {
    Terms {
        transfer: 1,
        suite: Suite::Aes128Gcm,
        exporter: session.exporter(),
        flight: None,
        peer: session.remote.ip(),
        protocol: None,
        settings: Settings::default(),
        streams: 0,
        try_streams: false,
        rate: None,
        rate_limit: None,
        remembered: None,
        weight: longhaul_proto::law::Weight::default(),
        segment: DEFAULT_SEGMENT,
        datagram: 1_400,
        rtt: Span::from_millis(1),
        card: None,
    }
}

async fn send(writer: &mut FrameWriter, mut source: Source) {
    let (offer, _) = offer::whole(&mut source, false);
    let chunks = source.object().chunks();
    let mut messages = vec![Message::Offer(offer), Message::Pass(Pass::default())];
    let mut payloads = Payloads::new(source).unwrap();
    for chunk in 0..chunks {
        let values = payloads.read_whole(chunk).unwrap().to_vec();
        messages.push(Message::Digests(Digests { chunks: vec![chunk], values }));
        let content = payloads.content();
        for (nth, bytes) in content.chunks(256 << 10).enumerate() {
            let offset = (nth * (256 << 10)) as u32;
            let last = offset as usize + bytes.len() == content.len();
            let bytes = bytes.to_vec();
            messages.push(Message::ChunkPiece(ChunkPiece { chunk, offset, bytes, last }));
        }
    }
    for message in messages {
        writer.write(&Frame::from(message)).await.expect("the session is open");
    }
}

async fn next(reader: &mut FrameReader) -> Message {
    loop {
        let frame = reader.read::<Frame>().await.expect("the session is open");
        match frame.expect("the session goes on").message {
            Some(Message::Plan(_)) | None => {}
            Some(message) => return message,
        }
    }
}

async fn outcome(reader: &mut FrameReader) -> Outcome {
    loop {
        if let Message::Outcome(outcome) = next(reader).await {
            return outcome;
        }
    }
}

/// Requests room repeatedly, as other streams do. A receiver that polls for room, without waiting
/// in turn, would never get any.
async fn compete(room: Arc<Semaphore>) {
    loop {
        let _permit = room.clone().acquire_owned().await;
        yield_now().await;
    }
}

/// Receives over the control stream only, into `place`.
pub(super) async fn receive_alone(
    wire: &mut Wire,
    terms: Terms,
    port: PortHandle,
    memory: Arc<MemoryPart>,
    place: Place,
) -> Result<Received, End> {
    let (_stream_ends, streams) = mpsc::unbounded_channel();
    let (asked, options) = (Arc::new(Asked::push(true)), SinkOptions::default());
    let end = ReceivingRole {
        wire,
        terms,
        port,
        contact: None,
        board: Arc::new(Board::default()),
        streams,
        hooks: &Alone,
        decides: false,
        memory,
        receive: Receive::Naive,
        core: None,
        writer: None,
    };
    end.run(Box::new(Files { place, asked, options, claim: None })).await
}

async fn wait_and_take_turns() {
    let (near, far) = pair(Carriers::Quic, LOOPBACKS[0]).await;
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder);
    let budget = Budget::new(Bytes::mebi(32)).unwrap();
    let memory = Arc::new(budget.enter().await.expect("there is memory"));
    let room = memory.streamed();
    let all = room.available_permits() as u32;
    let held = room.clone().acquire_many_owned(all).await.unwrap();
    let data = Port::bind((LOOPBACKS[0], 0).into()).unwrap();
    let (terms, port) = (terms(&near), data.handle());
    let place = Place::Ambient(folder.path().join("copy"));
    let receiving = spawn_local(async move {
        let mut wire = Wire::new(near, MessageCharge::alone());
        let ended = receive_alone(&mut wire, terms, port, memory, place).await;
        wire.close(None).await;
        ended.map(|received| received.outcome.files)
    });
    let (mut writer, mut reader) = far.split();
    let sending = spawn_local(async move {
        send(&mut writer, source).await;
        writer
    });
    for _ in 0..3 {
        let Message::Status(status) = next(&mut reader).await else { panic!("the receiver waits") };
        assert_eq!(status.written, 0, "there is no room");
    }
    let others: Vec<_> = (0..4).map(|_| spawn_local(compete(room.clone()))).collect();
    // One permit becomes free. All tasks that wait for room get this permit in turn.
    let mut held = held;
    drop(held.split(1));
    assert_eq!(outcome(&mut reader).await.files, 1);
    let writer = sending.await.expect("it was sent");
    writer.close(reader, None).await.expect("the session is open");
    assert_eq!(receiving.await.expect("it ends").ok(), Some(1));
    others.iter().for_each(tokio::task::JoinHandle::abort);
    let read = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("copy") == read("source"));
}

#[test]
fn a_chunk_on_the_control_stream_waits_for_memory_in_turn() {
    run(async { LocalSet::new().run_until(wait_and_take_turns()).await });
}
