//! Fuzz targets: functions that give any bytes to longhaul's parsers and protocol state machines.
//!
//! Each function panics if a property that its comment lists does not hold. `cargo fuzz run NAME`
//! searches for bytes that cause a panic. The test `crates/cli/tests/corpus.rs` runs the functions
//! over every file of `corpus/NAME/`, without a fuzzer.

pub mod channel;
pub mod client_session;
pub mod control_message;
pub mod data_header;
pub mod fec;
mod flow;
pub mod frame_header;
pub mod hello;
mod input;
pub mod journal;
pub mod listing;
pub mod manifest;
pub mod receiver;
pub mod remote_file;
pub mod rpc;
pub mod scenario;
pub mod sender;
pub mod server_session;
pub mod share;
mod spoken;
pub mod stream;
pub mod survey_answer;
pub mod transfer_frame;

pub type Run = fn(&[u8]);

/// Every target: the name of its binary and of its corpus, and its function.
pub const TARGETS: [(&str, Run); 20] = [
    ("client_session", client_session::run),
    ("control_message", control_message::run),
    ("data_header", data_header::run),
    ("fec", fec::run),
    ("frame_header", frame_header::run),
    ("hello", hello::run),
    ("journal", journal::run),
    ("listing", listing::run),
    ("manifest", manifest::run),
    ("receiver", receiver::run),
    ("remote_file", remote_file::run),
    ("rpc", rpc::run),
    ("scenario", scenario::run),
    ("sender", sender::run),
    ("server_session", server_session::run),
    ("share", share::run),
    ("channel", channel::run),
    ("stream", stream::run),
    ("survey_answer", survey_answer::run),
    ("transfer_frame", transfer_frame::run),
];
