//! Bulk data over long, fat networks, for programs that embed it.
//!
//! [`Client`] copies from and to other hosts; [`Server`] serves a folder to the ids that it allows.
//! Both own their threads: they work inside any async runtime and without one, and a slow reader of
//! [`Event`]s never slows a transfer.
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
//! Dropping a [`Transfer`] cancels it and keeps what has arrived: the same call resumes it.

pub use longhaul_transfer::api::*;
pub use longhaul_transfer::location::{DEFAULT_PORT, Location};
pub use longhaul_transfer::options::{
    Allow, Cipher, Filter, Names, Protocol, ReachOptions, Receive,
};
pub use longhaul_transfer::progress::{Progress, SourceRow, SourceState};
pub use longhaul_transfer::session::Identity;
pub use longhaul_transfer::summary::BoundBy;

/// The page for programs that embed the library; its examples are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
pub struct EmbeddingPage;

/// Sizes, rates and times, as settings, events and summaries have them.
pub mod units {
    pub use longhaul_proto::time::Span;
    pub use longhaul_proto::units::{Bytes, LossRatio, Rate};
}

/// The protocols and their settings.
pub mod protocol {
    pub use longhaul_proto::registry::{all, find};
    pub use longhaul_proto::settings::Settings;
}
