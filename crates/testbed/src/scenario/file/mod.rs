//! Scenarios as TOML files.
//!
//! Quantities are written as in flags (`"1G"`, `"100ms"`, `"0.1%"`). An error names the line and,
//! for a mistyped word, the nearest valid word. In reading order: `keys` (all valid keys),
//! `section` (a table), then `hosts`, `links`, `network`, `flows`, and `settings` (the caller's
//! values).

mod flows;
mod hosts;
mod keys;
mod links;
mod network;
mod section;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use longhaul_proto::time::Span;
use toml::de::DeTable;

pub use section::FileError;

use links::Shared;
use network::Parts;
use section::{Extent, Section, Source};

use super::{DEFAULT_MTU, MAX_FLOWS, Place, Record, Scenario};

/// What a reader needs besides the text.
pub struct Reading<'r> {
    /// Overrides: a path, such as `flow.0.rate`, and the new value.
    pub settings: &'r [(String, String)],
    /// Returns the text of a trace that the file names.
    pub trace: &'r dyn Fn(&str) -> Result<String, String>,
}

impl Reading<'_> {
    /// Only the text: no settings, no traces.
    pub const PLAIN: Reading<'static> =
        Reading { settings: &[], trace: &|_| Err("no trace can be read here".into()) };
}

impl Scenario {
    /// Reads the scenario called `name` from the text of its file.
    ///
    /// # Errors
    /// The first error: in the TOML syntax, a key or a value, or from [`Scenario::validate`].
    pub fn parse(name: &str, text: &str, reading: &Reading<'_>) -> Result<Scenario, FileError> {
        let source = Source(text);
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0..1, |span| span.start..span.end.max(span.start + 1));
            source.error(&at, error.message())
        })?;
        let mut table = table.into_inner();
        for (path, value) in reading.settings {
            settings::set(&mut table, path, value)?;
        }
        let title = "the scenario";
        let whole = Section::of_table(source, title, 0..1, &table, &[keys::WHOLE])?;
        let (scenario, places) = {
            let mtu = whole.count("mtu")?.unwrap_or(DEFAULT_MTU);
            File { whole, shared: Shared::new(reading, mtu) }.read(name)?
        };
        scenario.validate().map_err(|fault| {
            let at = places.get(&fault.place).cloned().unwrap_or(0..0);
            source.error(&at, fault.what)
        })?;
        Ok(scenario)
    }
}

type Places = BTreeMap<Place, Extent>;

struct File<'a> {
    whole: Section<'a>,
    shared: Shared<'a>,
}

impl<'a> File<'a> {
    fn read(&self, name: &str) -> Result<(Scenario, Places), FileError> {
        let whole = &self.whole;
        let Parts { hosts, network, mut places, .. } = self.network()?;
        let sections = [
            (Place::Mtu, "mtu"),
            (Place::TimeLimit, "time-limit"),
            (Place::Record, "record-every"),
        ];
        places.extend(sections.map(|(place, key)| (place, whole.extent_of(key))));
        let mut scenario = Scenario {
            name: name.to_owned(),
            about: whole.text("about")?.unwrap_or_default().to_owned(),
            seed: whole.count("seed")?.unwrap_or(1),
            time_limit: whole.span("time-limit")?.unwrap_or(Span::from_secs(600)),
            mtu: self.shared.mtu,
            hosts,
            network,
            flows: Vec::new(),
            record: Record { interval: whole.span("record-every")? },
        };
        let names: Vec<&str> = scenario.hosts.iter().map(|host| host.name.as_str()).collect();
        let carriers = keys::CARRIERS.iter();
        let mut known = vec![keys::FLOW];
        let first: Vec<&str> = carriers.clone().map(|(name, _)| *name).collect();
        known.push(&first);
        known.extend(carriers.map(|(_, keys)| *keys));
        for (nth, value) in whole.list("flow")?.iter().enumerate() {
            let entry = Section::new(whole.source, "[[flow]]", value, &known)?;
            for flow in flows::flows(&entry, &names, nth)? {
                let place = Place::Flow(scenario.flows.len());
                places.insert(place, entry.extent.clone());
                scenario.flows.push(flow);
            }
            if scenario.flows.len() > MAX_FLOWS {
                let what = format!("more than {MAX_FLOWS} flows");
                return Err(whole.source.error(&entry.extent, what));
            }
        }
        Ok((scenario, places))
    }
}
