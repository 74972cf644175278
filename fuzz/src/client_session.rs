//! A complete session at a client whose server may be hostile.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longhaul_files::digest::file_value;
use longhaul_proto::units::Bytes;
use longhaul_transfer::control::{Frame, Message};
use longhaul_transfer::copy::rehearse;
use longhaul_transfer::location::Location;
use longhaul_transfer::options::{CopyOptions, Protocol, Trust};
use longhaul_transfer::progress::{Notice, Observer, Progress};
use longhaul_transfer::session::frame::{self, Header};
use prost::Message as _;

/// Content of the file that a push copies.
const CONTENT: &[u8] = b"longhaul";

struct Nobody;

impl Observer for Nobody {
    fn progress(&self, _: &Progress) {}

    fn notice(&self, _: Notice) {}

    fn trust_new_server(&self, _: &str, _: &str) -> bool {
        false
    }
}

/// The bits of the first byte choose the copy: push or pull; datagrams or stream; a tree or a file;
/// a dry run; a server that stays or hangs up. The other bytes are the server's output, starting
/// with its hello. Checks that the copy creates only requested files and its own temporary files,
/// and that a copied file of 1 byte to 1 MiB matches the server's digests.
pub fn run(bytes: &[u8]) {
    is_whole(bytes, Duration::from_millis(300));
}

/// Runs the copy until it ends, or until `stall` passes without progress. Returns whether the copy
/// ended without an error.
pub fn is_whole(bytes: &[u8], stall: Duration) -> bool {
    let Some((how, said)) = bytes.split_first() else { return false };
    let is = |bit: u8| how & 1 << bit != 0;
    let (pull, by_stream, tree, dry_run, stays) = (is(0), is(1), is(2), is(3), is(4));
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let (beside, into) = (scratch.path().join("beside"), scratch.path().join("into"));
    fs::write(&beside, CONTENT).expect("there is room for a file");
    fs::create_dir(&into).expect("there is room for a folder");
    let name = if tree { "tree" } else { "file" };
    let there = Location::Daemon { host: "127.0.0.1".into(), port: 9, path: name.into() };
    let (from, to) = match pull {
        true => (there, Location::Local(into.clone())),
        false => (Location::Local(beside.clone()), there),
    };
    let config_dir = scratch.path().join("config");
    let trust = Trust { config_dir, pins: Vec::new(), accept_new: false };
    let options = CopyOptions {
        recursive: tree,
        dry_run,
        protocol: match by_stream {
            true => Protocol::Tcp { streams: 0 },
            false => Protocol::Registry("rbudp"),
        },
        memory: Bytes::mebi(64),
        datagram: Some(1200),
        stall,
        ..CopyOptions::new(vec![from], to, trust)
    };
    let ended = rehearse(&options, Arc::new(Nobody), said, stays);
    if let Err(error) = &ended {
        assert!(!error.what.is_empty() && error.what.len() < 3 * 4096 + 3000);
    }
    assert_eq!(fs::read(&beside).expect("the source still exists"), CONTENT);
    assert_eq!(names(scratch.path()), ["beside", "config", "into"]);
    let made = names(&into);
    let ours = [".lh-part", ".lh-small", ".lh-link", ".lh-journal", ".lh-tree"]
        .map(|end| format!(".{name}{end}"));
    let asked = |made: &String| *made == name || ours.contains(made);
    assert!(made.iter().all(asked), "{made:?} was not asked for");
    assert!((pull && !dry_run) || made.is_empty(), "{made:?} was created by a push or a dry run");
    let copy = into.join("file");
    if let (Ok(summary), true) = (&ended, pull && !tree && !dry_run) {
        assert!(copy.is_file() || summary.failed_files > 0, "a successful pull created no file");
    }
    let Ok(content) = fs::read(&copy) else { return ended.is_ok() };
    if !content.is_empty() && content.len() <= 1 << 20 {
        let value = file_value(content.len() as u64, 0, &content);
        assert!(vouched_for(said, &value), "content that does not match the server's digests");
    }
    ended.is_ok()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("it can be read").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

fn vouched_for(said: &[u8], value: &[u8]) -> bool {
    let mut rest = said;
    while let Some((header, body)) = rest.split_first_chunk() {
        let Ok(Header::Message(length)) = frame::decode_header(*header) else { return false };
        let Some((frame, next)) = body.split_at_checked(length) else { return false };
        rest = next;
        if let Ok(Frame { message: Some(Message::Digests(digests)) }) = Frame::decode(frame)
            && digests.values.chunks(value.len()).any(|told| told == value)
        {
            return true;
        }
    }
    false
}
