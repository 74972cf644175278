//! Hostile lists of files, from the client of a push and from the server of a pull.

use longhaul_transfer::control::{ChunkPiece, Digests, Direction, Message, Offer, Pass, Request};
use longhaul_transfer::error::ErrorKind;
use prost::Message as _;

use super::liar::{self, LyingServer};
use crate::rig::{Pair, bytes, content, peak, write};

/// A list's first message, as encoded on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Head {
    #[prost(uint32, tag = "1")]
    shape: u32,
    #[prost(uint64, tag = "2")]
    count: u64,
}

/// An entry, as encoded on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    /// Number of leading bytes that equal those of the previous path.
    #[prost(uint32, tag = "1")]
    shared: u32,
    #[prost(bytes = "vec", tag = "2")]
    path: Vec<u8>,
    /// 0 file, 1 folder, 2 link.
    #[prost(uint32, tag = "3")]
    kind: u32,
    #[prost(uint64, tag = "4")]
    size: u64,
    #[prost(bool, tag = "5")]
    sparse: bool,
    /// Start and end of each hole, as chunk numbers.
    #[prost(uint64, repeated, tag = "6")]
    holes: Vec<u64>,
    #[prost(bytes = "vec", tag = "7")]
    target: Vec<u8>,
    #[prost(uint32, tag = "8")]
    mode: u32,
}

/// The shape of a list with the contents of a folder.
const CONTENTS: u32 = 3;

fn list(entries: &[Entry]) -> Vec<u8> {
    let head = Head { shape: CONTENTS, count: entries.len() as u64 };
    let mut out = head.encode_length_delimited_to_vec();
    for entry in entries {
        out.extend(entry.encode_length_delimited_to_vec());
    }
    out
}

fn file(path: &[u8]) -> Entry {
    Entry { path: path.to_vec(), mode: 0o644, ..Entry::default() }
}

fn folder(path: &[u8]) -> Entry {
    Entry { kind: 1, mode: 0o755, ..file(path) }
}

fn link(path: &[u8], target: &[u8]) -> Entry {
    Entry { kind: 2, target: target.to_vec(), ..file(path) }
}

/// Hostile lists, each with the expected error.
fn lies() -> Vec<(Vec<u8>, &'static str)> {
    let torn = Head { shape: CONTENTS, count: 9_999_999 }.encode_length_delimited_to_vec();
    let many = Head { shape: CONTENTS, count: u64::MAX }.encode_length_delimited_to_vec();
    vec![
        (list(&[file(b"../x")]), "leads elsewhere"),
        (list(&[folder(b".."), file(b"../x")]), "leads elsewhere"),
        (list(&[file(b"/etc/x")]), "absolute"),
        (list(&[file(&[b'n'; 300])]), "255 bytes"),
        (list(&[link(b"a", b"/etc"), file(b"a/x")]), "not in the manifest"),
        (list(&[link(b"a", b".."), folder(b"a/b")]), "not in the manifest"),
        (list(&[file(b"a\0b")]), "zero byte"),
        (list(&[file(b".x.lh-part")]), "reserved"),
        (torn, "truncated"),
        (many, "ten million"),
    ]
}

/// Writes a file outside the folders that a list may reach.
fn outside(pair: &Pair) {
    write(&pair.scratch.path().join("x"), b"outside");
}

#[track_caller]
fn assert_untouched(pair: &Pair) {
    let kept = std::fs::read(pair.scratch.path().join("x")).expect("it is there");
    assert_eq!(kept, b"outside");
    assert!(!std::path::Path::new("/etc/x").exists());
    for folder in [&pair.here, &pair.there] {
        assert!(content(folder).is_empty(), "{:?}", content(folder));
    }
}

#[test]
fn a_server_refuses_a_hostile_list_with_the_reason_and_continues() {
    let pair = Pair::new();
    outside(&pair);
    for (encoded, reason) in lies() {
        let request = Message::Request(liar::request(Direction::Push, ""));
        let (_, ended) = liar::talk(&pair, [request, liar::offer(encoded, 0)]);
        let ended = ended.expect("it is refused");
        assert!(ended.what.contains(reason), "{ended} instead of {reason}");
        assert_untouched(&pair);
    }
    write(&pair.here.join("file"), b"f");
    pair.cp(&[&"file", &pair.at("")]).summary();
}

#[test]
fn a_client_refuses_a_hostile_list_with_the_reason() {
    let pair = Pair::new();
    outside(&pair);
    for (encoded, reason) in lies() {
        let server = LyingServer::start(move |_| vec![liar::offer(encoded.clone(), 0)]);
        let id = format!("--server-id={}", server.id);
        let mut command = pair.client.command(["cp", "--json", "-r", "--datagram=1200", &id]);
        command.args([&server.at("tree/"), "."]).current_dir(&pair.here);
        let ended = crate::rig::Child::spawn(&mut command).end();
        ended.is(3, &["list of files", reason]);
        assert_untouched(&pair);
    }
}

