//! Patterns in the path of a location, expanded to the matching names on the other host.
//!
//! The client lists the folders along the pattern, so the server's access rules apply.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longhaul_files::filter::{CompiledFilters, Filter};

use super::client::Client;
use super::connection::Connection;
use super::{IntoLocation, NameKind, Named};
use crate::error::public::{Error, ErrorKind};
use crate::location::Location;
use crate::options::ReachOptions;
use crate::progress::Cancel;

/// Maximum number of names that one component of a pattern may match, in all folders together.
const MAX_MATCHES: usize = 10_000;
const MAX_NAMES: u64 = 5_000_000;

const PATTERN: &[u8] = b"*?[{";

/// A location that a pattern expands to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expanded {
    /// The location.
    pub location: Location,
    /// The other host's description of the location; `None` if no host was asked, because the
    /// location has no pattern, is local or is an HTTP location.
    pub named: Option<Named>,
}

impl Client {
    /// Returns the locations that `pattern` matches, sorted. `*`, `?`, `[…]` and `{…,…}` match
    /// within a path component. A literal name takes precedence over the pattern. Only a dot
    /// matches a leading dot. A local location, an HTTP location, or a location without a pattern
    /// is returned unchanged, and no host is contacted.
    ///
    /// # Errors
    /// Nothing matches ([`ErrorKind::RemoteFile`]). The pattern is invalid, matches more than
    /// 10,000 names, or needs a search through more than 5,000,000 names ([`ErrorKind::Usage`]).
    /// The host cannot be reached or refuses listings.
    pub async fn expand(
        &self,
        pattern: impl IntoLocation,
        reach: ReachOptions,
        cancel: &Cancel,
    ) -> Result<Vec<Expanded>, Error> {
        let pattern = pattern.into_location()?;
        let path = pattern.path().as_os_str().as_bytes();
        let has_names = !matches!(pattern, Location::Local(_) | Location::Http { .. });
        if !has_names || !is_pattern(path) {
            return Ok(vec![Expanded { location: pattern, named: None }]);
        }
        let request = self.connect(pattern.clone()).reach(reach).cancel_with(cancel);
        let mut expansion = Expansion { connection: request.await?, names: 0 };
        let found = expansion.paths(path).await?;
        if found.is_empty() {
            let what = format!("no name matches the pattern {pattern}");
            return Err(Error::new(ErrorKind::RemoteFile, what).at(pattern.path()));
        }
        let expanded = found.into_iter().map(|(mut path, named)| {
            // Over ssh a path that begins with ~ would be read as a path in the home folder.
            if path.starts_with(b"~") && !pattern.path().starts_with("~") {
                path.splice(..0, *b"./");
            }
            let location = pattern.with_path(OsStr::from_bytes(&path).into());
            Expanded { location, named: Some(named) }
        });
        Ok(expanded.collect())
    }
}

fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| PATTERN.contains(byte))
}

struct Expansion {
    connection: Connection,
    /// Names examined so far.
    names: u64,
}

impl Expansion {
    async fn paths(&mut self, pattern: &[u8]) -> Result<Vec<(Vec<u8>, Named)>, Error> {
        let first = pattern.iter().position(|byte| PATTERN.contains(byte)).unwrap_or(0);
        let start = pattern[..first].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (mut folders, mut found) = (vec![pattern[..start].to_vec()], Vec::new());
        let says_folder = pattern.ends_with(b"/");
        let parts: Vec<&[u8]> =
            pattern[start..].split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        for (number, part) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            let wants_folder = !is_last || says_folder;
            found = Vec::new();
            for folder in std::mem::take(&mut folders) {
                for named in self.matches(&folder, part, wants_folder).await? {
                    let slash: &[u8] = if wants_folder { b"/" } else { b"" };
                    found.push(([&folder[..], &named.name, slash].concat(), named));
                }
                if found.len() > MAX_MATCHES {
                    let what = format!("more than {MAX_MATCHES} names match a pattern");
                    return Err(Error::new(ErrorKind::Usage, what));
                }
            }
            if !is_last {
                folders = found.drain(..).map(|(path, _)| path).collect();
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    /// Returns the matching names in a folder; only one if a name equals the pattern's text.
    async fn matches(
        &mut self,
        folder: &[u8],
        pattern: &[u8],
        wants_folder: bool,
    ) -> Result<Vec<Named>, Error> {
        // An invalid pattern may still be a literal name.
        let filters = compiled(pattern);
        let mut names = self.connection.list(PathBuf::from(OsStr::from_bytes(folder))).await?;
        let mut matching = Vec::new();
        while let Some(named) = names.next().await {
            let named = match named {
                // As in a shell, a folder that cannot be read has no matching names.
                Err(error) if error.kind == ErrorKind::RemoteFile && !folder.is_empty() => break,
                named => named?,
            };
            self.names += 1;
            if self.names > MAX_NAMES {
                let what = format!("a pattern needs a search through more than {MAX_NAMES} names");
                return Err(Error::new(ErrorKind::Usage, what));
            }
            let is_folder = named.kind == NameKind::Folder;
            let may_lead = is_folder || named.kind == NameKind::Link;
            if named.name == pattern && (may_lead || !wants_folder) {
                return Ok(vec![named]);
            }
            let is_hidden = named.name.starts_with(b".") && !pattern.starts_with(b".");
            let may_match = !is_hidden && (is_folder || !wants_folder);
            let takes = |filters: &CompiledFilters| filters.takes(&named.name, true);
            if may_match && filters.as_ref().is_ok_and(takes) && matching.len() <= MAX_MATCHES {
                matching.push(named);
            }
        }
        filters.map(|_| matching)
    }
}

fn compiled(pattern: &[u8]) -> Result<CompiledFilters, Error> {
    let Ok(pattern) = std::str::from_utf8(pattern) else {
        return Err(Error::new(ErrorKind::Usage, "a pattern must be UTF-8"));
    };
    let filters = [Filter::Include(format!("/{pattern}")), Filter::Exclude("*".to_owned())];
    CompiledFilters::new(&filters).map_err(|error| crate::error::Error::from(error).into())
}
