//! HTTP and WebDAV for a served folder: access for curl, rclone and browsers.
//!
//! Modules in reading order:
//! - [`Gateway`] starts and stops the service; `tokens` has the rights, `shared` the state that all
//!   requests share, `disk` and `caller` the permits for disk accesses.
//! - `listening` runs the thread on which `accept` accepts connections; `patient` ends connections
//!   whose client does not read; `traffic` counts requests and bytes; `answer` dispatches a request
//!   by its method.
//! - handlers: `get` (files and their ranges), `folder` (listings, PROPFIND), `change` (PUT,
//!   MKCOL, DELETE, MOVE).
//! - parts of requests and replies: `url` (paths), `range` (the header `Range`), `condition` (ETags
//!   and dates), `body` and `reply` (replies).
//!
//! [`Page`] is a separate HTTP server that shows the state of a server to browsers and monitors.
//!
//! The path of a request is relative to the root of its token. Every file access goes through
//! [`longhaul_files::Place`], as for `lh://`, so no name and no link can lead out of the root.

#![allow(clippy::result_large_err, reason = "the error is the reply, and a request has only one")]

mod accept;
mod answer;
mod body;
mod caller;
mod change;
mod condition;
mod disk;
mod error;
mod folder;
mod gateway;
mod get;
mod listening;
mod page;
mod patient;
mod range;
mod reply;
mod shared;
mod tokens;
mod traffic;
mod url;

pub use error::Error;
pub use gateway::{Gateway, Settings};
pub use page::{Page, PageSettings, Watched, Watching};
pub use shared::AccessRecord;
pub use tokens::{Token, load as load_tokens, parse as parse_tokens, read_private};
pub use traffic::{HttpCounts, Traffic};
