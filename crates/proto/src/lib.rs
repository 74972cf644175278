//! The protocols of longhaul as pure state machines.
//!
//! The crate knows no clock, socket, thread or file (`no_std` enforces this), and makes no random
//! choice. The same core runs in unit tests, the simulator, the emulator and production.
//!
//! In reading order:
//! - [`time`], [`units`]: points in time, spans, bytes, rates, loss ratios. [`quantity`]: the text
//!   form of rates, sizes, times and ratios.
//! - [`layout`]: how an object is divided into segments, chunks and blocks.
//! - [`endpoint`]: the traits that every protocol implements. [`accounting`]: counters of
//!   senders and receivers. [`wire`]: header and control messages.
//! - [`tally`], [`ranges`]: which blocks have arrived, which are skipped.
//! - [`pace`], [`rtt`], [`sent`], [`pulse`], [`rate`]: pacing, measurements and rate control.
//!   [`law`]: the rate control laws. [`remembered`]: an earlier flow's findings about the path.
//!   [`early`], [`receipt`]: what has arrived before the session is open.
//! - [`ends`]: code that the senders and receivers of all protocols share.
//! - [`registry`], [`settings`], [`kind`]: the list of protocols, their settings, and the units of
//!   the settings. Then a folder for each protocol: [`rbudp`], [`fobs`], [`sabul`], [`tsunami`],
//!   [`netblt`], [`gtp`].
//! - [`fec`]: erasure codes, which replace lost datagrams without a round trip. [`coded`]: repair
//!   symbols in the last rounds of a copy.
//! - [`stream`]: frames that arrive before a deadline or are reported as missed.
//! - [`model`]: RBUDP's equations.
//! - [`channel`]: messages from several senders to several subscribers.
//! - [`share`]: a tree of small values that clients watch and edit.
//! - [`rpc`]: remote procedure calls.
//!
//! A minimal driver (the program that passes messages and time to the cores): one protocol over a
//! channel without loss or delay.
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

// This page also links private modules, because its readers read the source.
#![allow(rustdoc::private_intra_doc_links)]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod accounting;
pub mod channel;
pub mod coded;
pub mod early;
pub mod endpoint;
mod ends;
pub mod fec;
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
pub mod receipt;
pub mod registry;
pub mod remembered;
mod row;
pub mod rpc;
mod rtt;
pub mod sabul;
mod sent;
pub mod settings;
pub mod share;
pub mod stream;
pub mod tally;
pub mod time;
pub mod tsunami;
pub mod units;
pub mod wire;
