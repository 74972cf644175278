//! Unknown servers, and servers with a wrong id. A client sends them only handshakes, and empty
//! probes of the packet size if it expects a certain id.

use std::ffi::OsString;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use longhaul_proto::wire::header::{Header, Kind};

use super::{Relayed, WAYS, Way};
use crate::rig::{Child, DEADLINE, Host, Terminal};

/// Bytes of the object, many more than a handshake has.
const LEN: usize = 4_000_000;
/// Limit of the bytes to the control port if there are only handshakes.
const HANDSHAKES: usize = 200_000;

/// Carriers of data: datagrams to a separate port, or connections to the control port.
const CARRIERS: [&str; 2] = ["--protocol=rbudp", "--protocol=tcp"];

/// A client and a server. The relay records the client's datagrams to the data port, and counts the
/// client's bytes to the control port.
struct Watched {
    rig: Relayed,
    tapped: Receiver<Vec<u8>>,
}

impl Watched {
    fn new() -> Watched {
        let rig = Relayed::new(LEN);
        let tapped = rig.relay.tap();
        Watched { rig, tapped }
    }

    fn command(&self, way: Way, flags: &[&str]) -> Command {
        let (from, to, _) = self.rig.way(way);
        let words = ["cp", "--rate=100M"].iter().chain(flags).map(OsString::from);
        let mut command = self.rig.pair.client.command(words.chain([from, to]));
        command.current_dir(&self.rig.pair.here);
        command
    }

    /// Returns the datagrams to the data port since the last call, and the total number of bytes to
    /// the control port.
    fn left(&self) -> (Vec<Vec<u8>>, usize) {
        let mut data_port = self.rig.relay.address();
        data_port.set_port(data_port.port() + 1);
        // The relay keeps the order at each port, so `last` comes after all earlier datagrams.
        let last = b"so much";
        let asking = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
        asking.send_to(last, data_port).expect("loopback");
        let next = || self.tapped.recv_timeout(DEADLINE).expect("the relay taps");
        let before = std::iter::repeat_with(next).take_while(|datagram| datagram != last);
        (before.collect(), self.rig.relay.rules.said.load(Ordering::Relaxed))
    }

    /// Asserts that since the last call the data port got only datagrams for which `may` is true,
    /// and that the control port got fewer bytes in total than [`HANDSHAKES`].
    #[track_caller]
    fn assert_nothing_left(&self, may: fn(&[u8]) -> bool, of: &str) {
        let (datagrams, said) = self.left();
        let others = datagrams.iter().filter(|datagram| !may(datagram)).count();
        assert_eq!(others, 0, "{of}: datagrams went to the data port");
        assert!(said < HANDSHAKES, "{of}: {said} bytes went to the control port");
    }

    /// Runs a push and a pull over each carrier. Each must be refused with a message that has
    /// `words`.
    #[track_caller]
    fn refuses(&self, flags: &[&str], words: &[&str], may: fn(&[u8]) -> bool) {
        for way in WAYS {
            for carrier in CARRIERS {
                let flags = [&[carrier], flags].concat();
                Child::spawn(&mut self.command(way, &flags)).end().is(3, words);
                self.assert_nothing_left(may, &format!("{way:?} {flags:?}"));
            }
        }
    }
}

fn nothing(_: &[u8]) -> bool {
    false
}

/// Whether a datagram is an empty probe. During the handshake the client probes the packet size of
/// the path to a pinned or known server.
fn empty_probes(datagram: &[u8]) -> bool {
    let is_probe = Header::decode(datagram).is_some_and(|header| header.kind == Kind::Probe);
    is_probe && datagram[Header::LEN..].iter().all(|byte| *byte == 0)
}

#[test]
fn without_a_terminal_a_new_server_gets_only_handshakes_unless_accept_new_is_given() {
    let watched = Watched::new();
    watched.refuses(&[], &[&watched.rig.pair.server.id, "--accept-new"], nothing);
    for carrier in CARRIERS {
        Child::spawn(&mut watched.command(Way::Push, &[carrier, "--accept-new"])).end().is(0, &[]);
        let (datagrams, said) = watched.left();
        let sent: usize = datagrams.iter().map(Vec::len).sum();
        assert!(sent > LEN || said > LEN, "{carrier}: {sent}, {said}");
        watched.rig.assert_copied(Way::Push);
        fs::remove_file(watched.rig.pair.there.join("copy")).expect("it is ours");
    }
}

#[test]
fn no_data_are_sent_to_a_new_server_before_the_user_accepts() {
    for carrier in CARRIERS {
        let watched = Watched::new();
        for (answer, status) in [("n\n", 3), ("yes\n", 0)] {
            let mut screen = Terminal::start(watched.command(Way::Push, &[carrier]));
            screen.shows("[y/N]");
            watched.assert_nothing_left(nothing, "while the user is asked");
            screen.types(answer);
            let (ended, text) = screen.end();
            assert_eq!(ended, Some(status), "{carrier} {answer:?}: {text}");
            if status == 3 {
                watched.assert_nothing_left(nothing, "refused");
            }
        }
        watched.rig.assert_copied(Way::Push);
    }
}

#[test]
fn nothing_of_a_copy_is_sent_to_a_server_that_is_not_the_pinned_or_known_one() {
    let watched = Watched::new();
    let Relayed { pair, relay, .. } = &watched.rig;
    let other = Host::new(&pair.scratch.path().join("other")).id;
    let pin = format!("--server-id={other}");
    watched.refuses(&[&pin], &[&other, &pair.server.id], empty_probes);
    let known = pair.client.config.join("known_servers");
    fs::write(known, format!("{} {other}\n", relay.address())).expect("there is room for a line");
    for flags in [&[][..], &["--accept-new"]] {
        watched.refuses(flags, &["HAS CHANGED", &other], empty_probes);
    }
}
