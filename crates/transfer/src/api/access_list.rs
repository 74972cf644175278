//! Lists of clients as text. An entry is the value of a command-line option, or a line of a file.
//! `ID[:ro|wo|rw[:subfolder]]` grants rights to files;
//! `ID,files=ro:/sub,share=rw:/world,stream=ro:/rooms` grants rights by service. `ro` lets the
//! client read, `wo` write, and `rw` both.

use std::path::Path;

use crate::error::public::Error;
use crate::options::Allow;
use crate::session::allow;

/// Parses one entry. The mode is `ro`, `wo` or `rw`, in upper or lower case. An id alone grants
/// reading and writing of files. A folder needs a mode before it, as in `ID:rw:photos`, so that a
/// mistyped mode is never taken for a folder.
///
/// # Errors
/// The id has a typing error, a mode is unknown, a service is unknown or repeated, or the subfolder
/// is not below the root.
pub fn parse(entry: &str) -> Result<Allow, Error> {
    Ok(allow::parse(entry)?)
}

/// Reads the list in the file at `path`: one entry per line. A `#` at the start of
/// a line, or after a space or tab, starts a comment.
///
/// # Errors
/// The file cannot be read, somebody else can change it, or a line is not an entry or repeats an
/// id.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Allow>, Error> {
    Ok(allow::load(path.as_ref())?)
}
