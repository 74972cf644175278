//! The real binary sends to a lying server (push) and to a lying client (pull).

use longhaul_proto::endpoint::PacketNumber;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::{
    Ack, BufferOk, Burst, Closing, Control, Echo, ErrorRate, Go, Loss, Pulse, Report,
    Request as BlockRequest, Resend, Selective, Sync,
};
use longhaul_transfer::control::{
    Compare, Direction, Lease, Message, Needless, PassEnd, Plan, Ranges, Relay, Request, Status,
};
use prost::Message as _;

use super::Way;
use super::cells::Cell;
use super::liar::{self, FLOW, LyingServer};
use crate::rig::{Child, Ended, Pair, bytes, write};

/// A report, as encoded on the wire.
#[derive(Clone, PartialEq, prost::Message)]
struct RawReport {
    #[prost(uint32, tag = "1")]
    segment: u32,
    #[prost(uint32, tag = "2")]
    round: u32,
    #[prost(uint32, tag = "3")]
    first: u32,
    #[prost(uint32, tag = "4")]
    count: u32,
    #[prost(bytes = "vec", tag = "5")]
    runs: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    bitmap: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(message, optional, tag = "2")]
    report: Option<RawReport>,
}

fn reports() -> Vec<Vec<u8>> {
    let honest = RawReport { segment: 0, round: 1, first: 0, count: 100, ..RawReport::default() };
    let raw = [
        // A bitmap longer than its range, and one for an empty range.
        RawReport { bitmap: vec![0xff; 1000], ..honest.clone() },
        RawReport { count: 0, bitmap: vec![0xff; 13], ..honest.clone() },
        // Impossible counts and numbers.
        RawReport { count: u32::MAX, ..honest.clone() },
        RawReport { first: u32::MAX, count: u32::MAX, ..honest.clone() },
        RawReport { segment: u32::MAX, ..honest.clone() },
        RawReport { round: u32::MAX, ..honest.clone() },
        // Runs that leave the range, touch, are empty, are incomplete, wrap around, or come with a
        // bitmap.
        RawReport { runs: vec![99, 100], ..honest.clone() },
        RawReport { runs: vec![5, 1, 0, 1], ..honest.clone() },
        RawReport { runs: vec![5, 0], ..honest.clone() },
        RawReport { runs: vec![5], ..honest.clone() },
        RawReport { runs: [&[0xff; 9][..], &[1, 1]].concat(), ..honest.clone() },
        RawReport { runs: vec![0, 50], bitmap: vec![1; 13], ..honest },
    ];
    let mut reports: Vec<Vec<u8>> =
        raw.into_iter().map(|report| Envelope { report: Some(report) }.encode_to_vec()).collect();
    let well_formed = [
        // These have impossible segments, blocks or counts.
        Control::Report(Report::fill(900, 1, 0..4000, std::iter::once(0..4000))),
        Control::Report(Report::fill(0, 1, 4_000_000..4_000_001, std::iter::empty())),
        Control::Pulse(pulse(u64::MAX)),
        Control::Pulse(pulse(1 << 40)),
    ];
    for control in well_formed.into_iter().chain(of_other_protocols()) {
        let mut out = Vec::new();
        control.encode(&mut out);
        reports.push(out);
    }
    reports.push(vec![0xff; 70_000]);
    reports.push(bytes(500, 3));
    reports
}

