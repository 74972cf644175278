//! Messages between the ends of streams and channels, and their datagrams.

use longhaul_proto::channel::{Code, Cutter, Message, encode};
use longhaul_proto::stream::Head;
use longhaul_proto::time::{Span, Time};
use longhaul_stream::channel::messages::{
    ChannelAsk, ChannelAsked, ChannelTell, ChannelTold, Group, Part, Publish, Subscribe,
};
use longhaul_stream::messages::{
    Again, Ask, Asked, End, Receive, Report, Send, State, Tell, Told, Way,
};
use prost::Message as _;

/// A byte with the message's length precedes each message. Five bytes follow each message; the fuzz
/// target takes its other choices from them.
pub(super) fn all() -> Vec<Vec<u8>> {
    let one = |message: Vec<u8>| [&[message.len() as u8][..], &message, &[1; 5]].concat();
    let ask = |asked| one(Ask { asked: Some(asked) }.encode_to_vec());
    let tell = |told| one(Tell { told: Some(told) }.encode_to_vec());
    let send = Send {
        name: "lab/cam".into(),
        flow: 7,
        cipher: "aes-128-gcm".into(),
        run: 9,
        symbol: 1_410,
        frame: 1_440_000,
        per_second_milli: 20_000,
        deadline_micros: 120_000,
        group: 10,
    };
    let receive = Receive { name: "lab/cam".into(), flow: 8, cipher: "aes-128-gcm".into() };
    let report = Report { loss_ppm: 10_000, burst_milli: 1_000, on_time: 5, ..Report::default() };
    let way = Way {
        receivers: 2,
        farthest_micros: 100_000,
        loss_ppm: 9,
        carried_bps: 1,
        ..Way::default()
    };
    let state = State { phase: 1, symbol: 1_410, per_second_milli: 1, ..State::default() };
    let head = Head { frame: 0, index: 1, repairs: 1, length: 250, skipped: 0, at: 7 };
    let plain = Head { repairs: 0, ..head };
    let again = Again { frame: 0, first: vec![0, 4], last: vec![2, 9], receiver: 3 };
    vec![
        [ask(Asked::Send(send)), ask(Asked::End(End { frames: 40 }))].concat(),
        [ask(Asked::Receive(receive)), ask(Asked::Report(report))].concat(),
        [tell(Told::Way(way)), tell(Told::State(state))].concat(),
        [one(head.encode().to_vec()), one(head.encode().to_vec())].concat(),
        [ask(Asked::Again(again.clone())), tell(Told::Again(again))].concat(),
        [one(plain.encode().to_vec()), one(Vec::new()), one(Vec::new())].concat(),
    ]
}

/// A byte with the message's length precedes each message. The length of a number (a byte) and the
/// number follow each message: the block number of a datagram, 0 otherwise.
pub(super) fn of_channels() -> Vec<Vec<u8>> {
    let one = |message: Vec<u8>, block: u64| {
        [&[message.len() as u8][..], &message, &[8], &block.to_be_bytes()].concat()
    };
    let ask = |asked| one(ChannelAsk { asked: Some(asked) }.encode_to_vec(), 0);
    let first =
        Part { key: "pose/7".into(), number: 1, bytes: vec![1; 9], rest: 3, ..Part::default() };
    let last = Part { bytes: vec![2; 3], ..Part::default() };
    let told = ChannelTell { told: Some(ChannelTold::Part(last.clone())) };
    let group = Group {
        address: vec![239, 1, 2, 3],
        port: 5_000,
        hops: 1,
        cipher: "aes-128-gcm".into(),
        epoch: 2,
        flow: 7,
        key: vec![9; 32],
        origin: 4,
    };
    let mut v6 = [0; 16];
    (v6[0], v6[1], v6[15]) = (0xff, 0x15, 7);
    let of_v6 = Group { address: v6.to_vec(), hops: 255, ..group.clone() };
    let groups = [group, of_v6].map(|group| {
        let told = ChannelTell { told: Some(ChannelTold::Group(group)) };
        one(told.encode_to_vec(), 0)
    });
    let publish = Publish { name: "lab/x".into(), run: 5, ..Publish::default() };
    let subscribe = Subscribe { mode: 2, xor: true, group: 3, repairs: 1, ..Subscribe::default() };
    let whole = Message {
        origin: 1,
        number: 1,
        at: 5,
        born: 0,
        hops: 0,
        via: 0,
        key: None,
        bytes: vec![7; 100].into(),
    };
    let mut cutter = Cutter::new(90, Code::Xor { group: 2 }, Span::from_millis(20));
    let mut datagrams = Vec::new();
    // This cannot fail, because the message is short.
    let _ = cutter.message(Time::ZERO, &encode(&whole), &mut datagrams);
    vec![
        [ask(ChannelAsked::Publish(publish)), ask(ChannelAsked::Part(first.clone()))].concat(),
        [ask(ChannelAsked::Part(first)), one(told.encode_to_vec(), 0)].concat(),
        ask(ChannelAsked::Subscribe(subscribe)),
        datagrams.into_iter().skip(1).flat_map(|d| one(d.payload, d.block)).collect(),
        groups.concat(),
    ]
}
