//! Commands that only write to stdout end when the reader of stdout closes its pipe.

use std::fs;
use std::io::Read;
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_setfl};

use super::share::{Sharing, pair, share};
use crate::rig::{Child, bytes, side_by_side, write};

/// Passes the output of a command to a reader, and prints the command's status to stderr.
const PIPELINE: &str = r#"reader=$1; shift; { "$@"; echo "status $?" >&2; } | $reader"#;

/// A server with the file `large` and a value of `key`.
fn with_content(rights: &str) -> Sharing {
    let sharing = pair(rights);
    write(&sharing.pair.there.join("large"), &bytes(30 << 20, 1));
    share(&sharing.pair, "put", "key", &["value"]).is(0, &[]);
    sharing
}

#[test]
fn a_command_that_only_shows_something_ends_when_the_reader_of_its_output_has_gone() {
    let sharing = with_content("files=rw,share=rw,channel=rw,stream=rw,status=ro");
    let pair = &sharing.pair;
    write(&pair.here.join("line"), b"message\n");
    let mut send = pair.of_name(["channel", "send"], "room", &[]);
    let line = fs::File::open(pair.here.join("line")).expect("it was just written");
    Child::spawn(send.stdin(line)).end().is(0, &[]);
    let commands: &[(&[&str], &str)] = &[
        (&["channel", "receive"], "room"),
        (&["channel", "receive", "--json", "--mode=datagram"], "room"),
        (&["share", "watch"], "key"),
        (&["share", "watch", "--json"], ""),
        (&["top", "--json"], ""),
        (&["cat"], "large"),
        (&["ls", "--json"], ""),
        // These commands write nothing, so they must watch the pipe.
        (&["stream", "receive", "--json"], "stream"),
        (&["stream", "receive", "--output=-"], "stream"),
        (&["share", "watch"], "nothing"),
        (&["channel", "receive"], "empty"),
    ];
    let (with_output, id) = (7, format!("--server-id={}", pair.server.id));
    let of_heads = commands[..with_output].iter().map(|command| (command, "head -c 1"));
    let cases = commands.iter().map(|command| (command, "true")).chain(of_heads);
    side_by_side(cases, |((words, name), reader)| {
        let url = pair.at(name).into_string().expect("our own name");
        let words = [words, &[id.as_str(), &url][..]].concat();
        let mut command = pair.client.wrapped(&["sh", "-c", PIPELINE, "sh", reader], &words);
        let ended = Child::spawn(&mut command).end();
        ended.is(0, &["status 0"]);
        assert_eq!(ended.stdout.len(), usize::from(reader != "true"), "{words:?}: {ended}");
    });
}

#[test]
fn a_command_that_only_shows_something_ends_when_its_output_cannot_be_written() {
    let sharing = with_content("files=rw,share=rw,status=ro");
    let pair = &sharing.pair;
    let (id, full) = (format!("--server-id={}", pair.server.id), r#"exec "$@" >/dev/full"#);
    for (words, name) in
        [(["share", "watch"], "key"), (["top", "--json"], ""), (["cat", "--range=0-"], "large")]
    {
        let url = pair.at(name).into_string().expect("our own name");
        let words = [&words[..], &[&id, &url]].concat();
        let ended = Child::spawn(&mut pair.client.wrapped(&["sh", "-c", full, "sh"], &words)).end();
        ended.is(4, &["stdout cannot be written: No space left"]);
    }
}

#[test]
fn cat_writes_no_more_bytes_after_a_failed_write() {
    let sharing = with_content("files=rw,share=rw,status=ro");
    let pair = &sharing.pair;
    let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
    // A write to the full pipe fails. After the error the test reads; a later write would succeed.
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a pipe has the flag");
    let id = format!("--server-id={}", pair.server.id);
    let url = pair.at("large").into_string().expect("our own name");
    // The test's pipe is the shell's stdin. The shell makes this pipe the command's stdout.
    let wrapper = ["sh", "-c", r#"exec "$@" >&0"#, "sh"];
    let mut command = pair.client.wrapped(&wrapper, ["cat", &id, &url]);
    let mut child = Child::spawn(command.stdin(Stdio::from(writer)));
    drop(command);
    child.complaint("stdout cannot be written");
    let mut seen = Vec::new();
    reader.read_to_end(&mut seen).expect("the pipe can be read");
    let content = bytes(30 << 20, 1);
    assert!(content.starts_with(&seen), "{} bytes have a hole", seen.len());
    child.end().is(4, &[]);
}
