//! Writes the first files of each corpus: `cargo run --example seeds` in `fuzz/`. Every run writes
//! the same files.
//!
//! Many seeds are the output of honest ends, so a fuzzer starts with inputs that pass the first
//! checks.

use std::fs;
use std::io;
use std::path::Path;

use longhaul_files::digest;
use longhaul_files::journal;
use longhaul_files::manifest::FileTime;
use longhaul_files::{CHUNK, Kind as EntryKind, LARGE, Listed, Manifest, Shape};
use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::header::Kind;
use longhaul_proto::wire::{
    Ack, Begun, BufferOk, Burst, Closing, Control, Done, Echo, ErrorRate, Go, Header, Loss, Pulse,
    Report, Request as BlockRequest, Resend, Selective, SenderOffer, Sync, Train,
};
use longhaul_transfer::control::list;
use longhaul_transfer::control::pipe::{Extent, Pipe, PipeEnd};
use longhaul_transfer::control::{
    Attach, ChunkPiece, Compare, DeletedNames, Digests, FilterWire, Frame, Lease, Message, Offer,
    Outcome, Pass, PassEnd, Ping, Plan, Probe, ProbeRun, Ranges, Relay, Request, Status, Survey,
    Surveyed, Wait,
};
use longhaul_transfer::options::Filter;
use longhaul_transfer::session::frame;
use longhaul_transfer::session::hello::{Hello, VERSIONS};
use prost::Message as _;

#[path = "seeds/calls.rs"]
mod calls;
#[path = "seeds/listings.rs"]
mod listings;
#[path = "seeds/remote_files.rs"]
mod remote_files;
#[path = "seeds/shares.rs"]
mod shares;
#[path = "seeds/streams.rs"]
mod streams;

