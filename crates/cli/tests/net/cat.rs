//! Remote files, through `longhaul cat` and through the library.

use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use longhaul_files::digest::file_value;
use longhaul_transfer::api::{Client, Connection, Identity as Key, RemoteFile, Trust};
use longhaul_transfer::control::file::{FileAsk, FileData, FileOpened, FileRange};
use longhaul_transfer::error::Error;

use super::liar::{self, block_on, meet};
use super::{Relayed, channel_of_ssh};
use crate::rig::{Host, Pair, Server, bytes, peak, write, write_private};

const MEBI: usize = 1 << 20;

pub(super) fn cat(client: &Host, id: &str, words: &[&str]) -> Command {
    let id = format!("--server-id={id}");
    client.command(["cat", &id].into_iter().chain(words.iter().copied()))
}

pub(super) fn of_pair(pair: &Pair, flags: &[&str], path: &str) -> Output {
    let url = format!("lh://{}/{path}", pair.server.address);
    let words = [flags, &[url.as_str()]].concat();
    cat(&pair.client, &pair.server.id, &words).output().expect("it runs")
}

#[track_caller]
fn refused(output: &Output, status: i32, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(what), "{said} instead of {what}");
    assert!(output.stdout.is_empty(), "{} bytes on stdout", output.stdout.len());
}

#[track_caller]
pub(super) fn is(output: &Output, content: &[u8]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(output.stdout == content, "{} bytes instead of {}", output.stdout.len(), content.len());
}

#[test]
fn cat_writes_files_and_ranges_to_stdout() {
    let mut pair = Pair::new();
    let content = bytes(3 * MEBI + 100, 1);
    write(&pair.there.join("sub/file"), &content);
    write(&pair.there.join("empty"), b"");
    is(&of_pair(&pair, &[], "sub/file"), &content);
    let ended = pair.server.child().event(|event| event["event"] == "ended");
    assert_eq!(ended["result"], "done", "the command closed the session: {ended}");
    is(&of_pair(&pair, &[], "empty"), b"");
    let two = [&content[5..9], &content[MEBI..3 * MEBI]].concat();
    is(&of_pair(&pair, &["--range=5-9", "--range=1Mi-3Mi"], "sub/file"), &two);
    let twice = [&content[3 * MEBI..], &content[3 * MEBI..]].concat();
    is(&of_pair(&pair, &["--range=-100", "--range", "3Mi-9G"], "sub/file"), &twice);
    refused(&of_pair(&pair, &["--range=4Mi-"], "sub/file"), 5, "a range begins after the end of");
    refused(&of_pair(&pair, &["--range=2-1"], "sub/file"), 2, "ends before it begins");
    refused(&of_pair(&pair, &[], "none"), 5, "cannot read none");
    refused(&of_pair(&pair, &[], "sub"), 5, "it is a folder");
    let here = pair.client.command(["cat", "here"]).output().unwrap();
    refused(&here, 2, "is on this host");
}

#[test]
fn reads_stay_within_the_root_and_need_the_right_to_read() {
    let pair = Pair::with_rights(":ro:sub", &[]);
    write(&pair.there.join("secret"), b"s");
    write(&pair.there.join("sub/mine"), b"m");
    symlink("..", pair.there.join("sub/up")).unwrap();
    symlink(pair.there.join("secret"), pair.there.join("sub/out")).unwrap();
    symlink("mine", pair.there.join("sub/in")).unwrap();
    is(&of_pair(&pair, &[], "in"), b"m");
    for path in ["../secret", "up/secret", "out", "mine/../../secret", "", "nul%00"] {
        let ended = of_pair(&pair, &[], path);
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{path}");
    }
    let writes = Pair::with_rights(":wo", &[]);
    write(&writes.there.join("file"), b"f");
    refused(&of_pair(&writes, &[], "file"), 3, "may not read here");
    let other = Pair::with_rights(",share=rw", &[]);
    refused(&of_pair(&other, &[], "file"), 3, "has no right to files");
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    let url = format!("lh://{}/mine", pair.server.address);
    let ended = cat(&stranger, &pair.server.id, &[&url]).output().unwrap();
    refused(&ended, 3, "is not allowed here");
}

async fn connect(pair: &Pair) -> Connection {
    let identity = Key::load_or_create(&pair.client.config).expect("the client has one");
    let trust = Trust::only(pair.server.id.as_str());
    let client = Client::builder().identity(identity).trust(trust).build().unwrap();
    client.connect(pair.at("")).await.expect("it answers")
}

async fn open(pair: &Pair, path: &str) -> RemoteFile {
    connect(pair).await.open_file(path).await.expect("it is there")
}

