//! Tests of the keys, senders ([`Voice`]) and receivers ([`Ears`]) of a multicast group. An epoch
//! is a period with the same keys.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use longhaul_net::clock::{self, Span, Time};
use longhaul_net::sealing::keys::Suite;
use longhaul_proto::channel::{Code, MAX_SENDERS, Message};
use longhaul_proto::endpoint::FlowId;
use longhaul_proto::wire::header::Kind::Data;
use longhaul_session::Kind;

use super::author::Author;
use super::ears::{Ears, Received};
use super::epoch::{Described, Epoch, SERVER};
use super::listen::{PAUSE, receive};
use super::voice::Voice;
use crate::channel::messages::Group;

const NOW: Time = Time::from_nanos(1_000_000_000);

fn epoch(number: u64) -> Epoch {
    Epoch::new(number, Suite::ChaCha20Poly1305)
}

fn voice(epoch: &Epoch, sender: u32) -> Voice {
    let to = "239.1.2.3:5000".parse().unwrap();
    let author = (sender != SERVER).then(|| Author::test(sender as u8));
    Voice::new(to, 1_452, Code::None, epoch.of(sender).sealer(), author)
}

fn message(number: u64, len: usize) -> Message {
    let bytes = Arc::from(vec![number as u8; len]);
    Message { origin: 9, number, at: 3, born: 0, hops: 0, via: 0, key: None, bytes }
}

fn hear(ears: &mut Ears, now: Time, datagrams: &[Vec<u8>]) -> Vec<Received> {
    let mut received = Vec::new();
    for datagram in datagrams {
        ears.take(now, datagram, &mut received);
    }
    received
}

#[test]
fn no_two_senders_or_epochs_have_a_key_in_common() {
    let (mut sealed, mut count) = (BTreeSet::new(), 0);
    for epoch in [epoch(1), epoch(2), epoch(2)] {
        for sender in 0..MAX_SENDERS {
            let (mut sealer, mut out) = (epoch.of(sender).sealer(), [0; 100]);
            // With the same number and content, equal keys would give equal ciphertexts.
            assert_eq!(sealer.next_number().0, 0);
            let len = sealer.seal(Data, 0, &[0; 40], &mut out).unwrap();
            sealed.insert(out[16..len].to_vec());
            count += 1;
        }
    }
    assert_eq!(sealed.len(), count);
}

#[test]
fn a_member_hears_each_message_of_each_sender_once() {
    let epoch = epoch(1);
    let mut ears = Ears::new(epoch.clone(), None);
    for sender in [SERVER, 1, 2, MAX_SENDERS - 1] {
        let mut voice = voice(&epoch, sender);
        for (number, len) in [(1, 0), (2, 20), (3, 100_000)] {
            let datagrams = voice.datagrams(NOW, &message(number, len));
            let received = hear(&mut ears, NOW, &[&datagrams[..], &datagrams].concat());
            let [received] = &received[..] else { panic!("{sender} {number}: {received:?}") };
            assert_eq!(received.sender, (1, sender));
            assert_eq!(received.message, message(number, len));
        }
    }
    assert_eq!((ears.lost(), ears.held()), (0, 0));
}

#[test]
fn the_server_does_not_hear_itself_nor_another_server_in_its_group() {
    let (one, two) = (epoch(1), epoch(1));
    let mut ears = Ears::new(one.clone(), Some(SERVER));
    for epoch in [&one, &two] {
        let datagrams = voice(epoch, SERVER).datagrams(NOW, &message(1, 20));
        assert!(hear(&mut ears, NOW, &datagrams).is_empty());
    }
    assert_eq!(hear(&mut ears, NOW, &voice(&one, 1).datagrams(NOW, &message(1, 20))).len(), 1);
}

#[test]
fn changed_truncated_and_foreign_datagrams_are_not_heard() {
    let epoch = epoch(1);
    let mut ears = Ears::new(epoch.clone(), None);
    let [datagram] = &voice(&epoch, 1).datagrams(NOW, &message(1, 20))[..] else { panic!("one") };
    for at in 0..datagram.len() {
        let mut changed = datagram.clone();
        changed[at] ^= 1;
        assert!(hear(&mut ears, NOW, &[changed]).is_empty(), "byte {at}");
        assert!(hear(&mut ears, NOW, &[datagram[..at].to_vec()]).is_empty(), "{at} bytes");
    }
    assert!(hear(&mut ears, NOW, &[vec![1; 2_000], vec![]]).is_empty());
    assert_eq!(hear(&mut ears, NOW, std::slice::from_ref(datagram)).len(), 1);
}

