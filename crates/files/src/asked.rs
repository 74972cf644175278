//! The entries that a manifest (a list of files) may have, derived from the request alone.
//!
//! A hostile sender can list any name in its manifest (CVE-2019-6111 is this attack on scp). So the
//! receiver compares the manifest with the request before it opens the destination. In a request, a
//! name without a trailing slash is the entry itself, and `folder/` is the content of the folder.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::filter::{CompiledFilters, Filter};
use super::manifest::{Kind, Manifest, Shape};
use super::place::{Place, show};
use crate::error::{Advice, Error, FileErrorKind};

/// Maximum number of characters of a peer's path in an error.
const SHOWN: usize = 300;

/// The names, kinds and [`Shape`] that a manifest may have.
#[derive(Debug)]
pub struct Asked {
    recursive: bool,
    filters: CompiledFilters,
    /// `None` for a push: its sender chooses the names.
    sources: Option<Sources>,
}

#[derive(Debug)]
struct Sources {
    /// The names of the sources that are copied as entries themselves, not as `folder/`.
    names: BTreeSet<Vec<u8>>,
    /// Whether at least one source is the content of a folder, whose names are not known here.
    contents: bool,
    several: bool,
}

impl Asked {
    /// Returns the rules for a pull of `paths`.
    ///
    /// # Errors
    /// [`FileErrorKind::Request`] for filters that [`CompiledFilters::new`] refuses.
    pub fn pull(paths: &[PathBuf], recursive: bool, filters: &[Filter]) -> Result<Asked, Error> {
        let mut sources =
            Sources { names: BTreeSet::new(), contents: false, several: paths.len() != 1 };
        for path in paths {
            let place = Place::Ambient(path.clone());
            match place.name().filter(|_| !place.says_folder()) {
                Some(name) => drop(sources.names.insert(name)),
                None => sources.contents = true,
            }
        }
        Ok(Asked { recursive, filters: CompiledFilters::new(filters)?, sources: Some(sources) })
    }

    /// Returns the rules for a push: files only, unless it is `recursive`.
    pub fn push(recursive: bool) -> Asked {
        Asked { recursive, filters: CompiledFilters::default(), sources: None }
    }

    /// Compares `manifest` with the request.
    ///
    /// # Errors
    /// [`FileErrorKind::Peer`]: the request does not cover the manifest's shape, or one of the
    /// manifest's entries.
    pub fn admits(&self, manifest: &Manifest) -> Result<(), Error> {
        if !self.admits_shape(manifest.shape()) {
            let first = manifest.entries().first();
            let first = first.map_or_else(|| "an empty list".to_owned(), |_| shown(manifest, 0));
            let what = match manifest.shape() {
                Shape::File => format!("{first} alone"),
                Shape::Named => format!("a tree that begins with {first}"),
                Shape::Contents => format!("the contents of a folder that begin with {first}"),
                Shape::Several => format!("several sources that begin with {first}"),
            };
            return Err(self.refuse(&what));
        }
        let mut top: &[u8] = &[];
        (0..).zip(manifest.entries()).try_for_each(|(number, entry)| {
            if entry.parent().is_none() {
                top = manifest.name(number);
            }
            self.admits_entry(manifest, number, top)
        })
    }

    fn admits_shape(&self, shape: Shape) -> bool {
        match (&self.sources, shape) {
            (None, Shape::File | Shape::Several) => true,
            (None, _) => self.recursive,
            (Some(sources), Shape::Several) => sources.several,
            (Some(Sources { several: true, .. }), _) => false,
            (Some(sources), Shape::Contents) => sources.contents && self.recursive,
            (Some(sources), Shape::Named) => !sources.contents && self.recursive,
            (Some(sources), Shape::File) => !sources.contents,
        }
    }

