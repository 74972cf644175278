//! The cells of the grid: each is a path under a condition, such as other traffic. A family has one
//! condition on several paths. Each cell tests every rate law (a rule by which a copy finds its
//! rate).

use longhaul_proto::law::Law;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, LossRatio, Rate};
use longhaul_testbed::link::{Change, CoDel, Jitter, Loss, Policer, QueueControl, Step};
use longhaul_testbed::random::Random;
use longhaul_testbed::scenario::{
    Amount, Arrivals, Congestion, Flow, Mice, Scenario, Tcp, Traffic, Udp,
};

use crate::paths::{BLOCK, OVERHEAD, payload_ceiling};

const RATES: [u64; 3] = [10, 100, 1_000];
const RTTS: [u64; 4] = [1, 30, 100, 300];
/// The paths' losses in per cent.
const LOSSES: [f64; 6] = [0.0, 0.01, 0.1, 1.0, 5.0, 12.0];
pub(super) const QUEUES: [Queue; 5] = [
    Queue::Products(0.1),
    Queue::Products(0.25),
    Queue::Products(1.0),
    Queue::Products(4.0),
    Queue::CoDel,
];
/// Rate in Mbit/s and round-trip time in ms of shared paths.
pub(super) const SHARED: [(u64, u64); 6] =
    [(10, 40), (50, 20), (50, 200), (100, 10), (100, 100), (200, 40)];
pub(super) const SHARED_QUEUES: [Queue; 4] =
    [Queue::Products(0.25), Queue::Products(1.0), Queue::Products(4.0), Queue::CoDel];
/// Rate in Mbit/s and round-trip time in ms of disturbed paths.
const TROUBLED: [(u64, u64); 6] =
    [(10, 30), (10, 100), (100, 30), (100, 100), (500, 30), (500, 100)];

/// How long flows share a path.
const SHARES: Span = Span::from_secs(30);
/// How long a path with a disturbance is observed.
const WATCHED: Span = Span::from_secs(10);
/// When the rate changes, or the hole begins.
const CHANGES: Span = Span::from_secs(4);
/// How long the hole lasts, in which the path delivers nothing.
const HOLE: Span = Span::from_secs(2);
/// Share of a path's rate for plain UDP and short TCP connections.
const OTHERS: f64 = 0.3;
/// The object of a mouse, a short TCP connection.
const MOUSE: Bytes = Bytes::new(100_000);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Queue {
    /// A drop-tail queue of this many bandwidth-delay products.
    Products(f64),
    /// A queue of four bandwidth-delay products, controlled by CoDel.
    CoDel,
}

