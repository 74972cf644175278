//! The messages that only some protocols have, with any numbers.

use std::ops::Range;

use longhaul_proto::layout::Layout;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;
use longhaul_proto::wire::{
    Ack, Begun, BufferOk, Burst, Closing, Control, ErrorRate, Go, Loss, Request, Resend, Selective,
    SenderOffer, Sync,
};

use super::flow::report;
use super::input::Input;

/// Returns a message with numbers from the input, after it was encoded and decoded; `None` if
/// decoding fails.
pub(crate) fn message(input: &mut Input<'_>, layout: &Layout) -> Option<Control> {
    let control = match input.byte() % 11 {
        0 => ack(input, layout),
        1 => {
            Control::Loss(Loss::fill(input.any(), &mut runs(input, layout).into_iter().peekable()))
        }
        2 => request(input, layout),
        3 => offer(input),
        4 => Control::Selective(Selective {
            sequence: input.any(),
            report: report(input, layout),
            closing: input.flag().then(|| Closing { highest: input.any(), fresh: input.any() }),
        }),
        5 => Control::Sync(Sync { sequence: input.any() }),
        6 => Control::ErrorRate(ErrorRate {
            sequence: input.any(),
            rate: input.any_u32(),
            restart: input.flag().then(|| block(input, layout)),
        }),
        7 => Control::Go(Go { buffers: input.any() }),
        8 => Control::BufferOk(BufferOk { buffer: input.any(), offer: burst(input) }),
        9 => Control::Resend(Resend {
            buffer: input.any(),
            highest: input.any(),
            report: report(input, layout),
        }),
        _ => Control::Begun(Begun { buffer: input.any(), burst: burst(input) }),
    };
    let mut bytes = Vec::new();
    control.encode(&mut bytes);
    Control::decode(&bytes).ok()
}

/// Returns the number of a block, usually one of the object's.
fn block(input: &mut Input<'_>, layout: &Layout) -> u64 {
    u64::from(input.mostly_below(layout.blocks().clamp(1, u32::MAX.into()) as u32))
}

/// Returns ranges of blocks, in order.
fn runs(input: &mut Input<'_>, layout: &Layout) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut at = block(input, layout);
    for _ in 0..input.byte() % 32 {
        let end = at.saturating_add(1 + input.any() % 5000);
        runs.push(at..end);
        at = end.saturating_add(1).saturating_add(input.any());
        if at == u64::MAX {
            break;
        }
    }
    runs
}

fn burst(input: &mut Input<'_>) -> Option<Burst> {
    input.flag().then(|| Burst { size: input.any_u32(), interval: Span::from_nanos(input.any()) })
}

fn ack(input: &mut Input<'_>, layout: &Layout) -> Control {
    let next = block(input, layout);
    let received = next.saturating_add(input.any());
    Control::Ack(Ack { sequence: input.any(), next, received })
}

fn request(input: &mut Input<'_>, layout: &Layout) -> Control {
    let (sequence, rate, anew) = (input.any(), Rate::from_bps(input.any()), input.flag());
    let mut runs = runs(input, layout).into_iter().peekable();
    Control::Request(Request::fill(sequence, rate, anew, &mut runs))
}

fn offer(input: &mut Input<'_>) -> Control {
    Control::SenderOffer(SenderOffer {
        sequence: input.any(),
        rtt: Span::from_nanos(input.any()),
        limit: input.flag().then(|| Rate::from_bps(input.any())),
        answered: input.any(),
        highest: input.any(),
    })
}
