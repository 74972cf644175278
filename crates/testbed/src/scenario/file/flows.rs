//! Flows of a scenario file.

use std::collections::BTreeMap;

use longhaul_proto::law::{Law, Weight};
use longhaul_proto::rbudp::TAIL_COPIES;
use longhaul_proto::registry::{self, Row};
use longhaul_proto::settings::{SettingError, Settings};
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::Rate;

use super::keys;
use super::section::{FileError, Section, list};
use crate::scenario::{
    Amount, Arrivals, Congestion, Flow, MAX_FLOWS, Mice, Strategy, Tcp, Traffic, Transfer, Udp,
};

/// Maximum number of settings of a flow.
const MAX_SETTINGS: usize = 64;
/// Maximum bytes of a name or a command.
const MAX_TEXT: usize = 4_096;

const CONGESTION: [(&str, Congestion); 3] =
    [("newreno", Congestion::NewReno), ("cubic", Congestion::Cubic), ("bbr", Congestion::Bbr)];
const STRATEGY: [(&str, Strategy); 3] =
    [("naive", Strategy::Naive), ("scatter", Strategy::Scatter), ("fake", Strategy::Fake)];

/// Returns the flows of the entry at position `nth` (from 0): the key `copies` gives their number
/// for each pair of `hosts` that matches the keys `from` and `to`.
pub(super) fn flows(
    entry: &Section<'_>,
    hosts: &[&str],
    nth: usize,
) -> Result<Vec<Flow>, FileError> {
    let carrier = carrier(entry)?;
    for key in ["name", "protocol", "command"] {
        if entry.text(key)?.is_some_and(|text| text.len() > MAX_TEXT) {
            return Err(entry.error(key, format!("'{key}' has more than {MAX_TEXT} bytes")));
        }
    }
    let traffic = traffic(entry, carrier)?;
    let amount = amount(entry, carrier)?;
    let ends = ends(entry, carrier, hosts)?;
    let copies: usize = entry.count("copies")?.unwrap_or(1);
    let all = ends.len().saturating_mul(copies);
    if all == 0 || all > MAX_FLOWS {
        return Err(entry.error("copies", format!("{all} flows; there can be 1 to {MAX_FLOWS}")));
    }
    let start = Time::ZERO + entry.span("start")?.unwrap_or(Span::ZERO);
    let apart = entry.span("apart")?.unwrap_or(Span::ZERO);
    let base = entry.text("name")?.map_or_else(|| format!("flow{}", nth + 1), str::to_owned);
    let mut flows = Vec::new();
    for Ends { from, to, varied } in &ends {
        for copy in 1..=copies {
            let mut name = base.clone();
            if ends.len() > 1 {
                name += &format!("-{varied}");
            }
            if copies > 1 {
                name += &format!("-{copy}");
            }
            let start = start + apart * flows.len() as u64;
            let (from, to, traffic) = (*from, *to, traffic.clone());
            flows.push(Flow { name, from, to, start, amount, traffic });
        }
    }
    Ok(flows)
}

fn carrier(entry: &Section<'_>) -> Result<&'static str, FileError> {
    let names = || keys::CARRIERS.iter().map(|(name, _)| *name);
    let given: Vec<&'static str> = names().filter(|name| entry.has(name)).collect();
    let [carrier] = given[..] else {
        let found = if given.is_empty() { "none".into() } else { list(given.iter().copied()) };
        let what = format!("a flow has one of {}; this flow has {found}", list(names()));
        return Err(entry.source.error(&entry.extent, what));
    };
    let belongs = |key: &str| {
        let of = |name: &str| keys::CARRIERS.iter().find(|(other, _)| *other == name);
        key == carrier
            || keys::FLOW.contains(&key)
            || of(carrier).is_some_and(|c| c.1.contains(&key))
    };
    if let Some((key, value)) = entry.entries().find(|(key, _)| !belongs(key)) {
        let owners = keys::CARRIERS.iter().filter(|(_, keys)| keys.contains(&key));
        let owners = list(owners.map(|(name, _)| *name));
        let what = format!("'{key}' has no effect on a flow by {carrier}");
        let error = entry.source.error(&value.span(), what);
        return Err(error.advise(format!("it belongs to a flow by {owners}")));
    }
    Ok(carrier)
}

struct Ends<'h> {
    from: usize,
    to: usize,
    /// The name of the host that differs from flow to flow.
    varied: &'h str,
}

