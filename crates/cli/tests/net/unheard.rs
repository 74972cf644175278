//! Finished copies whose client never learns of the end. If the same command runs again, it must
//! find the copy complete. It must not copy into the folder that the first run created.

use std::sync::atomic::Ordering;

use longhaul_files::{Place, Source, SourceOptions};
use longhaul_transfer::control::{Direction, Message};
use rustix::process::Signal;

use super::{Relayed, liar};
use crate::rig::{Pair, Server, assert_same, remains, write};

const FILES: u64 = 3;

/// Copies `lots` as a client that disconnects when it gets the outcome (the server's last message).
fn copy_unheard(pair: &Pair) {
    let places = [Place::Ambient(pair.here.join("lots"))];
    let options = SourceOptions { recursive: true, ..SourceOptions::default() };
    let source = Source::open(&places, &options).expect("it can be read");
    let offer = liar::offer(source.manifest().encode(), 0);
    let request = Message::Request(liar::request(Direction::Push, "end"));
    let (told, error) = liar::talk(pair, [request, offer]);
    let Some(Message::Outcome(outcome)) = told.last() else { panic!("{error:?}") };
    assert_eq!(outcome.files, FILES);
}

/// Creates a folder of empty files, which need no data datagram.
fn make_lots(pair: &Pair) {
    for number in 0..FILES {
        write(&pair.here.join(format!("lots/{number}")), b"");
    }
}

fn goes_into_the_same_place(restarted: bool) {
    let mut pair = Pair::new();
    make_lots(&pair);
    copy_unheard(&pair);
    if restarted {
        pair.server.child().signal(Signal::KILL);
        pair.server.child().ended();
        pair.restart(&[]);
    }
    let copy = || pair.cp(&[&"-r", &"lots", &pair.at("end")]);
    assert_eq!(copy().summary()["skipped_files"], FILES);
    assert_same(&pair.here.join("lots"), &pair.there.join("end"));
    assert!(remains(&pair.there).is_empty());
    // The client has seen the end of the copy above, so this copy goes into the existing folder,
    // as with the cp of coreutils.
    copy().summary();
    assert_same(&pair.here.join("lots"), &pair.there.join("end/lots"));
}

#[test]
fn a_copy_repeated_after_its_client_left_at_the_very_end_makes_no_duplicate() {
    goes_into_the_same_place(false);
}

#[test]
fn a_copy_resumes_after_its_server_is_killed_at_the_very_end() {
    goes_into_the_same_place(true);
}

#[test]
fn a_run_resumes_its_copy_after_the_server_is_killed_before_the_outcome_arrives() {
    let mut rig = Relayed::new(1);
    make_lots(&rig.pair);
    // The server hears the client, but the client hears nothing.
    rig.relay.rules.no_tcp.store(true, Ordering::Relaxed);
    rig.relay.rules.mute_server.store(true, Ordering::Relaxed);
    let mut copy = rig.pair.start(&[&"-r", &"--retry-for=5m", &"lots", &rig.at("end")]);
    // The server has sent the outcome, and waits for the client's acknowledgement.
    rig.pair.server.child().complaint("/end: done,");
    assert_same(&rig.pair.here.join("lots"), &rig.pair.there.join("end"));
    rig.pair.server.child().signal(Signal::KILL);
    rig.pair.server.child().ended();
    let Server { address, data_port, .. } = &rig.pair.server;
    let data_port = format!("--data-port={data_port}");
    let flags = [data_port.as_str(), "--allow", &rig.pair.client.id];
    let words = Server::words(address, &rig.pair.there, &flags);
    rig.pair.server = Server::start_as(&mut rig.pair.host.command(words));
    rig.relay.rules.mute_server.store(false, Ordering::Relaxed);
    copy.event(|event| event["event"] == "reconnecting");
    let ended = copy.end();
    assert_eq!(ended.summary()["files"], FILES, "{ended}");
    assert_same(&rig.pair.here.join("lots"), &rig.pair.there.join("end"));
    assert!(remains(&rig.pair.there).is_empty());
}
