//! The scenarios of experiments: files of `scenarios/`, which the binary contains, and their
//! variations for single cases.

use std::fmt::Display;

use longhaul_proto::time::Time;
use longhaul_testbed::scenario::{FileError, Flow, Reading, Scenario};

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../scenarios/", $name, ".toml")))),*]
    };
}

/// The embedded scenario files: name without `.toml`, and text.
const FILES: &[(&str, &str)] = files!(
    "auto-grid"
    "compare-1g" "compare-1g-bbr"
    "fobs-fig1" "fobs-fig3" "fobs-table1" "fobs-table2"
    "gtp-beside" "gtp-delay-control" "gtp-fig1" "gtp-fig10" "gtp-fig11" "gtp-fig12" "gtp-fig7"
    "gtp-fig8" "gtp-fig9" "gtp-scale"
    "gtp-table2" "gtp-table3" "gtp-table4" "gtp-table5"
    "gtp-table5-clumps"
    "many-receivers" "path-memory"
    "ornl-cern" "ornl-cern-worst" "ornl-file" "ornl-internet" "ornl-lbl" "ornl-memory"
    "ornl-reorder"
    "quanta-fig5" "quanta-fig6" "quanta-fig7" "quanta-first-version" "quanta-streaming"
    "sabul-fig2" "sabul-fig3" "sabul-fig4" "sabul-fig5" "sabul-fig6" "sabul-fig7"
    "sabul-table2" "sabul-tcp" "sabul-tcp-pair"
    "sim-vs-emulator"
);

/// A file of `scenarios/`, with the changes for one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The file's name without `.toml`.
    pub file: &'static str,
    /// Changed keys of the file and their values, as for `longhaul sim --sweep`.
    pub settings: Vec<(String, String)>,
    /// The names of the flows to run; empty for all. If an entry of the file defines several flows,
    /// the name of the entry selects them.
    pub only: Vec<String>,
}

pub(crate) fn vary(file: &'static str) -> Variant {
    Variant { file, settings: Vec::new(), only: Vec::new() }
}

pub(crate) fn text(file: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| *name == file).map(|(_, text)| *text)
}

impl Variant {
    /// Sets `key` to `value`.
    pub fn set(mut self, key: &str, value: impl Display) -> Variant {
        self.settings.push((key.to_owned(), value.to_string()));
        self
    }

    /// Runs only these flows, and moves their starts so that the earliest flow starts immediately.
    pub fn only(self, flows: &[&str]) -> Variant {
        Variant { only: flows.iter().map(|&flow| flow.to_owned()).collect(), ..self }
    }

    /// Builds the scenario.
    ///
    /// # Errors
    /// The file is missing or invalid, a changed key or its value is invalid, or the file lacks a
    /// selected flow.
    pub fn scenario(&self) -> Result<Scenario, FileError> {
        let wrong = |what: String| FileError { line: None, what, advice: None };
        let text =
            text(self.file).ok_or_else(|| wrong(format!("no scenario is named {}", self.file)))?;
        let reading = Reading { settings: &self.settings, ..Reading::PLAIN };
        let mut scenario = Scenario::parse(self.file, text, &reading)?;
        if self.only.is_empty() {
            return Ok(scenario);
        }
        let missing = self.only.iter().find(|name| !scenario.flows.iter().any(|f| is_of(f, name)));
        if let Some(name) = missing {
            return Err(wrong(format!("{} has no flow {name}", self.file)));
        }
        scenario.flows.retain(|flow| self.only.iter().any(|name| is_of(flow, name)));
        let first = scenario.flows.iter().map(|flow| flow.start).min().unwrap_or(Time::ZERO);
        for flow in &mut scenario.flows {
            flow.start = Time::ZERO + flow.start.since(first);
        }
        Ok(scenario)
    }
}

/// Whether `flow` is called `name`, or is one of the several flows (called `name-…`) of the entry
/// `name`.
fn is_of(flow: &Flow, name: &str) -> bool {
    let rest = flow.name.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::catalogue;

    #[test]
    fn every_scenario_of_the_folder_parses() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("it can be read");
            let scenario = Scenario::parse(&name, &text, &Reading::PLAIN);
            let scenario = scenario.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!scenario.about.is_empty() && !scenario.flows.is_empty(), "{name}");
        }
    }

    #[test]
    fn all_experiments_but_quanta_fec_use_scenarios_and_every_embedded_scenario_is_used() {
        let mut used = BTreeSet::new();
        for experiment in catalogue::all() {
            let files = experiment.files();
            // The experiment `quanta-fec` has no scenario.
            let is_free = experiment.id == "quanta-fec";
            assert!(is_free || !files.is_empty(), "{} has no scenario", experiment.id);
            used.extend(files);
        }
        assert_eq!(used, FILES.iter().map(|(name, _)| *name).collect());
    }

    #[test]
    fn a_variant_accepts_a_changed_key_and_leaves_flows_out() {
        let scenario = vary("gtp-fig11").only(&["tcp1", "tcp2"]).set("flow.tcp1.lasts", "5s");
        let flows = scenario.scenario().unwrap().flows;
        let starts: Vec<u64> =
            flows.iter().map(|flow| flow.start.since(Time::ZERO).as_nanos()).collect();
        // In the file, the second flow starts 10 s after the first.
        assert_eq!(starts, [0, 10_000_000_000]);
        let three = vary("gtp-table4").only(&["gtp"]).scenario().unwrap();
        let names: Vec<&str> = three.flows.iter().map(|flow| &*flow.name).collect();
        assert_eq!(names, ["gtp-s1", "gtp-s2", "gtp-s3"]);
    }

    #[test]
    fn a_variant_with_an_unknown_file_flow_or_key_or_an_invalid_value_is_refused() {
        let wrong = [
            (vary("no-such"), "no scenario"),
            (vary("gtp-table4").only(&["quic"]), "no flow quic"),
            (vary("gtp-table4").set("link.0.rate", "fast"), "rate"),
            (vary("gtp-table4").set("nowhere.rate", "1G"), "nowhere.rate"),
        ];
        for (variant, expected) in wrong {
            let error = variant.scenario().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