fn ends<'h>(
    entry: &Section<'_>,
    carrier: &str,
    hosts: &[&'h str],
) -> Result<Vec<Ends<'h>>, FileError> {
    let matches = |key: &str, name: &str| -> Result<Vec<usize>, FileError> {
        let fits = |host: &str| match name.strip_suffix('*') {
            Some(start) => host.starts_with(start),
            None => host == name,
        };
        let found: Vec<usize> = (0..hosts.len()).filter(|host| fits(hosts[*host])).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let error = entry.error(key, format!("no host is named '{name}'"));
        Err(match super::section::nearest(name, hosts.iter().copied()) {
            Some(near) => error.advise(format!("did you mean '{near}'?")),
            None => error,
        })
    };
    let from = entry.text("from")?.ok_or_else(|| entry.missing("from"))?;
    let to = match entry.text("to")? {
        Some(to) => to,
        None if carrier == "command" => from,
        None => return Err(entry.missing("to")),
    };
    let (senders, receivers) = (matches("from", from)?, matches("to", to)?);
    if !from.ends_with('*') && !to.ends_with('*') {
        let (from, to) = (senders[0], receivers[0]);
        return Ok(vec![Ends { from, to, varied: hosts[from] }]);
    }
    let pairs: Vec<(usize, usize)> = match (senders.as_slice(), receivers.as_slice()) {
        (all, [one]) => all.iter().map(|from| (*from, *one)).collect(),
        ([one], all) => all.iter().map(|to| (*one, *to)).collect(),
        (a, b) if a.len() == b.len() => a.iter().copied().zip(b.iter().copied()).collect(),
        (a, b) => {
            let what = format!("{} senders and {} receivers cannot be paired", a.len(), b.len());
            return Err(entry.error("to", what));
        }
    };
    let flow = |(from, to): (usize, usize)| {
        let varied = hosts[if senders.len() > 1 { from } else { to }];
        Ends { from, to, varied }
    };
    // A pattern may also match the host at the other end: leave out flows from a host to itself.
    let apart = pairs.into_iter().filter(|(from, to)| carrier == "command" || from != to);
    Ok(apart.map(flow).collect())
}

fn amount(entry: &Section<'_>, carrier: &str) -> Result<Amount, FileError> {
    match (entry.bytes("size")?, entry.span("lasts")?) {
        (Some(_), Some(_)) => {
            Err(entry.error("lasts", "a flow has a 'size' or it 'lasts', not both"))
        }
        (Some(size), None) => Ok(Amount::Size(size)),
        (None, Some(span)) => Ok(Amount::Lasts(span)),
        (None, None) if carrier == "mice" => Err(entry.missing("size")),
        (None, None) => Ok(Amount::Endless),
    }
}

fn traffic(entry: &Section<'_>, carrier: &str) -> Result<Traffic, FileError> {
    match carrier {
        "protocol" => protocol(entry).map(Traffic::Protocol),
        "tcp" => {
            let congestion = entry.word("tcp", &CONGESTION)?.unwrap_or_default();
            let streams = entry.count("streams")?.unwrap_or(1);
            tcp(entry, congestion, streams).map(Traffic::Tcp)
        }
        "udp" => {
            let bursts = match (entry.span("on")?, entry.span("off")?) {
                (Some(on), Some(off)) => Some((on, off)),
                (None, None) => None,
                (Some(_), None) => return Err(entry.missing("off")),
                (None, Some(_)) => return Err(entry.missing("on")),
            };
            Ok(Traffic::Udp(Udp {
                rate: entry.rate("udp")?.unwrap_or(Rate::ZERO),
                datagram: entry.count("datagram")?,
                bursts,
                random: entry.flag("random")?.unwrap_or(false),
            }))
        }
        "mice" => mice(entry).map(Traffic::Mice),
        _ => Ok(Traffic::Command(entry.text("command")?.unwrap_or_default().to_owned())),
    }
}

