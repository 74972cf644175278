//! A complete session at a server, opened by a stranger or by a client with rights.

use std::fs;
use std::path::Path;

use longhaul_proto::units::Bytes;
use longhaul_transfer::control::Frame;
use longhaul_transfer::control::list::{self, Listed};
use longhaul_transfer::control::pipe::{self, Piped};
use longhaul_transfer::options::{Allow, OwnKey, ServeOptions};
use longhaul_transfer::serve::rehearse;
use longhaul_transfer::session::PeerId;
use longhaul_transfer::session::frame::{self, Header};
use longhaul_transfer::session::hello::{self, Hello};
use prost::Message as _;

const CLIENT: PeerId = PeerId([1; 32]);
const OTHER: PeerId = PeerId([2; 32]);
/// Content of the server's files, and of a file next to its root.
const CONTENT: &[u8] = b"longhaul";

/// The first byte chooses the client: a stranger, a client with read access, or a client with write
/// access to a subfolder. The other bytes are the client's output, starting with its hello. Checks
/// that a stranger gets only a refusal, that an answer without multiplexed streams can be parsed,
/// and that only the client with write access changes files, in its subfolder.
pub fn run(bytes: &[u8]) {
    let Some((who, said)) = bytes.split_first() else { return };
    let who = who % 3;
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let root = scratch.path().join("root");
    fs::create_dir_all(root.join("in")).expect("the folder is ours");
    for kept in ["beside", "root/file", "root/in/file"] {
        fs::write(scratch.path().join(kept), CONTENT).expect("there is room for a file");
    }
    let (id, subfolder) = match who {
        0 => (OTHER, None),
        1 => (CLIENT, None),
        _ => (CLIENT, Some("in".into())),
    };
    let (id, others) = (id.to_string(), Vec::new());
    let allow = Allow { id, read: who == 1, write: who == 2, subfolder, others, name: None };
    let options = ServeOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        data_port: None,
        root,
        read_only: false,
        allow: vec![allow],
        key: OwnKey::In(scratch.path().to_owned()),
        once: true,
        allow_plain: false,
        memory: Bytes::mebi(64),
        ..ServeOptions::default()
    };
    let heard = rehearse(&options, CLIENT, said).expect("a server can be started");
    let hello = hello_of(said);
    if who != 0 && hello.streams {
        // This target does not parse multiplexed streams.
        return look_at(scratch.path(), who == 2);
    }
    let (messages, goodbyes) = read(&heard, &hello.service);
    if who == 0 {
        assert_eq!((messages, goodbyes), (0, 1), "a stranger is refused, whatever it says");
    }
    look_at(scratch.path(), who == 2);
}

fn hello_of(said: &[u8]) -> Hello {
    let Some((header, body)) = said.split_first_chunk() else { return Hello::default() };
    match frame::decode_header(*header) {
        Ok(Header::Message(length)) => {
            body.get(..length).and_then(|hello| hello::decode(hello).ok()).unwrap_or_default()
        }
        _ => Hello::default(),
    }
}

/// Parses an answer; returns the number of messages after the hello, and of goodbyes.
fn read(heard: &[u8], service: &str) -> (usize, usize) {
    let (mut rest, mut count) = (heard, (0, 0));
    let mut greeted = false;
    while let Some((header, body)) = rest.split_first_chunk() {
        let header = frame::decode_header(*header).expect("a frame within the limit");
        let (Header::Message(length) | Header::Goodbye(length)) = header;
        // A client that hangs up may miss the end of the last frame.
        let Some((frame, next)) = body.split_at_checked(length) else { break };
        match header {
            _ if !greeted => drop(hello::decode(frame).expect("a hello comes first")),
            Header::Message(_) => {
                let is_read = match service {
                    list::SERVICE => Listed::decode(frame).is_ok(),
                    pipe::SERVICE => Piped::decode(frame).is_ok(),
                    _ => Frame::decode(frame).is_ok(),
                };
                assert!(is_read, "what a server says can be read");
                count.0 += 1;
            }
            Header::Goodbye(_) => count.1 += 1,
        }
        (rest, greeted) = (next, true);
    }
    count
}

fn look_at(scratch: &Path, may_write: bool) {
    for kept in ["beside", "root/file"] {
        assert_eq!(fs::read(scratch.join(kept)).expect("it is still there"), CONTENT);
    }
    let names = |folder: &str| fs::read_dir(scratch.join(folder)).expect("a folder").count();
    assert_eq!((names(""), names("root")), (2, 2), "a new name outside the subfolder");
    if !may_write {
        assert_eq!(names("root/in"), 1, "a client that may not write wrote");
        assert_eq!(fs::read(scratch.join("root/in/file")).expect("it is still there"), CONTENT);
    }
}
