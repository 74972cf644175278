//! All experiments, in the order of the papers.

use crate::experiment::Experiment;
use crate::{auto, fobs, grid, gtp, many, ornl, quanta, remembered, sabul, sidebyside};

/// Every experiment.
pub fn all() -> Vec<&'static Experiment> {
    let papers = [&quanta::ALL[..], &fobs::ALL, &ornl::ALL, &sabul::ALL, &gtp::ALL];
    [
        papers.concat(),
        [&sidebyside::ALL[..], &many::ALL, &grid::ALL, &auto::ALL, &remembered::ALL].concat(),
    ]
    .concat()
}

/// The experiment called `id`.
pub fn find(id: &str) -> Option<&'static Experiment> {
    all().into_iter().find(|experiment| experiment.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::outcome::Outcomes;

    #[test]
    fn ids_differ_and_are_found() {
        let ids: BTreeSet<&str> = all().iter().map(|experiment| experiment.id).collect();
        assert_eq!(ids.len(), all().len());
        assert!(all().iter().all(|experiment| find(experiment.id).is_some()));
        assert!(find("no-such-figure").is_none());
    }

    #[test]
    fn every_case_can_be_run_and_has_a_name_of_its_own() {
        for experiment in all() {
            let cases = (experiment.cases)();
            let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
            assert_eq!(names.len(), cases.len(), "{}", experiment.id);
            for case in &cases {
                assert_eq!(case.scenario.validate(), Ok(()), "{}: {}", experiment.id, case.name);
            }
        }
    }

    #[test]
    fn rows_are_there_before_anything_was_run_and_no_two_are_the_same() {
        for experiment in all() {
            let tables = (experiment.tables)(&Outcomes::default());
            let keys: Vec<_> = tables.iter().flat_map(|t| &t.rows).map(|row| row.key()).collect();
            let different: BTreeSet<_> = keys.iter().collect();
            assert!(!keys.is_empty(), "{}", experiment.id);
            assert_eq!(different.len(), keys.len(), "{}: {keys:?}", experiment.id);
            assert!(keys.iter().all(|(case, _)| !case.contains('|')), "{}", experiment.id);
        }
    }

    #[test]
    fn every_experiment_that_a_protocol_names_is_there() {
        for row in longhaul_proto::registry::all() {
            for id in row.experiments {
                assert!(find(id).is_some(), "{} names {id}", row.name);
            }
        }
    }

    #[test]
    fn some_cases_run_over_real_sockets() {
        let real =
            |experiment: &&Experiment| (experiment.cases)().iter().any(|case| case.is_emulated());
        assert!(all().iter().any(real));
    }
}
