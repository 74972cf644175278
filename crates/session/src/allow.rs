//! Who may do what at a server: `ID[:ro|wo|rw][:subfolder]`, as an option or a line of a file.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::id::PeerId;
use super::strict;
use crate::{Error, Kind};
use longhaul_text::reason;

/// What one id may do, as `ID[:ro|wo|rw][:subfolder]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// The id, as `lh1:…`.
    pub id: String,
    /// May read.
    pub read: bool,
    /// May write.
    pub write: bool,
    /// Only below this folder of the root.
    pub subfolder: Option<PathBuf>,
}

/// Reads one entry. Without `ro`, `wo` or `rw`, in either case, both reading and writing are
/// allowed. A folder whose name looks like a mode is written behind one, as in `ID:rw:ro`.
///
/// # Errors
/// The id is none (a typing error), the mode is unknown, or the subfolder is not below the root.
pub fn parse(text: &str) -> Result<Allow, Error> {
    let wrong = |why: String| {
        Error::new(Kind::Usage, format!("`{text}` allows nobody: {why}"))
            .advise("write ID[:ro|wo|rw][:subfolder]; `longhaul id` prints an id")
    };
    // The id itself has a colon behind its first letters.
    let end = text.match_indices(':').nth(1).map_or(text.len(), |(at, _)| at);
    let (id, rest) = text.split_at(end);
    let id: PeerId = id.parse().map_err(|error| wrong(format!("{error}")))?;
    let rest = rest.strip_prefix(':');
    let word = rest.map(|rest| rest.split_once(':').map_or(rest, |(word, _)| word));
    let (mode, folder) = match word.map(str::to_ascii_lowercase).as_deref() {
        None => ("rw", None),
        Some("ro") => ("ro", behind_mode(rest)),
        Some("wo") => ("wo", behind_mode(rest)),
        Some("rw") => ("rw", behind_mode(rest)),
        Some(unknown) if looks_like_a_mode(unknown) => {
            let why = format!("`{unknown}` is no mode; write `rw:{unknown}` if it is a folder");
            return Err(wrong(why));
        }
        Some(_) => ("rw", rest),
    };
    let subfolder = match folder {
        None => None,
        Some(folder) => Some(
            below_root(folder)
                .ok_or_else(|| wrong(format!("`{folder}` is no folder below the root")))?,
        ),
    };
    Ok(Allow { id: id.to_string(), read: mode != "wo", write: mode != "ro", subfolder })
}

/// The folder behind a mode.
fn behind_mode(rest: Option<&str>) -> Option<&str> {
    rest.and_then(|rest| rest.split_once(':')).map(|(_, folder)| folder)
}

/// Whether a word in lower case may be a mistyped mode: it must not be taken for a folder, for
/// below a folder alone its client may read and write.
fn looks_like_a_mode(word: &str) -> bool {
    let is_short = (1..=3).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase());
    let is_spelled = ["read", "write"].iter().any(|verb| word.starts_with(verb));
    is_short || is_spelled && word.bytes().all(|b| b.is_ascii_lowercase() || b"-_+".contains(&b))
}

/// Reads a list with one entry a line; empty lines and what follows a `#` at the beginning of a
/// line or behind a space are skipped. `name` is what errors call the list.
///
/// # Errors
/// The first line that is no entry, by its number.
pub fn parse_list(text: &str, name: &str) -> Result<Vec<Allow>, Error> {
    let mut allowed = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let comment = match line.starts_with('#') {
            true => Some(0),
            false => line.find(" #").or_else(|| line.find("\t#")),
        };
        let entry = line[..comment.unwrap_or(line.len())].trim();
        if !entry.is_empty() {
            allowed.push(parse(entry).map_err(|error| Error {
                what: format!("{name} line {}: {}", at + 1, error.what),
                ..error
            })?);
        }
    }
    Ok(allowed)
}

