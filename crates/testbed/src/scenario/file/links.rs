//! Links of a scenario file.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use longhaul_proto::quantity::parse_bytes;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use toml::Spanned;
use toml::de::DeValue;

use super::Reading;
use super::keys;
use super::section::{Extent, FileError, Section};
use crate::link::{
    Change, CoDel, GilbertElliott, Jitter, LinkSpec, Loss, Policer, QueueControl, Reorder,
    SpecError, Step,
};
use crate::scenario::topology::Duplex;

/// Maximum number of changes of all links together.
const MAX_CHANGES: usize = 100_000;

/// Tables with a link's properties. A later table overrides earlier ones.
pub(super) struct Layers<'s, 'a> {
    tables: Vec<&'s Section<'a>>,
    shared: &'s Shared<'s>,
    /// Overrides the tables' delay.
    pub(super) delay: Option<Span>,
}

pub(super) struct Shared<'r> {
    pub(super) reading: &'r Reading<'r>,
    pub(super) mtu: u16,
    /// Loss models by their position in the file: a trace that all links share is read once.
    losses: RefCell<BTreeMap<usize, Loss>>,
    changes: Cell<usize>,
}

impl<'r> Shared<'r> {
    pub(super) fn new(reading: &'r Reading<'r>, mtu: u16) -> Shared<'r> {
        Shared { reading, mtu, losses: RefCell::default(), changes: Cell::default() }
    }
}

enum Queue {
    /// The default: one bandwidth-delay product, at least 100 full packets; unlimited without a
    /// rate.
    Default,
    Bytes(Bytes),
    Packets(u64),
    /// In bandwidth-delay products.
    Products(f64),
}

struct Direction {
    link: LinkSpec,
    queue: Queue,
    at: Extent,
}

impl<'s, 'a> Layers<'s, 'a> {
    /// Builds the layers from the existing tables.
    pub(super) fn new(
        tables: impl IntoIterator<Item = Option<&'s Section<'a>>>,
        shared: &'s Shared<'s>,
    ) -> Layers<'s, 'a> {
        Layers { tables: tables.into_iter().flatten().collect(), shared, delay: None }
    }

    /// Both directions of a link; `back` overrides properties of the second.
    pub(super) fn duplex(&self, back: Option<&'s Section<'a>>) -> Result<Duplex, FileError> {
        let forward = self.direction()?;
        let tables = self.tables.iter().copied().chain(back).map(Some);
        let mut layers = Layers::new(tables, self.shared);
        layers.delay = self.delay;
        let back = layers.direction()?;
        let own = forward.link.delay + back.link.delay;
        let rtt = self.of("bdp-rtt", |table, key| table.span(key))?.unwrap_or(own);
        Ok(Duplex { forward: self.finish(forward, rtt)?, back: self.finish(back, rtt)? })
    }

    pub(super) fn one_way(&self) -> Result<LinkSpec, FileError> {
        let direction = self.direction()?;
        let own = direction.link.delay * 2;
        let rtt = self.of("bdp-rtt", |table, key| table.span(key))?.unwrap_or(own);
        self.finish(direction, rtt)
    }

    fn holder(&self, key: &str) -> Option<&'s Section<'a>> {
        self.tables.iter().rev().find(|table| table.has(key)).copied()
    }

    fn of<T>(
        &self,
        key: &str,
        read: impl Fn(&'s Section<'a>, &str) -> Result<Option<T>, FileError>,
    ) -> Result<Option<T>, FileError> {
        self.holder(key).map_or(Ok(None), |table| read(table, key))
    }

    fn span(&self, key: &str) -> Result<Option<Span>, FileError> {
        self.of(key, |table, key| table.span(key))
    }

    fn share(&self, key: &str) -> Result<f64, FileError> {
        Ok(self.of(key, |table, key| table.ratio(key))?.map_or(0.0, LossRatio::get))
    }