async fn read(file: &RemoteFile, ranges: &[Range<u64>]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); ranges.len()];
    let mut reads = file.read_ranges(ranges.iter().cloned()).await.unwrap();
    while let Some(piece) = reads.next().await {
        let piece = piece.expect("it is read");
        let begun = &mut all[piece.range];
        assert_eq!(piece.offset, ranges[piece.range].start + begun.len() as u64);
        assert!(!piece.bytes.is_empty() && piece.bytes.len() <= MEBI);
        begun.extend(piece.bytes);
    }
    all
}

#[test]
fn any_number_of_ranges_in_any_order_returns_the_bytes_of_the_file() {
    let pair = Pair::in_memory(&[]);
    let content = bytes(5 * MEBI + 7, 2);
    write(&pair.there.join("file"), &content);
    let size = content.len() as u64;
    block_on(async {
        let file = open(&pair, "file").await;
        assert_eq!(file.len(), size);
        // Adjacent, overlapping, descending, empty, beyond the end.
        let mut ranges = vec![0..10, 10..2_000_000, 5..6, 2_000_000..2_000_000, 3..size + 9];
        ranges.extend((0..20_000).rev().map(|n| n * 200..n * 200 + 100));
        ranges.extend((0..20_000).map(|n| n * 64..(n + 1) * 64));
        let all = read(&file, &ranges).await;
        for (range, came) in ranges.iter().zip(&all) {
            let end = range.end.min(size) as usize;
            assert!(came[..] == content[range.start as usize..end], "{range:?}");
        }
        let (one, other) = (file.clone(), file.clone());
        let (one, other) = tokio::join!(one.read_at(MEBI as u64, 10), other.read_at(size - 5, 10));
        assert_eq!(one.unwrap(), content[MEBI..MEBI + 10]);
        assert_eq!(other.unwrap(), content[content.len() - 5..]);
        assert_eq!(file.read_at(u64::MAX, 10).await.unwrap(), b"");
        #[allow(clippy::reversed_empty_ranges, reason = "it is to be refused")]
        let error = file.read_ranges([Range { start: 9, end: 3 }]).await.unwrap_err();
        assert!(error.to_string().contains("ends before it begins"), "{error}");
        // `read_file` requests ranges before the size is known.
        let connection = connect(&pair).await;
        let over = [3..size + 9, 5..u64::MAX, size..size + 1, u64::MAX - 1..u64::MAX, 0..2];
        let (file, mut reads) = connection.read_file("file", over.clone()).await.unwrap();
        let mut all = vec![Vec::new(); over.len()];
        while let Some(piece) = reads.next().await {
            let piece = piece.unwrap();
            all[piece.range].extend(piece.bytes);
        }
        assert!(all[0] == content[3..] && all[1] == content[5..] && all[4] == content[..2]);
        assert!(all[2].is_empty() && all[3].is_empty());
        #[allow(clippy::reversed_empty_ranges, reason = "it is to be refused")]
        let error = connection.read_file("file", [Range { start: 9, end: 3 }]).await.unwrap_err();
        assert!(error.to_string().contains("ends before it begins"), "{error}");
        assert!(connection.read_file("none", [Range { start: 0, end: 1 }]).await.is_err());
        // Dropping the result cancels the read.
        let given_up = file.read_ranges([Range { start: 0, end: size }]).await.unwrap();
        drop(given_up);
        assert_eq!(file.read_at(3, 4).await.unwrap(), content[3..7]);
    });
}

#[test]
fn the_error_of_a_file_that_changes_while_it_is_read_names_the_file() {
    let pair = Pair::new();
    let path = pair.there.join("file");
    write(&path, &bytes(2 * MEBI, 3));
    block_on(async {
        let file = open(&pair, "file").await;
        assert_eq!(file.read_at(0, 10).await.unwrap().len(), 10);
        fs::File::options().write(true).open(&path).unwrap().write_all_at(b"x", 5).unwrap();
        let error = file.read_at(0, 10).await.unwrap_err();
        assert!(error.to_string().contains("file changed while it was open"), "{error}");
        // Every later read of the open file fails too.
        assert!(file.read_at(0, 10).await.is_err());
        assert_eq!(open(&pair, "file").await.read_at(5, 1).await.unwrap(), b"x");
        // Another file gets the name of the open file.
        let file = open(&pair, "file").await;
        fs::remove_file(&path).unwrap();
        write(&path, b"new");
        let error = file.read_at(0, 10).await.unwrap_err();
        assert!(error.to_string().contains("changed"), "a replacement is a change: {error}");
    });
}

