//! Which files of a tree are taken: the first pattern that matches decides.
//!
//! As in rsync: a pattern without `/` matches a name anywhere; one that starts with `/` matches
//! from the top of the copy; one with a `/` within matches the end of a path; one that ends with
//! `/` matches folders only; `*` stops at `/`, `**` does not. A folder that is left out is not
//! looked into. What matches nothing is taken.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::manifest;
use crate::error::{Class, Error};
use crate::options::Filter;

/// The most patterns, and the longest: they may come from the other side.
const MAX_PATTERNS: usize = 10_000;
const MAX_PATTERN: usize = 4096;

#[derive(Debug)]
struct Rule {
    take: bool,
    folders_only: bool,
    whole_path: bool,
    glob: GlobMatcher,
}

/// Compiled patterns.
#[derive(Debug, Default)]
pub struct Filters(Vec<Rule>);

impl Filters {
    /// Compiles patterns, in the order in which they were given.
    ///
    /// # Errors
    /// Class `Usage`, for a pattern that is no glob, and for too many.
    pub fn new(filters: &[Filter]) -> Result<Filters, Error> {
        if filters.len() > MAX_PATTERNS {
            return Err(Error::new(Class::Usage, "more than 10000 patterns"));
        }
        filters.iter().map(Rule::new).collect::<Result<_, _>>().map(Filters)
    }

    /// Whether `path` (from the top of the copy) is taken.
    pub fn takes(&self, path: &[u8], is_folder: bool) -> bool {
        let name = manifest::split(path).1;
        let matches = |rule: &&Rule| {
            let subject = if rule.whole_path { path } else { name };
            (is_folder || !rule.folders_only)
                && rule.glob.is_match(Path::new(OsStr::from_bytes(subject)))
        };
        self.0.iter().find(matches).is_none_or(|rule| rule.take)
    }
}

impl Rule {
    fn new(filter: &Filter) -> Result<Rule, Error> {
        let (take, pattern) = match filter {
            Filter::Include(pattern) => (true, pattern.as_str()),
            Filter::Exclude(pattern) => (false, pattern.as_str()),
        };
        let wrong = |why: &str| Error::new(Class::Usage, format!("the pattern {pattern:?} {why}"));
        if pattern.len() > MAX_PATTERN {
            return Err(Error::new(Class::Usage, "a pattern longer than 4096 bytes"));
        }
        let body = pattern.trim_end_matches('/');
        if body.is_empty() {
            return Err(wrong("names nothing"));
        }
        let anchored = body.strip_prefix('/');
        let whole_path = body.contains('/');
        let glob = match anchored {
            Some(below) => below.to_owned(),
            None if whole_path => format!("**/{body}"),
            None => body.to_owned(),
        };
        let glob = GlobBuilder::new(&glob).literal_separator(true).build();
        let glob = glob.map_err(|error| wrong(&format!("is no glob: {}", error.kind())))?;
        let folders_only = body.len() < pattern.len();
        Ok(Rule { take, folders_only, whole_path, glob: glob.compile_matcher() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(list: &[&str]) -> Filters {
        let filter = |text: &&str| match text.split_at(1) {
            ("+", pattern) => Filter::Include(pattern.to_owned()),
            (_, pattern) => Filter::Exclude(pattern.to_owned()),
        };
        Filters::new(&list.iter().map(filter).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_first_match_decides() {
        let filters = filters(&["+keep.tmp", "-*.tmp"]);
        assert!(filters.takes(b"a/keep.tmp", false) && filters.takes(b"a/b", false));
        assert!(!filters.takes(b"a/b.tmp", false) && !filters.takes(b"\xff.tmp", false));
    }

    #[test]
    fn slashes_anchor_as_in_rsync() {
        let top = filters(&["-/a/b"]);
        assert!(!top.takes(b"a/b", false) && top.takes(b"c/a/b", false));
        let end = filters(&["-a/b"]);
        assert!(!end.takes(b"a/b", false) && !end.takes(b"c/a/b", false));
        let folders = filters(&["-cache/"]);
        assert!(!folders.takes(b"x/cache", true) && folders.takes(b"x/cache", false));
        let star = filters(&["-/a/*.c"]);
        assert!(!star.takes(b"a/x.c", false) && star.takes(b"a/b/x.c", false));
        let stars = filters(&["-/a/**/x.c"]);
        assert!(!stars.takes(b"a/b/d/x.c", false));
    }

    #[test]
    fn what_is_no_glob_is_refused_by_name() {
        let error = Filters::new(&[Filter::Exclude("[a".into())]).unwrap_err();
        assert!(error.what.contains("[a"), "{error}");
        assert!(Filters::new(&[Filter::Exclude("/".into())]).is_err());
    }
}
