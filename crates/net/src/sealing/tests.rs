//! Sealers against openers: which datagrams open, and how the others are counted.

use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::wire::header::{Header, Kind};
use proptest::prelude::*;

use crate::sealing::keys::{Class, Direction, EPOCH_BITS, FlowKeys, Schedule, Suite};
use crate::sealing::open::{OpenError, Opener};
use crate::sealing::seal::{SealError, Sealer, TAG_LEN};

const FLOW: FlowId = FlowId(0xfeed_beef);
const NOW: Time = Time::from_nanos(1_000_000_000);
/// Packet numbers in an epoch: all datagrams of an epoch have the same key.
const EPOCH: u64 = 1 << EPOCH_BITS;
const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305, Suite::Plain];

fn keys(suite: Suite) -> FlowKeys {
    FlowKeys::new(&[3; 32], suite, 17, FLOW)
}

fn schedule(suite: Suite, class: Class) -> Schedule {
    keys(suite).schedule(Direction::Forward, class)
}

fn data_pair(suite: Suite) -> (Sealer, Opener) {
    (keys(suite).sending_end().data, keys(suite).receiving_end().data)
}

fn sealer_at(number: u64) -> Sealer {
    Sealer::starting_at(schedule(Suite::Aes128Gcm, Class::Data), PacketNumber(number))
}

fn seal(sealer: &mut Sealer, kind: Kind, block: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xee; payload.len() + sealer.overhead()];
    let len = sealer.seal(kind, block, payload, &mut out).unwrap();
    assert_eq!(len, out.len());
    out
}

fn open_at(opener: &mut Opener, now: Time, datagram: &[u8]) -> Result<Vec<u8>, OpenError> {
    let header = Header::decode(datagram).ok_or(OpenError::Malformed)?;
    let mut out = vec![0; datagram.len()];
    let len = opener.open(now, &header, datagram, &mut out)?;
    out.truncate(len);
    Ok(out)
}

fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, OpenError> {
    open_at(opener, NOW, datagram)
}

proptest! {
    #[test]
    fn a_sealed_datagram_opens_once(
        suite in proptest::sample::select(&SUITES[..]),
        payload in proptest::collection::vec(any::<u8>(), 0..2_000),
        block in 0..Header::BLOCKS,
    ) {
        let (mut sealer, mut opener) = data_pair(suite);
        let datagram = seal(&mut sealer, Kind::Data, block, &payload);
        prop_assert_eq!(Header::decode(&datagram).map(|header| header.block), Some(block));
        prop_assert_eq!(open(&mut opener, &datagram), Ok(payload));
        prop_assert_eq!(open(&mut opener, &datagram), Err(OpenError::Replayed));
        let counts = opener.counts();
        prop_assert_eq!((counts.opened, counts.replayed, counts.failed), (1, 1, 0));
    }

    #[test]
    fn opening_in_place_yields_the_payload_and_refuses_a_replay(
        payload in proptest::collection::vec(any::<u8>(), 0..2_000),
    ) {
        for suite in SUITES {
            let (mut sealer, mut opener) = data_pair(suite);
            let mut datagram = seal(&mut sealer, Kind::Data, 5, &payload);
            let (head, rest) = datagram.split_first_chunk_mut().unwrap();
            let (body, tag) = rest.split_at_mut(payload.len());
            prop_assert_eq!(opener.open_in_place(NOW, head, tag, body), Ok(()));
            prop_assert_eq!(&*body, &payload[..]);
            let again = opener.open_in_place(NOW, head, tag, body);
            prop_assert_eq!(again, Err(OpenError::Replayed));
        }
    }

    #[test]
    fn shuffled_repeated_datagrams_open_once_each(
        order in proptest::collection::vec(0usize..40, 0..200),
    ) {
        let (mut sealer, mut opener) = data_pair(Suite::Aes128Gcm);
        let datagrams: Vec<Vec<u8>> =
            (0..40).map(|n| seal(&mut sealer, Kind::Data, n, &n.to_be_bytes())).collect();
        let mut seen = std::collections::BTreeSet::new();
        for n in order {
            let expected = match seen.insert(n) {
                true => Ok((n as u64).to_be_bytes().to_vec()),
                false => Err(OpenError::Replayed),
            };
            prop_assert_eq!(open(&mut opener, &datagrams[n]), expected);
        }
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
        let (mut sealer, mut opener) = data_pair(suite);
        let good = seal(&mut sealer, Kind::Data, 9, b"forty bytes are enough to try every bit.");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&mut opener, &bad).is_err(), "bit {bit}");
        }
        assert_eq!(opener.counts().opened, 0);
        assert!(open(&mut opener, &good).is_ok(), "the forgeries changed nothing");
    }
}