#[test]
fn reads_also_work_over_tls_and_through_ssh() {
    let rig = Relayed::new(2 * MEBI + 1);
    rig.relay.rules.no_data.store(true, Ordering::Relaxed);
    rig.relay.rules.no_control.store(true, Ordering::Relaxed);
    let url = rig.at("source").into_string().unwrap();
    let (client, id) = (&rig.pair.client, &rig.pair.server.id);
    let output = cat(client, id, &["--range=7-1.5Mi", &url]).output().unwrap();
    is(&output, &rig.content[7..MEBI * 3 / 2]);
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    write(&scratch.path().join("data/source"), &rig.content);
    let (command, remote) = channel_of_ssh(scratch.path());
    let mut ssh = client.command(["cat", "-e", &command, &remote, "nowhere.invalid:source"]);
    is(&ssh.output().unwrap(), &rig.content);
}

#[test]
fn cat_of_a_large_file_uses_bounded_memory_at_client_and_server() {
    const SIZE: usize = 400 << 20;
    let mut pair = Pair::new();
    fs::File::create(pair.there.join("holes")).unwrap().set_len(SIZE as u64).unwrap();
    let url = format!("lh://{}/holes", pair.server.address);
    let mut child = cat(&pair.client, &pair.server.id, &[&url]).spawn().expect("it starts");
    let mut out = child.stdout.take().expect("it is piped");
    // The last piece does not fit into the pipe, so the client still runs when its memory is
    // measured.
    let mut piece = vec![0; MEBI];
    for _ in 0..SIZE / MEBI - 1 {
        out.read_exact(&mut piece).unwrap();
    }
    let (client, server) = (peak(child.id()), peak(pair.server.child().id()));
    out.read_exact(&mut piece).unwrap();
    assert_eq!(out.read(&mut piece).unwrap(), 0);
    assert!(child.wait().unwrap().success());
    // The file has 400 MiB.
    assert!(client < 160 << 20 && server < 128 << 20, "{client} and {server} bytes");
}

/// Sends `said`, and returns the received pieces and the error.
fn ask(pair: &Pair, said: &[FileAsk]) -> (Vec<FileData>, Option<Error>) {
    block_on(async {
        let mut session = meet(pair, &pair.client).await;
        session.ask_for("file", 1);
        for message in said {
            if session.write(message).await.is_err() {
                break;
            }
        }
        let mut came = Vec::new();
        match session.read::<FileData>().await {
            Ok(Some(_)) => {}
            Ok(None) => return (came, None),
            Err(error) => return (came, Some(error.into())),
        }
        let lens = said.iter().flat_map(|said| &said.ranges).map(|range| range.len);
        let wanted = lens.fold(0, u64::saturating_add);
        while came.iter().map(|data: &FileData| data.bytes.len() as u64).sum::<u64>() < wanted {
            match session.read::<FileData>().await {
                Ok(Some(data)) => came.push(data),
                Ok(None) => return (came, None),
                Err(error) => return (came, Some(error.into())),
            }
        }
        (came, None)
    })
}

fn first(path: &[u8], ranges: &[(u64, u64)]) -> FileAsk {
    let ranges = ranges.iter().map(|&(offset, len)| FileRange { offset, len }).collect();
    FileAsk { path: path.to_vec(), ranges, ..FileAsk::default() }
}

#[test]
fn a_server_refuses_false_messages_of_a_reading_client_and_continues() {
    let pair = Pair::new();
    write(&pair.there.join("file"), &bytes(MEBI + 9, 4));
    let size = MEBI as u64 + 9;
    for path in [&b"/../x"[..], b"..", b"nul\0", b"file/", b"file/x", &[b'x'; 5000], b"\xff", b""] {
        let (came, error) = ask(&pair, &[first(path, &[(0, 1)])]);
        let error = error.unwrap_or_else(|| panic!("{path:?} was read"));
        assert!(came.is_empty() && error.what.contains("cannot read"), "{path:?}: {error}");
    }
    for bad in [(0, 0), (0, size + 1), (size, 1), (u64::MAX, 2), (1, u64::MAX), (u64::MAX, 0)] {
        let (came, error) = ask(&pair, &[first(b"file", &[]), first(b"", &[(0, 3), bad])]);
        assert!(came.is_empty(), "{bad:?}");
        assert!(error.expect("it is refused").what.contains("is empty or ends beyond"), "{bad:?}");
    }
    let (_, error) = ask(&pair, &[first(b"file", &[(0, 1); 4097])]);
    assert!(error.expect("it is refused").what.contains("4096 is the limit"));
    // The path of a later message opens nothing.
    let (came, error) =
        ask(&pair, &[first(b"file", &[]), first(b"/etc/passwd", &[(MEBI as u64, 9)])]);
    assert_eq!((came.len(), error), (1, None));
    let content = fs::read(pair.there.join("file")).unwrap();
    assert_eq!(came[0].bytes, content[MEBI..]);
    assert_eq!(came[0].value, file_value(size, 1, &content[MEBI..]));
    is(&of_pair(&pair, &[], "file"), &content);
}

