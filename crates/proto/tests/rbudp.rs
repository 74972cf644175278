//! Properties of RBUDP: at a loss of up to 12 % it keeps a path full, wastes little, and needs few
//! rounds. The last test checks a bound: at a loss ratio L, n blocks need more than k rounds with a
//! probability of at most n·L^k.

use longhaul_proto::rbudp::ROW;
use longhaul_proto::time::{Span, Time};
use longhaul_proto::units::{Bytes, Rate};

use crate::rig::{Channel, Host, Rig, setup, tail_copies};

const RTT: Span = Span::from_millis(40);
const RATE: Rate = Rate::from_mbps(50);

/// The duration of a flow of `blocks` blocks, and its waste.
fn run(seed: u64, blocks: u64, loss: f64) -> (Span, f64) {
    let mut rig = Rig::new(&ROW, seed, Channel { loss, ..Channel::perfect(RTT / 2) });
    let mut setup = setup(1, blocks, 1_000, Some(RATE), RTT);
    setup.settings = tail_copies(2);
    rig.add_flow(setup, Host::Fast);
    rig.run(Span::from_secs(60));
    let flow = &rig.flows[0];
    let took = flow.finished_at.expect("it ran to the end").since(Time::ZERO);
    (took, flow.sender.accounting().waste(blocks))
}

#[test]
fn without_loss_an_object_takes_its_sending_time_and_one_round_trip() {
    for blocks in [500, 1_003] {
        let best = Bytes::new(blocks * 1032) / RATE + RTT;
        let (took, _) = run(1, blocks, 0.0);
        assert!(took < best + RTT / 8, "{took}, at best {best}");
        // The rate includes each datagram's 32 bytes of header and seal.
        let least = Bytes::new(blocks * 1032) / RATE + RTT / 2;
        assert!(took >= least - least / 200, "{took}, at least {least}");
    }
}

#[test]
fn a_lossy_path_is_kept_full_and_little_is_wasted() {
    for (seed, loss) in [(1, 0.001), (2, 0.01), (3, 0.05), (4, 0.12)] {
        let (took, waste) = run(seed, 10_000, loss);
        let best = Bytes::new(10_000 * 1032) / RATE;
        let bound = best.as_secs_f64() / (1.0 - loss) * 1.03 + 5.0 * RTT.as_secs_f64();
        assert!(took.as_secs_f64() <= bound, "loss {loss}: {took} of {bound}");
        assert!(waste <= loss / (1.0 - loss) + 0.01, "loss {loss}: waste {waste}");
    }
}

#[test]
fn the_share_of_runs_with_more_than_k_rounds_is_within_the_bound() {
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
        // Allows three standard deviations of a share, and one run more for very small shares.
        let deviation = (bound * (1.0 - bound) / f64::from(RUNS)).sqrt();
        assert!(share <= bound + 3.0 * deviation + 1.0 / f64::from(RUNS), "k {k}: {share} {bound}");
    }
    // Without losses, the bound would hold trivially, so most runs must need a second round.
    assert!(rounds.iter().filter(|rounds| **rounds > 1).count() > 900);
}
