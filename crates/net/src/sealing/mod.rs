//! Sealed datagrams: [`keys`] derives the key of each class of datagrams, [`seal`] and [`open`] use
//! the keys, [`replay`] drops replayed datagrams.

pub mod keys;
pub mod open;
pub mod replay;
pub mod seal;
#[cfg(test)]
mod tests;
