//! The servers that this user has accepted, by name: the file `known_servers`, one line each.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::id::PeerId;
use super::rewritten::Rewriting;
use super::strict;
use crate::{Error, Kind};
use longhaul_text::{CallOption, reason};

pub(crate) const KNOWN_FILE: &str = "known_servers";

const HEAD: &str =
    "# Servers that longhaul trusts: host:port and id. Remove a line to forget one.\n";

/// The servers that this user has accepted.
#[derive(Clone, Debug)]
pub struct KnownServers {
    folder: PathBuf,
    path: PathBuf,
}

/// The entry of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The server's id.
    pub id: PeerId,
    /// Its line in the file, from 1.
    pub line: usize,
}

/// Returns the name of a server in the file: `host:port`, in lower case except for a zone; IPv6
/// addresses in brackets.
pub fn server_name(host: &str, port: u16) -> String {
    let host = lower(host);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Returns `host` in lower case except for a zone: interface names are case-sensitive.
pub(crate) fn lower(host: &str) -> String {
    let (address, zone) = host.split_at(host.find('%').unwrap_or(host.len()));
    address.to_ascii_lowercase() + zone
}

impl KnownServers {
    /// Returns the list in `config_dir`; an empty path means no list.
    pub fn new(config_dir: &Path) -> KnownServers {
        KnownServers { folder: config_dir.to_owned(), path: config_dir.join(KNOWN_FILE) }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the entry of the server called `name`.
    ///
    /// # Errors
    /// The file cannot be read, is invalid, can be changed by other users, or gives the server two
    /// ids.
    pub fn find(&self, name: &str) -> Result<Option<Known>, Error> {
        let mut found: Option<Known> = None;
        for (at, line) in self.read()?.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let known = line.split_once(char::is_whitespace).and_then(|(named, id)| {
                Some((named, Known { id: id.trim().parse().ok()?, line: at + 1 }))
            });
            let Some((named, known)) = known else {
                let what =
                    format!("{} line {}: not `host:port lh1:…`", self.path.display(), at + 1);
                return Err(Error::new(Kind::LocalFile, what)
                    .at(&self.path)
                    .advise("fix or remove the line"));
            };
            if named != name {
                continue;
            }
            if let Some(first) = found.filter(|first| first.id != known.id) {
                let what = format!(
                    "{} gives {name} two ids, in lines {} and {}",
                    self.path.display(),
                    first.line,
                    known.line
                );
                return Err(Error::new(Kind::LocalFile, what).at(&self.path).advise(
                    "ask the server's owner which id is right, and remove the other line",
                ));
            }
            found = found.or(Some(known));
        }
        Ok(found)
    }

    /// Adds the server if it has no entry. Replaces the file atomically.
    ///
    /// # Errors
    /// As [`find`](KnownServers::find); or the file cannot be written, or has another id for the
    /// name.
    pub fn remember(&self, name: &str, id: PeerId) -> Result<(), Error> {
        if self.folder.as_os_str().is_empty() {
            return Ok(());
        }
        let trouble = |error: std::io::Error| {
            let why = reason(&error);
            let what = format!("cannot remember {name} in {}: {why}", self.path.display());
            Error::new(Kind::LocalFile, what).at(&self.path).advise(format!(
                "make the folder writable, or name the server's id with {}, so that \
                 nothing need be written",
                CallOption::Pin
            ))
        };
        // The lock keeps concurrent commands from overwriting each other's lines.
        let rewriting = Rewriting::wait(&self.folder).map_err(trouble)?;
        match self.find(name)? {
            Some(known) if known.id == id => return Ok(()),
            Some(known) => return Err(self.changed(name, known, id)),
            None => {}
        }
        let mut text = self.read()?;
        if text.is_empty() {
            text.push_str(HEAD);
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("{name} {id}\n"));
        rewriting.replace(&self.path, text.as_bytes()).map_err(trouble)
    }

    /// Returns the error for a server with another key than in the file.
    pub fn changed(&self, name: &str, known: Known, shown: PeerId) -> Error {
        let what = format!(
            "THE KEY OF {name} HAS CHANGED: it shows {shown}, but {} line {} says {}; nothing was \
             sent",
            self.path.display(),
            known.line,
            known.id
        );
        Error::new(Kind::Unreachable, what).advise(format!(
            "somebody may intercept the connection; ask the server's owner, and remove line {} \
             of that file only if the key is really new",
            known.line
        ))
    }

    fn read(&self) -> Result<String, Error> {
        if self.folder.as_os_str().is_empty() {
            return Ok(String::new());
        }
        let trouble = |error: std::io::Error| {
            let what = format!("cannot read {}: {}", self.path.display(), reason(&error));
            Error::new(Kind::LocalFile, what).at(&self.path).advise(format!(
                "fix or remove the file, or name the server's id with {}, which needs no file",
                CallOption::Pin
            ))
        };
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            opened => opened.map_err(trouble)?,
        };
        strict::check(&self.path, &file)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(trouble)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);

    fn known() -> (tempfile::TempDir, KnownServers) {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let known = KnownServers::new(folder.path());
        (folder, known)
    }

    #[test]
    fn a_remembered_id_is_found_under_its_name_only() {
        let (_folder, known) = known();
        assert_eq!(known.find("a:1"), Ok(None));
        known.remember("a:1", A).expect("writable");
        known.remember("[::1]:7717", B).expect("writable");
        known.remember("a:1", A).expect("known already");
        assert_eq!(known.find("a:1"), Ok(Some(Known { id: A, line: 2 })));
        assert_eq!(known.find("[::1]:7717"), Ok(Some(Known { id: B, line: 3 })));
        assert_eq!(known.find("a:2"), Ok(None));
        let mode = known.path().metadata().expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn comments_and_a_last_line_without_a_newline_survive() {
        let (_folder, known) = known();
        let before = format!("# mine\n\n  a:1   {A}  \n# no end");
        std::fs::write(known.path(), &before).expect("writable");
        known.remember("b:1", B).expect("writable");
        let after = std::fs::read_to_string(known.path()).expect("readable");
        assert_eq!(after, format!("{before}\nb:1 {B}\n"));
        assert_eq!(known.find("a:1"), Ok(Some(Known { id: A, line: 3 })));
    }

    #[test]
    fn an_invalid_line_is_named() {
        let (_folder, known) = known();
        for bad in ["a:1", "a:1 lh1:abc", &format!("a:1 {A} more")] {
            std::fs::write(known.path(), format!("# x\n{bad}\n")).expect("writable");
            let error = known.find("b:1").expect_err("nothing in it is trusted");
            assert!(error.what.contains("known_servers line 2"), "{error}");
        }
    }

    #[test]
    fn two_ids_for_one_server_are_an_error_and_the_first_of_equal_entries_is_found() {
        let (_folder, known) = known();
        let lines = format!("a:1 {A}\nb:1 {B}\na:1 {A}\n");
        std::fs::write(known.path(), &lines).expect("writable");
        assert_eq!(known.find("a:1"), Ok(Some(Known { id: A, line: 1 })));
        std::fs::write(known.path(), format!("{lines}a:1 {B}\n")).expect("writable");
        let error = known.find("a:1").expect_err("neither of the two is trusted");
        assert!(error.what.ends_with("gives a:1 two ids, in lines 1 and 4"), "{error}");
        assert_eq!(known.find("b:1"), Ok(Some(Known { id: B, line: 2 })));
    }

    #[test]
    fn another_id_for_a_known_name_is_never_written() {
        let (_folder, known) = known();
        known.remember("a:1", A).expect("writable");
        let error = known.remember("a:1", B).expect_err("another id");
        assert_eq!(error.kind, Kind::Unreachable);
        assert_eq!(known.find("a:1"), Ok(Some(Known { id: A, line: 2 })));
    }

    #[test]
    fn without_a_usable_file_the_error_names_the_pin() {
        let (folder, known) = known();
        std::fs::create_dir(known.path()).expect("the folder is ours");
        let unreadable = known.find("a:1").expect_err("it is a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("the folder is ours");
        let unopened = KnownServers::new(&file).find("a:1").expect_err("its folder is a file");
        let nowhere = KnownServers::new(&folder.path().join("none"));
        let unwritable = nowhere.remember("a:1", A).expect_err("there is no folder");
        for (error, what) in [
            (unreadable, "cannot read"),
            (unopened, "cannot read"),
            (unwritable, "cannot remember a:1"),
        ] {
            assert!(error.what.starts_with(what) && !error.what.contains("os error"), "{error}");
            assert!(error.advice.expect("it helps").contains("`pin`"));
        }
    }

    #[test]
    fn a_list_that_others_may_change_is_not_trusted() {
        let (_folder, known) = known();
        known.remember("a:1", A).expect("writable");
        let mode = |mode| std::fs::set_permissions(known.path(), Permissions::from_mode(mode));
        mode(0o620).expect("it is ours");
        let error = known.find("a:1").expect_err("others may write");
        assert!(error.what.contains("known_servers can be written by others"), "{error}");
        mode(0o644).expect("it is ours");
        assert!(known.find("a:1").is_ok_and(|found| found.is_some()));
    }

    #[test]
    fn concurrent_additions_lose_no_line() {
        let (_folder, known) = known();
        std::thread::scope(|scope| {
            for port in 0..8 {
                let known = &known;
                scope.spawn(move || known.remember(&format!("a:{port}"), A).expect("writable"));
            }
        });
        for port in 0..8 {
            assert!(known.find(&format!("a:{port}")).expect("readable").is_some(), "{port}");
        }
    }

    #[test]
    fn names_are_normalised() {
        assert_eq!(server_name("DTN.example.org", 7717), "dtn.example.org:7717");
        assert_eq!(server_name("2001:DB8::1", 1), "[2001:db8::1]:1");
        assert_eq!(server_name("FE80::1%Eth0", 1), "[fe80::1%Eth0]:1");
    }
}
