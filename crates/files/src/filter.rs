//! Filters for the files of a tree: the first matching pattern decides.
//!
//! Patterns work as in rsync:
//! - A pattern without `/` matches a name anywhere.
//! - A pattern that starts with `/` matches from the top of the copy.
//! - A pattern with a `/` in the middle, but not at the start, matches the end of a path.
//! - A pattern that ends with `/` matches folders only.
//! - `*` stops at `/`; `**` does not.
//!
//! The content of an excluded folder is not examined. A path that matches no pattern is included.
//!
//! Lists of paths ([`Filter::Only`]) restrict the copy to these paths.

use std::collections::BTreeSet;
use std::ops::Bound;

use globset::GlobBuilder;
use longhaul_proto::units::Bytes;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::manifest;
use super::place::show;
use crate::error::{Error, FileErrorKind};

/// Maximum number of patterns. The limits exist because patterns may come from a peer.
const MAX_PATTERNS: usize = 10_000;
/// Maximum bytes of one pattern.
const MAX_PATTERN: usize = 4096;
/// Maximum bytes of all patterns.
const MAX_BYTES: usize = 256 << 10;
/// Maximum bytes of all compiled patterns.
const MAX_COMPILED: usize = 24 << 20;
/// Memory of a compiled pattern in addition to its reported size: allocations, and buffers for a
/// search.
const OVERHEAD: usize = 4 << 10;
/// Maximum bytes of the search caches of all patterns.
const MAX_CACHES: usize = 16 << 20;
/// Maximum bytes of the search cache of one pattern.
const MAX_CACHE: usize = 1 << 20;

/// Maximum number of listed paths of one copy.
const MAX_ONLY: usize = 50_000;
/// Maximum bytes of the listed paths.
const MAX_ONLY_BYTES: usize = 512 << 10;

const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Selects the files of a tree copy. The first matching glob decides; size limits apply to every
/// file, independently of the globs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Exclude paths that match this glob.
    Exclude(String),
    /// Include paths that match this glob.
    Include(String),
    /// Exclude files with more bytes than this.
    MaxSize(u64),
    /// Exclude files with fewer bytes than this.
    MinSize(u64),
    /// Include only this path (relative to the top of the copy) with its content and its parent
    /// folders. Several filters of this kind add up. A missing path counts as a failed file.
    Only(Vec<u8>),
}

#[derive(Debug)]
struct CompiledFilter {
    take: bool,
    folders_only: bool,
    whole_path: bool,
    test: Test,
}

#[derive(Debug)]
enum Test {
    /// The tested path or name is this text.
    Is(Box<[u8]>),
    /// The tested path is this text, or ends with a `/` and this text.
    EndsWith(Box<[u8]>),
    Matches(Box<Regex>),
}

/// Compiled filters.
#[derive(Debug, Default)]
pub struct CompiledFilters {
    globs: Vec<CompiledFilter>,
    least: u64,
    most: Option<u64>,
    /// Listed paths; `None` if none are listed.
    only: Option<Only>,
}

impl CompiledFilters {
    /// Compiles filters in the given order.
    ///
    /// # Errors
    /// [`FileErrorKind::Request`]: a glob or listed path is invalid, patterns or lists are too many
    /// or too large, or the size limits exclude every file.
    pub fn new(filters: &[Filter]) -> Result<CompiledFilters, Error> {
        let only = Only::new(filters)?;
        let patterns = filters.iter().filter_map(glob).count();
        if patterns > MAX_PATTERNS {
            return Err(too_much(format!("{patterns} patterns"), "10000"));
        }
        let bytes: usize = filters.iter().filter_map(glob).map(|(_, glob)| glob.len()).sum();
        if bytes > MAX_BYTES {
            return Err(too_much(format!("{bytes} bytes of patterns"), "262144"));
        }
        let cache = MAX_CACHE.min(MAX_CACHES / patterns.max(1));
        let mut compiled = 0;
        let globs = filters.iter().filter_map(glob).map(|(take, glob)| {
            let rule = CompiledFilter::new(take, glob, cache)?;
            compiled += rule.test.size();
            if compiled > MAX_COMPILED {
                return Err(too_much("patterns that take too much memory".into(), "24 MiB"));
            }
            Ok(rule)
        });
        let globs = globs.collect::<Result<_, _>>()?;
        let (least, most) = sizes(filters);
        if let Some(most) = most.filter(|most| *most < least) {
            let (least, most) = (Bytes::new(least), Bytes::new(most));
            let what = format!("no file has at least {least} and at most {most}");
            return Err(Error::new(FileErrorKind::Request, what)
                .advise("raise the maximum, or lower the minimum"));
        }
        Ok(CompiledFilters { globs, least, most, only })
    }

