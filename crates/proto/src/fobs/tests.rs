//! FOBS's sender and receiver, message by message.
#![allow(clippy::single_range_in_vec_init, reason = "the list has one run")]

mod memory;
mod receiving;
mod sending;

use alloc::vec::Vec;
use core::ops::Range;

use super::{ACK_FREQUENCY, BATCH};
use crate::endpoint::{FlowId, Setup};
use crate::layout::Layout;
use crate::registry::find;
use crate::settings::Settings;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};
use crate::wire::{Closing, Report, Selective};

const FLOW: FlowId = FlowId(7);
const RTT: Span = Span::from_millis(100);

/// A flow with blocks of 1,000 bytes, in segments of `segment` blocks (0: one segment).
fn setup(blocks: u64, segment: u64) -> Setup {
    let (object, segment) = (Bytes::new(blocks * 1000), Bytes::new(segment * 1000));
    let layout = Layout::new(object, segment, Bytes::new(1000), 1000).unwrap();
    let (overhead, rate) = (Bytes::new(32), Some(Rate::from_mbps(80)));
    Setup { overhead, rate, settings: settings(1, 2), ..Setup::new(FLOW, layout, RTT) }
}

fn settings(ack_frequency: u32, batch: u32) -> Settings {
    let fobs = find("fobs").unwrap();
    let settings = Settings::default().with(fobs, BATCH.name, batch.into()).unwrap();
    settings.with(fobs, ACK_FREQUENCY.name, ack_frequency.into()).unwrap()
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn selective(
    sequence: u64,
    segment: u32,
    slice: Range<u32>,
    missing: &[Range<u32>],
    closing: Option<(u64, u64)>,
) -> Selective {
    let report = Report::fill(segment, 0, slice, missing.iter().cloned());
    let closing = closing.map(|(highest, fresh)| Closing { highest, fresh });
    Selective { sequence, report, closing }
}

fn listed(runs: &[Range<u32>]) -> Vec<u32> {
    runs.iter().cloned().flatten().collect()
}
