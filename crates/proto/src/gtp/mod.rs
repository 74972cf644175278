//! Group Transport Protocol: Wu, Chien, "GTP: group transport protocol for lambda-grids", CCGrid
//! 2004.
//!
//! > GTP is a receiver-driven response-request protocol. … The sender side design is simple: send
//! > the requested data to receiver at the receiver-specified rate (if that rate can be achieved
//! > by sender). Most of the management is at the receiver side, including a Single Flow
//! > Controller (SFC) and Single Flow Monitor (SFM) for each individual flow, and Capacity
//! > Estimator (CE) and Max-min Fairness Scheduler (MFS) for centralized control across flows.
//! > (section 3.2)
//!
//! > Lost UDB's \[blocks\] are requested again by the receiver. (section 3.5)
//!
//! Where the paper leaves a choice open, or this code goes beyond the paper:
//! - When the MFS gives a flow a new target rate, the requested rate jumps to the target, after the
//!   delay of section 4.4. The SFC's steps of 2 % only lead back to the target after a cut. With
//!   these steps alone a flow would need a hundred round trips to reach a fair share.
//! - The paper's CE doubles its last change after each interval without loss, and starts again with
//!   the smallest increase only if the last change was 0. After a cut the last change is the cut,
//!   so this rule would double the cut. Here the first change after a cut is the smallest increase.
//! - A measurement begins a round trip after a new target took effect, because earlier data were
//!   sent under the old target. Loss is counted only after a wait, so reordered data do not count
//!   as lost.
//! - The receiver's capacity C_r is given or found. The first datagrams may be sent before any
//!   request, back to back; they show how fast the path delivers.
//! - Loss is found by position: blocks arrive in the order of the requests. When a block arrives,
//!   all blocks that were requested before it and have not arrived are missing. A sender with
//!   nothing left to send says so; the receiver then requests missing blocks again without a
//!   timeout.
//! - The receiver reports its free memory in its pulses (periodic reports). The sender reports its
//!   access rate and its round-trip time at the start and when they change. The receiver limits a
//!   reported round-trip time to the delay of the sender's answers.
//! - A flow that stops answering leaves the schedule, and rejoins when it answers.
//! - Loss that does not fall with a flow's rate is the path's own loss and is ignored. The paper's
//!   rules would slow the flow down for ever.
//! - Shares may have weights, and the SFC may react to queues instead of losses.
//!
//! Files, one decision each. For one flow:
//! - `asked` tracks requested and missing blocks.
//! - `monitor` (SFM) measures.
//! - `obedience` counts datagrams sent too fast.
//! - `controller` (SFC) sets the requested rate.
//! - `estimator` (CE) estimates the rate that the flow could reach.
//! - `own` learns the path's own loss.
//! - `standing` holds the sender's round-trip time and limits.
//! - `flow` sends requests.
//!
//! For all flows:
//! - `capacity` finds C_r.
//! - `scheduler` (MFS) divides it.
//! - `transitions` times the effects of joins and departures.
//! - `link` holds the speed of the host's network card and the rate of other traffic; `fair_share`
//!   leaves other traffic its share.
//! - `receiver` connects the parts.
//!
//! `sender` is the sending end. User settings are in `options`, our own constants in `tuning`.

mod asked;
mod capacity;
mod controller;
mod estimator;
mod fair_share;
mod flow;
mod link;
mod monitor;
mod obedience;
mod options;
mod own;
mod receiver;
mod scheduler;
mod sender;
mod standing;
#[cfg(test)]
mod tests;
mod transitions;
mod tuning;

pub use options::*;
pub use receiver::GtpReceiver;
pub use scheduler::{Demand, shares};
pub use sender::GtpSender;

use alloc::boxed::Box;

use crate::row::Row;

/// GTP in the registry.
pub const ROW: Row = Row {
    name: "gtp",
    title: "Group Transport Protocol",
    paper: "Wu and Chien, GTP: group transport protocol for lambda-grids, CCGrid 2004",
    summary: "The receiver requests blocks from each sender at a rate, and senders obey. The \
              receiver measures every flow, estimates the flow's possible rate, and gives the \
              flows max-min fair shares of its capacity, so that many senders together fill the \
              receiver's link without overrunning it. Made for many sources and one \
              destination; the receiver requests lost blocks again.",
    experiments: &[
        "gtp-fig1",
        "gtp-fig7",
        "gtp-fig8",
        "gtp-fig9",
        "gtp-fig10",
        "gtp-fig11",
        "gtp-fig12",
        "gtp-table2",
        "gtp-table3",
        "gtp-table4",
        "gtp-table5",
        "gtp-beside",
        "gtp-delay-control",
    ],
    frugal: true,
    many: true,
    options: options::ALL,
    sender: |setup| Box::new(GtpSender::new(setup)),
    receiver: || Box::new(GtpReceiver::default()),
};
