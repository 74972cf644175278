//! Memory for chunks ([`chunks`]), the blocks that fill them ([`assembly`]), and coded symbols that
//! replace blocks ([`repair`]).

pub mod assembly;
pub mod chunks;
pub mod repair;
