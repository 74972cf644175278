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
//! > Lost UDB's are requested again by the receiver. (section 3.5)
//!
//! Where we settle what the paper leaves open, or go beyond it, and why:
//! - A new target is a flow's requested rate at once (after its delay, section 4.4). The SFC's
//!   steps of 2 % lead back to the target from a cut: as the only way up they would take a
//!   hundred round trips to a fair share. The requested rate is never above the target.
//! - The CE doubles its step also after a cut has ended. The paper's "= 0" would double a cut in a
//!   clean interval.
//! - A measurement begins a round trip after its flow's target took effect: what was sent before
//!   says nothing about it. Loss is settled after a grace of max(RTT/4, 1 ms), so that data that
//!   overtake each other are not lost.
//! - The receiver's capacity C_r is given, or found: the first datagrams may leave before any
//!   request, at once, and show how fast the path delivers; then C_r rises and falls on the whole
//!   of all flows as a flow's estimate does, and stops rising where a queue grows on all paths.
//! - Loss is found by place: blocks come in the order of asking, so what was asked before one that
//!   came is missing. A sender with nothing left to send says so, and what is then missing of it
//!   is asked for again without a time-out; a time-out is for senders that say nothing.
//! - Each end tells the other what it has at the start and when it changes: the receiver its
//!   memory (in pulses), the sender its access rate and round-trip time. A round-trip time that is
//!   longer than the sender's answers take is not believed.
//! - A flow that has stopped answering leaves the schedule, and joins again when it answers.
//! - Loss that stays as it is while a flow's rate falls is the path's own, and then means nothing.
//!   The paper's rules would slow the flow down for ever.
//! - Shares may be weighted, and the SFC may react to queues instead of waiting for loss.
//!
//! Files by decision. A flow: `asked` knows what was asked for and is missing, `monitor` (SFM)
//! measures, `obedience` counts what is too fast, `controller` (SFC) requests a rate, `estimator`
//! (CE) says what a flow could do, `own` knows what its path loses anyway, `flow` asks. All flows:
//! `capacity` is C_r, `scheduler` (MFS) shares it, `transitions` says what joins and departures
//! change and when, `link` knows the card and other traffic, which `beside` leaves its share,
//! `receiver` ties it together. `sender` obeys. The settings are in `options`, the constants that
//! are ours in `tuning`.

mod asked;
mod beside;
mod capacity;
mod controller;
mod estimator;
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
    summary: "The receiver asks each sender for blocks at a rate, and senders only obey. It \
              measures every flow, estimates what each could do, and gives all of them max-min \
              fair shares of what it can take, so that many senders fill its link together and do \
              not overrun it. Made for many sources and one destination; what is lost is simply \
              asked for again.",
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
