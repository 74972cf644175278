//! Draws random scenarios: a network, a path with faults, hosts with limits, copies, and cross
//! traffic.

use std::fmt::Write;

use longhaul_proto::kind::Kind;
use longhaul_proto::registry::{Row, all};
use longhaul_proto::settings::ProtocolOption;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use longhaul_testbed::random::Random;

/// The longest wait that is no protocol timer: a control stream retransmits after at most 4 s, and
/// a sender pauses after 3 s without a message.
const SESSION: Span = Span::from_secs(4);
/// Protocol timers that are not settings.
const OWN: [(&str, Span); 8] = [
    ("rbudp", Span::from_secs(2)),
    ("netblt", Span::from_secs(2)),
    ("sabul", Span::from_secs(1)),
    ("sabul-ornl", Span::from_secs(1)),
    ("tsunami", Span::from_millis(500)),
    ("fobs", Span::from_millis(50)),
    ("fobs-table", Span::from_millis(50)),
    ("gtp", Span::from_millis(4_500)),
];
/// Settings that are protocol timers.
const SET: [&str; 3] = ["sync-interval", "ack-interval", "report-interval"];

/// A scenario, its time limit, and the limit of its longest stall.
pub(crate) struct Case {
    pub(crate) text: String,
    pub(crate) most: Span,
    pub(crate) stall: Span,
    /// Extreme settings: the run need not end.
    pub(crate) wild: bool,
}

struct Path {
    link: String,
    mbps: u64,
    delay: Span,
    loss: f64,
    /// When the last temporary fault ends.
    faults: Span,
    /// The link's rate divided by its slowest rate.
    slows: u64,
}

/// Pairs of hosts that may exchange data, and the maximum number of faulty links between
/// the hosts of a pair.
struct Network {
    pairs: Vec<(String, String)>,
    hops: u32,
}

struct Bounds {
    bytes: u64,
    flows: u64,
    /// The hosts' slowest rate, in Mbit/s.
    slowest: u64,
    /// The highest sum of a copy's protocol timers.
    timers: Span,
}

fn one_of<'a, T>(random: &mut Random, choices: &'a [T]) -> &'a T {
    &choices[random.below(choices.len() as u64) as usize]
}

pub(crate) fn case(row: &Row, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let mut text = format!("seed = {seed}\ntime-limit = \"20m\"\n");
    let path = path(&mut random);
    let wild = random.chance(0.15);
    let network = network(&mut random, &mut text, &path);
    let (from, to) = one_of(&mut random, &network.pairs).clone();
    let slow = path.mbps / path.slows;
    let (sends, reads) = host(&mut random, &mut text, &from, slow);
    let (takes, writes) = host(&mut random, &mut text, &to, slow);
    let copies = 1 + random.below(3);
    let slowest = sends.min(takes).max(1);
    let mut bounds = Bounds { bytes: 0, flows: copies, slowest, timers: Span::ZERO };
    for nth in 0..copies {
        let other = random.chance(0.2) && nth > 0;
        let carrier = if other { one_of(&mut random, all()) } else { row };
        let (reads, writes) = (reads && random.chance(0.5), writes && random.chance(0.5));
        let ends = format!("from = \"{from}\"\nto = \"{to}\"\n");
        let disks = format!("reads-disk = {reads}\nwrites-disk = {writes}\n");
        let _ = write!(text, "[[flow]]\n{ends}protocol = \"{}\"\n{disks}", carrier.name);
        copy(&mut random, &mut text, &mut bounds);
        settings(&mut random, &mut text, carrier, wild, &mut bounds);
    }
    cross_traffic(&mut random, &mut text, &network, &path, &mut bounds);
    // A rate above capacity loses most of the data, so the limit is 20 times the sending time, plus
    // four times the longest time without new data.
    let arrives = (1.0 - path.loss).powi(network.hops as i32);
    let share = bounds.slowest as f64 * 1e6 / bounds.flows as f64;
    let sending = bounds.bytes as f64 * 8.0 / share / arrives * 20.0;
    // A queue of one BDP, or 100 packets, lengthens round trips.
    let queue = Bytes::new(100 * 1_538) / Rate::from_mbps(slow.max(1));
    let rtt = (path.delay * 2 * 2 + queue) * u64::from(network.hops + 1);
    // At 10 % loss a repair may be lost too, and then the copy waits a second time. A sender may
    // also slow down until its datagrams are seconds apart.
    let times = if path.loss < 0.1 { 1 } else { 2 };
    let stall = rtt * 10 + (SESSION + bounds.timers) * times + path.faults;
    let most = Span::from_secs_f64(sending) + stall * 4;
    if wild {
        text = text.replace("time-limit = \"20m\"", "time-limit = \"20s\"");
    }
    Case { text, most, stall, wild }
}