#[test]
fn every_truncation_is_refused() {
    for suite in SUITES {
        let (mut sealer, mut opener) = data_pair(suite);
        let good = seal(&mut sealer, Kind::Data, 9, b"payload");
        for len in 0..good.len() {
            assert!(open(&mut opener, &good[..len]).is_err(), "{len} bytes");
        }
        assert!(open(&mut opener, &good).is_ok());
    }
}

#[test]
fn a_buffer_that_is_too_short_is_refused_unchanged() {
    let (mut sealer, mut opener) = data_pair(Suite::Aes128Gcm);
    let datagram = seal(&mut sealer, Kind::Data, 9, &[1; 100]);
    let header = Header::decode(&datagram).unwrap();
    let mut out = [7; 99];
    assert_eq!(opener.open(NOW, &header, &datagram, &mut out), Err(OpenError::Malformed));
    assert_eq!(out, [7; 99]);
}

#[test]
fn a_datagram_opens_only_with_the_keys_of_its_secret_suite_transfer_flow_and_direction() {
    let (mut sealer, _) = data_pair(Suite::Aes128Gcm);
    let datagram = seal(&mut sealer, Kind::Data, 9, b"payload");
    let others = [
        FlowKeys::new(&[4; 32], Suite::Aes128Gcm, 17, FLOW),
        FlowKeys::new(&[3; 32], Suite::Aes128Gcm, 18, FLOW),
        FlowKeys::new(&[3; 32], Suite::Aes128Gcm, 17, FlowId(1)),
        FlowKeys::new(&[3; 32], Suite::ChaCha20Poly1305, 17, FLOW),
    ];
    for other in others {
        assert!(open(&mut other.receiving_end().data, &datagram).is_err());
    }
    let mut reports = keys(Suite::Aes128Gcm).receiving_end().reports;
    let report = seal(&mut reports, Kind::Control, 0, b"report");
    assert!(open(&mut keys(Suite::Aes128Gcm).receiving_end().control, &report).is_err());
    assert!(open(&mut keys(Suite::Aes128Gcm).sending_end().reports, &report).is_ok());
}

#[test]
fn control_is_sealed_even_where_data_is_not() {
    let mut control = keys(Suite::Plain).sending_end().control;
    let datagram = seal(&mut control, Kind::Control, 0, b"a secret report");
    assert_eq!(datagram.len(), Header::LEN + 15 + TAG_LEN);
    assert!(!datagram.windows(6).any(|window| window == b"secret"));
    assert!(open(&mut keys(Suite::Plain).receiving_end().control, &datagram).is_ok());
}

#[test]
fn a_sealer_refuses_a_kind_of_the_other_class_and_a_short_buffer() {
    let mut end = keys(Suite::Aes128Gcm).sending_end();
    let mut out = [0; 100];
    assert_eq!(end.data.seal(Kind::Control, 0, b"", &mut out), Err(SealError::Kind));
    assert_eq!(end.control.seal(Kind::Data, 0, b"", &mut out), Err(SealError::Kind));
    assert_eq!(end.data.seal(Kind::Data, 0, &[0; 80], &mut out), Err(SealError::Room));
    assert_eq!(end.data.next_number(), PacketNumber(0));
}

#[test]
fn a_wrong_token_is_refused() {
    let (mut sealer, mut opener) = data_pair(Suite::Plain);
    // An unencrypted datagram ends with a token of 8 bytes.
    let good = seal(&mut sealer, Kind::Data, 9, b"in the clear");
    for bit in 0..64 {
        let mut bad = good.clone();
        let at = bad.len() - 8 + bit / 8;
        bad[at] ^= 1 << (bit % 8);
        assert_eq!(open(&mut opener, &bad), Err(OpenError::Forged));
    }
    assert_eq!(open(&mut opener, &good), Ok(b"in the clear".to_vec()));
}

#[test]
fn a_corrupted_number_in_the_clear_does_not_make_later_datagrams_stale() {
    let clear = |number| {
        let schedule = schedule(Suite::Plain, Class::Data);
        Sealer::starting_at(schedule, PacketNumber(number))
    };
    let numbered = |number| seal(&mut clear(number), Kind::Data, 0, b"in the clear");
    let mut opener = keys(Suite::Plain).receiving_end().data;
    for number in 0..100 {
        assert!(open(&mut opener, &numbered(number)).is_ok());
        let bit = 17 + number % 23;
        assert_eq!(open(&mut opener, &numbered(number | 1 << bit)), Err(OpenError::Wild), "{bit}");
    }
    // After an outage the sender is far ahead, and continues from there.
    assert_eq!(open(&mut opener, &numbered(5_000_000)), Err(OpenError::Wild));
    assert!(open(&mut opener, &numbered(5_000_001)).is_ok());
    assert!(open(&mut opener, &numbered(5_000_002)).is_ok());
    assert_eq!(open(&mut opener, &numbered(7)), Err(OpenError::Stale));
}

