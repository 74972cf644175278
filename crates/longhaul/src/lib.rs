//! Copies bulk data over long, fat networks, for programs that embed this library.
//!
//! [`Client`] copies from and to other hosts; [`Server`] serves a folder to the ids that it allows.
//! Both run on their own threads, so they work inside any async runtime and without one. A slow
//! reader of [`Event`]s never slows a transfer.
//!
//! ```no_run
//! # async fn copy() -> Result<(), longhaul::Error> {
//! use longhaul::{Client, Event, Identity, Trust};
//!
//! let folder = std::path::Path::new("/home/me/.config/longhaul");
//! let client = Client::builder()
//!     .identity(Identity::load_or_create(folder)?)
//!     .trust(Trust::known_servers(folder))
//!     .build()?;
//! let copy = client.copy(["run42"], "lh://dtn.example.org/data/").recursive(true);
//! let mut transfer = copy.start()?;
//! let mut events = transfer.events();
//! while let Some(event) = events.next().await {
//!     match event {
//!         Event::Progress(progress) => println!("{} bytes", progress.bytes),
//!         Event::FileFailed { path, reason } => println!("{}: {reason}", path.display()),
//!         _ => {}
//!     }
//! }
//! let summary = transfer.finish().await?;
//! # Ok(()) }
//! ```
//!
//! Dropping a [`Transfer`] cancels the copy and keeps the data that are already on the disk. A
//! later call with the same arguments resumes the copy.
//!
//! # From memory to memory
//!
//! ```no_run
//! # async fn memory(client: &longhaul::Client) -> Result<(), longhaul::Error> {
//! client.write(&b"three samples"[..], "lh://dtn.example.org/samples").await?;
//! let bytes = client.read("lh://dtn.example.org/samples").max_bytes(64 << 20).await?;
//! # Ok(()) }
//! ```
//!
//! # Serve, and shut down
//!
//! ```no_run
//! # async fn serve(identity: longhaul::Identity, id: &str) -> Result<(), longhaul::Error> {
//! use longhaul::{Access, Server};
//!
//! let server = Server::builder(identity).root("/data").allow(id, Access::read_only());
//! let mut server = server.listen("0.0.0.0:7717").start().await?;
//! println!("{} {}", server.address(), server.id());
//! server.shutdown(std::time::Duration::from_secs(5)).await;
//! # Ok(()) }
//! ```
//!
//! # Decide about new servers
//!
//! ```
//! use longhaul::Trust;
//!
//! let trust = Trust::ask(|new| async move { new.name.ends_with(".example.org:7717") });
//! ```

pub use longhaul_transfer::api::*;
pub use longhaul_transfer::location::{DEFAULT_PORT, Location};
pub use longhaul_transfer::options::{
    Allow, Cipher, Delete, Filter, Names, Protocol, ReachOptions, Receive, ServerPin,
};
pub use longhaul_transfer::probe::{Measured, PathFound, Ports, Trips, Way};
pub use longhaul_transfer::progress::{PathSample, Progress, SourceRow, SourceState};
pub use longhaul_transfer::session::{IdError, PeerId};
pub use longhaul_transfer::summary::{BoundBy, Segments};

#[cfg(feature = "tokio")]
mod tokio_io;
#[cfg(feature = "tokio")]
pub use tokio_io::FromTokio;

/// The guide for programs that embed the library; its examples are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
pub struct EmbeddingPage;

/// The page about remote procedure calls; its examples are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rpc.md")]
pub struct RpcPage;

/// Types of values in settings, events and summaries: sizes, rates, times, weights, and what the
/// rate search found.
pub mod units {
    pub use longhaul_proto::law::{Found, Phase, Weight};
    pub use longhaul_proto::time::Span;
    pub use longhaul_proto::units::{Bytes, LossRatio, Rate};
}

/// The counters of the two ends of a copy, and the capacity of the receiver, in a [`Summary`].
pub mod accounting {
    pub use longhaul_proto::accounting::{ReceiverAccounting, SenderAccounting};
    pub use longhaul_proto::endpoint::{Origin, ReceiveCapacity};
}

/// The protocols and their settings.
pub mod protocol {
    pub use longhaul_transfer::options::{MOST_TRIED, TCP_STREAMS};

    pub use longhaul_proto::registry::{all, find};
    pub use longhaul_proto::settings::Settings;
}
