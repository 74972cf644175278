//! The papers' tables and figures.
pub mod plot;
