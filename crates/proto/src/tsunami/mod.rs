//! Tsunami: the file transfer tool of Indiana University's Advanced Network Management Lab, as Oak
//! Ridge National Laboratory described and measured it ("Faster bulk transfer starring: UDP", here
//! called the study), and as the public tool, versions 1.1 and 1.2, behaves.
//!
//! > The receiver uses the combination of the number of packets received (a multiple of 50) and a
//! > timed interval (>350ms) since the last update to determine when to send a REQUEST_ERROR_RATE
//! > packet containing a smoothed error rate. If the error rate is greater than the maximum
//! > tolerated rate, the sending rate is decreased; if it is less, the sending rate is increased.
//! > (3.2) … The TSUNAMI client reports missing packets after the requirements for numbers of
//! > packets received (a multiple of 50) and amount of time since the last report (more than 350ms)
//! > have been satisfied. (6)
//!
//! The receiver decides. It requests missing blocks, reports the error rate, and acknowledges the
//! blocks before the first missing one. If too much is missing, it requests a *restart*: the sender
//! resends everything from the first missing block on. The sender sends in order, requested blocks
//! first; the delay between datagrams begins at three times the delay of the highest rate (the
//! *target*).
//!
//! The study's troubles, their causes, and the solutions here:
//! - "Many of the requests were repeats": every report repeated the requests for blocks that were
//!   already in flight. Here a block is requested again only after two round trips (at least 5 ms).
//!   The sender drops a request for a block that waits to be resent or was resent less than a round
//!   trip ago. A gap counts as missing only after a grace, a wait for reordered datagrams
//!   ([`GRACE`]).
//! - "The last block was observed being transmitted 11,876 times": the tool repeats the last
//!   block without pause until the sender is stopped, because the tool's receiver acts only when
//!   a datagram arrives. Here the receiver has timers, and the last block is resent only after a
//!   timeout in silence.
//! - "REQUEST_RESTART requests seem to cause instability": everything after the first missing block
//!   is resent, part of it is lost again, and the first missing block is still near the beginning.
//!   Here the receiver requests no second restart during the first, only the blocks that the
//!   restart has passed and lost again. The table of missing blocks, whose overflow makes a restart
//!   necessary, is also larger ([`TABLE`]).
//!
//! Other differences. The tool requests single blocks; this code requests runs of blocks. The tool
//! truncates its delay to whole microseconds; ours is exact. If nothing arrives for a report
//! interval, the receiver sends requests on its own. Such requests enter the smoothed error rate
//! only if they ask for a restart. Otherwise they would slow down a sender that has only paused. If
//! no rate is given, a rate search finds the target. The delay then begins at the target's delay,
//! because the search approaches the path's rate from below.
//!
//! The tool's client proves that it knows a secret before it may request files. Here the session
//! authenticates both hosts instead.
//!
//! Modules: `sender` selects blocks, `delay` sets the rate, `receiver` counts, `requests` decides
//! when to request which blocks.

mod delay;
mod receiver;
mod requests;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::TsunamiReceiver;
pub use sender::TsunamiSender;

use alloc::boxed::Box;

use crate::kind::Kind;
use crate::row::Row;
use crate::settings::ProtocolOption;

/// "A timed interval (>350ms) since the last update." (Study, 3.2)
pub(crate) const REPORT_INTERVAL: ProtocolOption = ProtocolOption::new(
    Kind::Time,
    "report-interval",
    "least time between reports",
    (0.001, 60.0),
    0.35,
);

/// "The number of packets received (a multiple of 50)." (Study, 3.2)
pub(crate) const REPORT_BLOCKS: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "report-blocks",
    "the receiver reports when its count of datagrams passes a multiple of this",
    (1.0, 1e6),
    50.0,
);

/// "A default tolerated loss rate of 7.9%." (Study, 3.2)
pub(crate) const ERROR_RATE: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "error-rate",
    "tolerated error rate; each missing block counts half, as in the public tool",
    (0.0, 0.99),
    0.079,
);

/// The public tool's slow-down, 25/24.
pub(crate) const SLOW_DOWN: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "slow-down",
    "factor on the delay if everything is lost; less in proportion if less is lost",
    (1.0, 10.0),
    25.0 / 24.0,
);

/// The public tool's speed-up, 5/6.
pub(crate) const SPEED_UP: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "speed-up",
    "factor on the delay after a report within the tolerated error rate",
    (0.01, 1.0),
    5.0 / 6.0,
);

/// The public tool's weight of earlier values.
pub(crate) const HISTORY: ProtocolOption = ProtocolOption::new(
    Kind::Ratio,
    "history",
    "weight of the previous error rate in the smoothed error rate",
    (0.0, 0.99),
    0.25,
);

/// The public tool's table of missing blocks has 2048 entries. The study "enlarged" it "in an
/// attempt to eliminate REQUEST_RESTART requests", and so does this code.
pub const TABLE: ProtocolOption = ProtocolOption::new(
    Kind::Count,
    "table",
    "number of missing blocks at which the receiver requests a restart instead of these blocks",
    (1.0, 1e9),
    65_536.0,
);

/// Our addition. When a report is due, the tool requests every missing block, late or lost.
pub const GRACE: ProtocolOption = ProtocolOption::new(
    Kind::Number,
    "grace",
    "lateness in round-trip times, at least 1 ms, after which an overtaken block counts as \
     missing; 0: none, as in the public tool",
    (0.0, 100.0),
    0.25,
);

/// Tsunami in the registry.
pub const ROW: Row = Row {
    name: "tsunami",
    title: "Tsunami",
    paper: "Oak Ridge National Laboratory, Faster bulk transfer starring: UDP (2003), sections 3.2 \
            and 6; the public tool, versions 1.1 and 1.2",
    summary: "The receiver decides: every 350 ms it requests missing blocks and reports an error \
              rate. The sender begins with three times the target rate's delay between datagrams, \
              and reduces the delay to that of the target rate. While the error rate exceeds the \
              tolerated one, the sender lengthens the delay. Loss of a few percent does not slow \
              Tsunami down. Made for paths without much other traffic, to which it yields little.",
    experiments: &["ornl-memory", "ornl-file", "ornl-reorder"],
    frugal: true,
    many: false,
    options: &[
        REPORT_INTERVAL,
        REPORT_BLOCKS,
        ERROR_RATE,
        SLOW_DOWN,
        SPEED_UP,
        HISTORY,
        TABLE,
        GRACE,
    ],
    sender: |setup| Box::new(TsunamiSender::new(setup)),
    receiver: || Box::new(TsunamiReceiver::default()),
};
