//! Tests: false messages from the other end are refused, or change nothing.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use longhaul_net::buffers::assembly::Assembly;
use longhaul_net::buffers::chunks::ChunkPool;
use longhaul_proto::coded::Symbol;
use longhaul_proto::endpoint::{FlowId, PacketNumber, Setup};
use longhaul_proto::layout::{Block, Layout};
use longhaul_proto::registry;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::{Control, Done, Echo, Pulse, Train};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;

use super::named::decode;
use super::offer;
use super::terms::layout;
use crate::control::{Compare, Compared, Digests, EntryFailed, Offer, Ranges};
use crate::counters::board::Board;
use crate::error::{Error, ErrorKind};
use crate::flow::payloads::Payloads;
use crate::write::chunk::{Arrived, Drained, Streamed};
use crate::write::destination::{Incoming, Reporter};
use crate::write::files::Files;
use crate::write::jobs::{Job, Jobs, WriterEvent};
use crate::write::writer;
use longhaul_files::{Asked, CHUNK, Place, SinkOptions, Source, SourceOptions};

fn honest() -> Offer {
    Offer { manifest_digest: vec![0; 32], object_len: 5 * CHUNK, ..Offer::default() }
}

#[test]
fn an_impossible_offer_is_refused_before_anything_is_allocated() {
    assert_eq!(honest().check(), Ok(()));
    let wrong = [
        Offer { manifest_digest: vec![0; 31], ..honest() },
        Offer { manifest_len: 6 * CHUNK, ..honest() },
        Offer { manifest_len: crate::control::MAX_MANIFEST + 1, object_len: 1 << 50, ..honest() },
        Offer { object_len: u64::MAX, ..honest() },
        Offer { object_len: CHUNK << 32, ..honest() },
    ];
    for offer in wrong {
        assert!(offer.check().is_err(), "{offer:?}");
    }
}

#[test]
fn an_impossible_layout_is_refused() {
    let sizes = [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, u64::MAX / 2, u64::MAX];
    for object in sizes {
        for segment in sizes {
            for block in [0, 1, 1 << 20, (1 << 20) + 1, u32::MAX] {
                if let Ok(layout) = layout(object, Bytes::new(segment), block) {
                    assert!((1..=1 << 20).contains(&block));
                    assert!(segment == 0 || segment.is_multiple_of(CHUNK) || segment > object);
                    assert!(layout.blocks() < 1 << 48, "{object} {segment} {block}");
                }
            }
        }
    }
}

#[test]
fn a_plan_with_chunks_that_the_object_lacks_is_refused() {
    let plan = |steps: &[u64]| decode(Some(&Ranges { steps: steps.to_vec() }), 5, "chunks");
    let honest: Vec<u64> = plan(&[1, 4]).unwrap().into_iter().flatten().collect();
    assert_eq!(honest, [1, 2, 3, 4]);
    for lie in [&[1, 5][..], &[0, 0], &[3], &[u64::MAX, u64::MAX], &[4, 1, 0, 1]] {
        assert_eq!(plan(lie).map_err(|error| error.kind), Err(ErrorKind::Unfinished), "{lie:?}");
    }
}

pub(super) fn source(folder: &TempDir) -> Source {
    let file = folder.path().join("source");
    let content: Vec<u8> = (0..2 * CHUNK + 77).map(|n| (n * 31 % 251) as u8).collect();
    std::fs::write(&file, content).unwrap();
    let options = SourceOptions::default();
    Source::open(&[Place::Ambient(file)], &options).unwrap()
}

#[test]
fn a_malformed_comparison_is_refused_and_a_missing_chunk_compares_as_different() {
    let folder = tempfile::tempdir().unwrap();
    let mut payloads = Payloads::new(source(&folder)).unwrap();
    let mut ask = |entry, chunks: &[u64], values: usize| {
        let ask = Compare { entry, chunks: chunks.to_vec(), values: vec![0; values] };
        payloads.compare(&ask).map(|(compared, same)| (compared.same, same))
    };
    assert!(ask(0, &[0, 1], 32).is_err());
    assert!(ask(0, &[0], 33).is_err());
    assert!(ask(u64::MAX, &[0], 32).is_err());
    let none = Vec::<std::ops::Range<u64>>::new;
    assert_eq!(ask(u64::from(u32::MAX), &[0], 32), Ok((vec![false], none())));
    assert_eq!(ask(0, &[0, 3, u64::MAX], 96), Ok((vec![false; 3], none())));
}

