//! GTP's sender and receiver, message by message, and many flows through one link in virtual time.

mod ends;
mod joins;
mod lies;
mod shares;
mod star;