fn path(random: &mut Random) -> Path {
    let mbps = *one_of(random, &[5, 20, 100, 400]);
    let delay = Span::from_micros(*one_of(random, &[50, 1_000, 10_000, 60_000]));
    let loss = *one_of(random, &[0.0, 0.0, 0.001, 0.02, 0.1]);
    let micros = delay.as_nanos() / 1_000;
    let mut link = format!("rate = \"{mbps}M\", delay = \"{micros}us\"");
    let burst = if random.chance(0.3) { *one_of(random, &["2", "10"]) } else { "" };
    let _ = match (loss > 0.0, burst) {
        (false, _) => Ok(()),
        (true, "") => write!(link, ", loss = {loss}"),
        (true, burst) => write!(link, ", loss = {{ ratio = {loss}, burst = {burst} }}"),
    };
    if random.chance(0.4) {
        let by = one_of(random, &["100us", "5ms", "30ms"]);
        let _ = write!(link, ", reorder = \"3%\", reorder-by = \"{by}\"");
    }
    if random.chance(0.3) {
        let _ = write!(link, ", jitter = \"{}\"", one_of(random, &["50us", "2ms"]));
        let _ = write!(link, ", overtakes = {}", random.chance(0.5));
    }
    if random.chance(0.3) {
        link.push_str(", duplicate = \"2%\"");
    }
    if random.chance(0.3) {
        link.push_str(", corrupt = \"1%\"");
    }
    if random.chance(0.2) {
        link.push_str(", queue-control = \"codel\"");
    } else if random.chance(0.2) {
        let _ = write!(link, ", queue = \"{} packets\"", one_of(random, &[3, 20, 500]));
    }
    // A separate random stream leaves later draws unchanged.
    if Random::new(micros ^ mbps).chance(0.2) {
        let _ = write!(link, ", policer-rate = \"{mbps}M\", policer-burst = \"64KB\"");
    }
    let (faults, slows) = changes(random, &mut link, mbps, micros);
    Path { link, mbps, delay, loss, faults, slows }
}

/// Draws a temporary fault of a link (an outage, a lower rate, a longer delay or more loss), or
/// none. Returns when the fault ends, and the link's rate divided by its slowest rate.
fn changes(random: &mut Random, link: &mut String, mbps: u64, micros: u64) -> (Span, u64) {
    let (from, length) = (random.below(600), 100 + random.below(5_000));
    let to = from + length;
    let mut change = |first: String, last: String| {
        let first = format!("{{ at = \"{from}ms\", {first} }}");
        let last = format!("{{ at = \"{to}ms\", {last} }}");
        let _ = write!(link, ", changes = [{first}, {last}]");
        Span::from_millis(to)
    };
    match random.below(8) {
        0 | 1 => (change("up = false".into(), "up = true".into()), 1),
        2 => {
            let (slow, over) = ((mbps / 4).max(1), length / 2);
            let first = format!("rate = \"{slow}M\", over = \"{over}ms\"");
            (change(first, format!("rate = \"{mbps}M\"")), mbps / slow)
        }
        3 => {
            let (longer, back) = (2 * micros, micros);
            let first = format!("delay = \"{longer}us\"");
            (change(first, format!("delay = \"{back}us\"")), 1)
        }
        4 => {
            let all = change("loss = \"30%\"".into(), "loss = \"none\"".into());
            (all, 1)
        }
        _ => (Span::ZERO, 1),
    }
}