    pub(crate) fn fits(&self, size: u64) -> bool {
        size >= self.least && self.most.is_none_or(|most| size <= most)
    }

    /// Returns whether `path` (from the top of the copy) is included.
    pub fn takes(&self, path: &[u8], is_folder: bool) -> bool {
        if self.only.as_ref().is_some_and(|only| !only.takes(path, is_folder)) {
            return false;
        }
        let name = manifest::split(path).1;
        let matches = |rule: &&CompiledFilter| {
            let subject = if rule.whole_path { path } else { name };
            (is_folder || !rule.folders_only) && rule.test.passes(subject)
        };
        self.globs.iter().find(matches).is_none_or(|rule| rule.take)
    }
}

impl CompiledFilters {
    pub(crate) fn listed(&self) -> impl Iterator<Item = &[u8]> {
        self.only.iter().flat_map(|only| only.paths.iter().map(|path| &**path))
    }
}

/// Listed paths. A search in the sorted paths tells whether a folder is above one of them. A set of
/// all such folders would need memory quadratic in the depth of a path.
#[derive(Debug)]
struct Only {
    paths: BTreeSet<Box<[u8]>>,
}

impl Only {
    fn new(filters: &[Filter]) -> Result<Option<Only>, Error> {
        let listed = || {
            filters.iter().filter_map(|filter| match filter {
                Filter::Only(path) => Some(path),
                _ => None,
            })
        };
        let (count, bytes) = (listed().count(), listed().map(Vec::len).sum::<usize>());
        if count == 0 {
            return Ok(None);
        }
        let shorter = |what: String, limit| {
            let what = format!("{what}; {limit} is the limit");
            let error = Error::new(FileErrorKind::Request, what);
            Err(error.advise("copy in several runs, or name folders instead of files"))
        };
        if count > MAX_ONLY {
            return shorter(format!("a list of {count} paths"), "50000");
        }
        if bytes > MAX_ONLY_BYTES {
            return shorter(format!("a list of paths of {bytes} bytes"), "524288");
        }
        let mut only = Only { paths: BTreeSet::new() };
        for path in listed() {
            let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
            if path.len() > manifest::MAX_PATH || !path.split(|b| *b == b'/').all(is_plain) {
                let what = format!("the listed path {} cannot be in a copy", show(path));
                let error = Error::new(FileErrorKind::Request, what);
                return Err(error.advise("list paths relative to the source folder, without .."));
            }
            only.paths.insert(path.as_slice().into());
        }
        Ok(Some(only))
    }

    fn leads_on(&self, folder: &[u8]) -> bool {
        let inside = [folder, b"/"].concat();
        let mut next =
            self.paths.range::<[u8], _>((Bound::Included(&inside[..]), Bound::Unbounded));
        next.next().is_some_and(|path| path.starts_with(&inside))
    }

    fn takes(&self, path: &[u8], is_folder: bool) -> bool {
        self.paths.contains(path)
            || is_folder && self.leads_on(path)
            || folders_above(path).any(|folder| self.paths.contains(folder))
    }
}