#[test]
fn the_open_files_of_one_client_are_limited() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"f");
    block_on(async {
        let mut kept = Vec::new();
        let refused = loop {
            let mut session = meet(&pair, &pair.client).await;
            session.ask_for("file", 1);
            session.write(&first(b"file", &[])).await.unwrap();
            match session.read::<FileData>().await {
                Ok(opened) => kept.push((session, opened.expect("it is open"))),
                Err(error) => break error,
            }
        };
        assert_eq!(kept.len(), 64);
        assert!(refused.what.contains("has 64 remote files open"), "{refused}");
        let (closed, _) = kept.pop().expect("they are many");
        closed.close(None).await.unwrap();
        // The server learns of the close a moment later.
        let mut is_open = false;
        while !is_open {
            let mut session = meet(&pair, &pair.client).await;
            session.ask_for("file", 1);
            session.write(&first(b"file", &[])).await.unwrap();
            is_open = session.read::<FileData>().await.is_ok();
        }
    });
}

/// Starts a server that reads its list of clients from a file; returns the path of this file.
pub(super) fn by_list(pair: &Pair) -> (Server, PathBuf) {
    let list = pair.scratch.path().join("allowed");
    write_private(&list, &pair.client.id);
    write(&pair.there.join("file"), b"file");
    let words = ["--allow-file", list.to_str().unwrap()];
    (Server::start(&pair.host, &pair.there, &words), list)
}

/// Replaces the list of clients, and returns once the server has read it.
pub(super) fn change_list(server: &mut Server, list: &Path, text: &str) {
    fs::write(list, text).unwrap();
    server.reload();
}

#[test]
fn a_read_ends_when_its_client_loses_the_right() {
    let pair = Pair::new();
    let (mut server, list) = by_list(&pair);
    let identity = Key::load_or_create(&pair.client.config).expect("the client has one");
    let trust = Trust::only(server.id.as_str());
    let client = Client::builder().identity(identity).trust(trust).build().unwrap();
    block_on(async {
        let connection = client.connect(server.at("")).await.expect("it answers");
        let file = connection.open_file("file").await.unwrap();
        assert_eq!(file.read_at(0, 9).await.unwrap(), b"file");
        change_list(&mut server, &list, "# nobody\n");
        let error = loop {
            match file.read_at(0, 9).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("no longer allowed"), "{error}");
    });
}

/// Runs `cat` with a server that opens a file of `size` bytes and answers with `said`.
fn lied(size: u64, said: &[FileData]) -> Output {
    let opened = FileOpened { size, ..FileOpened::default() };
    let opened = FileData { opened: Some(opened), ..FileData::default() };
    let lies = [&[opened], said].concat();
    liar::lied::<FileAsk, _>("file", lies, |client, id, there| {
        let url = there.into_string().expect("our own name");
        cat(client, id, &[&url]).output().expect("it runs")
    })
}

#[test]
fn a_client_takes_only_bytes_that_match_the_digests_of_the_server() {
    let content = bytes(300_000, 5);
    let value = file_value(300_000, 0, &content).to_vec();
    let data = |bytes: &[u8], value: &[u8]| {
        let (bytes, value) = (bytes.into(), value.into());
        FileData { bytes, value, ..FileData::default() }
    };
    let (head, tail) = content.split_at(256 << 10);
    let size = content.len() as u64;
    let honest = [data(head, b""), FileData::default(), data(tail, &value)];
    is(&lied(size, &honest), &content);
    let mut wrong = tail.to_vec();
    wrong[7] ^= 1;
    refused(
        &lied(size, &[data(head, b""), data(&wrong, &value)]),
        6,
        "differ from the server's first read",
    );
    for lies in [
        vec![data(head, b""), data(tail, b"")],
        vec![data(head, b""), data(tail, &value[1..])],
        vec![data(&content, &value)],
        vec![data(b"", &value)],
        vec![data(head, b""), data(head, &value)],
    ] {
        refused(&lied(size, &lies), 1, "malformed or unrequested data");
    }
    refused(&lied(size, &[data(head, b"")]), 1, "closed the file early");
    refused(&lied(1 << 63, &[]), 1, "impossible attributes");
}