/// Reads the list in the file at `path`.
///
/// # Errors
/// The file cannot be read, somebody else can change it, or as [`parse_list`].
pub fn load(path: &Path) -> Result<Vec<Allow>, Error> {
    let trouble = |error| {
        let what = format!("cannot read {}: {}", path.display(), reason(&error));
        Error::new(Kind::LocalFile, what)
    };
    let mut file = File::open(path).map_err(trouble)?;
    strict::check(path, &file)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(trouble)?;
    parse_list(&text, &path.display().to_string())
}

/// What `id` may do; the first entry that names it counts.
pub fn find<'a>(allowed: &'a [Allow], id: &PeerId) -> Option<&'a Allow> {
    let id = id.to_string();
    allowed.iter().find(|entry| entry.id == id)
}

fn below_root(folder: &str) -> Option<PathBuf> {
    let path = Path::new(folder);
    is_below_root(path).then(|| path.to_owned())
}

/// Whether a path names a folder below the root and nothing else.
pub fn is_below_root(path: &Path) -> bool {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.as_os_str().is_empty() && path.components().all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);

    fn allow(read: bool, write: bool, subfolder: Option<&str>) -> Allow {
        Allow { id: A.to_string(), read, write, subfolder: subfolder.map(PathBuf::from) }
    }

    #[test]
    fn an_entry_has_an_id_and_perhaps_a_mode_and_a_folder() {
        for (tail, expected) in [
            ("", allow(true, true, None)),
            (":ro", allow(true, false, None)),
            (":wo", allow(false, true, None)),
            (":rw", allow(true, true, None)),
            (":wo:in/coming", allow(false, true, Some("in/coming"))),
            (":incoming:x", allow(true, true, Some("incoming:x"))),
            (":in/coming", allow(true, true, Some("in/coming"))),
            (":rw:ro", allow(true, true, Some("ro"))),
            (":RO", allow(true, false, None)),
            (":Wo:RO", allow(false, true, Some("RO"))),
            (":red-data", allow(true, true, Some("red-data"))),
            (":rw:readings", allow(true, true, Some("readings"))),
        ] {
            assert_eq!(parse(&format!("{A}{tail}")), Ok(expected), "{tail}");
        }
    }

    #[test]
    fn what_leads_out_of_the_root_or_names_nobody_is_refused() {
        for tail in [":", ":ro:", ":ro:/etc", ":../x", ":rw:a/../../x"] {
            let error = parse(&format!("{A}{tail}")).expect_err("no such folder");
            assert!(error.what.contains("below the root"), "{tail}: {error}");
        }
        let mut typo = A.to_string();
        typo.pop();
        typo.push('7');
        assert!(parse(&typo).expect_err("a typing error").what.contains("checksum"));
        assert_eq!(parse("anybody").expect_err("no id").kind, Kind::Usage);
    }

    #[test]
    fn what_looks_like_a_mode_and_is_none_is_refused_and_never_a_folder() {
        for tail in
            [":xx", ":r", ":rwx", ":XX:in", ":read", ":read-only", ":ReadOnly", ":writeonly"]
        {
            let error = parse(&format!("{A}{tail}")).expect_err("no mode");
            assert!(error.what.contains("is no mode; write `rw:"), "{tail}: {error}");
        }
    }

    #[test]
    fn a_file_has_comments_and_its_errors_a_line() {
        let text = format!("# lab\n\n{A}:ro  # Ada\n  {B}:wo:in\t# Bob\n");
        let allowed = parse_list(&text, "file").expect("two entries");
        assert_eq!(find(&allowed, &A), Some(&allow(true, false, None)));
        assert_eq!(find(&allowed, &B).map(|entry| entry.write), Some(true));
        assert_eq!(find(&allowed, &PeerId([3; 32])), None);
        let error = parse_list(&format!("{A}\nlh1:x\n"), "allowed").expect_err("no id");
        assert!(error.what.starts_with("allowed line 2: "), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: String, tail in ":\\PC{0,20}") {
            let _ = parse_list(&text, "list");
            let _ = parse(&format!("{A}{tail}"));
        }
    }
}
