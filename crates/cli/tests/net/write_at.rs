//! Changes of remote files in place, through the library.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;

use longhaul_transfer::api::{Client, Connection, ErrorKind, Identity as Key, Trust};
use longhaul_transfer::control::file::{Change, FileAsk, FileChange, FileData, FileOpened};
use longhaul_transfer::error::Error;

use super::Relayed;
use super::cat::{by_list, change_list};
use super::liar::{self, block_on, meet};
use crate::files::destination_trouble::{Apart, fill, seen_by};
use crate::rig::{Host, Pair, bytes, need, write};

const MEBI: usize = 1 << 20;

pub(super) async fn connect(
    client: &Host,
    id: &str,
    url: impl AsRef<std::ffi::OsStr>,
) -> Connection {
    let identity = Key::load_or_create(&client.config).expect("the client has one");
    let client = Client::builder().identity(identity).trust(Trust::only(id)).build().unwrap();
    client.connect(url.as_ref().to_os_string()).await.expect("it answers")
}

async fn of_pair(pair: &Pair) -> Connection {
    connect(&pair.client, &pair.server.id, pair.at("")).await
}

#[test]
fn a_file_is_changed_in_place_and_reads_return_what_was_written() {
    let mut pair = Pair::in_memory(&[]);
    let mut content = bytes(5 * MEBI + 7, 1);
    write(&pair.there.join("sub/file"), &content);
    block_on(async {
        let connection = of_pair(&pair).await;
        let reader = connection.open_file("sub/file").await.unwrap();
        assert_eq!(reader.read_at(0, 2 * MEBI).await.unwrap(), content[..2 * MEBI]);
        let file = connection.open_file_to_write("sub/file").await.unwrap();
        // Writes at the start, across chunks and pieces (the content of one message), across the
        // end, beyond the end, and without bytes.
        let end = content.len();
        for (at, len) in [(0, 1), (MEBI - 3, 3 * MEBI), (end - 2, 9), (end + 100, 5), (7, 0)] {
            let new = bytes(len, at as u64);
            content.resize(content.len().max(if len > 0 { at + len } else { 0 }), 0);
            content[at..at + len].copy_from_slice(&new);
            let (written, read) = tokio::join!(file.write_at(at as u64, &new), file.read_at(5, 9));
            written.unwrap();
            assert_eq!(read.unwrap(), content[5..14]);
            assert_eq!(file.len(), content.len() as u64);
            assert!(file.read_at(0, usize::MAX).await.unwrap() == content, "{at}");
        }
        file.set_len(3 * MEBI as u64).await.unwrap();
        file.set_len(4 * MEBI as u64).await.unwrap();
        content.truncate(3 * MEBI);
        content.resize(4 * MEBI, 0);
        assert!(file.read_at(0, usize::MAX).await.unwrap() == content);
        file.sync().await.unwrap();
        // A reader must open the file again to get the new version.
        let error = reader.read_at(0, 10).await.unwrap_err();
        assert!(error.to_string().contains("file changed while it was open"), "{error}");
        let again = connection.open_file("sub/file").await.unwrap();
        assert!(again.read_at(0, usize::MAX).await.unwrap() == content);
        let new = connection.open_file_to_write("sub/new").await.unwrap();
        new.write_at(1 << 40, b"far").await.unwrap();
        new.sync().await.unwrap();
        assert_eq!(fs::metadata(pair.there.join("sub/new")).unwrap().len(), (1 << 40) + 3);
        for (error, what) in [
            (reader.write_at(0, b"x").await, "opened for reads only"),
            (new.write_at(u64::MAX, b"x").await, "no file can have"),
            (new.set_len(1 << 63).await, "no file can have"),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            assert!(error.to_string().contains(what), "{error}");
        }
    });
    assert!(fs::read(pair.there.join("sub/file")).unwrap() == content);
    let asked = pair.server.child().event(|event| event["wish"] == "changes ranges of /sub/file");
    assert_eq!(asked["event"], "asked");
}