fn network(random: &mut Random, text: &mut String, path: &Path) -> Network {
    let (link, mbps) = (&path.link, path.mbps);
    let delay = one_of(random, &["10us", "500us", "3ms"]);
    let access = format!("rate = \"{}M\", delay = \"{delay}\"", mbps * 2);
    let count = 2 + random.below(2);
    let between = |a: String, b: String| (a, b);
    match random.below(6) {
        0 | 1 => {
            let _ = write!(text, "[topology]\nkind = \"pair\"\nlink = {{ {link} }}\n");
            Network { pairs: vec![between("a".into(), "b".into())], hops: 1 }
        }
        2 => {
            let form = format!("kind = \"dumbbell\"\nleft = {count}\nright = {count}\n");
            let links = format!("bottleneck = {{ {link} }}\naccess = {{ {access} }}\n");
            let _ = write!(text, "[topology]\n{form}{links}");
            let pairs = (1..=count).map(|n| between(format!("left{n}"), format!("right{n}")));
            Network { pairs: pairs.collect(), hops: 1 }
        }
        3 => {
            let form = format!("kind = \"star\"\nhosts = {}\n", count + 2);
            let _ = write!(text, "[topology]\n{form}access = {{ {link} }}\n");
            let pairs = (2..=count + 2).map(|n| between(format!("h{n}"), "h1".into()));
            Network { pairs: pairs.collect(), hops: 2 }
        }
        4 => {
            let form = format!("kind = \"parking-lot\"\nhops = {count}\n");
            let links = format!("bottleneck = {{ {link} }}\naccess = {{ {access} }}\n");
            let _ = write!(text, "[topology]\n{form}{links}");
            let mut pairs = vec![between("h1".into(), format!("h{}", count + 1))];
            pairs.extend((1..=count).map(|n| between(format!("h{n}"), format!("h{}", n + 1))));
            Network { pairs, hops: count as u32 }
        }
        _ => ring(random, text, link, &access, count + 2),
    }
}

/// A ring of `count` routers with a host each; one route of the first pair may lead the long way.
fn ring(random: &mut Random, text: &mut String, link: &str, access: &str, count: u64) -> Network {
    let routers: Vec<String> = (1..=count).map(|n| format!("\"r{n}\"")).collect();
    let mut tables = format!("routers = [{}]\n", routers.join(", "));
    let next = |n: u64| n % count + 1;
    for n in 1..=count {
        let _ = write!(tables, "[[host]]\nname = \"h{n}\"\n");
        let inner = (format!("r{n}"), format!("r{}", next(n)), link);
        for (a, b, keys) in [inner, (format!("h{n}"), format!("r{n}"), access)] {
            let _ = write!(tables, "[[link]]\nbetween = [\"{a}\", \"{b}\"]\n");
            let _ = writeln!(tables, "{}", lines(keys));
        }
    }
    let around = random.chance(0.5);
    if around {
        let via = core::iter::once(1).chain((2..=count).rev()).map(|n| format!("\"r{n}\""));
        let via: Vec<String> = via.collect();
        let _ =
            write!(tables, "[[route]]\nfrom = \"h1\"\nto = \"h2\"\nvia = [{}]\n", via.join(", "));
    }
    text.push_str(&tables);
    let pairs = (1..=count).map(|n| (format!("h{n}"), format!("h{}", next(n))));
    let hops = if around { count as u32 - 1 } else { 1 };
    Network { pairs: pairs.collect(), hops }
}

/// Turns comma-separated keys into lines, except within brackets.
fn lines(keys: &str) -> String {
    let mut depth = 0;
    keys.chars()
        .map(|letter| {
            match letter {
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                _ => {}
            }
            if letter == ',' && depth == 0 { '\n' } else { letter }
        })
        .collect()
}

/// Draws a host's limits; returns their slowest rate in Mbit/s, and whether there is a disk.
fn host(random: &mut Random, text: &mut String, name: &str, mbps: u64) -> (u64, bool) {
    let slow = (mbps / 2).max(2);
    let mut keys = String::new();
    if random.chance(0.2) {
        let _ = writeln!(keys, "nic = \"{}M\"", mbps.max(1));
    }
    if random.chance(0.3) {
        let _ = writeln!(keys, "memory = \"{}\"", one_of(random, &["32MiB", "80MiB"]));
    }
    let mut least = mbps;
    let disk = random.chance(0.25);
    if disk {
        let _ = writeln!(keys, "disk-rate = \"{slow}M\"");
        if random.chance(0.5) {
            keys.push_str("disk-stall = \"200ms\"\ndisk-stall-every = \"700ms\"\n");
        }
        least = least.min(slow / 2);
    }
    if random.chance(0.25) {
        let _ = writeln!(keys, "sends-rate = \"{slow}M\"\nreceives-rate = \"{slow}M\"");
        let _ = writeln!(keys, "socket-buffer = \"{}\"", one_of(random, &["20KB", "500KB"]));
        least = least.min(slow);
    }
    // In a ring each host already has its table.
    let table = format!("[[host]]\nname = \"{name}\"\n");
    match text.find(&table) {
        Some(at) => text.insert_str(at + table.len(), &keys),
        None => text.push_str(&(table + &keys)),
    }
    (least, disk)
}