#[test]
fn an_old_key_is_kept_for_four_round_trips_of_a_long_path() {
    let mut sealer = sealer_at(EPOCH - 1);
    let datagrams: Vec<Vec<u8>> =
        (0..2).map(|n| seal(&mut sealer, Kind::Data, n, b"payload")).collect();
    for (rtt, late, opens) in [(3, 11, true), (3, 13, false), (1, 3, true), (1, 5, false)] {
        let opener = keys(Suite::Aes128Gcm).receiving_end().data;
        let mut opener = opener.over(Span::from_secs(rtt));
        assert!(open(&mut opener, &datagrams[1]).is_ok());
        let opened = open_at(&mut opener, NOW + Span::from_secs(late), &datagrams[0]);
        assert_eq!(opened.is_ok(), opens, "{late} s at a round-trip time of {rtt} s");
    }
}

#[test]
fn the_packet_number_selects_the_epochs_key_and_an_old_key_is_kept_for_four_seconds() {
    let mut sealer = sealer_at(EPOCH - 3);
    let datagrams: Vec<Vec<u8>> =
        (0..6).map(|n| seal(&mut sealer, Kind::Data, n, b"payload")).collect();
    let mut opener = keys(Suite::Aes128Gcm).receiving_end().data;
    for n in [0, 3, 1, 5] {
        assert_eq!(open(&mut opener, &datagrams[n]), Ok(b"payload".to_vec()), "datagram {n}");
    }
    let late = NOW + Span::from_millis(4_001);
    assert_eq!(open_at(&mut opener, late, &datagrams[2]), Err(OpenError::Stale));
    assert_eq!(open_at(&mut opener, late, &datagrams[4]), Ok(b"payload".to_vec()));
}

#[test]
fn a_whole_epoch_may_be_lost() {
    let mut opener = keys(Suite::Aes128Gcm).receiving_end().data;
    for epoch in [0, 2, 3, 19] {
        let datagram = seal(&mut sealer_at(epoch * EPOCH + 5), Kind::Data, 0, b"payload");
        assert!(open(&mut opener, &datagram).is_ok(), "epoch {epoch}");
    }
}

#[test]
fn forged_numbers_do_not_move_the_window() {
    let mut opener = keys(Suite::Aes128Gcm).receiving_end().data;
    let mut out = [0; 200];
    for epoch in 0..1000u64 {
        let mut forged = [0x55; 100];
        let number = PacketNumber(epoch * EPOCH + 77);
        let header = Header { kind: Kind::Data, flow: FLOW, number, block: 0 };
        header.encode(forged.first_chunk_mut().unwrap());
        let refused = if epoch <= 16 { OpenError::Forged } else { OpenError::Wild };
        assert_eq!(opener.open(NOW, &header, &forged, &mut out), Err(refused));
    }
    let genuine = seal(&mut sealer_at(0), Kind::Data, 0, b"payload");
    assert!(open(&mut opener, &genuine).is_ok());
}

#[test]
fn packet_numbers_end_before_they_repeat() {
    let mut sealer = sealer_at(Header::NUMBERS - 1);
    let mut out = [0; 100];
    assert!(sealer.seal(Kind::Data, 0, b"last", &mut out).is_ok());
    assert_eq!(sealer.seal(Kind::Data, 0, b"more", &mut out), Err(SealError::Exhausted));
}

#[test]
fn the_integrity_limit_ends_the_flow() {
    let mut sealer = sealer_at(0);
    let mut opener = Opener::with_limit(schedule(Suite::Aes128Gcm, Class::Data), 3);
    let mut forged = seal(&mut sealer, Kind::Data, 0, b"payload");
    forged[20] ^= 1;
    for _ in 0..3 {
        assert_eq!(open(&mut opener, &forged), Err(OpenError::Forged));
    }
    let genuine = seal(&mut sealer, Kind::Data, 0, b"payload");
    assert_eq!(open(&mut opener, &genuine), Err(OpenError::Ended));
    assert_eq!(opener.counts().failed, 3);
}