/// Returns the folders above a path, the innermost first.
fn folders_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

/// Returns the glob of a filter, and whether the filter includes matching paths.
fn glob(filter: &Filter) -> Option<(bool, &str)> {
    match filter {
        Filter::Include(glob) => Some((true, glob)),
        Filter::Exclude(glob) => Some((false, glob)),
        Filter::MaxSize(_) | Filter::MinSize(_) | Filter::Only(_) => None,
    }
}

fn sizes(filters: &[Filter]) -> (u64, Option<u64>) {
    let (mut least, mut most) = (0, None);
    for filter in filters {
        match filter {
            Filter::MinSize(limit) => least = least.max(*limit),
            Filter::MaxSize(limit) => most = Some(most.unwrap_or(*limit).min(*limit)),
            Filter::Include(_) | Filter::Exclude(_) | Filter::Only(_) => {}
        }
    }
    (least, most)
}

fn too_much(what: String, limit: &str) -> Error {
    Error::new(FileErrorKind::Request, format!("{what}; {limit} is the limit"))
        .advise("use fewer or shorter patterns")
}

impl CompiledFilter {
    fn new(take: bool, pattern: &str, cache: usize) -> Result<CompiledFilter, Error> {
        let wrong = |why: &str| {
            Error::new(FileErrorKind::Request, format!("the pattern {pattern:?} {why}"))
        };
        if pattern.len() > MAX_PATTERN {
            return Err(too_much(format!("a pattern of {} bytes", pattern.len()), "4096"));
        }
        let body = pattern.trim_end_matches('/');
        if body.is_empty() {
            return Err(wrong("names nothing"));
        }
        let anchored = body.strip_prefix('/');
        let whole_path = body.contains('/');
        let below = anchored.unwrap_or(body);
        let test = if below.contains(SPECIAL) {
            let glob = match anchored {
                None if whole_path => format!("**/{body}"),
                _ => below.to_owned(),
            };
            let glob = GlobBuilder::new(&glob).literal_separator(true).build();
            let glob = glob.map_err(|error| wrong(&format!("is not a glob: {}", error.kind())))?;
            let regex = compile(glob.regex(), cache).ok_or_else(|| wrong("is too large"))?;
            Test::Matches(Box::new(regex))
        } else if anchored.is_none() && whole_path {
            Test::EndsWith(below.as_bytes().into())
        } else {
            Test::Is(below.as_bytes().into())
        };
        let folders_only = body.len() < pattern.len();
        Ok(CompiledFilter { take, folders_only, whole_path, test })
    }
}

/// Compiles a glob's regular expression like globset, but within the limits of this module.
fn compile(regex: &str, cache: usize) -> Option<Regex> {
    let syntax = syntax::Config::new().utf8(false).dot_matches_new_line(true);
    let bounds = Regex::config()
        .utf8_empty(false)
        .nfa_size_limit(Some(MAX_COMPILED))
        .hybrid_cache_capacity(cache);
    Regex::builder().syntax(syntax).configure(bounds).build(regex).ok()
}

impl Test {
    fn passes(&self, subject: &[u8]) -> bool {
        match self {
            Test::Is(text) => *subject == **text,
            Test::EndsWith(text) => subject
                .strip_suffix(&**text)
                .is_some_and(|before| before.is_empty() || before.ends_with(b"/")),
            Test::Matches(regex) => regex.is_match(subject),
        }
    }

