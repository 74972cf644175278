//! Sends every message of the control stream, with false values in each field, to the real server
//! and to the real client. The messages and fields come from `docs/wire.md`. A new message needs
//! only an honest value here.
//!
//! After each lie (a message with one false value) the honest end either answers a ping, or ends
//! the session with a reason. The tests do not check this for a first message that attaches a
//! stream, or for the messages of a probe or a survey.

mod to_client;
mod to_server;

use std::collections::BTreeMap;
use std::fs;

use longhaul_files::digest::file_value;
use longhaul_files::manifest::FileTime;
use longhaul_files::{Kind, Listed, Manifest, Shape};
use longhaul_transfer::control::{
    Attach, Card, ChunkPiece, Compare, Compared, DeletedNames, Digests, Direction, EntryFailed,
    FilterWire, Frame, Heard, Held, Lease, Message, Named, Needless, Outcome, Pass, PassEnd, Ping,
    Plan, Probe, ProbeCount, ProbeRun, Ranges, Relay, Request, Setting, Status, Survey, Surveyed,
    Wait, Warning,
};
use longhaul_transfer::options::Filter;
use prost::Message as _;

use super::liar::{self, FLOW};
use crate::rig::bytes;

/// The file that the honest messages are about has one chunk.
const NAME: &str = "source";
const LEN: usize = 300_000;
/// Object bytes of a datagram of 1200 bytes: header and tag take 32.
const BLOCK: u32 = 1168;

const LONG: usize = 100_000;
const MANY: usize = 10_000;

/// A message with one false value. `named` names the message, the field and the value.
#[derive(Clone, Debug)]
struct Lie {
    named: String,
    message: Message,
}

/// A field as `docs/wire.md` describes it.
struct Field {
    tag: u32,
    name: String,
    kind: String,
    many: bool,
}

struct Schema(BTreeMap<String, Vec<Field>>);

impl Schema {
    /// The messages of the control stream, and those of the protocols.
    fn both() -> (Schema, Schema) {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire.md");
        let page = fs::read_to_string(page).expect("the page is there");
        let (control, protocols) =
            page.split_once("\n## Messages of the protocols\n").expect("the page has both parts");
        (Schema::read(control), Schema::read(protocols))
    }

    fn read(page: &str) -> Schema {
        let (mut messages, mut name) = (BTreeMap::new(), None);
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                let heading = heading.trim_end_matches(" {}").to_owned();
                messages.insert(heading.clone(), Vec::new());
                name = Some(heading);
            } else if line.starts_with("## ") {
                name = None;
            } else if let (Some(name), Some(field)) = (&name, Field::read(line)) {
                messages.entry(name.clone()).or_default().push(field);
            }
        }
        Schema(messages)
    }

    fn fields(&self, message: &str) -> &[Field] {
        self.0.get(message).unwrap_or_else(|| panic!("the page has no message {message}"))
    }

    /// Returns variants of the encoded message `honest`. For each field, one variant leaves it out,
    /// and each further variant gives it one false value.
    fn lies(&self, message: &str, honest: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut lies = Vec::new();
        for field in self.fields(message) {
            let (rest, own) = without(honest, field.tag);
            let mut add = |what: &str, lie: &[u8]| {
                lies.push((format!("{}: {what}", field.name), [&rest, lie].concat()));
            };
            add("left out", &[]);
            let Some(of) = field.kind.strip_prefix('`').and_then(|kind| kind.strip_suffix('`'))
            else {
                field.scalars().iter().for_each(|(what, lie)| add(what, lie));
                continue;
            };
            if field.many {
                add("many that are empty", &delimited(field.tag, &[]).repeat(MANY));
            }
            let inner = self.lies(of, own.as_deref().unwrap_or_default());
            for (what, lie) in inner {
                add(&what, &delimited(field.tag, &lie));
            }
        }
        lies
    }
}

impl Field {
    /// Reads `| tag | name | type | what |`.
    fn read(line: &str) -> Option<Field> {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let tag = cells.next()?.parse().ok()?;
        let (name, kind) = (cells.next()?.to_owned(), cells.next()?);
        let (kind, number) = kind.split_once(", ").unwrap_or((kind, ""));
        Some(Field { tag, name, kind: kind.to_owned(), many: number == "any number" })
    }

