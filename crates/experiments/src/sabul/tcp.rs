//! TCP as in the SABUL paper: alone and with a local flow (introduction), and two streams (Table
//! 3).

use crate::experiment::{Case, Experiment, Set};
use crate::outcome::CaseFlow;
use crate::quantity::GOODPUT;
use crate::scenarios::vary;
use crate::table::{Row, Table};

/// The loss at which the square-root law gives 30 Mbit/s to segments of 1460 bytes over 110 ms:
/// (1.22 · 1460 · 8 / (0.110 · 30·10⁶))².
const TUNED_LOSS: f64 = 1.9e-5;

const UNTUNED: &str = "window 64 kB";
const TUNED: &str = "window 12 MB";
const PARALLEL: &str = "64 connections of 2 MB";
const LOSSY: &str = "loss 0.0019 %";
const CLEAN: &str = "no loss";
const PAIR: &str = "a local and a far flow into one host";
const LATE_PAIR: &str = "the same two flows, packets of the near one up to 0.2 ms late";
const LATE_PACKETS: &str = "packets of the near one up to 0.2 ms late";
const LATE_BY_ITSELF: &str = "over real sockets packets are late anyway";
/// "2 data streams originating in Amsterdam. … When TCP replaced SABUL, the speed dropped to about
/// 55 Mbps" (section 6, below Table 3).
const MERGED: &str = "two streams, merged";

/// Name, window in bytes, connections, Mbit/s published.
const WINDOWS: [(&str, u32, u32, f64); 4] = [
    (UNTUNED, 65_535, 1, 4.5),
    (TUNED, 12_000_000, 1, 30.0),
    (MERGED, 12_000_000, 2, 55.0),
    (PARALLEL, 2_000_000, 64, 320.0),
];

fn case(window: &str, loss: &str) -> String {
    format!("{window}, {loss}")
}

/// The two flows that share a host: name, the flow's name in the scenario, Mbit/s published.
const PUBLISHED_PAIR: [(&str, &str, f64); 2] =
    [("from 0.4 ms away", "local", 890.0), ("from 110 ms away", "far", 3.5)];

pub(super) static TCP: Experiment = Experiment {
    id: "sabul-tcp",
    title: "TCP between Chicago and Amsterdam, alone and next to a local flow",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 1 \
             and Table 3",
    setup: "TCP (NewReno with selective acknowledgements) runs for 60 s over 1 Gbit/s and a round \
            trip of 110 ms, with a drop-tail queue of one bandwidth-delay product. There are four \
            cases: an untuned window, the paper's tuned window of 12 MB, two connections of 12 MB, \
            and 64 connections of 2 MB each. Each case runs on a line without loss, and on one \
            that loses 0.0019 % of the packets: with this loss the square-root law gives a single \
            tuned connection the paper's 30 Mbit/s. In another case two flows share one receiving \
            host of 1 Gbit/s through a queue of 512 kB. One sender has a round trip of 0.4 ms, \
            the other one has 110 ms; both have windows of 12 MB. Their packets reach the switch \
            up to 24 µs late, in order, as if sent by timers. In the last case the packets of the \
            near flow are up to 0.2 ms late, as from a busy host.",
    cases: || {
        let paths = [(CLEAN, 0.0), (LOSSY, TUNED_LOSS)];
        let runs = paths.iter().flat_map(|path| WINDOWS.map(|window| (path, window)));
        let runs = runs.map(|((loss_name, loss), (window, bytes, streams, _))| {
            let tcp = vary("sabul-tcp")
                .set("topology.link.loss", loss)
                .set("flow.tcp.window", bytes)
                .set("flow.tcp.streams", streams);
            Case::both(case(window, loss_name), tcp)
        });
        let late = vary("sabul-tcp-pair").set("link.near-switch.jitter", "0.2ms");
        let late = Case::simulated(LATE_PAIR, late, LATE_BY_ITSELF);
        runs.chain([Case::both(PAIR, vary("sabul-tcp-pair")), late]).collect()
    },
    tables: |outcomes| {
        let alone = |loss: &'static str| {
            let rows = WINDOWS.into_iter().map(|(window, _, _, published)| {
                let name = case(window, loss);
                let goodput = outcomes.first(&name, CaseFlow::goodput);
                Row::new(name, GOODPUT, goodput).published(published)
            });
            Table::new(format!("Alone, {loss}"), rows.collect())
        };
        let of = |case: &str, name: &str| {
            let outcome = outcomes.case(case).and_then(|outcome| outcome.flow(name));
            outcome.map(CaseFlow::goodput)
        };
        let pair = PUBLISHED_PAIR.map(|(name, flow, published)| {
            Row::new(name, GOODPUT, of(PAIR, flow)).published(published)
        });
        let late = PUBLISHED_PAIR.map(|(name, flow, _)| {
            Row::new(format!("{name}, {LATE_PACKETS}"), GOODPUT, of(LATE_PAIR, flow))
        });
        let pair = pair.into_iter().chain(late).collect();
        // The loss is derived from the tuned connection's rate.
        let lossy = alone(LOSSY).fitted(|row| row.case == case(TUNED, LOSSY));
        vec![alone(CLEAN), lossy, Table::new("Two flows into one host", pair)]
    },
    courses: Experiment::NO_COURSES,
    figures: Experiment::NO_FIGURES,
    differs: "The paper gives neither the path's loss nor how long TCP ran. The loss is derived \
              from the paper's 30 Mbit/s by the square-root law, which holds for a steady state. \
              After 60 s the mean goodput of the tuned connection is still above the law ({window \
              12 MB, loss 0.0019 %} Mbit/s against 30), because its slow start filled the path \
              before the first loss. At that loss 64 connections use nearly all of the link, \
              nearly three times as much as in the paper. For the two flows into one host the \
              paper gives neither windows nor the size of the switch's queue.\n\n\
              Over real sockets the far flow has more goodput than in the simulator, and the near \
              flow less. The near sender's host wakes late and sends in clumps, so the queue \
              before the receiver is not always full. The far flow, which grows by a segment a \
              round trip after a loss, then meets fewer losses. Packets up to 0.2 ms late have the \
              same effect in the simulator: {from 110 ms away, * | 2} Mbit/s instead of {from 110 \
              ms away | 2}.",
    learned: "An untuned window limits TCP to one window per round trip: {window 64 kB, no loss | \
              1} Mbit/s here and 4.5 in the paper. With a tuned window, loss is the limit: on this \
              path two lost packets in a hundred thousand reduce the goodput from {window 12 MB, \
              no loss} to {window 12 MB, loss 0.0019 %} Mbit/s. Many connections hide this effect, \
              because a loss slows only one of them. If a near flow fills the queue that a far \
              flow must cross, the far flow starves: it has {from 110 ms away | 1} Mbit/s and the \
              near flow {from 0.4 ms away}. In the paper they have 3.5 and 890; with the kernel's \
              TCP the far flow has {from 110 ms away | emulated | 1}. With loss, one \
              connection has {window 12 MB, loss 0.0019 %} Mbit/s instead of the paper's 30, and \
              64 connections fill the link \
              ({64 connections of 2 MB, loss 0.0019 %} instead of 320), but little is known about \
              the paper's path. Where the window is the limit, our value differs from the paper's \
              by {window 64 kB, no loss | difference} %.",
    set: Set::Full,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_root_law_gives_the_tuned_connection_its_30_mbit() {
        let rate = 1.22 * 1_460.0 * 8.0 / (0.110 * TUNED_LOSS.sqrt());
        assert!((rate / 30e6 - 1.0).abs() < 0.02, "{rate}");
    }
}
