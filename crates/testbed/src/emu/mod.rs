//! An emulator of wide-area paths: hosts in network namespaces, connected by emulated links.
//!
//! Every host is a network namespace with a TUN device that passes 64 kB super-packets (TSO, and
//! USO since Linux 6.2). One thread runs the links ([`crate::link`]) in real time. Root is not
//! needed if the kernel lets every user create user namespaces and open `/dev/net/tun`. The end of
//! the process, even a kill, ends the emulation.
//!
//! ```no_run
//! use longhaul_proto::{time::Span, units::Rate};
//! use longhaul_testbed::{emu::{Emulation, EmulationSpec}, link::LinkSpec};
//!
//! let link = LinkSpec::path(Rate::from_mbps(1_000), Span::from_millis(100));
//! let emulation = Emulation::start(EmulationSpec::pair(link.clone(), link))?;
//! emulation.command("a", "ping")?.args(["-c", "3", "b"]).status()?;
//! eprintln!("{}", emulation.statistics()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Capacity and punctuality: `results/emulator.md`, written by the example `blast`.
//!
//! While packets are in flight, and for a second afterwards, one thread per processor spins at the
//! lowest priority: a halted processor wakes up late.
//!
//! TCP buffers on the hosts may grow to at least 64 MiB, if the kernel lets the emulation raise
//! their limits. UDP sockets are subject to the machine's `net.core.rmem_max` and `wmem_max`; only
//! root outside any user namespace can exceed them (`SO_RCVBUFFORCE`).

mod awake;
mod clock;
mod command;
mod counters;
mod emulation;
mod error;
pub mod flows;
mod forwarder;
mod host;
mod keeper;
mod kernel_tcp;
mod lane;
mod netlink;
mod slab;
mod spec;
mod starvation;
mod statistics;
mod superpacket;
#[allow(unsafe_code, reason = "system calls that no library offers in a safe form")]
mod sys;
mod ways;

pub use command::HostCommand;
pub use emulation::Emulation;
pub use error::EmulationError;
pub use host::available;
pub use kernel_tcp::{KernelTcp, Running, Segments};
pub use spec::{EmulationSpec, HostAddresses};
pub use statistics::{HostStatistics, Lateness, LinkStatistics, Statistics, Verdict};