fn copy(random: &mut Random, text: &mut String, bounds: &mut Bounds) {
    let size = *one_of(random, &[1, 1_440, 1_441, 100_001, 1_000_000, 3_000_000]);
    bounds.bytes += size;
    let _ = write!(text, "size = {size}\nstart = \"{}ms\"\n", random.below(300));
    // Mostly within the capacity of path and hosts.
    let share = one_of(random, &[40, 80, 150]);
    if random.chance(0.7) {
        let kbps = (bounds.slowest * 10 * share / bounds.flows).max(200);
        let _ = writeln!(text, "rate = \"{kbps}k\"");
    }
    if random.chance(0.5) {
        text.push_str("segment = \"2MiB\"\n");
    }
}

/// Draws some of a protocol's settings: near their defaults, or at the ends or in the middle of
/// their ranges.
fn settings(random: &mut Random, text: &mut String, row: &Row, wild: bool, bounds: &mut Bounds) {
    let mut given = Vec::new();
    let fixed = OWN.iter().find(|(name, _)| *name == row.name);
    let mut timers = fixed.map_or(Span::ZERO, |(_, timer)| *timer);
    for option in row.options {
        let mut value = option.default;
        if random.chance(if wild { 0.5 } else { 0.3 }) {
            value = if wild { extreme(random, option) } else { tame(random, option) };
            given.push(format!("{} = '{}'", option.name, option.written(value)));
        }
        if SET.contains(&option.name) {
            assert_eq!(option.kind, Kind::Time, "{}", option.name);
            timers = timers + Span::from_secs_f64(value);
        }
    }
    bounds.timers = bounds.timers.max(timers);
    if !given.is_empty() {
        let _ = writeln!(text, "settings = {{ {} }}", given.join(", "));
    }
}

/// Half to twice the default, within the range of the option.
fn tame(random: &mut Random, option: &ProtocolOption) -> f64 {
    let factor = *one_of(random, &[0.5, 0.8, 1.0, 1.3, 2.0]);
    of_kind(option, (option.default * factor).clamp(option.least, option.most))
}

/// Cuts off a fraction if the option takes whole numbers.
fn of_kind(option: &ProtocolOption, value: f64) -> f64 {
    if option.kind.is_whole() { value.trunc() } else { value }
}

fn extreme(random: &mut Random, option: &ProtocolOption) -> f64 {
    let middle = (option.least.max(1e-6) * option.most).sqrt();
    let middle = middle.clamp(option.least, option.most);
    of_kind(option, *one_of(random, &[option.least, option.most, middle]))
}

fn cross_traffic(
    random: &mut Random,
    text: &mut String,
    network: &Network,
    path: &Path,
    bounds: &mut Bounds,
) {
    let mut flow = |random: &mut Random, keys: String, weight: u64| {
        let (from, to) = one_of(random, &network.pairs);
        let (from, to) = if random.chance(0.5) { (from, to) } else { (to, from) };
        let _ = write!(text, "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\n{keys}");
        bounds.flows += weight;
    };
    if random.chance(0.3) {
        let control = one_of(random, &["cubic", "newreno"]);
        let streams = 1 + random.below(4);
        let window = if random.chance(0.4) { "window = \"64KiB\"\n" } else { "" };
        let keys = format!("tcp = \"{control}\"\nstreams = {streams}\n{window}lasts = \"2s\"\n");
        flow(random, keys, streams);
    }
    if random.chance(0.3) {
        let arrivals = one_of(random, &["regular", "poisson", "in-turn"]);
        let every = if *arrivals == "in-turn" { "" } else { "every = \"20ms\"\n" };
        let keys = format!("mice = 10\nsize = \"20KB\"\narrivals = \"{arrivals}\"\n{every}");
        flow(random, keys, 1);
    }
    if random.chance(0.3) {
        let kbps = path.mbps * 1_000 / path.slows / 10;
        let bursts = match random.chance(0.6) {
            true => format!("on = \"50ms\"\noff = \"30ms\"\nrandom = {}\n", random.chance(0.5)),
            false => String::new(),
        };
        let end = one_of(random, &["lasts = \"1s\"\n", "size = 50000\n", ""]);
        flow(random, format!("udp = \"{kbps}k\"\n{bursts}{end}"), 1);
    }
}
