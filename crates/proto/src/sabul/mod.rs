//! SABUL, the Simple Available Bandwidth Utilization Library: Gu and Grossman, "SABUL: a transport
//! protocol for grid computing"; and, as a variant, the release that Oak Ridge National Laboratory
//! measured ("Faster bulk transfer starring: UDP", here called the study).
//!
//! > The sender always first checks the loss list when it is time to send a packet. If there are
//! > lost packets, the first packet in the list is resent and then removed. Otherwise, the sender
//! > determines whether the number of unacknowledged packets exceeds the flow window size, and if
//! > not, it packs a new packet and sends it out. The sender then waits for the next sending time
//! > decided by the rate control. … The receiver sends ACK periodically if there are any newly
//! > received packets. The ACK interval is the same as SYN time. … NAK is sent immediately once
//! > loss is detected. The loss will be reported again if the retransmission has not been received
//! > after k*RTT, where k is initialized as 2 and is increased by 1 each time the loss is reported.
//! > … Loss information carried in NAK is compressed to save space for continuous loss. (3.4)
//!
//! Choices where the paper is open, and additions:
//! - "The initial sending rate can be determined by application": the rate is `initial-rate`,
//!   otherwise the user's rate, otherwise the rate that a first packet train (datagrams sent back
//!   to back) shows. The user's rate is also the upper limit.
//! - Sequence numbers are block numbers. A block below the highest block so far fills an old gap. A
//!   new gap, above the highest block so far, is a loss and is reported immediately.
//! - A gap shows only when a later block arrives. If no later block follows, because all blocks are
//!   sent or the flow window is full, the sender resends the last block after a timeout. This block
//!   shows the gap.
//! - After at least a second of silence with blocks in flight, all of them go on the loss list, as
//!   in the release. While the silence lasts, this is repeated. Unlike in the release, each wait is
//!   twice as long as the last, up to four times the first wait.
//! - A loss report about a block that was resent less than a round trip ago is ignored: the
//!   receiver made the report before the block could arrive.
//! - At most 32 loss reports are sent in a SYN interval; other reports wait for the next.
//! - The rate is at least one datagram in a SYN interval, or the user's rate if that is lower. An
//!   interval without sending does not raise the rate.
//!
//! The paper's outlook (section 7) names two ideas. One is "to use bandwidth estimation techniques
//! to set the rate control parameters". This sender estimates the bandwidth only at the start, with
//! a packet train that shows the initial rate. The other is a window "dynamically set as the
//! product of current available bandwidth and RTT": the setting `available-window`. It is off by
//! default, because the paper's figures were measured without it. The paper does not say how to
//! estimate the available bandwidth; here it is the arrival rate.
//!
//! The variant `sabul-ornl` reproduces the defects of the release. It does not resend the last
//! block to show a gap. It also counts reports about recently resent blocks. By default it has no
//! flow window.
//!
//! Modules: `sender` selects blocks, `window` keeps the flow window, `rate` and `release`
//! control the rate; `receiver` finds gaps, `reports` decides when to report which losses.

mod rate;
mod receiver;
mod release;
mod reports;
mod sender;
#[cfg(test)]
mod tests;
mod window;

pub use receiver::{SabulOrnlReceiver, SabulReceiver};
pub use sender::SabulSender;

use alloc::boxed::Box;

use crate::kind::Kind;
use crate::row::Row;
use crate::settings::ProtocolOption;

/// "The constant SYN interval in SABUL is 0.01 seconds." (3.5)
pub(crate) const SYNC_INTERVAL: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "sync-interval",
    "time between rate changes, and between acknowledgements",
    (0.001, 1.0),
    0.01,
);

/// "Beta is the constant 1.2*10^-5." (3.5)
pub const BETA: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "beta",
    "sets the increase: datagrams added in an interval are beta × (rate in bit/s, rounded up to a \
     power of ten) / (bits of a datagram)",
    (1e-8, 1e-2),
    1.2e-5,
);

/// "The inter-packet time is increased by 1/8." (3.5)
pub(crate) const DECREASE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "decrease",
    "share by which a loss lengthens the time between datagrams",
    (0.001, 10.0),
    0.125,
);

/// "If the loss rate is less than a small threshold (e.g., 0.1%)." (3.5)
pub(crate) const LOSS_THRESHOLD: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "loss-threshold",
    "averaged loss ratio below which the rate rises",
    (0.0, 1.0),
    0.001,
);

/// The weight of the moving average is our choice: neither source gives one.
pub(crate) const LOSS_SMOOTHING: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "loss-smoothing",
    "weight of the newest interval in the averaged loss ratio",
    (0.001, 1.0),
    0.125,
);

/// "The maximum window size can be determined by the application." (3.4)
pub const WINDOW: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "window",
    "most blocks in flight; 0: rate times (sync interval + round-trip time), no limit in \
           sabul-ornl",
    (0.0, 1e9),
    0.0,
);

