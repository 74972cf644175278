//! The protocols of longhaul as pure state machines.
//!
//! Nothing here knows a clock, a socket, a thread or a file, and no randomness but what it is
//! handed; the crate is `no_std` so that the compiler keeps it so. One core runs in unit tests,
//! the simulator, the emulator and production.
//!
//! In reading order:
//! - [`time`], [`units`]: points in time, spans, bytes, rates, loss ratios. [`quantity`]: how
//!   people write them.
//! - [`layout`]: an object's cut into segments, chunks and blocks.
//! - [`endpoint`]: the verbs by which every protocol is driven. [`accounting`]: what both ends
//!   count. [`wire`]: header and control messages.
//! - [`tally`], [`ranges`]: which blocks have arrived, which are to be left out.
//! - [`pace`], [`rtt`], [`sent`], [`pulse`], [`rate`]: how fast, and what that is decided on.
//!   [`remembered`]: what an earlier flow found out about the path.
//! - [`ends`]: what the two ends of every protocol share.
//! - [`registry`], [`settings`], [`kind`]: every protocol, a row each, the numbers that it may be
//!   told, and their units; then its folder: [`rbudp`], [`fobs`], [`sabul`], [`tsunami`],
//!   [`netblt`], [`gtp`].
//! - [`model`]: RBUDP's equations.
//!
//! A driver in a few lines: a protocol over a channel that loses nothing and takes no time.
//!
//! ```
//! use longhaul_proto::endpoint::{Arrival, FlowId, PacketNumber, Setup, Wake};
//! use longhaul_proto::layout::Layout;
//! use longhaul_proto::registry;
//! use longhaul_proto::time::{Span, Time};
//! use longhaul_proto::units::{Bytes, Rate};
//!
//! let layout = Layout::whole(Bytes::new(1_000_000), 1440).expect("sizes that fit");
//! let (overhead, rate) = (Bytes::new(32), Some(Rate::from_mbps(100)));
//! let rtt = Span::from_millis(1);
//! let setup = Setup { overhead, rate, ..Setup::new(FlowId(1), layout, rtt) };
//! let row = &registry::all()[0];
//! let (mut sender, mut receiver) = ((row.sender)(&setup), (row.receiver)());
//! let (mut now, mut next, mut blocks) = (Time::ZERO, 0, Vec::new());
//! receiver.add_flow(now, &setup);
//! while !sender.is_finished() {
//!     sender.poll_transmit(now, PacketNumber(next), 44, &mut blocks);
//!     let numbered = blocks.iter().zip(next..);
//!     let arrival = |(&block, n)| Arrival { number: PacketNumber(n), block, at: now };
//!     let arrivals: Vec<Arrival> = numbered.map(arrival).collect();
//!     next += blocks.len() as u64;
//!     blocks.clear();
//!     receiver.on_datagrams(now, setup.flow, &arrivals);
//!     while let Some(outgoing) = sender.poll_control(now) {
//!         receiver.on_control(now, outgoing.flow, &outgoing.control);
//!     }
//!     while let Some(outgoing) = receiver.poll_control(now) {
//!         sender.on_control(now, outgoing.flow, &outgoing.control);
//!     }
//!     if let Wake::At(at, _) = sender.next_wakeup().earlier(receiver.next_wakeup()) {
//!         now = now.max(at);
//!         sender.on_timeout(now);
//!         receiver.on_timeout(now);
//!     }
//! }
//! assert!(receiver.is_finished(setup.flow));
//! assert_eq!(sender.accounting().sent, setup.layout.blocks());
//! ```

// The page names private modules, too: it is for readers of the source.
#![allow(rustdoc::private_intra_doc_links)]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accounting;
pub mod endpoint;
mod ends;
mod fobs;
pub mod gtp;
pub mod kind;
pub mod law;
pub mod layout;
pub mod model;
pub mod netblt;
pub mod pace;
mod pulse;
pub mod quantity;
pub mod ranges;
mod rate;
pub mod rbudp;
pub mod registry;
pub mod remembered;
mod row;
mod rtt;
pub mod sabul;
mod sent;
pub mod settings;
pub mod tally;
pub mod time;
pub mod tsunami;
pub mod units;
pub mod wire;
