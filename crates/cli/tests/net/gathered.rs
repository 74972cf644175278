//! Several copies to one server with the same `--receive-rate` share this rate.

use std::fs;

use crate::rig::{Child, Pair, bytes, write};

const TAKES: &str = "--receive-rate=80M";

#[test]
fn senders_to_one_server_share_its_receive_rate() {
    let pair = Pair::new();
    let start = |number: usize| -> Child {
        let name = format!("f{number}");
        write(&pair.here.join(&name), &bytes(8_000_000, number as u64));
        pair.copy(&["--protocol=gtp", TAKES], &name, pair.at(&name))
    };
    let copies = [0, 1].map(start);
    let seconds = copies.map(|copy| {
        let ended = copy.end();
        ended.summary()["seconds"].as_f64().unwrap_or_else(|| panic!("{ended}"))
    });
    for number in 0..2 {
        let came = fs::read(pair.there.join(format!("f{number}"))).expect("it was copied");
        assert!(came == bytes(8_000_000, number as u64), "f{number} differs");
    }
    // 128 Mbit at 80 Mbit/s take 1.6 s; without sharing, each copy would take 0.8 s.
    let longest = seconds.into_iter().fold(0.0, f64::max);
    assert!(longest >= 1.3, "{longest} s");
}