/// Messages that send the list as the beginning of the object, with the hash of each chunk.
fn by_stream(encoded: &[u8]) -> Vec<Message> {
    let manifest_digest = blake3::hash(encoded).as_bytes().to_vec();
    let manifest_len = encoded.len() as u64;
    let offer =
        Offer { manifest_len, manifest_digest, object_len: manifest_len, ..Offer::default() };
    let mut said = vec![Message::Offer(offer)];
    for (chunk, content) in (0..).zip(encoded.chunks(1 << 20)) {
        let values = blake3::hash(content).as_bytes().to_vec();
        said.push(Message::Digests(Digests { chunks: vec![chunk], values }));
        let pieces = content.chunks(256 << 10);
        let last = pieces.len() - 1;
        for (at, piece) in pieces.enumerate() {
            said.push(Message::ChunkPiece(ChunkPiece {
                chunk,
                offset: (at * (256 << 10)) as u32,
                bytes: piece.to_vec(),
                last: at == last,
            }));
        }
    }
    said
}

/// The peak memory of a server, in bytes, after the push of a list in a dry run.
#[track_caller]
fn peak_of_a_plan(pair: &mut Pair, encoded: &[u8]) -> u64 {
    let stream =
        Request { protocol: String::new(), dry_run: true, ..liar::request(Direction::Push, "") };
    let said = [Message::Request(stream)].into_iter().chain(by_stream(encoded));
    let (heard, refused) = liar::talk(pair, said);
    assert_eq!(refused, None);
    assert!(matches!(heard.last(), Some(Message::Outcome(_))), "{} messages", heard.len());
    peak(pair.server.child().id())
}

#[test]
fn a_list_of_a_million_entries_is_planned_in_bounded_memory() {
    let mut pair = Pair::new();
    let name = |n: u32| format!("folder-{n:07}").into_bytes();
    let entries: Vec<Entry> = (0..1_000_000).map(|n| folder(&name(n))).collect();
    let peak = peak_of_a_plan(&mut pair, &list(&entries));
    // This limit is 671 bytes for each of the million entries.
    assert!(peak < 640 << 20, "{peak} bytes");
    assert!(content(&pair.there).is_empty());
}

#[test]
fn the_plan_of_a_huge_sparse_file_is_charged_to_the_memory() {
    let pair = Pair::with(&["--memory=64Mi"]);
    let sparse = |size: u64| Entry { size, sparse: true, holes: vec![0, size >> 20], ..file(b"x") };
    let push = |size| {
        let ask = liar::request(Direction::Push, "");
        let ask = Request { protocol: String::new(), dry_run: true, ..ask };
        liar::talk(&pair, [Message::Request(ask), liar::offer(list(&[sparse(size)]), size)]).1
    };
    assert_eq!(push(1 << 40), None);
    let refused = push(1 << 49).expect("there is less memory").to_string();
    assert!(refused.contains("needs at least 256 MiB of memory"), "{refused}");
}

#[test]
fn an_offer_with_an_impossible_length_or_digest_is_refused_with_the_reason() {
    let pair = Pair::new();
    let honest = Offer {
        manifest_len: 100,
        manifest_digest: vec![0; 32],
        object_len: 100,
        ..Offer::default()
    };
    let lies = [
        (Offer { manifest_digest: vec![0; 31], ..honest.clone() }, "no digest"),
        (Offer { manifest_len: 101, ..honest.clone() }, "101 bytes"),
        (Offer { manifest_len: u64::MAX, object_len: u64::MAX, ..honest.clone() }, "bytes"),
        (Offer { object_len: u64::MAX, ..honest }, "18446744073709551615 bytes"),
    ];
    for (offer, reason) in lies {
        let request = Message::Request(liar::request(Direction::Push, "x"));
        let (_, ended) = liar::talk(&pair, [request, Message::Offer(offer)]);
        let ended = ended.expect("it is refused");
        assert!(ended.what.contains(reason), "{ended} instead of {reason}");
        assert_ne!(ended.kind, ErrorKind::Cancelled);
    }
    write(&pair.here.join("file"), &bytes(100_000, 1));
    pair.cp(&[&"file", &pair.at("")]).summary();
}

/// Messages that announce a list of `announced` bytes, and send `encoded`. The stream keeps the
/// order, so the `Pass` shows that the list has ended.
fn cut_short(encoded: &[u8], announced: u64) -> Vec<Message> {
    let manifest_digest = blake3::hash(encoded).as_bytes().to_vec();
    let offer = Offer { streamed_len: announced, manifest_digest, ..Offer::default() };
    let piece = ChunkPiece { bytes: encoded.to_vec(), last: true, ..ChunkPiece::default() };
    vec![
        Message::Offer(offer),
        Message::ChunkPiece(piece),
        Message::Pass(Pass { block: 1200, protocol: "rbudp".into(), ..Pass::default() }),
    ]
}

