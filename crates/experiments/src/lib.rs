//! The papers' tables and figures, made again: what was published beside what our code does.
//!
//! An experiment is a list of scenarios and a function from their outcomes to rows. The scenarios
//! run in virtual time (the same numbers on every machine) and, where it makes sense, over the
//! emulator with the real binary. Nothing is tuned to match: what differs is said on the page.
//!
//! In reading order:
//! - [`experiment`]: what an experiment is. [`outcome`]: what running a case gives.
//! - [`quantity`], [`table`], [`page`]: rows, and the page that they are written on and read from.
//! - [`plot`][]: figures.
//! - [`scenarios`]: the files of `scenarios/`, and how a row varies its file. [`paths`]: rates as
//!   papers give them.
//! - [`catalogue`]: all experiments; then a file a paper: [`quanta`], [`fobs`], [`ornl`],
//!   [`sabul`], [`gtp`]; [`sidebyside`]: all protocols on one path; [`many`]: to many receivers;
//!   [`grid`]: simulator against emulator; [`remembered`]: a path that an earlier copy used.
//! - [`simulate`]: cases run in virtual time.
//! - `emulate`: cases run over the emulator, with the real binary (Linux only).
//! - [`results`]: the folder with the committed pages.

// The page names private modules, too: it is for readers of the source.
#![allow(rustdoc::private_intra_doc_links)]

mod auto;
pub mod catalogue;
#[cfg(target_os = "linux")]
pub mod emulate;
pub mod experiment;
mod fobs;
mod grid;
mod gtp;
mod many;
mod ornl;
pub mod outcome;
pub mod page;
mod paths;
pub mod plot;
mod quanta;
mod quantity;
mod remembered;
pub mod results;
mod sabul;
mod scenarios;
mod sidebyside;
pub mod simulate;
mod table;