    fn direction(&self) -> Result<Direction, FileError> {
        let plain = LinkSpec::default();
        let overtakes = self.of("overtakes", |table, key| table.flag(key))?.unwrap_or(false);
        let jitter = Jitter { spread: self.span("jitter")?.unwrap_or(Span::ZERO), overtakes };
        let by = self.span("reorder-by")?.unwrap_or(Span::from_millis(1));
        let share = self.share("reorder")?;
        let reorder = if share > 0.0 { Reorder { share, by } } else { Reorder::default() };
        let largest = self.of("largest-packet", |table, key| table.count::<u32>(key))?;
        let link = LinkSpec {
            rate: self.of("rate", |table, key| table.rate(key))?,
            delay: self.delay.or(self.span("delay")?).unwrap_or(Span::ZERO),
            jitter,
            policer: self.policer()?,
            control: self.control()?,
            loss: self.of("loss", |table, key| self.loss(table, key))?.unwrap_or(Loss::None),
            duplicate: self.share("duplicate")?,
            reorder,
            corrupt: self.share("corrupt")?,
            framing: self.of("framing", |t, k| t.count::<u32>(k))?.unwrap_or(plain.framing),
            swallow_above: largest,
            up: self.of("up", |table, key| table.flag(key))?.unwrap_or(true),
            schedule: self.of("changes", |t, k| self.changes(t, k).map(Some))?.unwrap_or_default(),
            queue: plain.queue,
        };
        let queue = self.of("queue", |table, key| table.quantity(key, parse_queue))?;
        let nothing = || self.tables.last().map_or(0..0, |table| table.extent.clone());
        let at = self.holder("queue").map_or_else(nothing, |table| table.extent_of("queue"));
        Ok(Direction { link, queue: queue.unwrap_or(Queue::Default), at })
    }

    /// A policer; the default burst is 50 ms of its rate.
    fn policer(&self) -> Result<Option<Policer>, FileError> {
        let rate = self.of("policer-rate", |table, key| table.rate(key))?;
        let burst = self.of("policer-burst", |table, key| table.bytes(key))?;
        Ok(rate.map(|rate| {
            let burst = burst.unwrap_or_else(|| rate.over(Span::from_millis(50)));
            Policer { rate, burst }
        }))
    }

    fn control(&self) -> Result<QueueControl, FileError> {
        let words = [("drop-tail", false), ("codel", true)];
        let codel = self.of("queue-control", |table, key| table.word(key, &words))?;
        let standard = CoDel::default();
        let target = self.span("codel-target")?.unwrap_or(standard.target);
        let interval = self.span("codel-interval")?.unwrap_or(standard.interval);
        Ok(match codel {
            Some(true) => QueueControl::CoDel(CoDel { target, interval }),
            _ => QueueControl::DropTail,
        })
    }

    fn finish(&self, direction: Direction, rtt: Span) -> Result<LinkSpec, FileError> {
        let Direction { mut link, queue, at } = direction;
        let frame = u64::from(self.shared.mtu) + u64::from(link.framing);
        let product = |times: f64| {
            let rate = link.rate.unwrap_or(Rate::ZERO);
            rate.scale(times).over(rtt)
        };
        let source = |what: String| {
            let error = self.tables.last().map(|table| table.source.error(&at, what.clone()));
            error.unwrap_or(FileError { line: None, what, advice: None })
        };
        link.queue = match queue {
            Queue::Default if link.rate.is_none() => Bytes::MAX,
            Queue::Default => product(1.0).max(Bytes::new(100 * frame)),
            Queue::Bytes(bytes) => bytes,
            Queue::Packets(packets) => Bytes::new(packets.saturating_mul(frame)),
            Queue::Products(_) if link.rate.is_none() => {
                return Err(source("a queue in bdp needs a rate".into()));
            }
            Queue::Products(_) if rtt == Span::ZERO => {
                let error = source("a queue in bdp needs a delay".into());
                return Err(error.advise("give the path's round-trip time as 'bdp-rtt'"));
            }
            Queue::Products(times) => product(times),
        };
        link.validate(self.shared.mtu.into()).map_err(|error| source(error.to_string()))?;
        Ok(link)
    }

    fn loss(&self, table: &'s Section<'a>, key: &str) -> Result<Option<Loss>, FileError> {
        let value = table.value(key).map(Spanned::get_ref);
        match value {
            Some(DeValue::String(text)) if text == "none" => Ok(Some(Loss::None)),
            Some(DeValue::Table(_)) => {
                let place = table.extent_of(key).start;
                if let Some(loss) = self.shared.losses.borrow().get(&place) {
                    return Ok(Some(loss.clone()));
                }
                let model = table.table(key, "loss", &[keys::LOSS])?;
                let loss = model.map(|model| self.loss_model(&model)).transpose()?;
                self.shared.losses.borrow_mut().extend(loss.clone().map(|loss| (place, loss)));
                Ok(loss)
            }
            _ => Ok(table.ratio(key)?.map(Loss::independent)),
        }
    }