fn main() -> io::Result<()> {
    write(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}

/// Writes the seeds below `root`, the top folder of the source tree.
pub fn write(root: &Path) -> io::Result<()> {
    for (target, seeds) in all(root)? {
        let folder = root.join("fuzz/corpus").join(target);
        fs::create_dir_all(&folder)?;
        for (nth, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{nth:02}")), seed)?;
        }
    }
    Ok(())
}

pub type Seeds = Vec<(&'static str, Vec<Vec<u8>>)>;

pub fn all(root: &Path) -> io::Result<Seeds> {
    Ok(vec![
        ("client_session", client_sessions()),
        ("data_header", headers()),
        ("control_message", controls().iter().map(encoded).collect()),
        ("transfer_frame", messages().into_iter().map(framed).collect()),
        ("manifest", manifests()),
        ("journal", journals()),
        ("sender", [runs(&[1, 4, 6, 4]), spoken(&[1, 40, 4, 6])].concat()),
        ("receiver", [runs(&[5, 6, 4, 0]), spoken(&[5, 0, 0, 0, 20, 32, 4])].concat()),
        ("server_session", server_sessions()),
        ("survey_answer", answers()),
        ("hello", hellos()),
        ("listing", listings::all()),
        ("fec", coded_blocks()),
        ("remote_file", remote_files::all()),
        ("rpc", calls::all()),
        ("share", shares::all()),
        ("channel", streams::of_channels()),
        ("stream", streams::all()),
        ("frame_header", frame_headers()),
        ("scenario", scenarios(root)?),
    ])
}

/// Each seed has the scheme, the number of originals, the number of repairs, the length of a symbol
/// in bytes, and a flag. If the flag is 1, each further byte says whether a symbol of an encoder's
/// block is lost. If the flag is 0, invented symbols follow.
fn coded_blocks() -> Vec<Vec<u8>> {
    let (reed_solomon, xor, honest, lies) = (0, 1, 1, 0);
    // The target reads a byte n of at least 12 as the number n − 12.
    let shape = |scheme: u8, k: u8, m: u8, length: u8| vec![scheme, k + 12, m + 12, length + 12];
    let mut seeds = Vec::new();
    for (scheme, m) in [(reed_solomon, 3), (xor, 3), (xor, 10), (reed_solomon, 0)] {
        for lost in [&[1, 0, 1, 0, 0, 0, 0, 0, 0, 1][..], &[1; 10], &[]] {
            seeds.push([&shape(scheme, 20, m, 8)[..], &[honest], lost].concat());
        }
        // The same original twice, a repair, and a repair with a number past the end.
        let symbols = [1, 0, 2, 1, 7, 1, 1, 0, 2, 1, 7, 1, 0, 0, 1, 1, 7, 1, 0, 255, 99, 1, 7, 1];
        seeds.push([&shape(scheme, 20, m, 8)[..], &[lies], &symbols].concat());
        seeds.push([&shape(scheme, 20, m, 8)[..], &[lies], &symbols[..6]].concat());
    }
    seeds
}

fn headers() -> Vec<Vec<u8>> {
    let kinds = [
        Kind::Data,
        Kind::Control,
        Kind::Probe,
        Kind::ProbeAnswer,
        Kind::Challenge,
        Kind::ChallengeAnswer,
    ];
    let of = |kind| {
        let mut out = [0; Header::LEN];
        let (flow, number) = (FlowId(0x0102_0304), PacketNumber(0x05_0607_0809));
        Header { kind, flow, number, block: 0x0a0b_0c0d_0e0f }.encode(&mut out);
        out.to_vec()
    };
    kinds.into_iter().map(of).chain([vec![1; 15], vec![7; 16]]).collect()
}

/// Returns every kind of message between the ends of a flow.
pub fn controls() -> Vec<Control> {
    let done = Done { segment: 3, round: 2, sent_to: 900, highest: PacketNumber(70_000) };
    let pulse = Pulse {
        sequence: 9,
        clock: Span::from_millis(800),
        highest: 2000,
        received: 1900,
        distinct: 1850,
        grant: Bytes::mebi(64),
        drain: Some(Rate::from_mbps(900)),
        echo: Some(Echo { number: PacketNumber(1999), age: Span::from_micros(30) }),
        train: Some(Train {
            first: PacketNumber(1024),
            bytes: Bytes::new(45_000),
            span: Span::from_micros(400),
            steps: 7,
        }),
        socket_lost: 4,
    };
    let report = |missing: Vec<std::ops::Range<u32>>| {
        Control::Report(Report::fill(3, 2, 0..9000, missing.into_iter()))
    };
    vec![
        Control::Done(done),
        Control::Pulse(Pulse::default()),
        Control::Pulse(pulse),
        report(Vec::new()),
        report(vec![0..1, 5..70, 8999..9000]),
        report((0..4500).map(|n| 2 * n..2 * n + 1).collect()),
    ]
    .into_iter()
    .chain(controls_of_some())
    .collect()
}

fn controls_of_some() -> Vec<Control> {
    let report = || Report::fill(3, 2, 0..9000, [0..1, 5..70].into_iter());
    let burst = Some(Burst { size: 25, interval: Span::from_millis(3) });
    let runs = [3..4u64, 90..1000, 70_000..70_001];
    let limit = Some(Rate::from_mbps(500));
    vec![
        Control::Ack(Ack { sequence: 7, next: 900, received: 950 }),
        Control::Loss(Loss::fill(8, &mut runs.clone().into_iter().peekable())),
        Control::Request(BlockRequest::fill(
            9,
            Rate::from_mbps(300),
            true,
            &mut runs.into_iter().peekable(),
        )),
        Control::SenderOffer(SenderOffer {
            sequence: 4,
            rtt: Span::from_millis(50),
            limit,
            answered: 3,
            highest: 2000,
        }),
        Control::Selective(Selective {
            sequence: 5,
            report: report(),
            closing: Some(Closing { highest: 8999, fresh: 12 }),
        }),
        Control::Sync(Sync { sequence: 6 }),
        Control::ErrorRate(ErrorRate { sequence: 2, rate: 1500, restart: Some(77) }),
        Control::Go(Go { buffers: 4 }),
        Control::BufferOk(BufferOk { buffer: 3, offer: burst }),
        Control::Resend(Resend { buffer: 3, highest: 8000, report: report() }),
        Control::Begun(Begun { buffer: 5, burst }),
    ]
}

fn answers() -> Vec<Vec<u8>> {
    let encoded = manifests().swap_remove(2);
    let of = |pieces: &[Surveyed]| -> Vec<u8> {
        pieces.iter().flat_map(Surveyed::encode_length_delimited_to_vec).collect()
    };
    let piece = |manifest: &[u8], values: usize, done| {
        let mut piece = Surveyed { done, ..Surveyed::default() };
        (piece.manifest, piece.values) = (manifest.to_vec(), vec![7; 32 * values]);
        piece
    };
    let (first, second) = encoded.split_at(5);
    let empty = manifests().swap_remove(4);
    vec![
        of(&[piece(&encoded, 1, true)]),
        of(&[
            piece(first, 0, false),
            piece(&[], 0, false),
            piece(second, 1, false),
            piece(&[], 0, true),
        ]),
        of(&[piece(&encoded, 2, true)]),
        of(&[piece(&encoded, 0, true)]),
        of(&[piece(&encoded, 1, false), piece(&encoded, 0, true)]),
        of(&[piece(&manifests().swap_remove(3), 5, true)]),
        of(&[piece(&empty, 0, true)]),
    ]
}

fn encoded(control: &Control) -> Vec<u8> {
    let mut out = Vec::new();
    control.encode(&mut out);
    out
}

fn framed(message: Message) -> Vec<u8> {
    Frame::from(message).encode_to_vec()
}

fn ranges() -> Option<Ranges> {
    Some(Ranges::encode([0..1, 5..70, 300..301]))
}

fn messages() -> Vec<Message> {
    let manifest = manifests().remove(0);
    let digest = any_digest_of(&manifest);
    let compare = Compare { entry: 1, chunks: vec![0, 4], values: vec![7; 64] };
    let control = encoded(&controls()[4]);
    vec![
        Message::Request(request()),
        Message::Offer(Offer {
            manifest,
            manifest_len: 0,
            manifest_digest: digest,
            object_len: 12 * CHUNK,
            streamed_len: 0,
        }),
        Message::Pass(Pass {
            number: 1,
            flow: 77,
            block: 1440,
            segment: 16 * CHUNK,
            rtt_nanos: 100_000_000,
            protocol: "rbudp".to_owned(),
            lease: 0,
        }),
        Message::Plan(Plan {
            have: ranges(),
            compare: vec![compare],
            skipped: ranges(),
            takes_coded: true,
            ..Plan::default()
        }),
        Message::Digests(Digests { chunks: vec![3, 4], values: vec![9; 64] }),
        Message::Relay(Relay { flow: 77, control, number: 1 }),
        Message::Status(Status { sent: 5, first: 4, retransmitted: 1, ..Status::default() }),
        Message::PassEnd(PassEnd { number: 1, failed: ranges() }),
        Message::Lease(Lease { number: 2, chunks: ranges() }),
        Message::DeletedNames(DeletedNames { paths: vec![b"a".to_vec(), b"d/".to_vec()] }),
        Message::Outcome(Outcome { files: 3, digest: vec![5; 32], ..Outcome::default() }),
        Message::ChunkPiece(ChunkPiece { chunk: 3, offset: 0, bytes: vec![1; 50], last: true }),
        Message::Ping(Ping { answer: true }),
        Message::Survey(Survey {
            paths: vec![b"a".to_vec()],
            recursive: true,
            filters: request().filters,
        }),
        Message::Surveyed(Surveyed { values: vec![3; 64], done: true, ..Surveyed::default() }),
    ]
}

fn request() -> Request {
    Request {
        direction: 1,
        paths: vec![b"a/b".to_vec(), b"c".to_vec()],
        transfer: 7,
        flow: 77,
        recursive: true,
        filters: vec![
            FilterWire::from(&Filter::Include("/a/**/*.[ch]".to_owned())),
            FilterWire::from(&Filter::Exclude("{x,y}/".to_owned())),
        ],
        protocol: "rbudp".to_owned(),
        cipher: "aes-128-gcm".to_owned(),
        receive: "scatter".to_owned(),
        segment: Some(0),
        datagram: 1472,
        ..Request::default()
    }
}

fn any_digest_of(bytes: &[u8]) -> Vec<u8> {
    // Any digest works here, because it is compared only when the manifest is opened.
    bytes.iter().cycle().take(32).copied().collect()
}

fn entry(path: &str, kind: EntryKind) -> Listed {
    let modified = FileTime { seconds: -5, nanos: 999_999_999 };
    Listed { path: path.as_bytes().into(), kind, mode: 0o644, modified }
}

fn file(path: &str, size: u64, holes: &[std::ops::Range<u64>]) -> Listed {
    entry(path, EntryKind::File { size, sparse: !holes.is_empty(), holes: holes.into() })
}

fn manifests() -> Vec<Vec<u8>> {
    let tree = vec![
        entry("a", EntryKind::Folder),
        file("a/big", LARGE + 5, &[2..4, 6..7]),
        entry("a/link", EntryKind::Link { target: b"../x".as_slice().into() }),
        file("a/small", 10, &[]),
        file("empty", 0, &[]),
        file("next", 3 * CHUNK, &[]),
    ];
    let of = |shape, entries| Manifest::new(shape, entries).expect("a sound manifest").encode();
    let folder = vec![entry("a", EntryKind::Folder), file("a/x", 1, &[])];
    vec![
        of(Shape::Contents, tree.clone()),
        of(Shape::Several, tree),
        of(Shape::Named, folder),
        of(Shape::File, vec![file("one", 5 * CHUNK, std::slice::from_ref(&(1..3)))]),
        of(Shape::Contents, Vec::new()),
    ]
}

fn journals() -> Vec<Vec<u8>> {
    let modified = FileTime { seconds: 1_700_000_000, nanos: 5 };
    let header = journal::Header { size: 9 * CHUNK - 1, modified, version: 7 };
    let mut bytes = vec![0];
    bytes.extend(header.encode());
    bytes.extend(header.encode_record(0, &[1; 32]));
    bytes.extend(header.encode_record(8, &[2; 32]));
    let torn = bytes[..bytes.len() - 7].to_vec();
    // Choices for `journal::run`: a size of 9 MiB, version 7, two records of this file, one of
    // another file.
    let header = [1, 20, 20, 4, 0, 144, 0, 0, 19];
    let made = [&header[..], &[9, 12, 1], &[9, 17, 2], &[1, 13, 14, 3]].concat();
    vec![bytes, torn, made]
}

/// Returns three runs with different setups. A run is a setup and 40 groups of eight bytes. The
/// first bytes of the groups are the bytes of `steps` in turn.
fn runs(steps: &[u8]) -> Vec<Vec<u8>> {
    let setups: [&[u8]; 3] = [
        // Blocks of 1440 bytes, 16 in a chunk, an object of 5 MB in segments of four chunks.
        &[2, 5, 159, 27, 0, 3, 76, 75, 64, 16, 1, 32, 4, 5, 245, 225, 0, 1, 4, 5, 245, 225, 0, 0],
        // The same object in one chunk, without a given rate.
        &[2, 5, 159, 27, 0, 3, 76, 75, 64, 16, 0, 32, 4, 5, 245, 225, 0, 0, 0],
        // One byte.
        &[2, 5, 159, 27, 0, 13, 12, 0, 32, 4, 5, 245, 225, 0, 0, 0],
    ];
    let run = |setup: &&[u8]| {
        let mut bytes = setup.to_vec();
        bytes.extend([9, 0, 1]);
        for nth in 0..40u8 {
            bytes.push(steps[usize::from(nth) % steps.len()]);
            bytes.extend([nth, 200 - nth, 3, nth * 5, 20, 13, 0]);
        }
        bytes
    };
    setups.iter().map(run).collect()
}

/// Returns one run for each kind of message that only some protocols have. A run has 12 turns. Each
/// turn is `steps` and a message of this kind. The last byte of `steps` gives the message to the
/// core under test. The numbers in the message differ from turn to turn.
fn spoken(steps: &[u8]) -> Vec<Vec<u8>> {
    let setup = [2, 5, 159, 27, 0, 3, 76, 75, 64, 16, 1, 32, 4, 5, 245, 225, 0, 0, 0, 9, 0, 2];
    let run = |kind: u8| {
        let mut bytes = setup.to_vec();
        // Wire type 7 does not exist, so these bytes are no encoded message. The fuzz target then
        // makes a message of the kind `first % 11` from the bytes after `first`.
        let first = (0..).map(|nth| 8 * nth + 7).find(|first| first % 11 == kind);
        let first = first.expect("8 and 11 have no common factor");
        for nth in 0..12u8 {
            bytes.extend(steps);
            let chosen = [first, 12 + nth, nth, 13 + nth, 1, 2, 20, 15, 13, 30, 1, 14];
            bytes.extend([0, chosen.len() as u8]);
            bytes.extend(chosen);
        }
        bytes
    };
    (0..11).map(run).collect()
}

fn server_sessions() -> Vec<Vec<u8>> {
    const STRANGER: u8 = 0;
    const READER: u8 = 1;
    const WRITER: u8 = 2;
    let session = |who: u8, said: &[Message]| {
        let mut bytes = vec![who];
        frame::encode(&Hello::new(&VERSIONS), &mut bytes).expect("it is short");
        for message in said {
            frame::encode(&Frame::from(message.clone()), &mut bytes).expect("it is short");
        }
        bytes
    };
    let pull = Request { paths: vec![b"in".to_vec()], filters: Vec::new(), ..request() };
    let push = Request { direction: 0, paths: vec![b"new".to_vec()], ..pull.clone() };
    let streamed = Request { protocol: String::new(), ..push.clone() };
    let survey = |paths| Survey { paths, recursive: true, filters: Vec::new() };
    let probe = Probe { probe: 5, flow: 6, cipher: "aes-128-gcm".to_owned() };
    let encoded = manifests().remove(2);
    let digest = blake3::hash(&encoded).as_bytes().to_vec();
    let offer = Offer { manifest: encoded, manifest_digest: digest, ..Offer::default() };
    let chunk = ChunkPiece { chunk: 0, offset: 0, bytes: vec![1], last: true };
    let filtered = Message::Request(Request { paths: pull.paths.clone(), ..request() });
    vec![
        session(STRANGER, &[Message::Request(Request { paths: Vec::new(), ..request() })]),
        session(STRANGER, &[Message::Survey(Survey::default())]),
        session(READER, &[Message::Request(pull.clone()), Message::Ping(Ping::default())]),
        session(READER, &[filtered]),
        session(READER, &[Message::Survey(survey(vec![b"in".to_vec()])), Message::Request(pull)]),
        session(READER, &[Message::Survey(survey(vec![b"../beside".to_vec()]))]),
        session(READER, &[Message::Probe(probe), Message::ProbeRun(ProbeRun::default())]),
        session(READER, &[Message::Attach(Attach { transfer: 7 })]),
        session(WRITER, &[Message::Request(push), Message::Offer(offer.clone())]),
        session(
            WRITER,
            &[Message::Request(streamed), Message::Offer(offer), Message::ChunkPiece(chunk)],
        ),
        session(WRITER, &[])[..12].to_vec(),
        listing(READER, "list", 1, b""),
        listing(READER, "list", 1, b"../beside"),
        listing(WRITER, "list", 1, b""),
        listing(READER, "list", 2, b""),
        remote_files::reading(READER, b"in", (0, 1)),
        remote_files::reading(READER, b"in", (u64::MAX, 2)),
        remote_files::reading(READER, b"../beside", (0, 1)),
        remote_files::reading(WRITER, b"in", (0, 1)),
        listing(READER, "share", 0, b""),
        several(READER),
        piping(READER, b"pipe", None),
        piping(WRITER, b"pipe", None),
        piping(WRITER, b"pipe", Some(PipeEnd { total: 0, digest: vec![0; 32] })),
        piping(WRITER, b"../beside", Some(PipeEnd::default())),
        session(
            WRITER,
            &[Message::Request(Request {
                direction: 0,
                paths: vec![b"pipe".to_vec()],
                extent: Some(Extent { pipe: 7, offset: 1 << 20 }),
                ..request()
            })],
        ),
    ]
}

fn piping(who: u8, path: &[u8], end: Option<PipeEnd>) -> Vec<u8> {
    let mut bytes = vec![who];
    let hello = Hello { service: "pipe".to_owned(), needs: 1, ..Hello::new(&VERSIONS) };
    frame::encode(&hello, &mut bytes).expect("it is short");
    frame::encode(&Pipe { path: path.to_vec(), pipe: 7 }, &mut bytes).expect("it is short");
    if let Some(end) = end {
        frame::encode(&end, &mut bytes).expect("it is short");
    }
    bytes
}

fn listing(who: u8, service: &str, needs: u32, path: &[u8]) -> Vec<u8> {
    let mut bytes = vec![who];
    let service = service.to_owned();
    let hello = Hello { service, needs, ..Hello::new(&VERSIONS) };
    frame::encode(&hello, &mut bytes).expect("it is short");
    frame::encode(&list::List { path: path.to_vec() }, &mut bytes).expect("it is short");
    bytes
}

/// Returns the bytes of a client that opens a stream through the multiplexer.
fn several(who: u8) -> Vec<u8> {
    let mut bytes = vec![who];
    let hello = Hello { streams: true, ..Hello::new(&VERSIONS) };
    frame::encode(&hello, &mut bytes).expect("it is short");
    let said = &listing(who, "list", 1, b"")[1..];
    // Version, data, SYN, stream 1, length.
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1]);
    bytes.extend((said.len() as u32).to_be_bytes());
    bytes.extend(said);
    bytes
}

