//! The two directions of a byte stream over any carrier.

use tokio::io::{AsyncRead, AsyncWrite};

/// Writes to the carrier.
pub(super) type Out = Box<dyn AsyncWrite + Send + Unpin>;

/// Reads from the carrier.
pub(super) type In = Box<dyn AsyncRead + Send + Unpin>;
