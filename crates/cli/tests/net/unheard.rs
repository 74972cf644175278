//! Copies that are finished, whose client never hears of it: the same command goes into the same
//! place, not one level deeper.

use longhaul_transfer::control::{Direction, Message};
use longhaul_transfer::objects::{Place, Source, SourceOptions};
use rustix::process::Signal;

use super::liar;
use crate::rig::{Pair, assert_same, remains, write};

const FILES: u64 = 3;

/// Offers the tree `lots` under the name `end`, and is gone with the first sign that it is there.
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

fn goes_into_the_same_place(restarted: bool) {
    let mut pair = Pair::new();
    for number in 0..FILES {
        write(&pair.here.join(format!("lots/{number}")), b"");
    }
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
    // That one was heard of: now it is a folder that is there, as cp has it.
    copy().summary();
    assert_same(&pair.here.join("lots"), &pair.there.join("end/lots"));
}

#[test]
fn a_client_killed_at_the_very_end_asks_again_and_nothing_is_doubled() {
    goes_into_the_same_place(false);
}

#[test]
fn a_server_killed_at_the_very_end_goes_on_where_it_was() {
    goes_into_the_same_place(true);
}
