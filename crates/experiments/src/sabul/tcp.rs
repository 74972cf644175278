//! The introduction's TCP, alone and beside a local flow.

use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, LossRatio};
use longhaul_testbed::scenario::{Amount, Congestion, Tcp};

use super::LINK;
use crate::experiment::{Case, Experiment};
use crate::outcome::FlowOutcome;
use crate::paths::{lossy_pair, placed, star, tcp};
use crate::quantity::GOODPUT;
use crate::table::{Row, Table};

/// Section 5: "Each route had a 1 Gbps link capacity with 110ms RTT."
const CHICAGO_AMSTERDAM: Span = Span::from_millis(110);
/// Section 5: the local network of Figure 6.
const LOCAL: Span = Span::from_micros(400);
/// How long TCP runs; the paper does not say. Long enough to forget its slow start.
const LASTS: Span = Span::from_secs(60);
/// The loss at which the square-root law gives 30 Mbit/s to segments of 1460 bytes on 110 ms:
/// (1.22 · 1460 · 8 / (0.110 · 30·10⁶))².
const TUNED_LOSS: f64 = 1.9e-5;

const UNTUNED: &str = "window 64 kB";
const TUNED: &str = "window 12 MB";
const PARALLEL: &str = "64 connections of 2 MB";
const LOSSY: &str = "loss 0.0019 %";
const CLEAN: &str = "no loss";
const PAIR: &str = "a local and a far flow into one host";

fn reno(streams: u32, window: Bytes) -> Tcp {
    let congestion = Congestion::NewReno;
    Tcp { streams, congestion, window: Some(window), ..Tcp::default() }
}

fn windows() -> [(&'static str, Tcp, f64); 3] {
    [
        (UNTUNED, reno(1, Bytes::new(65_535)), 4.5),
        (TUNED, reno(1, Bytes::new(12_000_000)), 30.0),
        (PARALLEL, reno(64, Bytes::new(2_000_000)), 320.0),
    ]
}

fn case(window: &str, loss: &str) -> String {
    format!("{window}, {loss}")
}

/// The introduction's TCP.
pub(super) static TCP: Experiment = Experiment {
    id: "sabul-tcp",
    title: "TCP between Chicago and Amsterdam, and beside a local flow",
    source: "Gu and Grossman, *SABUL: a transport protocol for grid computing* (2003), section 1",
    setup: "TCP (NewReno with selective acknowledgements) for 60 s over 1 Gbit/s and 110 ms with \
            a drop-tail queue of one bandwidth-delay product: with an untuned window, with the \
            paper's tuned one of 12 MB, and by 64 connections of 2 MB each. Each on a line that \
            loses nothing, and on one that loses 0.0019 % of the packets: the loss at which the \
            square-root law gives a single tuned connection the paper's 30 Mbit/s. Then two flows \
            into one host of 1 Gbit/s, one from 0.4 ms away and one from 110 ms, both with 12 MB.",
    cases: || {
        let paths = [(CLEAN, 0.0), (LOSSY, TUNED_LOSS)];
        let runs = paths.iter().flat_map(|path| windows().map(|window| (path, window)));
        let runs = runs.map(|((loss_name, loss), (window, tcp_kind, _))| {
            let name = case(window, loss_name);
            let loss = LossRatio::new(*loss).expect("a share");
            let flow = tcp(Amount::Lasts(LASTS), tcp_kind);
            let scenario = lossy_pair(&name, LINK, CHICAGO_AMSTERDAM, loss, vec![flow]);
            Case::both(name, scenario)
        });
        let flow = |name, from| {
            let flow = tcp(Amount::Lasts(LASTS), reno(1, Bytes::new(12_000_000)));
            placed(flow, name, from, 2, Span::ZERO)
        };
        let flows = vec![flow("local", 0), flow("far", 1)];
        let pair = star(PAIR, LINK, &[LOCAL, CHICAGO_AMSTERDAM], flows);
        runs.chain([Case::simulated(PAIR, pair)]).collect()
    },
    tables: |outcomes| {
        let alone = |loss: &'static str| {
            let rows = windows().into_iter().map(|(window, _, published)| {
                let name = case(window, loss);
                let goodput = outcomes.first(&name, FlowOutcome::goodput);
                Row::new(name, GOODPUT, goodput).published(published)
            });
            Table::new(format!("Alone, {loss}"), rows.collect())
        };
        let of = |name: &str| {
            let outcome = outcomes.case(PAIR).and_then(|outcome| outcome.flow(name));
            outcome.map(FlowOutcome::goodput)
        };
        let pair = vec![
            Row::new("from 0.4 ms away", GOODPUT, of("local")).published(890.0),
            Row::new("from 110 ms away", GOODPUT, of("far")).published(3.5),
        ];
        vec![alone(CLEAN), alone(LOSSY), Table::new("Two flows into one host", pair)]
    },
    figures: Experiment::NO_FIGURES,
    differs: "The paper gives neither the path's loss nor how long TCP ran. The loss is worked \
              out from one of its three numbers, so the tuned connection says nothing about us; \
              the other two rows of that table do. Of the two flows into one host the paper does \
              not give windows, nor how much the switch holds.",
    learned: "An untuned window is the path's limit whatever the path: window over round-trip \
              time. A tuned one moves the limit to loss, and on a path this long a loss of two \
              packets in a hundred thousand is enough to take 97 % away. Many connections hide \
              that, each losing only its own share. And where a near flow fills a queue that a \
              far one must cross, the far one starves.",
    quick: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_root_law_gives_the_tuned_connection_its_30_mbit() {
        let rate = 1.22 * 1_460.0 * 8.0 / (CHICAGO_AMSTERDAM.as_secs_f64() * TUNED_LOSS.sqrt());
        assert!((rate / 30e6 - 1.0).abs() < 0.02, "{rate}");
    }
}
