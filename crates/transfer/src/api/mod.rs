//! The library that other programs embed.
//!
//! [`Client`] and [`Server`] describe the two sides; a [`CopyRequest`] starts a [`Transfer`], which
//! reports [`Event`]s and ends with a [`Summary`] or an [`Error`]. [`Trust`] decides about
//! new servers. `queue` lies between engine and reader, `engine` owns the threads; [`blocking`]
//! serves threads that may wait.

pub mod blocking;
mod client;
mod copy;
mod engine;
mod error;
mod events;
mod queue;
mod server;
mod transfer;
mod trust;

pub use client::{Client, ClientBuilder, IntoLocation};
pub use copy::CopyRequest;
pub use error::{Error, ErrorKind, Side};
pub use events::{Event, Events};
pub use server::{Access, Server, ServerBuilder, ServerControl, ServerEvent, ServerEvents};
pub use transfer::Transfer;
pub use trust::{NewServer, Trust};

pub use crate::progress::Cancel as CancelHandle;
pub use crate::summary::Summary;
