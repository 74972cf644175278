//! Results of single runs, and medians over a candidate's runs.

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};

use super::candidate::Candidate;

pub(super) struct Run {
    pub(super) candidate: Candidate,
    /// Number of the run among the candidate's runs, from 1.
    pub(super) turn: u32,
    /// Seed of a simulated run.
    pub(super) seed: Option<u64>,
    pub(super) end: Result<Measured, String>,
}

pub(super) struct Measured {
    /// Size of the object.
    pub(super) bytes: Bytes,
    /// Time until the object was complete.
    pub(super) took: Span,
    pub(super) goodput: Rate,
    /// `None` for the kernel's TCP if the kernel reports nothing.
    pub(super) counts: Option<Counts>,
    /// `None` for a simulated run.
    pub(super) cpu: Option<Cpu>,
    /// `None` if the comparison runs no copy beside a TCP flow.
    pub(super) beside_tcp: Option<Shares>,
    /// Rates of arrival: seconds since the start, Mbit/s.
    pub(super) rates: Vec<(f64, f64)>,
}

/// Counts of a run. The kernel's TCP gives only `waste` and `retransmitted`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Repeated blocks and coded symbols as a share of the object's blocks. For TCP: repeated
    /// segments as a share of the segments sent for the first time.
    pub(super) waste: f64,
    /// Blocks sent again, and coded symbols; for TCP, segments sent again.
    pub(super) retransmitted: f64,
    /// Sent datagrams that did not arrive, or that the receiver dropped.
    pub(super) path_lost: Option<f64>,
    /// Missing blocks, each counted once.
    pub(super) blocks_lost: Option<f64>,
    /// Losses reported to the sender; each report of a block counts.
    pub(super) reported_lost: Option<f64>,
    /// Arrived blocks that the receiver already had.
    pub(super) duplicates: Option<f64>,
}

/// CPU time in seconds per GB of the object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cpu {
    /// CPU time of this process.
    pub(super) here: f64,
    /// CPU time of the other host's threads that receive and write. `None` for TCP, or if the host
    /// does not report it.
    pub(super) there: Option<f64>,
}

/// Goodputs from the common start of a copy and a TCP flow. In a simulation the measurement ends
/// with the copy, on a real path with the flow that ends first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shares {
    pub(super) copy: Rate,
    pub(super) tcp: Rate,
}

impl Shares {
    /// TCP's share of the sum; 0.5 is fair.
    pub(super) fn of_tcp(&self) -> f64 {
        let (copy, tcp) = (self.copy.as_bps() as f64, self.tcp.as_bps() as f64);
        if copy + tcp > 0.0 { tcp / (copy + tcp) } else { 0.0 }
    }
}

/// A candidate with the number of its runs and its figures.
pub(super) struct Standing {
    pub(super) candidate: Candidate,
    pub(super) runs: usize,
    pub(super) failed: usize,
    /// `None` if no run succeeded.
    pub(super) figures: Option<Figures>,
}

/// Medians over the successful runs, and the lowest and the highest goodput. `beside_tcp` is from
/// the run with the median share of TCP.
pub(super) struct Figures {
    pub(super) goodput: Rate,
    pub(super) least: Rate,
    pub(super) most: Rate,
    pub(super) counts: Option<Counts>,
    pub(super) cpu: Option<Cpu>,
    pub(super) beside_tcp: Option<Shares>,
}

/// One standing for each candidate, in the order of the candidates.
pub(super) fn standings(candidates: &[Candidate], runs: &[Run]) -> Vec<Standing> {
    candidates.iter().map(|candidate| standing(*candidate, runs)).collect()
}

fn standing(candidate: Candidate, runs: &[Run]) -> Standing {
    let its: Vec<&Run> = runs.iter().filter(|run| run.candidate == candidate).collect();
    let ended: Vec<&Measured> = its.iter().filter_map(|run| run.end.as_ref().ok()).collect();
    Standing {
        candidate,
        runs: its.len(),
        failed: its.len() - ended.len(),
        figures: figures(&ended),
    }
}