fn protocol(entry: &Section<'_>) -> Result<Transfer, FileError> {
    let rows: Vec<(&str, &Row)> = registry::all().iter().map(|row| (row.name, row)).collect();
    let row = entry.word("protocol", &rows)?.ok_or_else(|| entry.missing("protocol"))?;
    let tail_copies: Option<u32> = entry.count("tail-copies")?;
    if let Some(count) = tail_copies {
        check_setting(row, TAIL_COPIES.name, f64::from(count))
            .map_err(|error| entry.error("tail-copies", error.to_string()))?;
    }
    let share = |text: &str| text.parse::<Weight>().map_err(String::from);
    let share = entry.quantity("share", share)?;
    Ok(Transfer {
        protocol: row.name.to_owned(),
        rate: entry.rate("rate")?,
        law: entry.word("law", &Law::ALL)?.unwrap_or_default(),
        share,
        remembered: entry.rate("remembered")?,
        remembered_loss: entry.ratio("remembered-loss")?.unwrap_or_default(),
        segment: entry.bytes("segment")?,
        block: entry.count("block")?,
        tail_copies,
        receive: entry.word("receive", &STRATEGY)?,
        ordered_control: entry.flag("ordered-control")?.unwrap_or(false),
        reorder_buffer: entry.bytes("reorder-buffer")?,
        reads_disk: entry.flag("reads-disk")?.unwrap_or(false),
        writes_disk: entry.flag("writes-disk")?.unwrap_or(false),
        settings: settings(entry, row)?,
    })
}

fn settings(entry: &Section<'_>, row: &'static Row) -> Result<BTreeMap<String, f64>, FileError> {
    let mut settings = BTreeMap::new();
    let Some(value) = entry.value("settings") else { return Ok(settings) };
    let Some(table) = value.get_ref().as_table() else {
        return Err(entry.error("settings", "'settings' must be a table of names and values"));
    };
    if table.len() > MAX_SETTINGS {
        return Err(entry.error("settings", format!("more than {MAX_SETTINGS} settings")));
    }
    let given: Vec<&str> = table.keys().map(|key| &**key.get_ref()).collect();
    let section = Section::of_table(entry.source, "settings", value.span(), table, &[&given])?;
    for (key, name) in table.keys().zip(given.iter().copied()) {
        let option = row.option(name).map_err(|error| {
            let error = entry.source.error(&key.span(), error.to_string());
            let known = row.options.iter().map(|option| option.name);
            error.among(name, known, "its settings")
        })?;
        let Some(number) = section.setting(name, |text| option.parse(text))? else { continue };
        // A value of `--sweep` has no place in the file (an empty extent). Ignore an error in such
        // a value, because the other values must still run.
        if let Err(error) = check_setting(row, name, number)
            && !section.extent_of(name).is_empty()
        {
            return Err(section.error(name, error.to_string()));
        }
        settings.insert(name.to_owned(), number);
    }
    Ok(settings)
}

fn check_setting(row: &'static Row, name: &str, number: f64) -> Result<(), SettingError> {
    Settings::default().with(row, name, number).map(drop)
}

fn tcp(entry: &Section<'_>, congestion: Congestion, streams: u32) -> Result<Tcp, FileError> {
    Ok(Tcp {
        streams,
        congestion,
        window: entry.bytes("window")?,
        initial_window: entry.count("initial-window")?.unwrap_or(Tcp::DEFAULT_INITIAL_WINDOW),
    })
}

fn mice(entry: &Section<'_>) -> Result<Mice, FileError> {
    let words = [("regular", 0), ("poisson", 1), ("in-turn", 2)];
    let arrivals = entry.word("arrivals", &words)?.unwrap_or(0);
    let every = entry.span("every")?;
    let arrivals = match (arrivals, every) {
        (2, None) => Arrivals::InTurn,
        (2, Some(_)) => {
            let what =
                "with arrivals 'in-turn', each connection waits for the previous one: omit 'every'";
            return Err(entry.error("every", what));
        }
        (_, None) => return Err(entry.missing("every")),
        (1, Some(every)) => Arrivals::Poisson(every),
        (_, Some(every)) => Arrivals::Regular(every),
    };
    let congestion = entry.word("congestion", &CONGESTION)?.unwrap_or_default();
    let count = entry.count("mice")?.unwrap_or(0);
    Ok(Mice { count, arrivals, tcp: tcp(entry, congestion, 1)? })
}
