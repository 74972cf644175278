//! Tests of the whole: the habits of the source, and the command line through the real binary.

mod compare;
mod corpus;
mod emulate;
mod files;
mod net;
mod rig;
mod sim;
mod tidy;
mod usage;
