//! Hosts, routers, links, routes and topology of a scenario file.

use std::collections::BTreeMap;

use longhaul_proto::time::Span;

use super::links::Layers;
use super::section::{FileError, Section, nearest};
use super::{File, Places, hosts, keys};
use crate::scenario::topology::{Duplex, Topology};
use crate::scenario::{Host, LinkBetween, MAX_LINKS, MAX_NODES, Network, Place, Route};

pub(super) struct Parts<'a> {
    pub(super) hosts: Vec<Host>,
    pub(super) network: Network,
    pub(super) places: Places,
    all_links: Option<Section<'a>>,
}

impl<'a> File<'a> {
    pub(super) fn network(&self) -> Result<Parts<'a>, FileError> {
        let all_links = self.whole.table("all-links", "[all-links]", &[keys::LINK])?;
        let (network, places) = (Network::default(), Places::new());
        let mut parts = Parts { hosts: Vec::new(), network, places, all_links };
        if let Some(table) = self.whole.table("topology", "[topology]", &[keys::TOPOLOGY])? {
            self.topology(&table, &mut parts)?;
        }
        self.hosts(&mut parts)?;
        self.links(&mut parts)?;
        self.routes(&mut parts)?;
        Ok(parts)
    }

    fn topology(&self, table: &Section<'a>, parts: &mut Parts<'a>) -> Result<(), FileError> {
        let topology = self.form(table, parts)?;
        if topology.nodes() > MAX_NODES {
            let what = format!("{} hosts and routers; at most {MAX_NODES}", topology.nodes());
            return Err(table.source.error(&table.extent, what));
        }
        let (names, network) = topology.build();
        parts.hosts = names.into_iter().map(Host::new).collect();
        parts.network = network;
        let hosts = (0..parts.hosts.len()).map(Place::Host);
        let routers = (0..parts.network.routers.len()).map(Place::Router);
        let links = (0..parts.network.links.len()).map(Place::Link);
        let all = hosts.chain(routers).chain(links);
        parts.places.extend(all.map(|place| (place, table.extent.clone())));
        Ok(())
    }

    fn form(&self, table: &Section<'a>, parts: &Parts<'a>) -> Result<Topology, FileError> {
        let forms: [(&str, &[&str]); 4] = [
            ("pair", &["link"]),
            ("dumbbell", &["left", "right", "bottleneck", "access", "access-delays"]),
            ("star", &["hosts", "access", "access-delays"]),
            ("parking-lot", &["hops", "bottleneck", "access", "access-delays"]),
        ];
        let words = forms.map(|form| (form.0, form));
        let (kind, used) = table.word("kind", &words)?.ok_or_else(|| table.missing("kind"))?;
        let foreign = |key: &str| key != "kind" && !used.contains(&key);
        if let Some((key, value)) = table.entries().find(|(key, _)| foreign(key)) {
            let what = format!("'{key}' has no effect on a {kind}");
            let error = table.source.error(&value.span(), what);
            return Err(error.advise(format!("keys of a {kind}: {}", used.join(", "))));
        }
        let count = |key: &str| -> Result<usize, FileError> {
            let count: usize = table.count(key)?.ok_or_else(|| table.missing(key))?;
            if count == 0 || count > MAX_NODES {
                let what = format!("'{key}' is {count}; it can be 1 to {MAX_NODES}");
                return Err(table.error(key, what));
            }
            Ok(count)
        };
        let duplex = |key: &str, delay| self.topology_link(table, parts, key, delay);
        let access = || -> Result<Vec<Duplex>, FileError> {
            let delays = table.spans("access-delays")?;
            if delays.len() > MAX_NODES {
                return Err(table.error("access-delays", format!("more than {MAX_NODES} delays")));
            }
            let none = delays.is_empty().then_some(None);
            let own = none.into_iter().chain(delays.into_iter().map(Some));
            own.map(|delay| duplex("access", delay)).collect()
        };
        Ok(match kind {
            "pair" => Topology::Pair(duplex("link", None)?),
            "dumbbell" => {
                let (left, right) = (count("left")?, count("right")?);
                let bottleneck = duplex("bottleneck", None)?;
                Topology::Dumbbell { left, right, bottleneck, access: access()? }
            }
            "star" => Topology::Star { hosts: count("hosts")?, access: access()? },
            _ => {
                let (hops, bottleneck) = (count("hops")?, duplex("bottleneck", None)?);
                Topology::ParkingLot { hops, bottleneck, access: access()? }
            }
        })
    }

    fn topology_link(
        &self,
        table: &Section<'a>,
        parts: &Parts<'a>,
        key: &str,
        delay: Option<Span>,
    ) -> Result<Duplex, FileError> {
        let own = table.table(key, "a link of [topology]", &[keys::LINK, &["back"]])?;
        let back = own.as_ref().map(|own| own.table("back", "back", &[keys::LINK]));
        let back = back.transpose()?.flatten();
        let layers = [parts.all_links.as_ref(), own.as_ref()];
        let mut layers = Layers::new(layers, &self.shared);
        layers.delay = delay;
        layers.duplex(back.as_ref())
    }

    fn hosts(&self, parts: &mut Parts<'a>) -> Result<(), FileError> {
        let whole = &self.whole;
        let all = whole.table("all-hosts", "[all-hosts]", &[&keys::HOST[1..]])?;
        let mut named = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (place, host) in parts.hosts.iter().enumerate() {
            places.insert(host.name.clone(), place);
        }
        let from_topology = parts.hosts.len();
        for value in whole.list("host")? {
            let table = Section::new(whole.source, "[[host]]", value, &[keys::HOST])?;
            let name = table.text("name")?.ok_or_else(|| table.missing("name"))?;
            let place = match places.get(name) {
                Some(place) if *place < from_topology => *place,
                // The final validation finds duplicate names.
                _ => {
                    parts.hosts.push(Host::new(name));
                    parts.hosts.len() - 1
                }
            };
            places.insert(name.to_owned(), place);
            parts.places.insert(Place::Host(place), table.extent.clone());
            named.push((place, table));
            if parts.hosts.len() > MAX_NODES {
                let what = format!("more than {MAX_NODES} hosts");
                return Err(whole.source.error(&value.span(), what));
            }
        }
        // Hosts are numbered before routers, so added hosts shift the numbers of the routers.
        let added = parts.hosts.len() - from_topology;
        for link in &mut parts.network.links {
            for end in [&mut link.from, &mut link.to] {
                *end += if *end >= from_topology { added } else { 0 };
            }
        }
        if let Some(all) = &all {
            parts.hosts.iter_mut().try_for_each(|host| hosts::describe(host, all))?;
        }
        for (place, table) in &named {
            hosts::describe(&mut parts.hosts[*place], table)?;
        }
        for (name, extent) in whole.texts("routers")? {
            let place = Place::Router(parts.network.routers.len());
            parts.places.insert(place, extent);
            parts.network.routers.push(name.to_owned());
        }
        Ok(())
    }

    fn links(&self, parts: &mut Parts<'a>) -> Result<(), FileError> {
        let whole = &self.whole;
        let names = Names::of(&parts.hosts, &parts.network.routers);
        for value in whole.list("link")? {
            let known = &[keys::LINK_ENDS, keys::LINK];
            let table = Section::new(whole.source, "[[link]]", value, known)?;
            let layers = [parts.all_links.as_ref(), Some(&table)];
            let layers = Layers::new(layers, &self.shared);
            let one_way = table.has("from") || table.has("to");
            if one_way == table.has("between") {
                let what = "a link needs 'between' for both directions, or 'from' and 'to' for one";
                return Err(whole.source.error(&table.extent, what));
            }
            if one_way && table.has("back") {
                return Err(table.error("back", "a link in one direction has no 'back'"));
            }
            let links = &mut parts.network.links;
            if one_way {
                let end = |key: &str| {
                    let name = table.text(key)?.ok_or_else(|| table.missing(key))?;
                    names.find(name).map_err(|what| table.error(key, what))
                };
                let (from, to) = (end("from")?, end("to")?);
                parts.places.insert(Place::Link(links.len()), table.extent.clone());
                links.push(LinkBetween { from, to, link: layers.one_way()? });
            } else {
                let ends = names.find_all(&table, "between")?;
                let [a, b] = ends[..] else {
                    return Err(table.error("between", "a link is between two nodes"));
                };
                let back = table.table("back", "back", &[keys::LINK])?;
                let duplex = layers.duplex(back.as_ref())?;
                for (from, to, link) in [(a, b, duplex.forward), (b, a, duplex.back)] {
                    parts.places.insert(Place::Link(links.len()), table.extent.clone());
                    links.push(LinkBetween { from, to, link });
                }
            }
            if links.len() > MAX_LINKS {
                let what = format!("more than {MAX_LINKS} links");
                return Err(whole.source.error(&value.span(), what));
            }
        }
        Ok(())
    }

    fn routes(&self, parts: &mut Parts<'a>) -> Result<(), FileError> {
        let names = Names::of(&parts.hosts, &parts.network.routers);
        for value in self.whole.list("route")? {
            let table = Section::new(self.whole.source, "[[route]]", value, &[keys::ROUTE])?;
            let end = |key: &str| {
                let name = table.text(key)?.ok_or_else(|| table.missing(key))?;
                names.find(name).map_err(|what| table.error(key, what))
            };
            let route =
                Route { from: end("from")?, to: end("to")?, via: names.find_all(&table, "via")? };
            let place = Place::Route(parts.network.routes.len());
            parts.places.insert(place, table.extent.clone());
            parts.network.routes.push(route);
        }
        Ok(())
    }
}

struct Names(BTreeMap<String, usize>);

impl Names {
    fn of(hosts: &[Host], routers: &[String]) -> Names {
        let names = hosts.iter().map(|host| &host.name).chain(routers);
        Names(names.cloned().zip(0..).collect())
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        self.0.get(name).copied().ok_or_else(|| {
            let near = nearest(name, self.0.keys().map(String::as_str));
            let near = near.map_or(String::new(), |near| format!("; did you mean '{near}'?"));
            format!("no host or router is named '{name}'{near}")
        })
    }

    fn find_all(&self, table: &Section<'_>, key: &str) -> Result<Vec<usize>, FileError> {
        let found = table.texts(key)?.into_iter().map(|(name, extent)| {
            self.find(name).map_err(|what| table.source.error(&extent, what))
        });
        found.collect()
    }
}
