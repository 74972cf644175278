//! Integration tests of the protocols' state machines in one binary. Most of them run on the
//! [`rig`].

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
