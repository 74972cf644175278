//! A host's access link: the speed of its card and the other traffic on it. Receivers that divide
//! their link among flows use both; senders report their card's speed to such receivers.
//!
//! `netlink` asks the kernel which interface a route uses, for its counters, and for the active TCP
//! connections. `card` reads the interface's speed from sysfs. `count` makes the counters of the
//! interface and of our own sockets comparable. `watch` connects the parts. A value that cannot be
//! read is left out and causes no error.

mod card;
mod count;
mod netlink;
mod tcp;
mod watch;

pub(crate) use watch::interface_towards;
pub use watch::{Watch, card_towards};
