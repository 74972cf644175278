//! How many rounds a lossy path costs: the model's number is a mean; the bound is this.

use longhaul_proto::rbudp::ROW;
use longhaul_proto::time::Span;
use longhaul_proto::units::Rate;

use crate::rig::{Channel, Host, Rig, setup};

#[test]
fn runs_with_more_than_k_rounds_are_no_more_than_the_bound() {
    const RUNS: u32 = 1_000;
    const BLOCKS: u64 = 64;
    const LOSS: f64 = 0.12;
    let mut rounds = Vec::new();
    for seed in 0..u64::from(RUNS) {
        let channel = Channel { loss: LOSS, ..Channel::perfect(Span::from_millis(5)) };
        let mut rig = Rig::new(&ROW, seed, channel);
        let rate = Some(Rate::from_mbps(100));
        rig.add_flow(setup(1, BLOCKS, 0, rate, Span::from_millis(10)), Host::Fast);
        rig.run(Span::from_secs(30));
        rounds.push(rig.flows[0].sender.accounting().rounds);
    }
    for k in 1..8 {
        let bound = (BLOCKS as f64 * LOSS.powi(k)).min(1.0);
        let more = rounds.iter().filter(|rounds| **rounds > k as u32).count() as f64;
        let share = more / f64::from(RUNS);
        // Three standard deviations of a share, and one run for the rarest.
        let deviation = (bound * (1.0 - bound) / f64::from(RUNS)).sqrt();
        assert!(share <= bound + 3.0 * deviation + 1.0 / f64::from(RUNS), "k {k}: {share} {bound}");
    }
    // The bound is not met by never losing anything.
    assert!(rounds.iter().filter(|rounds| **rounds > 1).count() > 900);
}