    fn scalars(&self) -> Vec<(String, Vec<u8>)> {
        let tag = self.tag;
        let number = |value: u64| (value.to_string(), [key(tag, 0), varint(value)].concat());
        let long = |what: &str, value: &[u8]| (what.to_owned(), delimited(tag, value));
        let mut lies = match self.kind.as_str() {
            "uint32" => [1, u32::MAX.into()].map(number).to_vec(),
            "uint64" | "sint64" => [1, 1 << 40, u64::MAX].map(number).to_vec(),
            "bool" => [1].map(number).to_vec(),
            "fixed32" => [1, u32::MAX].map(|n| fixed(tag, n, 5, &n.to_le_bytes())).to_vec(),
            "fixed64" => [1, u64::MAX].map(|n| fixed(tag, n, 1, &n.to_le_bytes())).to_vec(),
            "double" => [f64::NAN, f64::INFINITY, -1e308]
                .map(|n| fixed(tag, n, 1, &n.to_le_bytes()))
                .to_vec(),
            "string" => vec![
                long("a long text", &[b'x'; LONG]),
                long("a text that steers a terminal", b"../\x1b[2J\0\n"),
            ],
            "bytes" => vec![
                long("31 bytes", &[0xff; 31]),
                long("a path upwards", b"../../outside"),
                long("many bytes", &[0xff; LONG]),
            ],
            kind if kind.starts_with("enumeration") => [1, 7].map(number).to_vec(),
            other => panic!("{other} of {} needs lies", self.name),
        };
        if self.many {
            let one = lies.last().expect("each kind has lies").1.clone();
            let twice = one.repeat(2);
            lies.push(("the same twice".to_owned(), twice));
            if one.len() < 20 {
                lies.push(("many times the same".to_owned(), one.repeat(MANY)));
            }
        }
        lies
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn key(tag: u32, wire_type: u64) -> Vec<u8> {
    varint(u64::from(tag) << 3 | wire_type)
}

fn delimited(tag: u32, value: &[u8]) -> Vec<u8> {
    [&key(tag, 2)[..], &varint(value.len() as u64), value].concat()
}

/// Encodes a field of fixed length; also returns its value as text.
fn fixed(tag: u32, value: impl ToString, wire_type: u64, bytes: &[u8]) -> (String, Vec<u8>) {
    (value.to_string(), [&key(tag, wire_type)[..], bytes].concat())
}

/// Returns the message without its field `tag`, and the bytes of the field's first value (no bytes
/// if the value is a varint).
fn without(encoded: &[u8], tag: u32) -> (Vec<u8>, Option<Vec<u8>>) {
    let (mut rest, mut kept, mut own) = (encoded, Vec::new(), None);
    while !rest.is_empty() {
        let start = rest;
        let key = take_varint(&mut rest);
        let len = match key & 7 {
            0 => {
                take_varint(&mut rest);
                0
            }
            1 => 8,
            2 => take_varint(&mut rest) as usize,
            5 => 4,
            other => panic!("no field of ours has wire type {other}"),
        };
        let (value, behind) = rest.split_at(len);
        rest = behind;
        match key >> 3 == u64::from(tag) {
            true => own = own.or_else(|| Some(value.to_vec())),
            false => kept.extend_from_slice(&start[..start.len() - rest.len()]),
        }
    }
    (kept, own)
}

fn take_varint(rest: &mut &[u8]) -> u64 {
    let end = rest.iter().position(|byte| byte & 0x80 == 0).expect("an honest message is whole");
    let (number, behind) = rest.split_at(end + 1);
    *rest = behind;
    number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

fn content() -> Vec<u8> {
    bytes(LEN, 1)
}

fn manifest() -> Vec<u8> {
    let kind = Kind::file(LEN as u64);
    let path = NAME.as_bytes().into();
    let entry = Listed { path, kind, mode: 0o644, modified: FileTime::default() };
    Manifest::new(Shape::File, vec![entry]).expect("it is sound").encode()
}

fn digests() -> Digests {
    let value = file_value(LEN as u64, 0, &content());
    Digests { chunks: vec![0], values: value.to_vec() }
}

fn pass(protocol: &str) -> Message {
    let protocol = protocol.to_owned();
    Message::Pass(Pass { flow: FLOW, block: BLOCK, segment: 0, protocol, ..Pass::default() })
}

/// An honest message about the file of this test.
fn honest(name: &str) -> Message {
    let all = || Some(Ranges::encode(std::iter::once(0..1)));
    let compare = Compare { entry: 0, chunks: vec![0], values: vec![7; 32] };
    let filters = vec![FilterWire::from(&Filter::Include("*.c".to_owned()))];
    match name {
        "Request" => {
            let settings = vec![Setting { name: "early-retransmit".to_owned(), value: Some(1.0) }];
            Message::Request(Request { settings, filters, ..liar::request(Direction::Pull, NAME) })
        }
        "Offer" => liar::offer(manifest(), LEN as u64),
        "Pass" => pass("rbudp"),
        "Plan" => Message::Plan(Plan { compare: vec![compare], skipped: all(), ..Plan::default() }),
        "Digests" => Message::Digests(digests()),
        "Relay" => Message::Relay(Relay { flow: FLOW, control: Vec::new(), number: 1 }),
        "Status" => Message::Status(Status::default()),
        "PassEnd" => Message::PassEnd(PassEnd { number: 0, failed: all() }),
        "Lease" => Message::Lease(Lease { number: 1, chunks: all() }),
        "Outcome" => {
            let failed = EntryFailed { reason: "why".to_owned(), ..EntryFailed::default() };
            Message::Outcome(Outcome {
                files: 1,
                failed: vec![failed],
                status: Some(Status::default()),
                ..Outcome::default()
            })
        }
        "EntryFailed" => {
            let (path, reason) = (NAME.into(), "why".to_owned());
            Message::EntryFailed(EntryFailed {
                entry: 0,
                path,
                reason,
                at_source: true,
                changed: true,
            })
        }
        "Compared" => Message::Compared(Compared { entry: 0, same: vec![true] }),
        "Attach" => Message::Attach(Attach { transfer: 1 }),
        "ChunkPiece" => {
            Message::ChunkPiece(ChunkPiece { chunk: 0, offset: 0, bytes: content(), last: true })
        }
        "Ping" => Message::Ping(Ping { answer: false }),
        "Needless" => Message::Needless(Needless { chunks: all() }),
        "DeletedNames" => Message::DeletedNames(DeletedNames { paths: vec![NAME.into()] }),
        "Named" => Message::Named(Named { entries: all() }),
        "Probe" => {
            let cipher = "aes-128-gcm".to_owned();
            Message::Probe(Probe { probe: 1, flow: FLOW, cipher })
        }
        "ProbeRun" => Message::ProbeRun(ProbeRun {
            flow: FLOW,
            rate_bps: 1_000_000,
            micros: 1,
            datagram: 1200,
            ..ProbeRun::default()
        }),
        "ProbeCount" => Message::ProbeCount(ProbeCount::default()),
        "Survey" => Message::Survey(Survey { paths: vec![NAME.into()], recursive: false, filters }),
        "Surveyed" => Message::Surveyed(Surveyed {
            manifest: manifest(),
            values: digests().values,
            done: true,
            ..Surveyed::default()
        }),
        "Held" => Message::Held(Held { path: NAME.to_owned(), seconds: 1, nanos: 5 }),
        "Warning" => Message::Warning(Warning { text: "why".to_owned() }),
        "Wait" => Message::Wait(Wait { over: false }),
        "Heard" => Message::Heard(Heard {}),
        "Card" => Message::Card(Card { bps: 1_000_000_000 }),
        other => panic!("add an honest value of the new message {other}, to derive its lies from"),
    }
}

fn control_lies() -> Vec<Lie> {
    let (control, _) = Schema::both();
    let mut lies = Vec::new();
    for variant in control.fields("Message") {
        let frame = Frame::from(honest(&variant.name)).encode_to_vec();
        let (rest, own) = without(&frame, variant.tag);
        assert!(rest.is_empty(), "the tag of {} differs from the page", variant.name);
        let own = own.expect("a frame holds its message");
        let mut all = control.lies(variant.kind.trim_matches('`'), &own);
        all.push(("honest".to_owned(), own));
        for (what, lie) in all {
            lies.push(lie_of(format!("{} {what}", variant.name), variant.tag, &lie));
        }
    }
    lies
}

fn lie_of(named: String, tag: u32, body: &[u8]) -> Lie {
    let frame = Frame::decode(&*delimited(tag, body));
    let message = frame.ok().and_then(|frame| frame.message);
    Lie { message: message.unwrap_or_else(|| panic!("{named} is no frame")), named }
}

/// All lies in messages of protocols, as sent on the control stream.
fn relayed_lies() -> Vec<Lie> {
    let (_, protocols) = Schema::both();
    let honest = crate::corpus::seeds::controls().into_iter().map(|control| {
        let mut encoded = Vec::new();
        control.encode(&mut encoded);
        encoded
    });
    let honest: Vec<Vec<u8>> = honest.collect();
    let mut controls = Vec::new();
    for variant in protocols.fields("Body") {
        let of_variant = honest.iter().filter_map(|control| without(control, variant.tag).1);
        // The longest message has the most fields.
        let own = of_variant.max_by_key(Vec::len);
        let own = own.unwrap_or_else(|| panic!("no seed of the fuzzer is a {}", variant.name));
        for (what, lie) in protocols.lies(variant.kind.trim_matches('`'), &own) {
            controls.push((format!("{} {what}", variant.name), delimited(variant.tag, &lie)));
        }
    }
    let relay = |((named, control), number)| Lie {
        named: format!("Relay of {named}"),
        message: Message::Relay(Relay { flow: FLOW, control, number }),
    };
    controls.into_iter().zip(1..).map(relay).collect()
}

/// Offers whose list of files (manifest) has false values.
fn listed_lies() -> Vec<Lie> {
    let (control, _) = Schema::both();
    let encoded = manifest();
    let mut rest = &encoded[..];
    let mut next = || {
        let len = take_varint(&mut rest) as usize;
        let (message, behind) = rest.split_at(len);
        rest = behind;
        message
    };
    let (head, entry) = (next(), next());
    let framed = |part: &[u8]| [&varint(part.len() as u64), part].concat();
    let heads = control.lies("HeadWire", head).into_iter();
    let heads = heads.map(|(what, lie)| (what, [framed(&lie), framed(entry)].concat()));
    let entries = control.lies("EntryWire", entry).into_iter();
    let entries = entries.map(|(what, lie)| (what, [framed(head), framed(&lie)].concat()));
    let offered = heads.chain(entries).map(|(what, encoded)| Lie {
        named: format!("Offer of a manifest with {what}"),
        message: liar::offer(encoded, LEN as u64),
    });
    offered.collect()
}

fn all_lies() -> Vec<Lie> {
    [control_lies(), listed_lies(), relayed_lies()].concat()
}

#[test]
fn each_field_of_each_message_has_a_false_value() {
    let (control, protocols) = Schema::both();
    let lies: Vec<String> = all_lies().into_iter().map(|lie| lie.named).collect();
    // The page's other messages belong to other streams, or are parts of messages.
    for variant in control.fields("Message") {
        for field in control.fields(variant.kind.trim_matches('`')) {
            let start = format!("{} {}: ", variant.name, field.name);
            let count = lies.iter().filter(|lie| lie.starts_with(&start)).count();
            assert!(count > 1, "{start}{count}");
        }
    }
    for variant in protocols.fields("Body") {
        let start = format!("Relay of {} ", variant.name);
        assert!(lies.iter().any(|lie| lie.starts_with(&start)), "{start}");
    }
    let known: Vec<&String> = control.0.keys().collect();
    assert!(known.len() >= 30 && lies.len() > 600, "{} messages, {} lies", known.len(), lies.len());
}
