//! A host's access link: the speed of the host's network card, and the other traffic on the link. A
//! receiver that divides its link among flows uses the speed and the traffic; a sender reports the
//! speed of its card to this receiver.
//!
//! `netlink` asks the kernel for the interface of a route, for the interface's counters, and for
//! the established TCP connections. `card` reads the interface's speed from sysfs. `count` makes
//! the counters of the interface and of our own sockets comparable. `tcp` counts the connections
//! that have at least a twentieth of the other traffic. `watch` connects these modules. A value
//! that cannot be read is left out and causes no error.

mod card;
mod count;
mod netlink;
mod tcp;
mod watch;

pub use watch::{Watch, card_towards};
pub(crate) use watch::{interface_towards, is_loopback};
