//! An HTTP client for files: versions, ranges and digests.
//!
//! - [`Url`]: the address of a file. [`Client`]: requests with redirects, proxies and TLS.
//! - [`Remote`]: one version of a file, as the server described it. [`Client::open`] asks for the
//!   version, and [`Client::read`] reads a range of this version into a [`Body`].
//! - [`Digest`] and [`Hasher`]: the digest that a server published, and its computation.
//!
//! The client does not trust the server. A body never exceeds the requested range. Each reply must
//! name the total size of the opened version; a strong ETag and a modification time in a reply must
//! also be those of this version. All calls block. The crate reads no files except the certificates
//! of trusted authorities.

mod client;
mod digest;
mod error;
mod headers;
mod remote;
mod url;

pub use client::{Client, Options};
pub use digest::{Digest, Hasher};
pub use error::{Error, Kind};
pub use remote::{Body, Remote};
pub use url::Url;