/// A writer that has the offer of [`source`], and waits for the content.
struct Writing {
    jobs: Jobs,
    events: UnboundedReceiver<WriterEvent>,
    payloads: Payloads,
    folder: TempDir,
}

impl Writing {
    fn new() -> Writing {
        Writing::over(|_| {})
    }

    fn over(prepare: impl FnOnce(&std::path::Path)) -> Writing {
        Writing::patient(prepare, Duration::from_secs(600))
    }

    fn patient(prepare: impl FnOnce(&std::path::Path), patience: Duration) -> Writing {
        Writing::offered(prepare, patience, |_| {})
    }

    fn offered(
        prepare: impl FnOnce(&std::path::Path),
        patience: Duration,
        change: impl FnOnce(&mut Offer),
    ) -> Writing {
        let folder = tempfile::tempdir().unwrap();
        let mut source = source(&folder);
        prepare(folder.path());
        let place = Place::Ambient(folder.path().join("copy"));
        // Existing content is compared.
        let options = SinkOptions { checksum: true, ..SinkOptions::default() };
        let files = Files { place, asked: Arc::new(Asked::push(true)), options, claim: None };
        let (events_end, events) = tokio::sync::mpsc::unbounded_channel();
        let reporter = Reporter { board: Arc::new(Board::default()), events: events_end };
        let (mut offer, _) = offer::whole(&mut source, false);
        change(&mut offer);
        let (closed, _) = tokio::sync::oneshot::channel();
        let incoming =
            Incoming { offer, list: Box::new(()), reporter, is_incomplete: false, closed };
        let jobs = writer::begin_patient(Box::new(files), incoming, None, patience).unwrap();
        Writing { jobs, events, payloads: Payloads::new(source).unwrap(), folder }
    }

    fn submit(&self, job: Job) {
        self.jobs.send(job);
    }

    fn send_all(&mut self) {
        (0..3).for_each(|chunk| self.send(chunk));
    }

    fn send(&mut self, chunk: u64) {
        let digest = self.payloads.read_whole(chunk).unwrap();
        let content = self.payloads.content().to_vec();
        self.submit(Job::Digests(Digests { chunks: vec![chunk], values: digest.to_vec() }));
        self.submit(Job::Streamed(Streamed { chunk, content, room: room() }));
    }

    fn next<T>(&mut self, mut wanted: impl FnMut(WriterEvent) -> Option<T>) -> T {
        loop {
            if let Some(wanted) = wanted(self.happens()) {
                return wanted;
            }
        }
    }

    fn end(&mut self) -> Result<u64, ErrorKind> {
        loop {
            match self.happens() {
                WriterEvent::Outcome(outcome, _) => return Ok(outcome.files),
                WriterEvent::Failed(error) => return Err(error.kind),
                _ => {}
            }
        }
    }

    fn happens(&mut self) -> WriterEvent {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let next =
            async { tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await };
        runtime.block_on(next).expect("something happens").expect("it says how it ends")
    }
}

fn room() -> OwnedSemaphorePermit {
    Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
}

#[test]
fn a_writer_ignores_unexpected_chunks_digests_and_answers() {
    let mut writing = Writing::new();
    let beyond = vec![3, u64::MAX];
    writing.submit(Job::Digests(Digests { chunks: beyond, values: vec![7; 64] }));
    for chunk in [3, u64::MAX] {
        let content = vec![1; 10];
        writing.submit(Job::Streamed(Streamed { chunk, content, room: room() }));
    }
    for entry in [0, 1, u64::MAX] {
        writing.submit(Job::Compared(Compared { entry, same: vec![true; 1000] }));
    }
    writing.send_all();
    assert_eq!(writing.end(), Ok(1));
    let read = |name| std::fs::read(writing.folder.path().join(name)).unwrap();
    assert!(read("copy") == read("source"));
}