/// "The window size used by the flow control can be dynamically set as the product of current
/// available bandwidth and RTT." (7, of future work)
pub(crate) const AVAILABLE_WINDOW: ProtocolOption = ProtocolOption::switch(
    "available-window",
    "the window is arrival rate times (sync interval + round-trip time), plus 16 blocks; `window`, \
     if set, is its limit",
    false,
);

/// "The initial sending rate can be determined by application." (3.5)
pub(crate) const INITIAL_RATE: ProtocolOption = ProtocolOption::new(
    Kind::Rate,
    "initial-rate",
    "rate at the start; 0: the given rate, or the rate of a packet train",
    (0.0, 1e12),
    0.0,
);

/// "The receiver generates a SYN packet based on a timed interval (200ms)." (Study, 3.2)
pub(crate) const RELEASE_SYNC_INTERVAL: ProtocolOption = ProtocolOption {
    help: "time between the receiver's signals to change the rate",
    default: 0.2,
    ..SYNC_INTERVAL
};

/// "Acks are sent every 100ms." (Study, 4.3.3)
pub(crate) const ACK_INTERVAL: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "ack-interval",
    "time between acknowledgements",
    (0.001, 1.0),
    0.1,
);

/// "Every 20ms a collective loss report is sent." (Study, 4.3.3)
pub(crate) const REPORT_INTERVAL: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "report-interval",
    "time between reports of all missing blocks",
    (0.001, 10.0),
    0.02,
);

/// "SABUL begins with a preset IPD (inter-packet delay) of 10 usec." (Study, 3.2)
pub(crate) const FIRST_DELAY: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "first-delay",
    "time between datagrams at the start",
    (1e-8, 1.0),
    1e-5,
);

pub(crate) const SHORTEST_DELAY: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "shortest-delay",
    "least time between datagrams",
    (1e-8, 1.0),
    1e-5,
);

pub(crate) const LONGEST_DELAY: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "longest-delay",
    "longest time between datagrams",
    (1e-8, 1.0),
    0.01,
);

pub(crate) const DELAY_STEP: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "delay-step",
    "share by which the delay grows with loss, and shrinks without",
    (0.001, 1.0),
    0.05,
);

/// SABUL in the registry.
pub const ROW: Row = Row {
    name: "sabul",
    title: "SABUL",
    paper: "Gu, Grossman, SABUL: a transport protocol for grid computing, Journal of Grid \
            Computing 1 (2003)",
    summary: "Changes its rate every 10 ms, independent of the round-trip time, so that flows \
              over short and long paths reach equal shares. The step up depends on the rate's \
              power of ten, and needs a loss below 0.1 %; a loss report lengthens the time \
              between datagrams by an eighth. The receiver acknowledges every 10 ms and reports a \
              loss immediately. Made for paths that SABUL flows and TCP share; a path's own loss \
              slows it down.",
    experiments: &[
        "sabul-fig2",
        "sabul-fig3",
        "sabul-fig4",
        "sabul-fig5",
        "sabul-ends",
        "sabul-fig6",
        "sabul-fig7",
        "ornl-memory",
        "ornl-file",
        "ornl-reorder",
    ],
    frugal: true,
    many: false,
    options: &[
        SYNC_INTERVAL,
        BETA,
        DECREASE,
        LOSS_THRESHOLD,
        LOSS_SMOOTHING,
        WINDOW,
        AVAILABLE_WINDOW,
        INITIAL_RATE,
    ],
    sender: |setup| Box::new(SabulSender::new(setup)),
    receiver: || Box::new(SabulReceiver::default()),
};

/// The release that Oak Ridge measured, in the registry.
pub const ORNL_ROW: Row = Row {
    name: "sabul-ornl",
    title: "SABUL as Oak Ridge measured it",
    paper: "Oak Ridge National Laboratory, Faster bulk transfer starring: UDP (2003), sections 3.2 \
            and 4",
    summary: "An earlier release of SABUL, kept to repeat a study: the receiver signals a rate \
              change every 200 ms and acknowledges every 100 ms. It reports a loss immediately, \
              and missing blocks again every 20 ms, so a loss is counted and resent several times. \
              The delay between datagrams starts at 10 µs. For experiments only.",
    experiments: &["ornl-memory", "ornl-file", "ornl-reorder"],
    frugal: true,
    many: false,
    options: &[
        RELEASE_SYNC_INTERVAL,
        ACK_INTERVAL,
        REPORT_INTERVAL,
        LOSS_THRESHOLD,
        LOSS_SMOOTHING,
        FIRST_DELAY,
        SHORTEST_DELAY,
        LONGEST_DELAY,
        DELAY_STEP,
        WINDOW,
    ],
    sender: |setup| Box::new(SabulSender::release(setup)),
    receiver: || Box::new(SabulOrnlReceiver::default()),
};