impl Queue {
    pub(super) fn name(self) -> String {
        match self {
            Queue::Products(times) => format!("{times} BDP"),
            Queue::CoDel => "CoDel".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Family {
    Alone,
    /// This many TCP connections.
    Beside(Congestion, u32),
    /// Another copy that starts this many seconds later.
    Itself(u64),
    Udp,
    Mice,
    Jitter,
    WiFi,
    Policer,
    Shallow,
    /// The rate changes by this factor.
    Change(f64),
    Hole,
    ReportsLost,
    ReportsBunched,
    SlowReverse,
}

/// The families except [`Family::SlowReverse`], in the order of the page.
pub(super) const FAMILIES: [Family; 19] = [
    Family::Alone,
    Family::Beside(Congestion::Cubic, 1),
    Family::Beside(Congestion::Cubic, 4),
    Family::Beside(Congestion::Bbr, 1),
    Family::Itself(0),
    Family::Itself(5),
    Family::Itself(10),
    Family::Udp,
    Family::Mice,
    Family::Jitter,
    Family::WiFi,
    Family::Policer,
    Family::Shallow,
    Family::Change(0.5),
    Family::Change(0.2),
    Family::Change(4.0),
    Family::Hole,
    Family::ReportsLost,
    Family::ReportsBunched,
];

impl Family {
    pub(super) fn name(self) -> String {
        match self {
            Family::Alone => "alone".into(),
            Family::Beside(tcp, count) => format!("beside {count} {}", tcp.name().to_uppercase()),
            Family::Itself(later) => format!("beside itself, {later} s later"),
            Family::Udp => "beside UDP of 30 %".into(),
            Family::Mice => "beside mice of 30 %".into(),
            Family::Jitter => "jitter of 2 ms".into(),
            Family::WiFi => "pauses as of Wi-Fi".into(),
            Family::Policer => "policer".into(),
            Family::Shallow => "queue of 0.01 BDP".into(),
            Family::Change(times) => format!("rate times {times}"),
            Family::Hole => "hole of 2 s".into(),
            Family::ReportsLost => "30 % of reports lost".into(),
            Family::ReportsBunched => "reports in bunches of 100 ms".into(),
            Family::SlowReverse => "reverse path of 1 %".into(),
        }
    }

    /// Whether another copy, or TCP connections of the same duration, share the path.
    pub(super) fn is_shared(self) -> bool {
        matches!(self, Family::Beside(..) | Family::Itself(_))
    }

    fn cells(self) -> Vec<Cell> {
        let cell =
            |(mbps, rtt): (u64, u64), loss, queue| Cell { family: self, mbps, rtt, loss, queue };
        if self == Family::Alone {
            let paths = RATES.iter().flat_map(|rate| RTTS.map(|rtt| (*rate, rtt)));
            let lossy = paths.flat_map(|path| LOSSES.map(|loss| (path, loss)));
            return lossy
                .flat_map(|(path, loss)| QUEUES.map(|queue| cell(path, loss, queue)))
                .collect();
        }
        if self.is_shared() {
            return SHARED
                .iter()
                .flat_map(|path| SHARED_QUEUES.map(|queue| cell(*path, 0.0, queue)))
                .collect();
        }
        let queue = Queue::Products(if self == Family::Shallow { 0.01 } else { 1.0 });
        let loss = if self == Family::Jitter { 0.01 } else { 0.0 };
        TROUBLED.iter().map(|path| cell(*path, loss, queue)).collect()
    }
}

/// A path and its condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) family: Family,
    pub(super) mbps: u64,
    pub(super) rtt: u64,
    /// Loss in per cent.
    pub(super) loss: f64,
    pub(super) queue: Queue,
}

pub(super) fn cells() -> Vec<Cell> {
    let mut cells: Vec<Cell> = FAMILIES.into_iter().flat_map(Family::cells).collect();
    cells.extend(Family::SlowReverse.cells());
    cells
}

impl Cell {
    pub(super) fn path(&self) -> String {
        format!("{} Mbit/s, {} ms", self.mbps, self.rtt)
    }

    pub(super) fn name(&self) -> String {
        let Cell { family, loss, queue, .. } = self;
        format!("{}: {}, loss {loss} %, {}", family.name(), self.path(), queue.name())
    }

    /// Whether the cell is in the half that is meant for tuning the rate laws. The other half is
    /// meant to judge the laws. FNV-1a of the cell's name selects the half.
    pub(super) fn is_tuned(&self) -> bool {
        hash(&self.name()) >> 32 & 1 == 0
    }

    /// The path's capacity in bits of object data a second, without the share that the path loses.
    pub(super) fn object_rate(&self) -> f64 {
        let share = f64::from(BLOCK) / f64::from(BLOCK + OVERHEAD);
        let carried = payload_ceiling(Rate::from_mbps(self.mbps)).scale(share).as_bps() as f64;
        carried * (1.0 - self.loss / 100.0)
    }

    /// The object's size in bytes for a copy alone: the path delivers it in 2 s or twelve round
    /// trips, whichever is longer.
    fn object(&self) -> f64 {
        (12.0 * self.rtt as f64 / 1e3).max(2.0) * self.object_rate() / 8.0
    }

    /// Bits of object data that the path could deliver to the copy in the observed time, without
    /// the part for other traffic; for [`Family::Alone`], the bits of the object. Not for
    /// [`Family::Itself`].
    pub(super) fn available(&self) -> f64 {
        let (rate, all) = (self.object_rate(), WATCHED.as_secs_f64());
        match self.family {
            Family::Alone => self.object() * 8.0,
            Family::Change(times) => {
                let before = CHANGES.as_secs_f64();
                rate * (before + times * (all - before))
            }
            Family::Hole => rate * (all - HOLE.as_secs_f64()),
            Family::Udp | Family::Mice => rate * all * (1.0 - OTHERS),
            Family::Beside(_, count) => rate * SHARES.as_secs_f64() / f64::from(count + 1),
            _ => rate * all,
        }
    }

    /// The scenario of a copy with the rate law `law`, and of the other traffic. `seed` selects the
    /// random numbers, and lengthens the round trip by up to 2 % and the queue by up to about 4 %:
    /// otherwise two runs without loss would be identical.
    pub(super) fn scenario(&self, base: &Scenario, law: Law, seed: u64) -> Scenario {
        let mut scenario = self.network(base, seed);
        let lasts = if self.family.is_shared() { SHARES } else { WATCHED };
        let mut copy = flow(base, "copy", Amount::Lasts(lasts));
        set_law(&mut copy, law);
        if self.family == Family::Alone {
            copy.amount = Amount::Size(Bytes::new(self.object() as u64));
        }
        scenario.flows = vec![copy];
        match self.family {
            Family::Beside(tcp, count) => scenario.flows.extend(streams(base, tcp, count)),
            Family::Itself(later) => {
                let mut again = flow(base, "again", Amount::Lasts(SHARES - Span::from_secs(later)));
                set_law(&mut again, law);
                again.start = Time::ZERO + Span::from_secs(later);
                scenario.flows.push(again);
            }
            Family::Udp | Family::Mice => scenario.flows.push(self.others(base, lasts)),
            _ => {}
        }
        scenario
    }

    /// `count` TCP connections without our copy.
    pub(super) fn without_us(
        &self,
        base: &Scenario,
        tcp: Congestion,
        count: u32,
        seed: u64,
    ) -> Scenario {
        let flows = streams(base, tcp, count);
        Scenario { flows, ..self.network(base, seed) }
    }

    fn others(&self, base: &Scenario, lasts: Span) -> Flow {
        let rate = Rate::from_bps_f64(self.object_rate() * OTHERS);
        let mut other = flow(base, "cubic", Amount::Lasts(lasts));
        other.name = "other".into();
        other.traffic = if self.family == Family::Udp {
            Traffic::Udp(Udp { rate, datagram: None, bursts: None, random: false })
        } else {
            let every = MOUSE / rate;
            let count = (lasts.as_secs_f64() / every.as_secs_f64()) as u32;
            other.amount = Amount::Size(MOUSE);
            Traffic::Mice(Mice { count, arrivals: Arrivals::Poisson(every), tcp: Tcp::default() })
        };
        other
    }

    fn network(&self, base: &Scenario, seed: u64) -> Scenario {
        let mut scenario = Scenario { seed, ..base.clone() };
        let mut chance = Random::new(hash(&self.name()) ^ seed);
        let mut part = || 1.0 + 0.02 * chance.below(1_000) as f64 / 1e3;
        let delay = Span::from_secs_f64(self.rtt as f64 / 2e3 * part());
        let rate = Rate::from_mbps(self.mbps);
        let (times, control) = match self.queue {
            Queue::Products(times) => (times, QueueControl::DropTail),
            Queue::CoDel => (4.0, QueueControl::CoDel(CoDel::default())),
        };
        let bdp = rate.over(delay * 2).get() as f64;
        // A queue of fewer than ten packets, or smaller than a host's burst, would make the path
        // unusable. So some cells have a longer queue than their name says.
        let at_once = rate.over(Span::from_millis(1)).min(Bytes::new(65_536)).get();
        let queue = Bytes::new((bdp * times * part()) as u64).max(Bytes::new(at_once.max(15_380)));
        let loss = Loss::independent(LossRatio::new(self.loss / 100.0).unwrap_or_default());
        let [there, back] = &mut scenario.network.links[..] else { return scenario };
        for link in [&mut *there, &mut *back] {
            (link.link.delay, link.link.rate) = (delay, Some(rate));
        }
        let link = &mut there.link;
        (link.queue, link.control) = (queue, control);
        if self.loss > 0.0 {
            link.loss = loss;
        }
        let at = Time::ZERO + CHANGES;
        match self.family {
            Family::Jitter => {
                link.jitter = Jitter { spread: Span::from_millis(2), overtakes: false };
            }
            Family::WiFi => link.schedule = pauses(&mut chance, delay),
            Family::Policer => {
                link.policer = Some(Policer { rate, burst: rate.over(Span::from_millis(50)) });
                link.rate = Some(rate.scale(5.0));
            }
            Family::Change(times) => {
                link.schedule = vec![Step { at, change: Change::Rate(Some(rate.scale(times))) }];
            }
            Family::Hole => {
                let ends = Step { at: at + HOLE, change: Change::Up(true) };
                link.schedule = vec![Step { at, change: Change::Up(false) }, ends];
            }
            Family::ReportsLost => {
                back.link.loss = Loss::independent(LossRatio::new(0.3).unwrap_or_default());
            }
            Family::ReportsBunched => back.link.schedule = bunches(delay),
            Family::SlowReverse => {
                back.link.rate = Some(rate.scale(0.01));
                back.link.queue = Bytes::new(100 * 1_538);
            }
            _ => {}
        }
        scenario
    }
}

fn set_law(flow: &mut Flow, law: Law) {
    if let Traffic::Protocol(copy) = &mut flow.traffic {
        copy.law = law;
    }
}

/// The flow `name` of the base scenario, with `amount`.
fn flow(base: &Scenario, name: &str, amount: Amount) -> Flow {
    let flow = base.flows.iter().find(|flow| flow.name == name).expect("it is in the file");
    Flow { amount, ..flow.clone() }
}

fn streams(base: &Scenario, tcp: Congestion, count: u32) -> Vec<Flow> {
    let one = flow(base, tcp.name(), Amount::Lasts(SHARES));
    (1..=count).map(|n| Flow { name: format!("{}-{n}", tcp.name()), ..one.clone() }).collect()
}

/// Pauses as on Wi-Fi: about nine a second, each of 10 ms on average, in which no packet arrives.
fn pauses(chance: &mut Random, delay: Span) -> Vec<Step> {
    let (mut at, mut steps) = (Time::ZERO, Vec::new());
    while at < Time::ZERO + WATCHED {
        at += chance.exponential(Span::from_millis(100)) + Span::from_millis(1);
        let length = chance.exponential(Span::from_millis(10)).min(Span::from_millis(60));
        hold(&mut steps, at, length, delay);
        at += length;
    }
    steps
}

/// From 100 ms on, every packet waits for the end of its interval of 100 ms.
fn bunches(delay: Span) -> Vec<Step> {
    let (mut steps, length) = (Vec::new(), Span::from_millis(100));
    for n in 1..WATCHED.as_nanos() / length.as_nanos() {
        hold(&mut steps, Time::ZERO + length * n, length, delay);
    }
    steps
}

fn hold(steps: &mut Vec<Step>, at: Time, length: Span, delay: Span) {
    steps.push(Step { at, change: Change::Delay(delay + length) });
    steps.push(Step { at, change: Change::DelayRamp { to: delay, over: length } });
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
