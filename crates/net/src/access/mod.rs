//! A host's access link. The receiving one's: what its card takes, and what else comes in on it
//! beside our own data. For receivers that share that link out among their flows, and whose senders
//! tell them what their cards put out.
//!
//! `netlink` asks the kernel: which interface a route uses, what that has counted, how many TCP
//! connections bring something. `card` reads from sysfs how fast the interface is. `count` makes
//! one kind of bytes of what the interface and our own sockets have counted. `watch` ties them
//! together. What cannot be learnt is left out: nothing here is an error.

mod card;
mod count;
mod netlink;
mod tcp;
mod watch;

pub use watch::{Watch, card_towards};