#[test]
fn only_the_author_of_a_message_can_make_its_authentication_code() {
    let epoch = epoch(1);
    let mut ears = Ears::new(epoch.clone(), Some(SERVER));
    let author = Author::test(5);
    let received = hear(&mut ears, NOW, &voice(&epoch, 5).datagrams(NOW, &message(1, 20)));
    assert!(author.made(&received[0].signed, &received[0].code));
    // A subscriber has the keys of all flows, but not the author's key.
    let to = "239.1.2.3:5000".parse().unwrap();
    let forger = Some(Author::test(6));
    let mut forger = Voice::new(to, 1_452, Code::None, epoch.of(7).sealer(), forger);
    let received = hear(&mut ears, NOW, &forger.datagrams(NOW, &message(2, 20)));
    assert!(!author.made(&received[0].signed, &received[0].code));
}

#[test]
fn the_previous_epoch_is_heard_for_a_while_and_a_known_key_changes_nothing() {
    let epochs = [epoch(1), epoch(2)];
    let mut voices = [voice(&epochs[0], 1), voice(&epochs[1], 1)];
    let mut ears = Ears::new(epochs[0].clone(), None);
    let first = voices[0].datagrams(NOW, &message(1, 20));
    assert_eq!(hear(&mut ears, NOW, &first).len(), 1);
    ears.renew(NOW, epochs[0].clone(), &mut Vec::new());
    assert!(hear(&mut ears, NOW, &first).is_empty());
    ears.renew(NOW, epochs[1].clone(), &mut Vec::new());
    for epoch in &epochs {
        ears.renew(NOW, epoch.clone(), &mut Vec::new());
        assert!(hear(&mut ears, NOW, &first).is_empty());
    }
    let soon = NOW + Span::from_secs(1);
    for (number, voice) in (2..).zip(&mut voices) {
        assert_eq!(hear(&mut ears, soon, &voice.datagrams(NOW, &message(number, 20))).len(), 1);
    }
    let later = NOW + Span::from_secs(3);
    for (received, voice) in [0, 1].into_iter().zip(&mut voices) {
        let datagrams = voice.datagrams(NOW, &message(9, 20));
        assert_eq!(hear(&mut ears, later, &datagrams).len(), received);
    }
}

#[test]
fn a_message_of_the_previous_epoch_that_arrives_late_is_not_lost() {
    let epochs = [epoch(1), epoch(2), epoch(3)];
    let mut voice = voice(&epochs[0], 1);
    let mut ears = Ears::new(epochs[0].clone(), None);
    let [first, second, third, fourth] =
        [1, 2, 3, 4].map(|number| voice.datagrams(NOW, &message(number, 20)));
    hear(&mut ears, NOW, &[first, fourth].concat());
    let lost = |ears: &Ears| (ears.lost(), ears.lost_of((1, 1)));
    assert_eq!(lost(&ears), (2, Some(2)));
    ears.renew(NOW, epochs[1].clone(), &mut Vec::new());
    assert_eq!(lost(&ears), (2, Some(2)));
    assert_eq!(hear(&mut ears, NOW, &third).len(), 1);
    assert_eq!(lost(&ears), (1, Some(1)));
    ears.renew(NOW, epochs[2].clone(), &mut Vec::new());
    assert!(hear(&mut ears, NOW, &second).is_empty());
    assert_eq!(lost(&ears), (1, None));
}

#[test]
fn a_sender_has_only_the_key_of_its_own_flow() {
    let epoch = epoch(3);
    let group: longhaul_net::multicast::Group = "239.1.2.3:5000".parse().unwrap();
    let told = epoch.for_sender(&group, 4, 77);
    let described = Described::read(&told).unwrap();
    assert!(described.of_sender() == epoch.of(4));
    assert_eq!((told.origin, described.hops), (77, 1));
    assert_eq!(epoch.sender(FlowId(told.flow)), Some(4));
    // A sender's own key, used as the key of an epoch, opens nothing.
    let mut ears = Ears::new(described.epoch, None);
    for sender in [SERVER, 4, 5] {
        let datagrams = voice(&epoch, sender).datagrams(NOW, &message(1, 20));
        assert!(hear(&mut ears, NOW, &datagrams).is_empty());
    }
    let described = Described::read(&epoch.for_subscriber(&group)).unwrap();
    assert!(described.epoch == epoch && described.through(None) == group);
}