    fn loss_model(&self, model: &Section<'a>) -> Result<Loss, FileError> {
        let firsts = ["ratio", "worsens", "bit-errors", "pattern", "trace", "gaps"];
        let given: Vec<&str> = firsts.into_iter().filter(|key| model.has(key)).collect();
        let [kind] = given[..] else {
            let what = format!("a loss needs exactly one of {}", firsts.join(", "));
            return Err(model.source.error(&model.extent, what));
        };
        let share = |key: &str| Ok(model.ratio(key)?.map(LossRatio::get));
        let trace = |read: fn(&str) -> Result<Loss, SpecError>| {
            let name = model.text(kind)?.unwrap_or_default();
            let text = (self.shared.reading.trace)(name);
            let loss = text.and_then(|text| read(&text).map_err(|error| error.to_string()));
            loss.map_err(|what| model.error(kind, format!("{name}: {what}")))
        };
        match kind {
            "ratio" => {
                let ratio = model.ratio("ratio")?.unwrap_or_default();
                let Some(burst) = model.number("burst")? else {
                    return Ok(Loss::independent(ratio));
                };
                let chain = GilbertElliott::bursts(ratio, burst).ok_or_else(|| {
                    let what = format!("bursts of {burst} packets cannot make a loss of {ratio}");
                    model.error("burst", what).advise("make the bursts longer")
                })?;
                Ok(Loss::GilbertElliott(chain))
            }
            "worsens" => Ok(Loss::GilbertElliott(GilbertElliott {
                worsens: share("worsens")?.unwrap_or_default(),
                recovers: share("recovers")?.ok_or_else(|| model.missing("recovers"))?,
                good_loss: share("good-loss")?.unwrap_or(0.0),
                bad_loss: share("bad-loss")?.unwrap_or(1.0),
            })),
            "bit-errors" => Ok(Loss::BitErrors(model.number("bit-errors")?.unwrap_or_default())),
            "pattern" => Loss::from_bits(model.text("pattern")?.unwrap_or_default())
                .map_err(|error| model.error(kind, error.to_string())),
            "trace" => trace(Loss::from_bits),
            _ => trace(Loss::from_gaps),
        }
    }

    fn changes(&self, table: &'s Section<'a>, key: &str) -> Result<Vec<Step>, FileError> {
        let (mut steps, list) = (Vec::new(), table.list(key)?);
        self.shared.changes.set(self.shared.changes.get() + list.len());
        if self.shared.changes.get() > MAX_CHANGES {
            let what = format!("more than {MAX_CHANGES} changes of all links together");
            return Err(table.error(key, what));
        }
        for value in list {
            let change = Section::new(table.source, "changes", value, &[keys::CHANGE])?;
            let at = change.span("at")?.ok_or_else(|| change.missing("at"))?;
            let at = Time::ZERO + at;
            let over = change.span("over")?;
            if over.is_some() && !change.has("rate") && !change.has("delay") {
                return Err(
                    change.error("over", "needs `rate` or `delay`, which then change slowly")
                );
            }
            let before = steps.len();
            let mut push = |change| steps.push(Step { at, change });
            match (change.rate("rate")?, over) {
                (Some(to), Some(over)) => push(Change::RateRamp { to, over }),
                (Some(rate), None) => push(Change::Rate(Some(rate))),
                (None, _) => {}
            }
            match (change.span("delay")?, over) {
                (Some(to), Some(over)) => push(Change::DelayRamp { to, over }),
                (Some(delay), None) => push(Change::Delay(delay)),
                (None, _) => {}
            }
            if change.has("loss") {
                // The table of a change has a shorter lifetime, so it gets its own `Layers`.
                push(Change::Loss(self.changed_loss(&change)?));
            }
            if let Some(up) = change.flag("up")? {
                push(Change::Up(up));
            }
            if steps.len() == before {
                let what = "this entry changes nothing; it needs 'rate', 'delay', 'loss' or 'up'";
                return Err(table.source.error(&value.span(), what));
            }
        }
        Ok(steps)
    }

    fn changed_loss(&self, change: &Section<'a>) -> Result<Loss, FileError> {
        let layers = Layers::new([Some(change)], self.shared);
        Ok(layers.of("loss", |table, key| layers.loss(table, key))?.unwrap_or(Loss::None))
    }
}

/// Reads a queue: `256KB`, `100 packets`, `0.5bdp`.
fn parse_queue(text: &str) -> Result<Queue, String> {
    let number = |before: &str| before.trim().parse::<f64>().ok().filter(|n| n.is_finite());
    let wrong = || format!("'{text}'; expected a queue such as 256KB, 100 packets or 1bdp");
    if let Some(before) = text.strip_suffix("bdp") {
        let times = number(before).filter(|times| *times > 0.0).ok_or_else(wrong)?;
        return Ok(Queue::Products(times));
    }
    if let Some(before) = text.strip_suffix("packets") {
        return before.trim().parse().map(Queue::Packets).map_err(|_| wrong());
    }
    parse_bytes(text).map(Queue::Bytes).map_err(|_| wrong())
}