fn figures(ended: &[&Measured]) -> Option<Figures> {
    let goodputs = ended.iter().map(|one| one.goodput);
    let (least, most) = (goodputs.clone().min()?, goodputs.clone().max()?);
    let of_counts = |get: fn(&Counts) -> Option<f64>| {
        median(ended.iter().filter_map(|one| one.counts.as_ref().and_then(get)))
    };
    let counts = of_counts(|counts| Some(counts.waste)).map(|waste| Counts {
        waste,
        retransmitted: of_counts(|counts| Some(counts.retransmitted)).unwrap_or_default(),
        path_lost: of_counts(|counts| counts.path_lost),
        blocks_lost: of_counts(|counts| counts.blocks_lost),
        reported_lost: of_counts(|counts| counts.reported_lost),
        duplicates: of_counts(|counts| counts.duplicates),
    });
    let here = median(ended.iter().filter_map(|one| one.cpu.map(|cpu| cpu.here)));
    let there = median(ended.iter().filter_map(|one| one.cpu.and_then(|cpu| cpu.there)));
    // Both goodputs are from one run: the one with the median share. For an even number of runs,
    // this is the run with the higher of the two middle shares.
    let mut shares: Vec<Shares> = ended.iter().filter_map(|one| one.beside_tcp).collect();
    shares.sort_by(|a, b| a.of_tcp().total_cmp(&b.of_tcp()));
    Some(Figures {
        goodput: Rate::from_bps_f64(median(goodputs.map(|rate| rate.as_bps() as f64))?),
        least,
        most,
        counts,
        cpu: here.map(|here| Cpu { here, there }),
        beside_tcp: shares.get(shares.len() / 2).copied(),
    })
}

/// For an even number, the mean of the two middle values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

/// The successful run with the median goodput; for an even number, the faster of the middle two.
pub(super) fn typical(candidate: Candidate, runs: &[Run]) -> Option<&Measured> {
    let its = runs.iter().filter(|run| run.candidate == candidate);
    let mut ended: Vec<&Measured> = its.filter_map(|run| run.end.as_ref().ok()).collect();
    ended.sort_by_key(|one| one.goodput);
    ended.get(ended.len() / 2).copied()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run at `mbps` Mbit/s; a failed run for `None`.
    pub(crate) fn example(name: &str, turn: u32, mbps: Option<u64>) -> Run {
        let end = mbps.ok_or_else(|| "the path <broke>".to_owned()).map(|mbps| Measured {
            bytes: Bytes::new(1_000_000),
            took: Span::from_millis(8_000 / mbps),
            goodput: Rate::from_mbps(mbps),
            counts: Some(Counts { waste: 0.01, path_lost: Some(mbps as f64), ..Counts::default() }),
            cpu: None,
            beside_tcp: Some(Shares { copy: Rate::from_mbps(mbps), tcp: Rate::from_mbps(1) }),
            rates: vec![(0.1, mbps as f64), (0.2, mbps as f64)],
        });
        let candidate = Candidate::parse(name).expect("the name of a candidate");
        Run { candidate, turn, seed: Some(u64::from(turn)), end }
    }

    #[test]
    fn a_standing_has_the_median_and_the_range_of_successful_runs() {
        // Mbit/s; the median is the mean of 20 and 30.
        let goodputs = [Some(90), None, Some(10), Some(20), Some(30)];
        let runs: Vec<Run> = goodputs.iter().map(|mbps| example("rbudp", 1, *mbps)).collect();
        let standings = standings(&super::super::candidate::all(), &runs);
        let (one, other) = (&standings[0], &standings[1]);
        assert_eq!((one.runs, one.failed), (5, 1));
        let figures = one.figures.as_ref().unwrap();
        let all = [figures.goodput, figures.least, figures.most];
        assert_eq!(all, [25, 10, 90].map(Rate::from_mbps));
        assert_eq!(figures.counts.unwrap().path_lost, Some(25.0));
        assert!(other.runs == 0 && other.figures.is_none());
        assert_eq!(typical(one.candidate, &runs).unwrap().goodput, Rate::from_mbps(30));
    }

    #[test]
    fn the_share_of_tcp_is_half_at_equal_rates_and_0_if_nothing_arrived() {
        let shares = |copy, tcp| Shares { copy: Rate::from_bps(copy), tcp: Rate::from_bps(tcp) };
        assert_eq!(shares(5, 5).of_tcp(), 0.5);
        assert_eq!(shares(0, 0).of_tcp(), 0.0);
    }
}
