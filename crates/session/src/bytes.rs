//! The two directions of a byte stream over any carrier.

use std::any::Any;

use tokio::io::{AsyncRead, AsyncWrite};

pub(super) type Out = Box<dyn Writes>;

/// A writer of any carrier. `Any` permits a downcast to QUIC's writer.
pub(super) trait Writes: AsyncWrite + Any + Send + Unpin {}

impl<T: AsyncWrite + Any + Send + Unpin> Writes for T {}

pub(super) type In = Box<dyn AsyncRead + Send + Unpin>;