    /// `top` is the first component of the entry's path.
    fn admits_entry(&self, manifest: &Manifest, number: u32, top: &[u8]) -> Result<(), Error> {
        let entry = &manifest.entries()[number as usize];
        let is_folder = entry.kind == Kind::Folder;
        if !self.recursive && entry.size().is_none() {
            return Err(self.refuse(&shown(manifest, number)));
        }
        let Some(sources) = &self.sources else { return Ok(()) };
        let is_named = sources.names.contains(top);
        let is_inside = sources.contents && self.recursive;
        if !(is_named || is_inside) {
            return Err(self.refuse(&shown(manifest, number)));
        }
        // Filters do not apply to names of the request.
        let names_itself = is_named && entry.parent().is_none();
        let is_fit = entry.size().is_none_or(|size| self.filters.fits(size));
        if names_itself || is_fit && self.filters.takes(&manifest.path(number), is_folder) {
            return Ok(());
        }
        let what =
            format!("the server sent {}, which the filters leave out", shown(manifest, number));
        Err(distrusted(what))
    }

    fn refuse(&self, sent: &str) -> Error {
        let Some(sources) = &self.sources else {
            let what = format!("the client sent {sent}, but its request is not recursive");
            return Error::new(FileErrorKind::Peer, what).advise(Advice::Recursive);
        };
        let names = sources.names.iter().next().map(|name| clipped(name));
        let asked = match (names, sources.names.len(), sources.contents) {
            (Some(name), 1, false) if self.recursive => name,
            (Some(name), 1, false) => format!("the file {name}"),
            (None, ..) => "the contents of a folder".to_owned(),
            (Some(name), ..) => format!("{name} and others"),
        };
        distrusted(format!("the server sent {sent}, which was not requested; requested: {asked}"))
    }
}

fn distrusted(what: String) -> Error {
    Error::new(FileErrorKind::Peer, what)
        .advise("nothing was written; ask the server's administrator why it sends this")
}

fn shown(manifest: &Manifest, number: u32) -> String {
    let kind = match manifest.entries()[number as usize].kind {
        Kind::File { .. } => "the file",
        Kind::Folder => "the folder",
        Kind::Link { .. } => "the symbolic link",
    };
    format!("{kind} {}", clipped(&manifest.path(number)))
}

