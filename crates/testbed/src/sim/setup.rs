//! A protocol's setup, as a real session provides it.

use longhaul_proto::endpoint::{FlowId, Setup};
use longhaul_proto::layout::Layout;
use longhaul_proto::rbudp;
use longhaul_proto::registry::{self, Row};
use longhaul_proto::remembered::Remembered;
use longhaul_proto::settings::Settings;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::SimError;
use super::packet::UDP_IP;
use crate::scenario::Transfer;

/// Header and tag of a sealed datagram, in bytes.
pub(super) const OVERHEAD: u32 = 32;
/// The chunk size of the real program.
const CHUNK: Bytes = Bytes::mebi(1);
/// The default segment size of the real program.
const SEGMENT: Bytes = Bytes::mebi(16);
/// The default memory of a copy that writes to a disk: the limit on received data that wait
/// for the disk.
pub(super) const MEMORY: Bytes = Bytes::mebi(512);

pub(super) fn row(copy: &Transfer) -> Result<&'static Row, SimError> {
    registry::find(&copy.protocol).ok_or_else(|| {
        let names: Vec<&str> = registry::all().iter().map(|row| row.name).collect();
        let (name, names) = (&copy.protocol, names.join(", "));
        SimError::Scenario(format!("there is no protocol '{name}'; choose one of {names}"))
    })
}

/// Checks that the protocol exists, and that its settings exist and have valid values.
pub(crate) fn check(copy: &Transfer) -> Result<(), SimError> {
    settings(copy).map(drop)
}

/// The setup of a copy of `object` bytes over a route of `rtt`, in packets of up to `mtu` bytes. If
/// the memory is `limited`, even an object of one segment is divided into chunks, so that the data
/// of each chunk can leave the memory as soon as the chunk is complete.
pub(super) fn setup(
    copy: &Transfer,
    flow: FlowId,
    object: Bytes,
    rtt: Span,
    mtu: u16,
    limited: bool,
) -> Result<Setup, SimError> {
    let most = u32::from(mtu).saturating_sub(UDP_IP + OVERHEAD);
    let block = copy.block.unwrap_or(most);
    if block == 0 || block > most {
        let why =
            format!("a block of {block} bytes does not fit a packet of {mtu} (at most {most})");
        return Err(SimError::Scenario(why));
    }
    Ok(Setup {
        flow,
        layout: layout(copy, object, block, limited)?,
        overhead: Bytes::new(OVERHEAD.into()),
        rtt,
        rate: copy.rate,
        rate_limit: None,
        card: None,
        law: copy.law,
        weight: copy.share.unwrap_or_default(),
        remembered: copy.remembered.map(|rate| Remembered {
            rate,
            rtt,
            loss: copy.remembered_loss,
        }),
        grant: if copy.writes_disk { MEMORY } else { Bytes::MAX },
        settings: settings(copy)?,
    })
}

/// The settings of the scenario, else the defaults.
fn settings(copy: &Transfer) -> Result<Settings, SimError> {
    let row = row(copy)?;
    let tail = copy.tail_copies.map(|count| (rbudp::TAIL_COPIES.name, f64::from(count)));
    let given = copy.settings.iter().map(|(name, value)| (name.as_str(), *value));
    given.chain(tail).try_fold(Settings::default(), |settings, (name, value)| {
        settings.with(row, name, value).map_err(|error| SimError::Scenario(error.to_string()))
    })
}

fn layout(copy: &Transfer, object: Bytes, block: u32, limited: bool) -> Result<Layout, SimError> {
    let segment = copy.segment.unwrap_or(SEGMENT).min(object.max(CHUNK));
    let layout = if segment >= object && !limited {
        Layout::whole(object, block)
    } else {
        let chunk = CHUNK.min(segment);
        let chunks = segment.get().div_ceil(chunk.get());
        Layout::new(object, Bytes::new(chunks * chunk.get()), chunk, block)
    };
    layout.map_err(|error| {
        let (segment, block) = (segment.get(), u64::from(block));
        SimError::Scenario(format!(
            "an object of {object} cannot be cut into segments of {segment} bytes and blocks of \
             {block}: {error:?}"
        ))
    })
}

/// The size of an object that takes longer than `span` at a route's highest rate, `rate`.
pub(super) fn more_than(span: Span, rate: Option<Rate>) -> Result<Bytes, SimError> {
    let rate = rate.ok_or_else(|| {
        let why = "a copy with a time limit needs a rate: its own, or that of a link on its route";
        SimError::Scenario(why.into())
    })?;
    Ok(rate.over(span) + Bytes::mebi(1))
}