#[test]
fn a_chunk_changed_after_its_comparison_is_requested_again() {
    let mut writing = Writing::over(|folder| {
        let mut old = std::fs::read(folder.join("source")).unwrap();
        old[CHUNK as usize] ^= 1;
        let copy = folder.join("copy");
        std::fs::write(&copy, old).unwrap();
        // The file also has a different time.
        let copy = std::fs::File::options().write(true).open(copy).unwrap();
        copy.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    });
    let asked = writing.next(|event| match event {
        WriterEvent::Planned { slices, .. } => slices.into_iter().find_map(|mut s| s.compare.pop()),
        _ => None,
    });
    let (answer, same) = writing.payloads.compare(&asked).unwrap();
    assert_eq!(same, [0..1, 2..3]);
    // Another process writes to the existing file meanwhile.
    let copy = writing.folder.path().join("copy");
    let mut old = std::fs::read(&copy).unwrap();
    old[7] ^= 1;
    std::fs::write(&copy, old).unwrap();
    writing.submit(Job::Compared(answer));
    writing.send(1);
    let failed = writing.next(|event| match event {
        WriterEvent::PassEnd(end) => end.failed.map(|failed| failed.decode(3).unwrap()),
        _ => None,
    });
    assert_eq!(failed.into_iter().flatten().collect::<Vec<_>>(), [0]);
    writing.submit(Job::BeginPass { number: 1, lease: 0 });
    writing.send(0);
    assert_eq!(writing.end(), Ok(1));
    let read = |name| std::fs::read(writing.folder.path().join(name)).unwrap();
    assert!(read("copy") == read("source"));
}

#[test]
fn withheld_digests_end_the_transfer_and_their_chunks_are_not_written() {
    let mut writing = Writing::patient(|_| {}, Duration::from_millis(300));
    for chunk in [2, 0] {
        writing.payloads.read_whole(chunk).unwrap();
        let content = writing.payloads.content().to_vec();
        writing.submit(Job::Streamed(Streamed { chunk, content, room: room() }));
    }
    let error = writing.next(|event| match event {
        WriterEvent::Failed(error) => Some(error),
        _ => None,
    });
    assert_eq!(error.kind, ErrorKind::Verification);
    assert!(error.what.contains("2 chunks") && error.what.ends_with("chunk 2"), "{error}");
    assert!(!writing.folder.path().join("copy").exists());
}

impl Writing {
    /// Sends chunk 0 with a wrong byte, and the right digest.
    fn send_wrong(&mut self) {
        let digest = self.payloads.read_whole(0).unwrap();
        let mut content = self.payloads.content().to_vec();
        content[7] ^= 1;
        self.submit(Job::Digests(Digests { chunks: vec![0], values: digest.to_vec() }));
        self.submit(Job::Streamed(Streamed { chunk: 0, content, room: room() }));
    }

    /// Sends chunk 0 without its second block, which a symbol of the erasure code replaces; `wrong`
    /// is added to a byte of the symbol.
    fn send_coded(&mut self, wrong: u8) {
        let (object, chunk) = (Bytes::new(2 * CHUNK + 77), Bytes::new(CHUNK));
        let layout = Layout::new(object, Bytes::ZERO, chunk, 1440).unwrap();
        let mut assembly = Assembly::new(layout, ChunkPool::new(chunk, Bytes::mebi(8)));
        let digest = self.payloads.read_whole(0).unwrap();
        let (_, count) = layout.blocks_of_chunk(0);
        for index in (0..count).filter(|index| *index != 1) {
            let block = Block { segment: 0, index };
            let payload = self.payloads.payload(&layout, block).unwrap();
            let fill = |out: &mut [u8]| {
                out.copy_from_slice(payload);
                Ok::<(), ()>(())
            };
            assembly.place(index.into(), payload.len(), fill);
        }
        let symbol = Symbol { chunk: 0, number: 5 };
        let mut payload = self.payloads.symbol(&layout, symbol).unwrap().to_vec();
        payload[3] = payload[3].wrapping_add(wrong);
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(&payload);
            Ok::<(), ()>(())
        };
        assembly.place_symbol(symbol, payload.len(), fill);
        assembly.restore(0);
        let whole = assembly.pop_whole().expect("it has all");
        let drained = Arc::new(Drained::default());
        self.submit(Job::Digests(Digests { chunks: vec![0], values: digest.to_vec() }));
        self.submit(Job::Chunk(Arrived::new(whole, 1440, drained)));
    }

    /// Returns how often chunks are requested again until the transfer fails, and its error.
    fn asked_again_until_failed(&mut self, mut answer: impl FnMut(&mut Writing)) -> (u32, Error) {
        let mut asked = 0;
        loop {
            match self.happens() {
                WriterEvent::PassEnd(end) => {
                    asked += 1;
                    assert!(asked < 100, "it asks without end");
                    self.submit(Job::BeginPass { number: end.number + 1, lease: 0 });
                    answer(self);
                }
                WriterEvent::Failed(error) => return (asked, error),
                _ => {}
            }
        }
    }
}

