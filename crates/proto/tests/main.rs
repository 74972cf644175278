//! The core's integration tests, one binary: the [`rig`] and what runs on it.

mod canary;
mod conformance;
mod corpus;
mod fobs;
mod model;
mod netblt;
mod properties;
mod rbudp;
mod rig;
mod sabul;
mod tsunami;
