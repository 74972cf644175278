//! Sealed datagrams: [`keys`] says which key seals what, [`seal`] and [`open`] use the keys,
//! [`replay`] drops datagrams that came before.

pub mod keys;
pub mod open;
pub mod replay;
pub mod seal;
#[cfg(test)]
mod tests;