/// Impossible messages from receivers of other protocols.
fn of_other_protocols() -> Vec<Control> {
    const MUCH: u64 = u64::MAX;
    let far = || [0..1_u64, 1 << 40..1 << 41].into_iter().peekable();
    let report = || Report::fill(u32::MAX, 1, 0..4000, std::iter::once(0..4000));
    let burst = Some(Burst { size: u32::MAX, interval: Span::from_nanos(0) });
    let fast = Rate::from_bps(MUCH);
    let closing = Some(Closing { highest: MUCH, fresh: MUCH });
    vec![
        Control::Ack(Ack { sequence: MUCH, next: MUCH, received: MUCH }),
        Control::Ack(Ack { sequence: 1, next: 1 << 40, received: 0 }),
        Control::Loss(Loss::fill(MUCH, &mut far())),
        Control::Request(BlockRequest::fill(MUCH, fast, true, &mut far())),
        Control::Request(BlockRequest::fill(1, Rate::from_bps(0), false, &mut far())),
        Control::Selective(Selective { sequence: MUCH, report: report(), closing }),
        Control::Sync(Sync { sequence: MUCH }),
        Control::ErrorRate(ErrorRate { sequence: MUCH, rate: u32::MAX, restart: Some(MUCH) }),
        Control::Go(Go { buffers: MUCH }),
        Control::BufferOk(BufferOk { buffer: MUCH, offer: burst }),
        Control::Resend(Resend { buffer: MUCH, highest: MUCH, report: report() }),
    ]
}

/// A receiver's report on its flow (a pulse), with impossibly high counts.
fn pulse(much: u64) -> Pulse {
    Pulse {
        sequence: much,
        clock: Span::from_nanos(much),
        highest: much,
        received: much,
        distinct: much,
        grant: Bytes::new(much),
        drain: Some(Rate::from_bps(1)),
        echo: Some(Echo { number: PacketNumber(much), age: Span::from_nanos(u64::MAX) }),
        train: None,
        socket_lost: much,
    }
}

fn relays(flow: u32) -> Vec<Message> {
    let numbered = reports().into_iter().zip(1..);
    numbered.map(|(control, number)| Message::Relay(Relay { flow, control, number })).collect()
}

/// Messages that each end a transfer, with words of the error.
fn fatal() -> Vec<(Message, &'static str)> {
    let ranges = |steps: &[u64]| Some(Ranges { steps: steps.to_vec() });
    let plan = |have| Plan { have, ..Plan::default() };
    let lease = |chunks| Message::Lease(Lease { number: 1, chunks });
    vec![
        // The gap of 2^64 - 1 wraps around.
        (Message::Plan(plan(ranges(&[4, 1, u64::MAX, 1]))), "planned chunks"),
        (Message::Plan(plan(ranges(&[0, u64::MAX]))), "planned chunks"),
        (Message::Plan(plan(ranges(&[0, 0]))), "planned chunks"),
        (Message::Plan(plan(ranges(&[3]))), "planned chunks"),
        (Message::Needless(Needless { chunks: ranges(&[0, 1 << 40]) }), "needless chunks"),
        (Message::PassEnd(PassEnd { number: 0, failed: ranges(&[9, 9]) }), "failed chunks"),
        (lease(ranges(&[9, 9])), "leased chunks"),
    ]
}

/// A status with numbers beyond all limits, which does not end a transfer.
fn harmless() -> Vec<Message> {
    let much = Status {
        written: u64::MAX,
        files: u64::MAX,
        received: u64::MAX,
        distinct: u64::MAX,
        blocks_lost: u64::MAX,
        highest: u64::MAX,
        disk_nanos: u64::MAX / 4,
        ..Status::default()
    };
    vec![Message::Status(much)]
}

const LEN: usize = 6 << 20;

#[test]
fn a_sending_server_survives_every_false_report() {
    let pair = Pair::new();
    write(&pair.there.join("source"), &bytes(LEN, 1));
    // The server reports the end of a transfer before it frees the flow id, so each transfer has
    // its own id.
    for ((lie, reason), flow) in fatal().into_iter().zip(FLOW..) {
        let request = Request { flow, ..liar::request(Direction::Pull, "source") };
        let said = [Message::Request(request)].into_iter().chain(relays(flow));
        let said = said.chain(harmless()).chain([lie]);
        let (_, ended) = liar::talk(&pair, said);
        let ended = ended.expect("it is refused");
        assert!(ended.what.contains(reason), "{ended} instead of {reason}");
    }
    let ask = Compare { entry: 0, chunks: vec![0], values: vec![0; 33] };
    let plan = Message::Plan(Plan { compare: vec![ask], more: true, ..Plan::default() });
    let request = Request { flow: FLOW - 1, ..liar::request(Direction::Pull, "source") };
    let (_, ended) = liar::talk(&pair, [Message::Request(request), plan]);
    assert!(ended.is_some(), "an incomplete digest is refused");
    pair.cp(&[&pair.at("source"), &"copy"]).summary();
    assert!(std::fs::read(pair.here.join("copy")).expect("it was copied") == bytes(LEN, 1));
}

