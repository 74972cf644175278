//! Memory for chunks ([`chunks`]), and the blocks that fill them ([`assembly`]).

pub mod assembly;
pub mod chunks;