#[test]
fn a_list_that_ends_before_its_announced_end_is_refused_with_both_lengths() {
    let pair = Pair::new();
    let encoded = list(&[folder(b"a"), file(b"a/x")]);
    let len = encoded.len();
    let reason = format!("a manifest of {} bytes, and sent {len} of them", len + 1);
    let said = || cut_short(&encoded, len as u64 + 1);
    let request = Message::Request(liar::request(Direction::Push, ""));
    let (_, ended) = liar::talk(&pair, std::iter::once(request).chain(said()));
    let ended = ended.expect("it is refused");
    assert!(ended.what.contains(&reason), "{ended} instead of {reason}");
    let said = said();
    let server = LyingServer::start(move |_| said.clone());
    let id = format!("--server-id={}", server.id);
    let mut command = pair.client.command(["cp", "--json", "-r", "--datagram=1200", &id]);
    command.args([&server.at("tree/"), "."]).current_dir(&pair.here);
    crate::rig::Child::spawn(&mut command).end().is(3, &[&reason]);
    for folder in [&pair.here, &pair.there] {
        assert!(content(folder).is_empty(), "{:?}", content(folder));
    }
}

/// A list of `files` empty files in the innermost of 16 nested folders, whose path has 4,015 bytes.
fn deep(files: u32) -> Vec<u8> {
    let mut path = Vec::new();
    let mut entries = Vec::new();
    for level in 0..16 {
        let shared = path.len() as u32;
        path.extend((level > 0).then_some(b'/'));
        path.extend([b'd'; 250]);
        entries.push(Entry { shared, ..folder(&path[shared as usize..]) });
    }
    let within = path.len() as u32 + 1;
    entries.push(Entry { shared: within - 1, ..file(b"/000000") });
    let name = |n: u32| format!("{n:06}").into_bytes();
    entries.extend((1..files).map(|n| Entry { shared: within, ..file(&name(n)) }));
    list(&entries)
}

#[test]
fn a_list_of_deep_paths_takes_memory_for_its_names_and_not_for_its_paths() {
    let mut pair = Pair::new();
    let peak = peak_of_a_plan(&mut pair, &deep(100_000));
    // The paths alone are 402 MB.
    assert!(peak < 128 << 20, "{peak} bytes");
}

/// A list whose names share all but their last bytes.
fn many_long_names(files: u32) -> Vec<u8> {
    let shared = 240;
    let name = |n: u32| format!("{n:08}").into_bytes();
    let first = file(&[&[b'n'; 240][..], &name(0)].concat());
    let others = (1..files).map(|n| Entry { shared, ..file(&name(n)) });
    list(&std::iter::once(first).chain(others).collect::<Vec<_>>())
}

#[test]
fn the_host_that_receives_a_list_larger_than_its_memory_refuses_it_with_the_needed_amount() {
    let pair = Pair::with(&["--memory=40Mi"]);
    let encoded = many_long_names(60_000);
    assert!(encoded.len() < 2 << 20, "{} bytes", encoded.len());
    let stream = Request { protocol: String::new(), ..liar::request(Direction::Push, "") };
    let said = [Message::Request(stream.clone())].into_iter().chain(by_stream(&encoded));
    let (_, refused) = liar::talk(&pair, said);
    let refused = refused.expect("the server refuses it");
    let needs = ["list of files needs at least", "--memory 40Mi", "raise --memory to"];
    let refused = refused.to_string().replace("`memory`", "--memory");
    for word in needs {
        assert!(refused.contains(word), "{refused}");
    }
    let server = LyingServer::start(move |_| by_stream(&encoded));
    let id = format!("--server-id={}", server.id);
    let mut command = pair.client.command(["cp", "--json", "-r", "--protocol=tcp", &id]);
    command.args(["--memory=40Mi"]).args([&server.at("tree/"), "."]).current_dir(&pair.here);
    crate::rig::Child::spawn(&mut command).end().is(2, &needs);
    for folder in [&pair.here, &pair.there] {
        assert!(content(folder).is_empty(), "{:?}", content(folder));
    }
}

#[test]
fn the_host_that_reads_a_folder_refuses_a_list_larger_than_its_memory() {
    let pair = Pair::with(&["--memory=32Mi"]);
    for folder in [&pair.here, &pair.there] {
        std::fs::create_dir(folder.join("tree")).expect("the folder is ours");
        for n in 0..60_000 {
            let name = format!("{n:0>240}");
            std::fs::File::create(folder.join("tree").join(name)).expect("there is room");
        }
    }
    let needs = ["list of files needs at least", "--memory 32Mi", "raise --memory to"];
    pair.cp(&[&"-r", &pair.at("tree"), &"copy"]).is(2, &needs);
    pair.cp(&[&"-r", &"--memory=32Mi", &"tree", &pair.at("copy")]).is(2, &needs);
    assert!(!pair.here.join("copy").exists() && !pair.there.join("copy").exists());
}