    fn size(&self) -> usize {
        match self {
            Test::Is(text) | Test::EndsWith(text) => text.len(),
            Test::Matches(regex) => regex.memory_usage() + OVERHEAD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(list: &[&str]) -> CompiledFilters {
        let filter = |text: &&str| match text.split_at(1) {
            ("+", pattern) => Filter::Include(pattern.to_owned()),
            (_, pattern) => Filter::Exclude(pattern.to_owned()),
        };
        CompiledFilters::new(&list.iter().map(filter).collect::<Vec<_>>()).unwrap()
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
    fn the_error_for_an_invalid_glob_contains_the_glob() {
        let error = CompiledFilters::new(&[Filter::Exclude("[a".into())]).unwrap_err();
        assert!(error.what.contains("[a"), "{error}");
        assert!(CompiledFilters::new(&[Filter::Exclude("/".into())]).is_err());
    }

    #[test]
    fn a_pattern_without_wildcards_matches_the_same_paths_as_an_equivalent_glob() {
        let subjects = ["a/b", "b", "x/a/b", "xa/b", "a/b/c", "a", "x/a", "a/bb", ""];
        for pattern in ["b", "a/b", "/a/b", "/a", "a"] {
            // A class of one character equals that character.
            let glob = pattern.replace('b', "[b]").replace('a', "[a]");
            let (plain, glob) =
                (filters(&[&format!("-{pattern}")]), filters(&[&format!("-{glob}")]));
            assert!(matches!(glob.globs[0].test, Test::Matches(_)));
            for subject in subjects {
                let taken = plain.takes(subject.as_bytes(), false);
                assert_eq!(taken, glob.takes(subject.as_bytes(), false), "{pattern} {subject}");
            }
        }
    }

    /// Returns the bytes of the search cache after a search in random text.
    fn remembered(regex: &Regex) -> usize {
        let mut seed = 7u32;
        let noise = (0..1 << 17).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (seed >> 31) as u8
        });
        let mut cache = regex.create_cache();
        regex.search_half_with(&mut cache, &regex_automata::Input::new(&noise.collect::<Vec<_>>()));
        cache.memory_usage()
    }

    #[test]
    fn search_caches_stay_within_their_limit_for_any_patterns() {
        // The number of search states doubles with each `[!x]` at the end of the pattern.
        let pattern = |n: usize| format!("*a{}", "[!x]".repeat(n));
        let glob = GlobBuilder::new(&pattern(24)).literal_separator(true).build().unwrap();
        let free = remembered(&compile(glob.regex(), 16 * MAX_CACHE).unwrap());
        assert!(free > 4 * MAX_CACHE, "{free} bytes: the pattern is too simple for this test");
        for count in [1, 20] {
            let filters: Vec<_> =
                (0..count).map(|n| Filter::Exclude(pattern(24 + n % 8))).collect();
            let sum: usize = CompiledFilters::new(&filters)
                .unwrap()
                .globs
                .iter()
                .map(|rule| match &rule.test {
                    Test::Matches(regex) => remembered(regex),
                    Test::Is(_) | Test::EndsWith(_) => unreachable!("it is a glob"),
                })
                .sum();
            assert!(sum <= MAX_CACHES.min(count * MAX_CACHE) * 5 / 4, "{sum} B, {count} patterns");
        }
    }

    #[test]
    fn a_list_includes_its_paths_their_content_and_parent_folders_only() {
        let only = |path: &[u8]| Filter::Only(path.to_vec());
        let list = [only(b"a/b/x"), only(b"whole"), only(b"*"), Filter::Exclude("*.tmp".into())];
        let filters = CompiledFilters::new(&list).unwrap();
        for (path, is_folder, taken) in [
            ("a", true, true),
            ("a", false, false),
            ("a/b", true, true),
            ("a/b/x", false, true),
            ("a/b/xx", false, false),
            ("a/c", true, false),
            ("whole/of/it", false, true),
            ("whole/of/it.tmp", false, false),
            ("*", false, true),
            ("star", false, false),
        ] {
            assert_eq!(filters.takes(path.as_bytes(), is_folder), taken, "{path}");
        }
        let listed: Vec<&[u8]> = filters.listed().collect();
        assert_eq!(listed, [&b"*"[..], b"a/b/x", b"whole"]);
    }

    #[test]
    fn a_list_is_bounded_and_has_only_paths_within_the_copy() {
        let refused = |list: &[Filter]| CompiledFilters::new(list).expect_err("refused").what;
        for path in ["", "/a", "a/", "../a", "a/../b", "a//b", "./a", "a\0b"] {
            let path = Filter::Only(path.as_bytes().to_vec());
            assert!(refused(&[path]).contains("cannot be in a copy"));
        }
        let many = |count: usize| (0..count).map(|n| Filter::Only(format!("{n}").into()));
        assert!(CompiledFilters::new(&many(MAX_ONLY).collect::<Vec<_>>()).is_ok());
        assert!(refused(&many(MAX_ONLY + 1).collect::<Vec<_>>()).contains("50001 paths"));
        let long = |count: usize| vec![Filter::Only(vec![b'x'; 4096]); count];
        assert!(CompiledFilters::new(&long(128)).is_ok());
        assert!(refused(&long(129)).contains("528384 bytes"));
    }

    #[test]
    fn size_limits_apply_wherever_they_stand_among_the_globs() {
        use Filter::{Include, MaxSize, MinSize};
        let compiled = |filters: &[Filter]| CompiledFilters::new(filters).unwrap();
        let between = compiled(&[MaxSize(30), Include("*".into()), MinSize(10), MaxSize(20)]);
        let taken: Vec<u64> = (0..40).filter(|size| between.fits(*size)).collect();
        assert_eq!(taken, (10..=20).collect::<Vec<u64>>());
        assert!(between.takes(b"x", false), "`takes` ignores size limits");
        assert!(compiled(&[]).fits(u64::MAX) && compiled(&[MaxSize(0)]).fits(0));
        assert!(!compiled(&[MaxSize(0)]).fits(1) && !compiled(&[MinSize(1)]).fits(0));
        assert!(compiled(&[MaxSize(2), MinSize(2)]).fits(2));
        let refused = CompiledFilters::new(&[MaxSize(1), MinSize(2)]).unwrap_err();
        assert_eq!(refused.kind, FileErrorKind::Request);
        assert!(refused.what.contains("at least 2 B and at most 1 B"), "{refused}");
    }

    #[test]
    fn patterns_are_bounded_in_number_bytes_and_memory() {
        let exclude = |pattern: String| Filter::Exclude(pattern);
        let refused =
            |filters: Vec<Filter>| CompiledFilters::new(&filters).expect_err("too much").what;
        let names = |count: usize| (0..count).map(|n| exclude(format!("n{n}"))).collect::<Vec<_>>();
        let sizes = vec![Filter::MinSize(1), Filter::MaxSize(2)];
        assert!(CompiledFilters::new(&[names(MAX_PATTERNS), sizes].concat()).is_ok());
        assert!(refused(names(MAX_PATTERNS + 1)).contains("10001 patterns"));
        let long = |count: usize| vec![exclude("x".repeat(MAX_PATTERN)); count];
        assert!(CompiledFilters::new(&long(64)).is_ok());
        assert!(refused(long(65)).contains("266240 bytes of patterns"));
        assert!(refused(vec![exclude("x".repeat(MAX_PATTERN + 1))]).contains("4097 bytes"));
        let short: Vec<Filter> = (0..MAX_PATTERNS).map(|n| exclude(format!("*.{n}"))).collect();
        assert!(refused(short).contains("take too much memory"));
        assert_eq!((MAX_COMPILED, MAX_CACHES, MAX_CACHE), (25_165_824, 16_777_216, 1_048_576));
        // A plain text takes its bytes; an expression takes `OVERHEAD` more than it reports.
        let sizes = filters(&["-abc", "-a/bc", "-*.c"]).globs;
        assert_eq!((sizes[0].test.size(), sizes[1].test.size()), (3, 4));
        let Test::Matches(regex) = &sizes[2].test else { unreachable!("it is a glob") };
        assert_eq!(sizes[2].test.size() - regex.memory_usage(), 4096);
    }
}