/// The first byte of each seed chooses the kind of copy, and the rest is a server's output.
fn client_sessions() -> Vec<Vec<u8>> {
    const PULL: u8 = 1;
    const BY_STREAM: u8 = 2;
    const TREE: u8 = 4;
    const DRY_RUN: u8 = 8;
    const STAYS: u8 = 16;
    let session = |how: u8, said: &[Message]| {
        let mut bytes = vec![how];
        frame::encode(&Hello::new(&VERSIONS), &mut bytes).expect("it is short");
        for message in said {
            frame::encode(&Frame::from(message.clone()), &mut bytes).expect("it is short");
        }
        bytes
    };
    let offer = |shape, entries: Vec<Listed>, object_len| {
        let manifest = Manifest::new(shape, entries).expect("a sound manifest").encode();
        let manifest_digest = blake3::hash(&manifest).as_bytes().to_vec();
        Message::Offer(Offer { manifest, manifest_digest, object_len, ..Offer::default() })
    };
    let content = b"content";
    let len = content.len() as u64;
    let pass = |protocol: &str| {
        let protocol = protocol.to_owned();
        Message::Pass(Pass { flow: 7, block: 1168, protocol, ..Pass::default() })
    };
    let digests =
        |value: [u8; 32]| Message::Digests(Digests { chunks: vec![0], values: value.to_vec() });
    let honest = digests(digest::file_value(len, 0, content));
    let chunk = Message::ChunkPiece(ChunkPiece {
        chunk: 0,
        offset: 0,
        bytes: content.to_vec(),
        last: true,
    });
    let one = || offer(Shape::File, vec![file("file", len, &[])], len);
    let stream = |digests: Message| [one(), pass(""), digests, chunk.clone()];
    let tree = || {
        let folder = entry("tree", EntryKind::Folder);
        offer(Shape::Named, vec![folder, file("tree/empty", 0, &[])], 0)
    };
    let other = offer(Shape::File, vec![file(".bashrc", 0, &[])], 0);
    let done = Message::Outcome(Outcome { files: 1, ..Outcome::default() });
    vec![
        session(PULL | BY_STREAM | STAYS, &stream(honest.clone())),
        session(PULL | BY_STREAM, &stream(honest.clone())),
        session(PULL | BY_STREAM, &stream(digests([7; 32]))),
        session(PULL, &[one(), pass("rbudp"), honest]),
        session(PULL | STAYS, &[other]),
        session(PULL | TREE | STAYS, &[tree()]),
        session(PULL | TREE | DRY_RUN | STAYS, &[tree()]),
        session(PULL, &[tree()]),
        session(BY_STREAM, &[Message::Plan(Plan::default()), done.clone()]),
        session(0, &[Message::Plan(Plan::default()), Message::Wait(Wait { over: false }), done]),
        session(PULL, &[])[..9].to_vec(),
    ]
}

fn hellos() -> Vec<Vec<u8>> {
    let odd = Hello { min: 2, max: 9, release: "9.9.9\u{1b}[2J".to_owned(), ..Hello::default() };
    let (service, needs) = ("list".to_owned(), 1);
    vec![
        Hello::new(&VERSIONS).encode_to_vec(),
        odd.encode_to_vec(),
        Hello { min: 3, max: 2, ..Hello::default() }.encode_to_vec(),
        Hello { service, needs, streams: true, ..Hello::new(&VERSIONS) }.encode_to_vec(),
    ]
}

fn frame_headers() -> Vec<Vec<u8>> {
    let limit = frame::MAX_FRAME as u32;
    let words = [0, 5, limit, limit + 1, 1 << 31, (1 << 31) | limit, u32::MAX];
    words.iter().map(|word: &u32| word.to_be_bytes().to_vec()).collect()
}

fn scenarios(root: &Path) -> io::Result<Vec<Vec<u8>>> {
    let files = [
        "crates/testbed/src/scenario/file/everything.toml",
        "scenarios/transatlantic.toml",
        "scenarios/dumbbell.toml",
        "scenarios/gtp-table4.toml",
    ];
    files.iter().map(|file| fs::read(root.join(file))).collect()
}
