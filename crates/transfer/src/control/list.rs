//! The messages of the service `list`. The client sends one [`List`]; the server answers with
//! [`Listed`] messages, the last of which says `done`.

use crate::error::{Error, ErrorKind};
use longhaul_files::list::{NameKind, Named};
use longhaul_files::manifest::{FileTime, MAX_PATH};

/// The name of the service.
pub const SERVICE: &str = "list";

/// The version of the service's messages. Each new field that a receiver must not skip raises the
/// version.
pub(crate) const VERSION: u32 = 1;

/// Approximate bytes of names and attributes in one message.
pub(crate) const PIECE: usize = 32 << 10;

/// The client's request for the names in a folder, or the attributes of one file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct List {
    /// The path, relative to the server's root; over ssh relative to the home folder, or absolute.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
}

/// Some of the names, in no particular order. An empty message says that the server is still
/// reading.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Listed {
    /// The names.
    #[prost(message, repeated, tag = "1")]
    pub names: Vec<ListedName>,
    /// Whether this is the last message.
    #[prost(bool, tag = "2")]
    pub done: bool,
}

/// A name and the attributes of its file, folder or link; a link is not followed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListedName {
    /// The name, without a slash.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// 0 a file, 1 a folder, 2 a link, 3 a kind that the server does not name, 4 a pipe,
    /// 5 a socket, 6 a character device, 7 a block device.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// The 12 permission bits.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// Bytes of content.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// The modification time, in seconds since 1970 UTC.
    #[prost(sint64, tag = "5")]
    pub seconds: i64,
    /// Nanoseconds of the modification time.
    #[prost(uint32, tag = "6")]
    pub nanos: u32,
    /// The target of a link; empty if it is unknown.
    #[prost(bytes = "vec", tag = "7")]
    pub target: Vec<u8>,
}

impl From<Named> for ListedName {
    fn from(named: Named) -> ListedName {
        let kind = match named.kind {
            NameKind::File => 0,
            NameKind::Folder => 1,
            NameKind::Link => 2,
            NameKind::Other => 3,
            NameKind::Pipe => 4,
            NameKind::Socket => 5,
            NameKind::CharDevice => 6,
            NameKind::BlockDevice => 7,
        };
        let Named { name, mode, size, modified: FileTime { seconds, nanos }, .. } = named;
        let target = named.target.unwrap_or_default();
        ListedName { name, kind, mode, size, seconds, nanos, target }
    }
}

impl ListedName {
    /// Checks the server's description of one name.
    ///
    /// # Errors
    /// The name is not a single path component, or the attributes are impossible.
    pub fn check(self) -> Result<Named, Error> {
        let ListedName { name, kind, mode, size, seconds, nanos, target } = self;
        let is_name = !name.is_empty() && name != b"." && name != b"..";
        let is_single = !name.iter().any(|byte| matches!(byte, b'/' | 0));
        let is_target = target.len() <= MAX_PATH && !target.contains(&0);
        if !is_name || !is_single || !is_target || mode > 0o7777 || nanos >= 1_000_000_000 {
            return Err(Error::new(ErrorKind::Unfinished, "the server listed an invalid entry"));
        }
        let kind = match kind {
            0 => NameKind::File,
            1 => NameKind::Folder,
            2 => NameKind::Link,
            4 => NameKind::Pipe,
            5 => NameKind::Socket,
            6 => NameKind::CharDevice,
            7 => NameKind::BlockDevice,
            // A newer version may send other kinds.
            _ => NameKind::Other,
        };
        let is_link = kind == NameKind::Link && !target.is_empty();
        let target = is_link.then_some(target);
        Ok(Named { name, kind, mode, size, modified: FileTime { seconds, nanos }, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_name_that_is_a_path_or_has_impossible_attributes_is_refused() {
        let name = |name: &[u8]| ListedName { name: name.to_vec(), ..ListedName::default() };
        assert_eq!(name(b"plain\xff").check().map(|named| named.kind), Ok(NameKind::File));
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"../x", b"nul\0"] {
            assert!(name(bad).check().is_err(), "{bad:?}");
        }
        assert!(ListedName { mode: 0o10000, ..name(b"x") }.check().is_err());
        assert!(ListedName { nanos: 1_000_000_000, ..name(b"x") }.check().is_err());
        for bad in [vec![b'x'; MAX_PATH + 1], b"nul\0".to_vec()] {
            assert!(ListedName { kind: 2, target: bad, ..name(b"x") }.check().is_err());
        }
        let link = |kind| ListedName { kind, target: b"../y".to_vec(), ..name(b"x") };
        assert_eq!(link(2).check().map(|named| named.target), Ok(Some(b"../y".to_vec())));
        assert_eq!(link(0).check().map(|named| named.target), Ok(None));
        use NameKind::{BlockDevice, CharDevice, File, Folder, Link, Other, Pipe, Socket};
        for kind in [File, Folder, Link, Other, Pipe, Socket, CharDevice, BlockDevice] {
            let named = Named { kind, ..name(b"x").check().unwrap() };
            assert_eq!(ListedName::from(named).check().map(|named| named.kind), Ok(kind));
        }
        let newer = ListedName { kind: 9, ..name(b"x") };
        assert_eq!(newer.check().map(|named| named.kind), Ok(NameKind::Other));
    }
}