#[test]
fn a_wrong_symbol_makes_a_wrong_chunk_which_is_requested_again() {
    let mut writing = Writing::new();
    writing.send_coded(1);
    (1..3).for_each(|chunk| writing.send(chunk));
    let failed = writing.next(|event| match event {
        WriterEvent::PassEnd(end) => end.failed.map(|failed| failed.decode(3).unwrap()),
        _ => None,
    });
    assert_eq!(failed.into_iter().flatten().collect::<Vec<_>>(), [0]);
    assert!(!writing.folder.path().join("copy").exists());
    writing.submit(Job::BeginPass { number: 1, lease: 0 });
    writing.send_coded(0);
    assert_eq!(writing.end(), Ok(1));
    let read = |name| std::fs::read(writing.folder.path().join(name)).unwrap();
    assert!(read("copy") == read("source"));
}

#[test]
fn a_source_that_sends_a_chunk_wrong_in_each_pass_is_asked_again_four_times() {
    let mut writing = Writing::new();
    writing.send_wrong();
    (1..3).for_each(|chunk| writing.send(chunk));
    let (asked, error) = writing.asked_again_until_failed(Writing::send_wrong);
    assert_eq!((asked, error.kind), (4, ErrorKind::Verification));
    assert!(error.what.contains("chunk 0 failed verification 5 times"), "{error}");
    assert!(!writing.folder.path().join("copy").exists());
}

#[test]
fn a_source_that_keeps_sending_a_wrong_chunk_within_a_pass_ends_the_transfer() {
    let mut writing = Writing::new();
    (0..100).for_each(|_| writing.send_wrong());
    let (asked, error) = writing.asked_again_until_failed(|_| ());
    assert_eq!((asked, error.kind), (0, ErrorKind::Verification));
}

#[test]
fn a_manifest_that_is_not_the_one_offered_ends_the_transfer_before_anything_is_created() {
    for byte in 0..32 {
        let another = |offer: &mut Offer| offer.manifest_digest[byte] ^= 1;
        let mut writing = Writing::offered(|_| {}, Duration::from_secs(600), another);
        writing.send_all();
        assert_eq!(writing.end(), Err(ErrorKind::Verification), "{byte}");
        let names = std::fs::read_dir(writing.folder.path()).unwrap().count();
        assert_eq!(names, 1, "only the source is there");
    }
}

#[test]
fn a_transfer_ends_if_entries_fail_endlessly_before_the_list_of_files_arrives() {
    // The list of files is announced as the start of the object, but never arrives.
    let unlisted = |offer: &mut Offer| {
        offer.manifest_len = offer.manifest.len() as u64;
        offer.object_len += CHUNK;
        offer.manifest = Vec::new();
    };
    let mut writing = Writing::offered(|_| {}, Duration::from_secs(600), unlisted);
    let reason = "x".repeat(2000);
    let failed = (0..).find_map(|entry| {
        let (path, reason) = (Vec::new(), reason.clone());
        writing.submit(Job::SourceFailed(EntryFailed {
            entry,
            path,
            reason,
            at_source: true,
            changed: false,
        }));
        match writing.events.try_recv() {
            Ok(WriterEvent::Failed(error)) => Some(error),
            _ => None,
        }
    });
    let what = failed.expect("the loop ends only with a failure").what;
    assert!(what.contains("more failed files than this host keeps"), "{what}");
}

