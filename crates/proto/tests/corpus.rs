//! Decodes recorded bytes: each record is a message or fails with the recorded error. The sender
//! and the receiver of every protocol survive randomly changed records that are still messages.

use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::registry::all;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;
use longhaul_proto::wire::{Control, Header, WireError};

use crate::rig::{Chance, setup};

/// Control messages: a name, the bytes, and the error with which decoding fails, if it does.
const CONTROLS: &[(&str, &[u8], Option<WireError>)] = &[
    ("nothing", &[], Some(WireError::Unknown)),
    ("a later version's message", &[0xfa, 0x01, 0], Some(WireError::Unknown)),
    ("cut off", &[0x0a, 9, 8], Some(WireError::Malformed)),
    ("random", &[0xff; 20], Some(WireError::Malformed)),
    ("round zero", &[0x0a, 2, 0x08, 1], Some(WireError::Range)),
    (
        "done of a segment beyond the object",
        &[0x0a, 8, 0x08, 0xff, 0xff, 0x7f, 0x10, 1, 0x18, 1],
        None,
    ),
    ("a report on an empty slice", &[0x12, 2, 0x10, 1], Some(WireError::Range)),
    ("a report beyond its segment", &[0x12, 6, 0x10, 1, 0x20, 0xff, 0xff, 0x03], None),
    ("a run beyond its slice", &[0x12, 8, 0x10, 1, 0x20, 4, 0x2a, 2, 3, 9], Some(WireError::Range)),
    ("more received than sent", &[0x1a, 4, 0x18, 1, 0x20, 9], Some(WireError::Range)),
    (
        "a selective acknowledgement of all blocks",
        &[0x52, 8, 8, 1, 0x12, 2, 0x20, 24, 0x18, 4],
        None,
    ),
    (
        "more new blocks than arrived",
        &[0x52, 10, 8, 1, 0x12, 2, 0x20, 9, 0x18, 1, 0x20, 2],
        Some(WireError::Range),
    ),
    ("go for nothing", &[0x5a, 0], Some(WireError::Range)),
    ("go for two buffers", &[0x5a, 2, 8, 2], None),
    ("ok to the first buffer, with an offer", &[0x62, 6, 0x12, 4, 8, 25, 0x10, 9], None),
    ("an offer with interval zero", &[0x62, 4, 0x12, 2, 8, 25], Some(WireError::Range)),
    ("a request", &[0x6a, 12, 0x10, 4, 0x1a, 8, 0x10, 1, 0x20, 9, 0x2a, 2, 1, 2], None),
    ("the first buffer begins", &[0x72, 6, 0x12, 4, 8, 2, 0x10, 9], None),
    ("an acknowledgement of 100 blocks", &[0x22, 6, 8, 1, 0x10, 100, 0x18, 100], None),
    ("an endless grant", &[0x1a, 11, 0x30, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], None),
];

#[test]
fn recorded_bytes_decode_or_fail_as_recorded() {
    for (what, bytes, error) in CONTROLS {
        assert_eq!(Control::decode(bytes).err(), *error, "{what}");
    }
    assert_eq!(Header::decode(&[0; 64]), None);
}

#[test]
fn sender_and_receiver_survive_randomly_changed_messages_that_decode() {
    let rate = Some(Rate::from_mbps(100));
    for row in all() {
        let setup = setup(1, 100, 24, rate, Span::from_millis(10));
        let mut sender = (row.sender)(&setup);
        sender.allow_coded();
        let mut receiver = (row.receiver)();
        receiver.add_flow(Time::ZERO, &setup);
        let (mut chance, mut blocks, mut next) = (Chance::new(9), Vec::new(), 0);
        for turn in 0..20_000u64 {
            let now = Time::from_nanos(turn * 100_000);
            let known = CONTROLS[chance.next() as usize % CONTROLS.len()].1;
            let mut bytes = known.to_vec();
            if !bytes.is_empty() {
                let at = chance.next() as usize % bytes.len();
                bytes[at] = chance.next() as u8;
            }
            if let Ok(control) = Control::decode(&bytes) {
                sender.on_control(now, FlowId(1), &control);
                receiver.on_control(now, FlowId(1), &control);
            }
            sender.on_timeout(now);
            receiver.on_timeout(now);
            sender.poll_transmit(now, PacketNumber(next), 4, &mut blocks);
            next += blocks.len() as u64;
            blocks.clear();
            while sender.poll_control(now).is_some() {}
            while receiver.poll_control(now).is_some() {}
            while sender.poll_event().is_some() {}
            while receiver.poll_event().is_some() {}
        }
        assert!(sender.accounting().refused + receiver.accounting(FlowId(1)).unwrap().refused > 0);
    }
}
