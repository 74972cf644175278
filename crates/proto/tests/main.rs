//! Integration tests of the protocols' state machines in one binary: the [`rig`] and the tests that
//! run on it.

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
