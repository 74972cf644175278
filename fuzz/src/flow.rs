//! Shared code of the targets that drive a protocol's core (the state machine of one end).

use longhaul_proto::endpoint::{FlowId, PacketNumber, Setup, Wake};
use longhaul_proto::layout::Layout;
use longhaul_proto::registry::{self, Row};
use longhaul_proto::remembered::Remembered;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};
use longhaul_proto::wire::{Control, Done, Echo, MAX_CONTROL, Pulse, Report, Train};

use super::input::Input;
use super::spoken;

/// Maximum number of steps of a run.
const STEPS: u32 = 500;

/// Base of the maximum number of polls at one moment: each target adds polls for each block or
/// segment. More polls count as a livelock.
pub(crate) const ROUNDS: u64 = 100;

/// A core under test, with a model of its correct behaviour.
pub(crate) trait Driven {
    fn new(row: &'static Row, setup: Setup) -> Self;

    /// Applies the operation that the input chooses.
    fn step(&mut self, input: &mut Input<'_>);

    /// Polls the core's output and checks the invariants.
    fn look(&mut self);
}

/// Drives a core of every protocol with the same `bytes`.
pub(crate) fn run<D: Driven>(bytes: &[u8]) {
    for row in registry::all() {
        run_by::<D>(row, bytes);
    }
}

pub(crate) fn run_by<D: Driven>(row: &'static Row, bytes: &[u8]) -> D {
    let mut input = Input::new(bytes);
    let mut driven = D::new(row, setup(row, &mut input));
    driven.look();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        driven.step(&mut input);
        driven.look();
    }
    driven
}

/// Checks that a message of a core can be encoded, and decodes to the same message.
pub(crate) fn check_wire(control: &Control) {
    let mut bytes = Vec::new();
    control.encode(&mut bytes);
    assert!(bytes.len() <= MAX_CONTROL);
    assert_eq!(Control::decode(&bytes).as_ref(), Ok(control));
}

pub(crate) const FLOW: FlowId = FlowId(7);

const CENTURY: Time = Time::from_nanos(100 * 365 * 86_400 * 1_000_000_000);

/// Maximum size of an object in blocks of full size; with a larger object, the model of the core
/// would be slow.
const MOST_BLOCKS: u64 = 12_000;

/// Returns a setup that two ends could agree on.
fn setup(row: &'static Row, input: &mut Input<'_>) -> Setup {
    let block = 1 + input.any_u32() % 65_000;
    let blocks = u64::from(1 + input.any_u32() % 64);
    let short = u64::from(input.byte()) % u64::from(block);
    let chunk = (u64::from(block) * blocks - short).max(block.into());
    let object = input.any() % (MOST_BLOCKS * u64::from(block));
    let segment = input.any() % 9 * chunk;
    // One chunk may hold the object, as in the papers.
    let layout = if input.flag() {
        Layout::new(Bytes::new(object), Bytes::new(segment), Bytes::new(chunk), block)
    } else {
        Layout::whole(Bytes::new(object), block)
    };
    let rate = |input: &mut Input<'_>| input.flag().then(|| Rate::from_bps(input.any()));
    let setup = Setup {
        flow: FLOW,
        layout: layout.expect("sizes that fit each other"),
        overhead: Bytes::new(input.byte().into()),
        rtt: Span::from_nanos(input.any()),
        rate: rate(input),
        rate_limit: rate(input),
        grant: Bytes::new(input.any()),
        settings: settings(row, input.byte()),
        card: None,
        law: longhaul_proto::law::Law::default(),
        weight: longhaul_proto::law::Weight::default(),
        remembered: None,
    };
    let remembered =
        setup.rate_limit.map(|rate| Remembered { rate, rtt: setup.rtt, loss: Default::default() });
    Setup { card: setup.rate, remembered, ..setup }
}

/// Returns settings that a user may give; `choice` selects each value. An option of words, or of
/// whole numbers up to 8, gets any of its values; another option its minimum, maximum or default.
fn settings(row: &'static Row, choice: u8) -> Settings {
    row.options.iter().enumerate().fold(Settings::default(), |settings, (nth, option)| {
        let value = match choice.rotate_right(nth as u32) & 3 {
            _ if option.kind.is_whole() && option.most <= 8.0 => {
                let whole = (option.most - option.least) as u8 + 1;
                option.least + f64::from(choice % whole)
            }
            0 => option.least,
            1 => option.most,
            _ => option.default,
        };
        settings.with(row, option.name, value).expect("it lies within")
    })
}

/// Advances the time by 1 ns to 100 years; the time never exceeds [`CENTURY`].
pub(crate) fn later(input: &mut Input<'_>, now: Time) -> Time {
    let later = match input.byte() {
        power @ 0..64 => now + Span::from_nanos(1 << power),
        micros => now + Span::from_micros(u64::from(micros) * 10),
    };
    later.min(CENTURY)
}

pub(crate) fn is_due(wake: Wake, now: Time) -> bool {
    match wake {
        Wake::Now => true,
        Wake::At(at, _) => at <= now,
        Wake::OnInput => false,
    }
}

/// Returns a message as decoded from the wire: any bytes, or a message of a known kind with any
/// numbers. `None` if decoding fails.
pub(crate) fn message(input: &mut Input<'_>, layout: &Layout) -> Option<Control> {
    let control = match input.byte() % 8 {
        0 => {
            // If the bytes are not a message, they choose the fields of one.
            let bytes = input.slice();
            let read = Control::decode(bytes).ok();
            return read.or_else(|| spoken::message(&mut Input::new(bytes), layout));
        }
        1 => Control::Done(done(input, layout)),
        2 | 3 => Control::Pulse(pulse(input)),
        _ => Control::Report(report(input, layout)),
    };
    let mut bytes = Vec::new();
    control.encode(&mut bytes);
    Control::decode(&bytes).ok()
}

pub(crate) fn segment(input: &mut Input<'_>, layout: &Layout) -> u32 {
    input.mostly_below(layout.segments().max(1))
}

fn done(input: &mut Input<'_>, layout: &Layout) -> Done {
    let segment = segment(input, layout);
    let round = input.any_u32();
    let sent_to = input.mostly_below(layout.blocks_in(segment).max(1)).saturating_add(1);
    Done { segment, round, sent_to, highest: PacketNumber(input.any()) }
}

pub(crate) fn report(input: &mut Input<'_>, layout: &Layout) -> Report {
    let segment = segment(input, layout);
    let round = input.any_u32();
    let blocks = layout.blocks_in(segment);
    let slice = match input.byte() % 4 {
        0 => 0..blocks.max(1),
        1 => 0..input.any_u32().max(1),
        2 => input.any_u32()..u32::MAX,
        _ => {
            let start = input.mostly_below(blocks.max(1));
            start..start.saturating_add(1).saturating_add(input.any_u32())
        }
    };
    let mut at = slice.start;
    let mut missing = Vec::new();
    for nth in 0..input.byte() % 32 {
        let start = at.saturating_add(u32::from(nth > 0)).saturating_add(input.any_u32());
        let end = start.saturating_add(1 + input.any_u32() % 5000).min(slice.end);
        if start >= end {
            break;
        }
        missing.push(start..end);
        at = end;
    }
    Report::fill(segment, round, slice, missing.into_iter())
}

fn pulse(input: &mut Input<'_>) -> Pulse {
    let highest = input.any();
    let received = highest.saturating_sub(input.any());
    let train = input.flag().then(|| Train {
        first: PacketNumber(input.any()),
        bytes: Bytes::new(input.any()),
        span: Span::from_nanos(input.any()),
        steps: input.any_u32(),
    });
    let echo = input
        .flag()
        .then(|| Echo { number: PacketNumber(input.any()), age: Span::from_nanos(input.any()) });
    Pulse {
        sequence: input.any(),
        clock: Span::from_nanos(input.any()),
        highest,
        received,
        distinct: received.saturating_sub(input.any()),
        grant: Bytes::new(input.any()),
        drain: input.flag().then(|| Rate::from_bps(input.any())),
        echo,
        train,
        socket_lost: input.any(),
    }
}