/// Runs a push to `server`, whose last message ends the push.
fn push_to(pair: &Pair, server: &LyingServer, flags: &[String]) -> Ended {
    let id = format!("--server-id={}", server.id);
    let limits = ["--rate=20M", "--datagram=1200", "--stall=2s", "--retry-for=0s"];
    let mut command = pair.client.command(["cp", "--json", &id]);
    command.args(flags).args(limits).args(["object", &server.at("copy")]).current_dir(&pair.here);
    Child::spawn(&mut command).end()
}

/// A server that sends every wrong report, and finally `lie`, which ends the transfer.
fn liar_with(lie: Message) -> LyingServer {
    LyingServer::start(move |request| {
        let said = relays(request.flow).into_iter().chain(harmless());
        said.chain([lie.clone()]).collect()
    })
}

#[test]
fn a_sending_client_survives_every_false_report() {
    let pair = Pair::new();
    write(&pair.here.join("object"), &bytes(LEN, 1));
    for (lie, reason) in fatal() {
        let ended = push_to(&pair, &liar_with(lie), &[]);
        ended.is(1, &[reason]);
        assert!(ended.events("summary").is_empty(), "{ended}");
    }
}

/// Sends all false reports to a sender, and then a lie that ends the transfer. The server of a pull
/// continues to serve; the client of a push ends with a reason.
pub(super) fn tell_lies(cell: Cell, way: Way) {
    let pair = Pair::new();
    let object =
        if way == Way::Push { pair.here.join("object") } else { pair.there.join("source") };
    write(&object, &bytes(LEN, 1));
    let (lie, reason) = fatal().swap_remove(0);
    match way {
        Way::Push => {
            let ended = push_to(&pair, &liar_with(lie), &cell.flags(&[]));
            ended.is(1, &[reason]);
            assert!(ended.events("summary").is_empty(), "{ended}");
        }
        Way::Pull => {
            let request = Request {
                protocol: cell.row().map_or("", |row| row.name).to_owned(),
                settings: cell.settings(),
                ..liar::request(Direction::Pull, "source")
            };
            let said = [Message::Request(request)].into_iter().chain(relays(FLOW));
            let (_, ended) = liar::talk(&pair, said.chain(harmless()).chain([lie]));
            let ended = ended.expect("it is refused");
            assert!(ended.what.contains(reason), "{ended} instead of {reason}");
            pair.copy(&cell.flags(&[]), pair.at("source"), "copy").end().summary();
            assert!(std::fs::read(pair.here.join("copy")).expect("it was copied") == bytes(LEN, 1));
        }
    }
}

#[test]
fn client_and_server_refuse_an_endless_plan_and_name_the_limit() {
    let pair = Pair::new();
    write(&pair.here.join("object"), &bytes(LEN, 1));
    write(&pair.there.join("source"), &bytes(LEN, 1));
    let slice = Message::Plan(Plan { more: true, ..Plan::default() });
    let slices = move || vec![slice.clone(); 1000];
    let reason = "the other side's plan has no end: it names more than the object has (chunks: 6";
    let request = Message::Request(liar::request(Direction::Pull, "source"));
    let (_, ended) = liar::talk(&pair, std::iter::once(request).chain(slices()));
    assert!(ended.is_some_and(|ended| ended.what.contains(reason)));
    let server = LyingServer::start(move |_| slices());
    push_to(&pair, &server, &[]).is(1, &[reason]);
}
