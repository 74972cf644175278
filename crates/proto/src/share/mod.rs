//! A tree of small values that clients watch and edit: Quanta's `QUANTAdb_c` (section 3.2).
//!
//! The server holds the only [`Tree`]. Each change creates the tree's next revision; the revision
//! is also the new version of the changed key. A [`Watcher`] gets a snapshot, then all changes in
//! order. If the tree has discarded a change that a watcher needs, the watcher gets a new snapshot.
//! A client checks the data with a [`Replica`], and keeps its edits in [`Edits`] until they are
//! acknowledged. [`Calls`] makes each edit at most once, however often it is sent: the server
//! remembers the last outcomes of each [`Writer`]. Only a presence (a value that vanishes with its
//! writer) is created again if it has vanished.

mod calls;
mod edits;
mod key;
mod replica;
mod right;
#[cfg(test)]
mod tests;
mod tree;
mod watcher;
mod writers;

pub use calls::{By, Call, Calls, Made};
pub use edits::{Answer, Edits, Hold, Sent, Wish};
pub use key::{Key, KeyError, MAX_KEY, Prefix};
pub use replica::{Lie, Replica, Update};
pub use right::Right;
pub use tree::{Change, Condition, Disk, Edit, Entry, Limits, MAX_VALUE, Refusal, Tree};
pub use watcher::{PIECE, Piece, Watcher};
pub use writers::{Crowd, Row, Rows, WINDOW, WRITERS, Writer, Writers};
