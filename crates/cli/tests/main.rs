//! Tests of the whole program: rules of the source, and the command line with the real binary.

mod compare;
mod corpus;
mod emulate;
mod files;
mod net;
mod rig;
mod sim;
mod tidy;
mod usage;