/// Returns at most [`SHOWN`] characters of a path; the command line escapes terminal sequences.
fn clipped(path: &[u8]) -> String {
    let whole = show(path);
    let clipped: String = whole.chars().take(SHOWN).collect();
    if clipped.len() < whole.len() { clipped + "…" } else { clipped }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::manifest::{FileTime, Listed};

    /// Returns the entry that `text` names: `x` is a file, `x/` a folder, `x@` a symbolic link.
    fn entry(text: &str) -> Listed {
        let (path, kind) = match text.as_bytes().split_last() {
            Some((b'/', path)) => (path, Kind::Folder),
            Some((b'@', path)) => (path, Kind::Link { target: b"t".as_slice().into() }),
            _ => {
                let kind = Kind::file(1);
                (text.as_bytes(), kind)
            }
        };
        Listed { path: path.into(), kind, mode: 0o644, modified: FileTime::default() }
    }

    fn manifest(shape: Shape, entries: &[&str]) -> Manifest {
        Manifest::new(shape, entries.iter().map(|text| entry(text)).collect()).expect("it is sound")
    }

    fn pull(paths: &[&str], recursive: bool) -> Asked {
        filtered(paths, recursive, &[])
    }

    fn filtered(paths: &[&str], recursive: bool, filters: &[Filter]) -> Asked {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        Asked::pull(&paths, recursive, filters).expect("the filters are globs")
    }

    fn offers() -> Vec<(Shape, Vec<&'static str>)> {
        use Shape::{Contents, File, Named, Several};
        vec![
            (File, vec!["a"]),
            (File, vec!["b"]),
            (Named, vec!["a"]),
            (Named, vec!["b"]),
            (Named, vec!["a/"]),
            (Named, vec!["b/"]),
            (Named, vec!["a/", "a/x", "a/y/", "a/y/z@"]),
            (Named, vec!["b/", "b/x"]),
            (Named, vec!["a@"]),
            (Named, vec!["b@"]),
            (Contents, vec![]),
            (Contents, vec!["a"]),
            (Contents, vec!["b", "c/", "c/d", "e@"]),
            (Several, vec![]),
            (Several, vec!["a"]),
            (Several, vec!["b"]),
            (Several, vec!["a", "b"]),
            (Several, vec!["a", "b", "c"]),
            (Several, vec!["a/", "a/x", "b"]),
            (Several, vec!["a", "b@"]),
        ]
    }

    fn admitted(asked: &Asked) -> Vec<usize> {
        let admits = |(shape, entries): &(Shape, Vec<&str>)| {
            asked.admits(&manifest(*shape, entries)).is_ok()
        };
        offers().iter().enumerate().filter(|(_, offer)| admits(offer)).map(|(at, _)| at).collect()
    }

    #[test]
    fn each_request_admits_exactly_the_answers_of_an_honest_sender() {
        // Each request, and the indexes of the offers that answer it.
        for (paths, recursive, honest) in [
            (&["a"][..], false, &[0][..]),
            (&["x/./a"], false, &[0]),
            (&["a"], true, &[0, 2, 4, 6, 8]),
            (&["/x/b"], true, &[1, 3, 5, 7, 9]),
            (&["a/"], false, &[]),
            (&["a/"], true, &[10, 11, 12]),
            (&["."], true, &[10, 11, 12]),
            (&["a/.."], true, &[10, 11, 12]),
            (&[""], true, &[10, 11, 12]),
            (&["a", "b"], false, &[13, 14, 15, 16]),
            (&["x/a", "y/b"], true, &[13, 14, 15, 16, 18, 19]),
            (&["a", "b", "c"], false, &[13, 14, 15, 16, 17]),
            (&["a", "x/"], false, &[13, 14]),
            (&["a", "x/"], true, &[13, 14, 15, 16, 17, 18, 19]),
        ] {
            assert_eq!(admitted(&pull(paths, recursive)), honest, "{paths:?} {recursive}");
        }
        assert_eq!(admitted(&Asked::push(false)), [0, 1, 13, 14, 15, 16, 17]);
        assert_eq!(admitted(&Asked::push(true)).len(), offers().len());
    }

    #[test]
    fn filters_apply_below_the_names_of_the_request_and_not_to_them() {
        let filters = [Filter::Include("keep.tmp".into()), Filter::Exclude("*.tmp".into())];
        let tree = filtered(&["t.tmp"], true, &filters);
        let admits = |asked: &Asked, shape, entries: &[&str]| {
            asked.admits(&manifest(shape, entries)).is_ok()
        };
        assert!(admits(&tree, Shape::Named, &["t.tmp/", "t.tmp/keep.tmp", "t.tmp/x"]));
        assert!(!admits(&tree, Shape::Named, &["t.tmp/", "t.tmp/x.tmp"]));
        assert!(!admits(&tree, Shape::Named, &["t.tmp/", "t.tmp/d/", "t.tmp/d/x.tmp@"]));
        let inside = filtered(&["t/"], true, &filters);
        assert!(admits(&inside, Shape::Contents, &["keep.tmp", "x"]));
        assert!(!admits(&inside, Shape::Contents, &["x.tmp/"]));
        let both = filtered(&["t/", "y.tmp"], true, &filters);
        assert!(admits(&both, Shape::Several, &["x", "y.tmp"]));
        assert!(!admits(&both, Shape::Several, &["x.tmp", "y.tmp"]));
        let folders = filtered(&["t"], true, &[Filter::Exclude("d/".into())]);
        assert!(admits(&folders, Shape::Named, &["t/", "t/d"]));
        assert!(!admits(&folders, Shape::Named, &["t/", "t/d/"]));
    }

    #[test]
    fn a_size_filter_applies_to_files_below_the_names_of_the_request() {
        let admits = |paths: &[&str], limit, shape, entries: &[&str]| {
            filtered(paths, true, &[limit]).admits(&manifest(shape, entries)).is_ok()
        };
        let (small, large) = (Filter::MinSize(1 << 40), Filter::MaxSize(1 << 40));
        assert!(!admits(&["t"], small.clone(), Shape::Named, &["t/", "t/x"]));
        assert!(admits(&["t"], large, Shape::Named, &["t/", "t/x"]));
        assert!(admits(&["t"], small.clone(), Shape::Named, &["t/", "t/d/", "t/d/x@"]));
        assert!(admits(&["x"], small, Shape::File, &["x"]), "a name of the request");
    }

    #[test]
    fn a_refusal_names_the_sent_and_the_requested_names() {
        let says = |asked: &Asked, shape, entries: &[&str]| {
            asked.admits(&manifest(shape, entries)).unwrap_err().what
        };
        let file = pull(&["d/report.pdf"], false);
        let what = says(&file, Shape::File, &[".bashrc"]);
        assert!(what.contains("sent the file .bashrc, which was not requested"), "{what}");
        assert!(what.ends_with("requested: the file report.pdf"), "{what}");
        let what = says(&file, Shape::Contents, &[".ssh/", ".ssh/authorized_keys"]);
        assert!(what.contains("contents of a folder that begin with the folder .ssh"), "{what}");
        let what = says(&pull(&["d/t"], true), Shape::Named, &["u/"]);
        assert!(what.ends_with("requested: t"), "{what}");
        let what = says(&pull(&["t/"], true), Shape::Named, &["u/"]);
        assert!(what.ends_with("requested: the contents of a folder"), "{what}");
        let what = says(&pull(&["t", "v"], true), Shape::Several, &["u/"]);
        assert!(what.ends_with("requested: t and others"), "{what}");
        let long = "n".repeat(250) + "/";
        let path = format!("{long}{long}");
        let what = says(&pull(&["a", "b"], true), Shape::Several, &[&long, &path]);
        assert!(what.len() < 400, "{what}");
        let what = says(&Asked::push(false), Shape::Several, &["d/"]);
        assert!(what.contains("the client sent the folder d"), "{what}");
    }

    #[test]
    fn an_error_shows_at_most_300_characters_of_a_path() {
        let of = |len| clipped("n".repeat(len).as_bytes());
        assert_eq!((of(0), of(300)), (String::new(), "n".repeat(300)));
        assert_eq!(of(301), "n".repeat(300) + "…");
    }

    proptest! {
        #[test]
        fn no_request_admits_an_entry_whose_name_or_kind_it_does_not_cover(
            asked in prop::collection::vec("[abc]/?", 1..4),
            recursive: bool,
            shape in prop::sample::select(
                vec![Shape::File, Shape::Named, Shape::Contents, Shape::Several]),
            sent in prop::collection::btree_set("[abcd][/@]?", 0..4),
        ) {
            let mut tops = BTreeSet::new();
            let entries: Vec<Listed> = sent.iter().map(|text| entry(text))
                .filter(|entry| tops.insert(entry.path.clone())).collect();
            let Ok(manifest) = Manifest::new(shape, entries) else { return Ok(()) };
            let paths: Vec<&str> = asked.iter().map(String::as_str).collect();
            if pull(&paths, recursive).admits(&manifest).is_err() {
                return Ok(());
            }
            let inside = recursive && asked.iter().any(|path| path.ends_with('/'));
            for (number, entry) in (0..).zip(manifest.entries()) {
                let named = asked.iter().any(|path| path.as_bytes() == manifest.path(number));
                prop_assert!(named || inside, "{entry:?}");
                prop_assert!(recursive || entry.size().is_some(), "{entry:?}");
            }
            if asked.len() == 1 && !inside {
                prop_assert_eq!(manifest.entries().len(), 1);
            }
        }
    }
}
