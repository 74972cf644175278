//! All experiments, in the order of the papers.

use crate::experiment::Experiment;
use crate::{auto, fobs, grid, gtp, many, ornl, quanta, remembered, sabul, sidebyside, updates};

#[derive(Clone, Debug)]
pub(crate) struct Paper {
    pub(crate) heading: &'static str,
    pub(crate) about: &'static str,
    /// The experiments in the paper's order.
    pub(crate) experiments: Vec<&'static Experiment>,
}

/// The five papers, and the experiments that are in none of them.
pub(crate) fn papers() -> Vec<Paper> {
    let paper = |heading, about, experiments: &[&'static Experiment]| Paper {
        heading,
        about,
        experiments: experiments.to_vec(),
    };
    let own = [&sidebyside::ALL[..], &many::ALL, &grid::ALL, &auto::ALL, &remembered::ALL];
    vec![
        paper(
            "Quanta: RBUDP",
            "He et al., *Quanta: a toolkit for high performance data delivery over photonic \
             networks*, 2003. RBUDP sends the whole payload at a fixed rate, then repeats the \
             blocks that the receiver reports missing, in rounds. The paper measures it between \
             Chicago and Amsterdam and predicts its throughput with a model.",
            &[&quanta::ALL[..], &updates::ALL].concat(),
        ),
        paper(
            "FOBS",
            "Dickens, *FOBS: a lightweight communication protocol for grid computing*, 2003; \
             the protocol is that of Dickens and Gropp, HPDC-11, 2002. FOBS sends an object over \
             UDP without a window and learns from acknowledgements which packets are missing.",
            &fobs::ALL,
        ),
        paper(
            "The Oak Ridge study",
            "Fowler, *Faster bulk transfer starring: UDP*, Oak Ridge National Laboratory, 2003. \
             The study compares programs side by side: SABUL, Tsunami, FOBS, RBUDP, TCP.",
            &ornl::ALL,
        ),
        paper(
            "SABUL",
            "Gu and Grossman, *SABUL: a transport protocol for grid computing*, 2003. SABUL finds \
             its rate from losses, and raises it equally fast at any round-trip time.",
            &sabul::ALL,
        ),
        paper(
            "GTP",
            "Wu and Chien, *GTP: group transport protocol for lambda-grids*, 2004. The receiver \
             requests a rate from each of its senders, so that together they fill its link and no \
             more. Most pages have rows with longhaul's settings, and rows with the paper's \
             (`gtp-variant = paper`).",
            &gtp::ALL,
        ),
        paper(
            "Not in any paper",
            "Comparisons of all protocols, checks of the simulator, copies to several receivers, \
             remembered rates, and longhaul's own search for the rate.",
            &own.concat(),
        ),
    ]
}

/// Every experiment.
pub fn all() -> Vec<&'static Experiment> {
    papers().into_iter().flat_map(|paper| paper.experiments).collect()
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
    fn each_id_is_unique_and_found() {
        let ids: BTreeSet<&str> = all().iter().map(|experiment| experiment.id).collect();
        assert_eq!(ids.len(), all().len());
        assert!(all().iter().all(|experiment| find(experiment.id).is_some()));
        assert!(find("no-such-figure").is_none());
    }

    #[test]
    fn every_case_can_be_run_and_has_a_unique_name() {
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
    fn rows_exist_before_any_run_and_are_unique() {
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
    fn every_experiment_that_a_protocol_names_exists() {
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