#[test]
fn a_malformed_list_of_digests_ends_the_transfer() {
    for values in [0, 31, 33, 64] {
        let mut writing = Writing::new();
        writing.submit(Job::Digests(Digests { chunks: vec![0], values: vec![7; values] }));
        assert_eq!(writing.end(), Err(ErrorKind::Unfinished), "{values}");
    }
}

fn setup(rate: Option<Rate>) -> Setup {
    Setup {
        flow: FlowId(1),
        layout: Layout::new(Bytes::mebi(4), Bytes::mebi(1), Bytes::mebi(1), 1400).unwrap(),
        overhead: Bytes::new(32),
        rtt: Span::from_millis(20),
        rate,
        rate_limit: None,
        remembered: None,
        card: None,
        law: longhaul_proto::law::Law::default(),
        weight: longhaul_proto::law::Weight::default(),
        grant: Bytes::mebi(2),
        settings: Settings::default(),
    }
}

fn lie() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0..5_000u64, any::<u64>()]
}

fn pulse() -> impl Strategy<Value = Control> {
    let train =
        (lie(), lie(), 1..u64::MAX, any::<u32>()).prop_map(|(first, bytes, span, steps)| {
            let (first, bytes) = (PacketNumber(first), Bytes::new(bytes));
            Train { first, bytes, span: Span::from_nanos(span), steps }
        });
    let echo = (lie(), lie())
        .prop_map(|(n, age)| Echo { number: PacketNumber(n), age: Span::from_nanos(age) });
    let counts = (lie(), lie(), lie(), lie(), lie(), lie());
    let rates = prop::option::of(lie().prop_map(Rate::from_bps));
    (counts, prop::option::of(echo), prop::option::of(train), rates).prop_map(
        |((sequence, clock, highest, received, grant, socket_lost), echo, train, drain)| {
            Control::Pulse(Pulse {
                sequence,
                clock: Span::from_nanos(clock),
                highest,
                received,
                distinct: received,
                grant: Bytes::new(grant),
                drain,
                echo,
                train,
                socket_lost,
            })
        },
    )
}

fn done() -> impl Strategy<Value = Control> {
    (0..6u32, any::<u32>(), prop_oneof![0..1000u32, any::<u32>()], lie()).prop_map(
        |(segment, round, sent_to, highest)| {
            Control::Done(Done { segment, round, sent_to, highest: PacketNumber(highest) })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_false_pulse_or_done_finishes_a_sender_or_raises_it_above_a_fixed_rate(
        lies in prop::collection::vec(prop_oneof![pulse(), done()], 1..40), fixed: bool,
    ) {
        for row in registry::all() {
            let rate = fixed.then(|| Rate::from_mbps(100));
            let mut core = (row.sender)(&setup(rate));
            let (mut now, mut next, mut blocks) = (Time::from_nanos(1), 0, Vec::new());
            for lie in &lies {
                core.poll_transmit(now, PacketNumber(next), 44, &mut blocks);
                next += blocks.drain(..).count() as u64;
                core.on_control(now, FlowId(1), lie);
                core.on_timeout(now);
                while core.poll_control(now).is_some() {}
                if fixed {
                    prop_assert!(core.rate() <= Rate::from_mbps(100), "{}", row.name);
                }
                now += Span::from_millis(7);
            }
            prop_assert!(!core.is_finished());
        }
    }

    #[test]
    fn no_false_done_finishes_a_receiver_or_causes_endless_messages(
        lies in prop::collection::vec(done(), 1..40),
    ) {
        for row in registry::all() {
            let mut core = (row.receiver)();
            let mut now = Time::from_nanos(1);
            core.add_flow(now, &setup(None));
            for lie in &lies {
                core.on_control(now, FlowId(1), lie);
                core.on_timeout(now);
                let spoken = (0..10_000).take_while(|_| core.poll_control(now).is_some()).count();
                prop_assert!(spoken < 10_000, "one lie causes endless messages");
                now += Span::from_millis(7);
            }
            prop_assert!(!core.is_finished(FlowId(1)));
        }
    }
}
