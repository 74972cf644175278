//! Reproductions of the papers' tables and figures: published values next to longhaul's.
//!
//! An experiment is a list of scenarios and a function from their outcomes to rows. The scenarios
//! run in virtual time (the same numbers on every machine) and, where possible, over the emulator
//! with the real binary. If a paper omits an input, an experiment may derive the input from a
//! published value, and marks the row as fitted. No other input is tuned to match; the pages state
//! the differences.
//!
//! In reading order:
//! - [`experiment`]: the definition of an experiment. [`outcome`]: the result of a case.
//! - [`quantity`], [`table`], [`page`]: rows, and the page to which they are written and from which
//!   they are read back.
//! - [`plot`][]: figures.
//! - [`scenarios`]: the files of `scenarios/`, and variations of them. [`paths`]: conversion
//!   of the papers' rates.
//! - [`catalogue`]: all experiments; then one module per paper: [`quanta`], [`fobs`], [`ornl`],
//!   [`sabul`], [`gtp`]; [`sidebyside`]: all protocols on one path; [`many`]: copies to many
//!   receivers; [`grid`]: simulator against emulator; [`auto`]: the automatic mode;
//!   [`remembered`]: a path that an earlier copy used; [`updates`]: state updates.
//! - [`simulate`]: runs cases in virtual time.
//! - `emulate`: runs cases over the emulator, with the real binary (Linux only).
//! - [`results`]: the folder with the committed pages.

// The page also links to private modules: it is for readers of the source.
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
pub mod updates;
