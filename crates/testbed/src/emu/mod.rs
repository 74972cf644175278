//! An emulator of wide-area paths: hosts in network namespaces, the link code between them.
//!
//! Every host is a network namespace with a TUN device through which 64 kB super-packets pass
//! (TSO and USO), and one thread in the middle runs [`crate::link`] in real time. No root is
//! needed where the kernel lets everybody make user namespaces and open `/dev/net/tun`; nothing
//! is left behind, however the process ends.
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
//! How much it carries, and how punctually: `results/emulator.md`, made by the example `blast`.
//!
//! While packets are on their way, and for a second after, a thread for each processor takes what
//! nothing else wants, at the lowest priority there is: processors that halt come back late.
//!
//! TCP on the hosts may have 64 MiB on its way each way, as on a host tuned for such paths,
//! whatever the machine's own limits are.
//!
//! UDP sockets on the hosts live with the machine's `net.core.rmem_max` and `wmem_max`, which a
//! network namespace cannot raise; only real root can go beyond (`SO_RCVBUFFORCE`).

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
