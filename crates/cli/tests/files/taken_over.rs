//! The same command again while the first still has the destination, or seems to.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::rig::{Pair, bytes, remains, write};

const LEN: usize = 16_000_000;

#[test]
fn a_client_that_is_silent_gives_way_to_the_same_command() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(LEN, 1));
    let copy = || pair.start(&[&"--rate=60M", &"--retry-for=0s", &"file", &pair.at("to")]);
    let mut silent = copy();
    silent.progressed(1);
    silent.signal(Signal::STOP);
    let ended = copy().end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
    // Once it runs again it learns that its session is over, and changes nothing.
    silent.signal(Signal::CONT);
    assert_eq!(silent.end().status, Some(1));
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
    assert!(remains(&pair.there).is_empty());
}

#[test]
fn a_killed_client_is_followed_at_once_by_the_same_command_again_and_again() {
    let pair = Pair::new();
    for number in 0..3 {
        write(&pair.here.join(format!("tree/{number}")), &bytes(LEN, number));
    }
    let mut told = 0;
    for _ in 0..3 {
        let mut copy = pair.start(&[&"-r", &"--rate=40M", &"tree", &pair.at("")]);
        copy.progressed(told + 1);
        told = copy.progressed(told + 1)["bytes"].as_u64().unwrap();
        copy.kill();
    }
    let ended = pair.cp(&[&"-r", &"tree", &pair.at("")]);
    assert!(ended.summary()["resumed_bytes"].as_u64() > Some(0), "{ended}");
    crate::rig::assert_same(&pair.here.join("tree"), &pair.there.join("tree"));
    assert!(remains(&pair.there).is_empty());
}

#[test]
fn a_file_that_another_process_has_is_waited_for_and_the_user_hears_of_it() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(LEN, 1));
    // As one of whose client the server has not heard yet that it is gone.
    let other = File::create(pair.there.join(".to.lh-part")).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut copy = pair.start(&[&"file", &pair.at("to")]);
    let told = copy.event(|event| event["event"] == "warning");
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("another copy is writing") && text.contains("30 s"), "{text}");
    drop(other);
    assert_eq!(copy.end().summary()["verified"], true);
    assert!(fs::read(pair.there.join("to")).unwrap() == bytes(LEN, 1));
}