#[test]
fn many_writes_at_once_succeed_and_a_later_write_wins() {
    let pair = Pair::in_memory(&[]);
    write(&pair.there.join("file"), b"");
    block_on(async {
        let file = of_pair(&pair).await.open_file_to_write("file").await.unwrap();
        let writers = (0..300_u64).map(|n| {
            let file = file.clone();
            tokio::spawn(async move { file.write_at(n * 1000, &bytes(100_000, n)).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap().unwrap();
        }
        // The write with the highest offset has 100,000 bytes at 299,000.
        assert_eq!(file.len(), 399_000);
        // Of two writes by one task, the later one wins.
        file.write_at(0, b"first").await.unwrap();
        file.write_at(0, b"second").await.unwrap();
        assert_eq!(file.read_at(0, 6).await.unwrap(), b"second");
    });
    assert_eq!(fs::read(pair.there.join("file")).unwrap()[..6], *b"second");
}

#[test]
fn the_change_that_started_last_sets_the_size_even_if_an_earlier_future_ends_later() {
    let pair = Pair::in_memory(&[]);
    write(&pair.there.join("file"), b"");
    block_on(async {
        let file = of_pair(&pair).await.open_file_to_write("file").await.unwrap();
        let content = bytes(100_000, 1);
        let written = file.write_at(0, &content);
        tokio::pin!(written);
        // The write starts first, and is awaited last.
        tokio::select! {
            biased;
            ended = &mut written => panic!("the server cannot have answered: {ended:?}"),
            () = std::future::ready(()) => {}
        }
        file.set_len(10).await.unwrap();
        written.await.unwrap();
        assert_eq!(file.len(), 10);
    });
    assert_eq!(fs::metadata(pair.there.join("file")).unwrap().len(), 10);
}

#[test]
fn a_file_is_changed_over_tls_where_only_tcp_passes() {
    let rig = Relayed::new(2 * MEBI + 1);
    rig.relay.rules.no_data.store(true, Ordering::Relaxed);
    rig.relay.rules.no_control.store(true, Ordering::Relaxed);
    let mut content = rig.content.clone();
    content[9..MEBI].copy_from_slice(&bytes(MEBI - 9, 3));
    block_on(async {
        let connection = connect(&rig.pair.client, &rig.pair.server.id, rig.at("")).await;
        assert_eq!(connection.carrier(), "tls");
        let file = connection.open_file_to_write("source").await.unwrap();
        file.write_at(9, &content[9..MEBI]).await.unwrap();
        assert!(file.read_at(0, usize::MAX).await.unwrap() == content);
    });
}

/// Asserts that the server refuses to open `path` for changes, with the reason `what`.
async fn refused(connection: &Connection, path: &str, what: &str) {
    let error = connection.open_file_to_write(path).await.unwrap_err();
    assert!(error.to_string().contains(what), "{path}: {error}");
}

#[test]
fn changes_need_the_rights_to_read_and_write_files_and_never_leave_the_root() {
    for (rights, args, what) in [
        (":ro", &[][..], "may not change files here"),
        (":wo", &[], "may not change files here"),
        (":rw", &["--read-only"], "may not change files here"),
        (",share=rw", &[], "has no right to files"),
    ] {
        let pair = Pair::with_rights(rights, args);
        write(&pair.there.join("file"), b"old");
        block_on(async { refused(&of_pair(&pair).await, "file", what).await });
        block_on(async { refused(&of_pair(&pair).await, "new", what).await });
        assert_eq!(fs::read(pair.there.join("file")).unwrap(), b"old");
        assert!(!pair.there.join("new").exists());
    }
    let pair = Pair::with_rights(":rw:sub", &[]);
    for path in ["secret", "sub/mine", "sub/shared", "sub/.x.lh-part"] {
        write(&pair.there.join(path), b"old");
    }
    fs::hard_link(pair.there.join("sub/shared"), pair.there.join("other")).unwrap();
    symlink("..", pair.there.join("sub/up")).unwrap();
    symlink(pair.there.join("secret"), pair.there.join("sub/out")).unwrap();
    symlink("../new", pair.there.join("sub/out-new")).unwrap();
    block_on(async {
        let connection = of_pair(&pair).await;
        for path in ["../secret", "up/secret", "out", "out-new", "up/new", "", "..", "mine/x"] {
            refused(&connection, path, "cannot change").await;
        }
        refused(&connection, "shared", "it has several names").await;
        refused(&connection, ".x.lh-part", "is reserved for partial files").await;
        connection.open_file_to_write("mine").await.unwrap().write_at(0, b"new").await.unwrap();
    });
    for path in ["secret", "other", "sub/.x.lh-part"] {
        assert_eq!(fs::read(pair.there.join(path)).unwrap(), b"old", "{path}");
    }
    assert_eq!(fs::read(pair.there.join("sub/mine")).unwrap(), b"new");
    assert!(!pair.there.join("new").exists());
}

#[test]
fn a_file_has_one_writer_and_a_write_never_reaches_a_copy_that_replaced_the_file() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"old");
    write(&pair.here.join("file"), b"copied");
    block_on(async {
        let connection = of_pair(&pair).await;
        let file = connection.open_file_to_write("file").await.unwrap();
        file.write_at(0, b"mine").await.unwrap();
        refused(&connection, "file", "another copy is writing it").await;
        pair.cp(&[&"file", &pair.at("file")]).summary();
        let error = file.write_at(0, b"lost").await.unwrap_err();
        assert!(error.to_string().contains("changed while it was open"), "{error}");
        assert!(file.sync().await.is_err(), "the open file has failed for good");
        let again = connection.open_file_to_write("file").await.unwrap();
        assert_eq!(again.read_at(0, 9).await.unwrap(), b"copied");
    });
    assert_eq!(fs::read(pair.there.join("file")).unwrap(), b"copied");
}

#[test]
fn changes_end_when_their_client_loses_the_right_to_write() {
    let pair = Pair::new();
    let (mut server, list) = by_list(&pair);
    block_on(async {
        let connection = connect(&pair.client, &server.id, server.at("")).await;
        let file = connection.open_file_to_write("file").await.unwrap();
        file.write_at(0, b"x").await.unwrap();
        change_list(&mut server, &list, &format!("{}:ro\n", pair.client.id));
        let error = loop {
            match file.write_at(0, b"y").await {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("no longer allowed"), "{error}");
    });
}

#[test]
fn a_full_disk_is_an_error_with_its_reason_and_the_server_continues() {
    let pair = Pair::new();
    write(&pair.there.join("kept"), b"");
    let apart = need!(Apart::tiny(&pair.there, 8 << 20));
    let mut server = apart.serve(&pair);
    let there = seen_by(server.child(), &pair.there);
    block_on(async {
        let connection = connect(&pair.client, &server.id, server.at("")).await;
        let file = connection.open_file_to_write("file").await.unwrap();
        file.write_at(0, b"first").await.unwrap();
        fill(&there, 0);
        let error = file.write_at(4096, &bytes(6 * MEBI, 1)).await.unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(error.kind, ErrorKind::RemoteFile);
        fs::remove_file(there.join("filler")).unwrap();
        let again = connection.open_file_to_write("file").await.unwrap();
        again.write_at(4096, &bytes(6 * MEBI, 1)).await.unwrap();
        again.sync().await.unwrap();
        assert_eq!(again.read_at(0, 5).await.unwrap(), b"first");
    });
}

/// Sends `said`. Returns the number of answers, and the error that ended the stream, if any.
fn ask(pair: &Pair, said: &[FileAsk]) -> (usize, Option<Error>) {
    block_on(async {
        let mut session = meet(pair, &pair.client).await;
        session.ask_for("file", 2);
        for message in said {
            if session.write(message).await.is_err() {
                break;
            }
        }
        let mut came = 0;
        while came < said.len() {
            match session.read::<FileData>().await {
                Ok(Some(_)) => came += 1,
                Ok(None) => return (came, None),
                Err(error) => return (came, Some(error.into())),
            }
        }
        (came, None)
    })
}

fn first(path: &[u8], edit: bool) -> FileAsk {
    FileAsk { path: path.to_vec(), edit, ..FileAsk::default() }
}

fn change(change: impl Into<FileChange>) -> FileAsk {
    FileAsk { change: Some(change.into()), ..FileAsk::default() }
}

#[test]
fn a_server_refuses_false_messages_of_a_writing_client_and_continues() {
    let pair = Pair::new();
    write(&pair.there.join("file"), b"old");
    let plain = || FileChange::from(Change::Write(0, b"new".to_vec()));
    for (bad, what) in [
        (FileChange { offset: u64::MAX, ..plain() }, "a write is longer than"),
        (FileChange { offset: (1 << 63) - 3, ..plain() }, "a write is longer than"),
        (Change::Write(0, vec![0; (256 << 10) + 1]).into(), "a write is longer than"),
        (FileChange { bytes: b"nex".to_vec(), ..plain() }, "differ from their digest"),
        (FileChange { digest: Vec::new(), ..plain() }, "has no digest"),
        (FileChange { sync: true, ..plain() }, "must have one of"),
        (FileChange { length: Some(1 << 63), ..FileChange::default() }, "the new length exceeds"),
        (FileChange::default(), "must have one of"),
    ] {
        let (came, error) = ask(&pair, &[first(b"file", true), change(bad)]);
        let error = error.expect("it is refused");
        assert!(came == 1 && error.what.contains(what), "{error} instead of {what}");
    }
    let (_, error) = ask(&pair, &[first(b"file", false), change(plain())]);
    assert!(error.expect("it is refused").what.contains("opened for reading"));
    // `edit` has no effect in a message after the first.
    let (_, error) =
        ask(&pair, &[first(b"file", false), FileAsk { edit: true, ..change(plain()) }]);
    assert!(error.expect("it is refused").what.contains("opened for reading"));
    for path in [&b"/../x"[..], b"..", b"nul\0", b"file/", b"file/x", &[b'x'; 5000], b""] {
        let (came, error) = ask(&pair, &[first(path, true)]);
        let error = error.unwrap_or_else(|| panic!("{path:?} was opened"));
        assert!(came == 0 && error.what.contains("cannot change"), "{path:?}: {error}");
    }
    assert_eq!(fs::read(pair.there.join("file")).unwrap(), b"old");
    assert_eq!(ask(&pair, &[first(b"file", true), change(plain())]), (2, None));
    assert_eq!(fs::read(pair.there.join("file")).unwrap(), b"new");
    assert_eq!(fs::read_dir(&pair.there).unwrap().count(), 1, "no other file was made");
}

#[test]
fn a_writing_client_fails_on_missing_and_on_unexpected_answers() {
    let opened = FileData { opened: Some(FileOpened::default()), ..FileData::default() };
    let made = FileData { changed: true, ..FileData::default() };
    let write = |lies: Vec<FileData>| {
        liar::lied::<FileAsk, _>("file", lies, |client, id, there| {
            block_on(async {
                let file = connect(client, id, there).await.open_file_to_write("x").await?;
                let first = file.write_at(0, b"first").await;
                file.write_at(0, b"second").await.and(first)
            })
        })
    };
    for lies in [
        vec![opened.clone()],
        vec![opened.clone(), made.clone()],
        vec![opened.clone(), FileData { bytes: b"x".to_vec(), ..made.clone() }],
        vec![made.clone()],
    ] {
        assert!(write(lies).is_err());
    }
    // Empty messages are signs of life, also before the file is open.
    let waits = FileData::default();
    let honest = vec![waits.clone(), waits.clone(), opened, made.clone(), waits, made];
    assert!(write(honest).is_ok());
}