#[test]
fn a_group_that_no_honest_server_names_is_refused() {
    let group: longhaul_net::multicast::Group = "[ff15::7]:5000".parse().unwrap();
    let honest = epoch(1).for_subscriber(&group);
    assert!(Described::read(&honest).is_ok());
    for (lie, why) in [
        (Group { address: vec![10, 0, 0, 1], ..honest.clone() }, "not a multicast address"),
        (Group { address: vec![224, 0, 0, 1], ..honest.clone() }, "reserved"),
        (Group { address: vec![1; 5], ..honest.clone() }, "5 bytes"),
        (Group { port: 0, ..honest.clone() }, "needs a port"),
        (Group { port: 65_536, ..honest.clone() }, "the port 65536"),
        (Group { hops: 0, ..honest.clone() }, "0 hops"),
        (Group { hops: 256, ..honest.clone() }, "256 hops"),
        (Group { cipher: "none".into(), ..honest.clone() }, "no cipher none"),
        (Group { key: vec![0; 31], ..honest.clone() }, "31 bytes"),
    ] {
        let refused = Described::read(&lie).err().expect("a lie");
        assert!(refused.what.contains(why), "{refused}");
        assert!(matches!(refused.kind, Kind::Usage | Kind::Unreachable));
    }
}

#[test]
fn datagrams_wait_for_their_key_in_a_queue_of_limited_length() {
    let epochs = [epoch(1), epoch(2)];
    let mut ears = Ears::new(epochs[0].clone(), None);
    for number in 0..1_000_u32 {
        let stranger = [&[1][..], &number.to_be_bytes(), &[0; 40]].concat();
        assert!(hear(&mut ears, NOW, &[stranger]).is_empty());
    }
    let mut voice = voice(&epochs[1], 1);
    for number in 1..=3 {
        assert!(hear(&mut ears, NOW, &voice.datagrams(NOW, &message(number, 20))).is_empty());
    }
    assert_eq!(ears.early(), 64);
    let mut received = Vec::new();
    ears.renew(NOW, epochs[1].clone(), &mut received);
    let numbers: Vec<u64> = received.iter().map(|received| received.message.number).collect();
    assert_eq!((numbers, ears.lost()), (vec![1, 2, 3], 0));
}

#[test]
fn datagrams_whose_key_comes_too_late_are_dropped() {
    let epochs = [epoch(1), epoch(2)];
    let mut ears = Ears::new(epochs[0].clone(), None);
    let mut voice = voice(&epochs[1], 1);
    hear(&mut ears, NOW, &voice.datagrams(NOW, &message(1, 20)));
    let mut received = Vec::new();
    ears.renew(NOW + Span::from_secs(3), epochs[1].clone(), &mut received);
    assert!(received.is_empty() && ears.early() == 0);
}

#[test]
fn a_sender_uses_a_waiting_key_when_the_next_key_comes() {
    let epochs = [epoch(1), epoch(2), epoch(3)];
    let (mut voice, now) = (voice(&epochs[0], 1), clock::now());
    for epoch in &epochs[1..] {
        voice.renew(epoch.of(1).sealer(), Some(Author::test(1)), false);
    }
    let mut ears = Ears::new(epochs[1].clone(), None);
    assert_eq!(hear(&mut ears, now, &voice.datagrams(now, &message(1, 20))).len(), 1);
}

#[test]
fn a_socket_of_which_each_receive_fails_does_not_keep_the_thread_busy() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime for the test").block_on(async {
        // A listening TCP socket with a waiting connection is readable, but each receive fails.
        let broken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        broken.set_nonblocking(true).expect("a socket");
        let address = broken.local_addr().expect("a socket");
        let _waiting = std::net::TcpStream::connect(address).expect("loopback");
        let socket = tokio::net::UdpSocket::from_std(OwnedFd::from(broken).into());
        let group = "239.1.2.3:5000".parse().expect("a group");
        let hearing = Some((group, socket.expect("a socket"), Ears::new(epoch(1), None)));
        let (mut bytes, mut polls) = ([0; 10], 0_u32);
        let mut received = std::pin::pin!(receive(&hearing, &mut bytes));
        let counted = std::future::poll_fn(|context| {
            polls += 1;
            received.as_mut().poll(context)
        });
        tokio::time::timeout(10 * PAUSE, counted).await.expect_err("nothing can be received");
        assert!((1..=30).contains(&polls), "{polls}");
    });
}
