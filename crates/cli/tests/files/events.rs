//! docs/events.md lists the events and fields of `--json` output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::rig::{Ended, Host, Pair, bytes, write};

/// The fields of each event, by section of the page.
struct Page(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn quoted(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

impl Page {
    fn read() -> Page {
        let page = fs::read_to_string(root().join("docs/events.md")).expect("the page is there");
        let (mut sections, mut section) = (BTreeMap::new(), String::new());
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = heading.to_owned();
            } else if let Some(row) = line.strip_prefix("| `") {
                let cells: Vec<&str> = row.split(" |").collect();
                let [event, _, fields, ""] = cells[..] else { panic!("three cells: {row}") };
                let event = event.trim_end_matches('`').to_owned();
                let events: &mut BTreeMap<_, BTreeSet<_>> =
                    sections.entry(section.clone()).or_default();
                // A section may have several rows for an event, one for each command.
                events.entry(event).or_default().extend(quoted(fields));
            }
        }
        let mut page = Page(sections);
        page.fields("Copies", "summary").extend(summary_of_copies());
        let of_path = page.fields("Probes", "path").clone();
        page.fields("Probes", "summary").extend(of_path);
        page
    }

    fn fields(&mut self, section: &str, event: &str) -> &mut BTreeSet<String> {
        let events = self.0.get_mut(section).unwrap_or_else(|| panic!("no section {section}"));
        events.get_mut(event).unwrap_or_else(|| panic!("{section} has no {event}"))
    }

    /// Each line must be an event of one of `sections` with only listed fields, and one line must
    /// be `summary`, `error` or `ready`.
    fn holds<'a>(
        &self,
        sections: &[&str],
        lines: impl IntoIterator<Item = &'a String>,
    ) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        for line in lines {
            let value: Value = serde_json::from_str(line).expect("each line is JSON");
            let event = value["event"].as_str().unwrap_or_else(|| panic!("no event: {line}"));
            let known = sections.iter().find_map(|section| self.0[*section].get(event));
            let known = known.unwrap_or_else(|| panic!("{event} is not on the page: {line}"));
            for field in value.as_object().expect("an event is an object").keys() {
                assert!(
                    field == "event" || known.contains(field),
                    "{event} has the unlisted field {field}: {line}"
                );
            }
            seen.insert(event.to_owned());
        }
        let last = lines_end(&seen);
        assert!(last, "no summary, error or ready event: {seen:?}");
        seen
    }
}

fn lines_end(seen: &BTreeSet<String>) -> bool {
    ["summary", "error", "ready"].iter().any(|event| seen.contains(*event))
}

fn summary_of_copies() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/running.md")).expect("the page is there");
    let (_, table) = page.split_once("\nThe summary:\n").expect("the page has the summary");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.flat_map(|row| {
        let names = row.split(" | ").next().unwrap_or_default();
        quoted(&format!("`{names}")).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn every_event_of_cp_ls_probe_and_serve_is_on_the_page_with_all_its_fields() {
    let page = Page::read();
    let mut pair = Pair::new();
    write(&pair.here.join("tree/a"), &bytes(3 << 20, 1));
    std::os::unix::fs::symlink("a", pair.here.join("tree/l")).expect("a new link");
    let copies = ["Copies", "Sessions"];
    let there = pair.at("tree");
    let copy = |args: &[&dyn AsRef<std::ffi::OsStr>]| -> Ended { pair.cp(args) };
    let made = copy(&[&"-rvv", &"--series", &"tree", &there]);
    let seen = page.holds(&copies, &made.stdout);
    for event in ["start", "connected", "progress", "sample", "file", "link", "summary"] {
        assert!(seen.contains(event), "{event}: {made}");
    }
    let again = page.holds(&copies, &copy(&[&"-rvv", &"tree/", &there]).stdout);
    assert!(again.contains("skipped"), "{again:?}");
    let failed = page.holds(&copies, &copy(&[&"none", &there]).stdout);
    assert!(failed.contains("error"), "{failed:?}");

    let id = format!("--server-id={}", pair.server.id);
    let ls = |host: &Host, path: &str| {
        let location = pair.at(path);
        let mut words: Vec<std::ffi::OsString> = ["ls", "--json", &id].map(Into::into).into();
        words.push(location);
        host.run(words)
    };
    let listed = ls(&pair.client, "tree");
    let seen = page.holds(&["Listings", "Sessions"], &listed.stdout);
    assert_eq!(seen, ["name", "summary"].map(str::to_owned).into(), "{listed}");
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    let refused = page.holds(&["Listings", "Sessions"], &ls(&stranger, "").stdout);
    assert!(refused.contains("error"), "{refused:?}");
    let host = format!("lh://{}", pair.server.address);
    let words = ["probe", "--json", &id, "--udp", "--rate=10M", "--time=10ms", &host];
    let probed = pair.client.run(words);
    let seen = page.holds(&["Probes", "Sessions"], &probed.stdout);
    assert!(seen.contains("measured") && seen.contains("path"), "{probed}");

    pair.server.child().signal(rustix::process::Signal::TERM);
    let served = pair.server.into_child().end();
    let seen = page.holds(&["Servers"], &served.stdout);
    assert_eq!(seen, ["asked", "ended", "ready", "refused"].map(str::to_owned).into(), "{served}");
}

#[test]
fn the_page_and_the_source_have_the_same_events() {
    let mut written = BTreeSet::new();
    for file in [
        "json.rs",
        "live.rs",
        "ls.rs",
        "mount.rs",
        "path.rs",
        "probe.rs",
        "serve.rs",
        "doctor.rs",
        "share.rs",
        "share/lines.rs",
        "stream/lines.rs",
        "channel/lines.rs",
    ] {
        let text =
            fs::read_to_string(root().join("crates/cli/src").join(file)).expect("it is there");
        let text = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        for start in ["\"event\": \"", "[\"event\"] = \"", "of_path(\"", " of(\"", "event: \""] {
            let found = text.split(start).skip(1).filter_map(|rest| rest.split('"').next());
            written.extend(found.map(str::to_owned));
        }
    }
    // `other` stands for events of a newer library.
    written.remove("other");
    // The patterns above do not find `finding`.
    written.insert("finding".to_owned());
    let page: BTreeSet<String> =
        Page::read().0.into_values().flat_map(BTreeMap::into_keys).collect();
    assert_eq!(page, written);
}
