//! Tests of the whole program.

mod compare;
mod corpus;
mod emulate;
mod files;
mod net;
mod rig;
mod sim;
mod tidy;
mod usage;
