//! Messages between the ends of a stream, and the headers of its datagrams.

use longhaul_proto::stream::Head;
use longhaul_stream::messages::{Ask, Asked, End, Receive, Report, Send, State, Tell, Told, Way};
use prost::Message as _;

/// Sequences of messages, each after its length, and the data between them.
pub(super) fn all() -> Vec<Vec<u8>> {
    let one = |message: Vec<u8>| [&[message.len() as u8][..], &message, &[1; 17]].concat();
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
    };
    let receive = Receive { name: "lab/cam".into(), flow: 8, cipher: "aes-128-gcm".into() };
    let report = Report { loss_ppm: 10_000, burst_milli: 1_000, on_time: 5, ..Report::default() };
    let way = Way { receivers: 2, farthest_micros: 100_000, loss_ppm: 9, ..Way::default() };
    let state = State { phase: 1, symbol: 1_410, per_second_milli: 1, ..State::default() };
    let head = Head { frame: 0, index: 1, repairs: 1, length: 250, skipped: 0, at: 7 };
    vec![
        [ask(Asked::Send(send)), ask(Asked::End(End { frames: 40 }))].concat(),
        [ask(Asked::Receive(receive)), ask(Asked::Report(report))].concat(),
        [tell(Told::Way(way)), tell(Told::State(state))].concat(),
        [one(head.encode().to_vec()), one(head.encode().to_vec())].concat(),
    ]
}
