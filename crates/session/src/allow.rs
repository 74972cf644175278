//! The list of clients and their rights. An entry is the value of a command-line option, or a line
//! of a file. The short form `ID[:ro|wo|rw[:subfolder]]` grants rights to files. The long form
//! `ID,files=ro:/sub,share=rw:/world,stream=ro:/rooms` grants rights by service.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::id::PeerId;
use super::strict;
use crate::{Error, Kind};
use longhaul_text::reason;

/// The rights of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    /// The id, as `lh1:…`.
    pub id: String,
    /// The right to read files.
    pub read: bool,
    /// The right to write files.
    pub write: bool,
    /// The folder below the root to which the rights to files are limited; `None` for the whole
    /// root.
    pub subfolder: Option<PathBuf>,
    /// Rights to services other than files: the service's word in the list, and the right, such as
    /// `rw:/world`. The service may be missing on this host, because several hosts may use the same
    /// list.
    pub others: Vec<(String, String)>,
    /// The client's name for logs, from the comment after the entry.
    pub name: Option<String>,
}

/// The word for files: copies, listings and remote files.
pub const FILES: &str = "files";

/// The words for the other services.
const OTHERS: [&str; 6] = ["share", "stream", "channel", "link", "rpc", "status"];

impl Allow {
    /// Returns whether the entry grants a right to the service `word`.
    pub fn has(&self, word: &str) -> bool {
        match word {
            FILES => self.read || self.write,
            word => self.right(word).is_some(),
        }
    }

    /// Returns the right to `word`, a service other than files: `rw:/world` of `share=rw:/world`,
    /// `rw:/prefix` of `rpc=/prefix`.
    pub fn right(&self, word: &str) -> Option<&str> {
        self.others.iter().find(|(other, _)| other == word).map(|(_, said)| said.as_str())
    }
}

/// Parses one entry. The mode is `ro`, `wo` or `rw`, in upper or lower case. An id alone grants
/// reading and writing. A folder needs a mode before it, so that a mistyped mode is never taken for
/// a folder.
///
/// The long form names each service at most once: `files=MODE[:FOLDER]`, `share=MODE[:FOLDER]`,
/// `stream=MODE[:FOLDER]`, `channel=MODE[:FOLDER]`, `link=MODE[:FOLDER]`, `rpc=/PREFIX`,
/// `status=ro`. An entry grants no right to a service that it does not name. A folder with a comma
/// needs the short form.
///
/// # Errors
/// The id has a typing error, a mode or right is unknown, a word is unknown or repeated, or the
/// subfolder is not below the root.
pub fn parse(text: &str) -> Result<Allow, Error> {
    let wrong = |why: String| {
        Error::new(Kind::Usage, format!("`{text}` is not an entry: {why}")).advise(
            "write ID[:ro|wo|rw[:subfolder]] or ID,files=ro:/subfolder; `longhaul id` prints an id",
        )
    };
    if let Some((id, words)) = text.split_once(',')
        && let Ok(id) = id.parse::<PeerId>()
    {
        return long(&id, words).map_err(wrong);
    }
    // The id itself contains a colon (`lh1:`).
    let end = text.match_indices(':').nth(1).map_or(text.len(), |(at, _)| at);
    let (id, rest) = text.split_at(end);
    let id: PeerId = id.parse().map_err(|error| wrong(format!("{error}")))?;
    let rest = rest.strip_prefix(':').unwrap_or("rw");
    if let Some((start, words)) = rest.split_once(',')
        && mode(start).is_ok()
    {
        return Err(wrong(format!(
            "the short form `{start}` cannot be mixed with services; write \
             `ID,files={start},{words}`"
        )));
    }
    let (word, folder) = match rest.split_once(':') {
        Some((word, folder)) => (word, Some(folder)),
        None => (rest, None),
    };
    let mode = mode(word).map_err(|why| wrong(format!("{why}; before a folder, write rw:")))?;
    let subfolder = match folder {
        None => None,
        Some(folder) => Some(
            below_root(folder)
                .ok_or_else(|| wrong(format!("`{folder}` is not a folder below the root")))?,
        ),
    };
    let others = Vec::new();
    let (read, write) = (mode != "wo", mode != "ro");
    Ok(Allow { id: id.to_string(), read, write, subfolder, others, name: None })
}

/// Parses `files=ro:/sub,share=rw:/world,stream=ro:/rooms`.
fn long(id: &PeerId, words: &str) -> Result<Allow, String> {
    let (read, write) = (false, false);
    let id = id.to_string();
    let others = Vec::new();
    let mut allow = Allow { id, read, write, subfolder: None, others, name: None };
    for right in words.split(',') {
        let (word, value) = right.split_once('=').unwrap_or((right, ""));
        if allow.has(word) {
            return Err(format!("`{word}` is named twice"));
        }
        match word {
            FILES => {
                let (mode, folder) = mode_and_folder(value)?;
                (allow.read, allow.write) = (mode != "wo", mode != "ro");
                allow.subfolder = folder;
            }
            "status" if value.eq_ignore_ascii_case("ro") => {}
            "status" => return Err(format!("`status={value}` is not a right; write status=ro")),
            "rpc" if value.starts_with('/') => {}
            "rpc" => return Err(format!("`rpc={value}` is not a right; write rpc=/PREFIX")),
            word if OTHERS.contains(&word) => drop(mode_and_folder(value)?),
            unknown => {
                let known = OTHERS.join(", ");
                return Err(format!("`{unknown}` is not a service; services: {FILES}, {known}"));
            }
        }
        // `rpc=/PREFIX` has no mode, because a remote call neither reads nor writes. `rw:` is put
        // before the prefix, so that the stored value is MODE:FOLDER as for the other services.
        let mode = if word == "rpc" { "rw:" } else { "" };
        if word != FILES {
            allow.others.push((word.to_owned(), format!("{mode}{value}")));
        }
    }
    Ok(allow)
}

/// Parses `ro`, or `ro:/folder` with a folder below the root; `/` is the root itself.
fn mode_and_folder(value: &str) -> Result<(String, Option<PathBuf>), String> {
    let (word, folder) = match value.split_once(':') {
        Some((word, folder)) => (word, Some(folder)),
        None => (value, None),
    };
    let mode = mode(word)?;
    let below = match folder.map(|folder| folder.strip_prefix('/').unwrap_or(folder)) {
        None | Some("") => None,
        Some(below) => {
            let folder = || format!("`{below}` is not a folder below the root");
            Some(below_root(below).ok_or_else(folder)?)
        }
    };
    Ok((mode, below))
}

/// Returns the mode in lower case.
fn mode(word: &str) -> Result<String, String> {
    let mode = word.to_ascii_lowercase();
    match ["ro", "wo", "rw"].contains(&mode.as_str()) {
        true => Ok(mode),
        false => Err(format!("`{word}` is not a mode; modes: ro, wo, rw")),
    }
}

/// Parses a list with one entry a line. Skips empty lines, and comments. A comment starts with `#`,
/// at the start of a line or after a space or tab. A comment after an entry names its client.
/// `name` is the list's name in errors.
///
/// # Errors
/// The error names the first line that is not an entry, or that repeats an id.
pub fn parse_list(text: &str, name: &str) -> Result<Vec<Allow>, Error> {
    let mut allowed = Vec::new();
    let mut lines = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let comment = match line.starts_with('#') {
            true => Some(0),
            false => [" #", "\t#"].into_iter().filter_map(|mark| line.find(mark)).min(),
        };
        let entry = line[..comment.unwrap_or(line.len())].trim();
        if !entry.is_empty() {
            let mut allow = parse(entry).map_err(|error| Error {
                what: format!("{name} line {}: {}", at + 1, error.what),
                ..error
            })?;
            if let Some(first) = lines.insert(allow.id.clone(), at + 1) {
                let what = format!("{name} lines {first} and {}: both allow {}", at + 1, allow.id);
                return Err(Error::new(Kind::Usage, what).advise("remove one of the lines"));
            }
            let comment = comment.map(|at| line[at..].trim_matches(['#', ' ', '\t']).to_owned());
            allow.name = comment.filter(|comment| !comment.is_empty());
            allowed.push(allow);
        }
    }
    Ok(allowed)
}

/// Parses the list in the file at `path`.
///
/// # Errors
/// The file cannot be read, another user can change it, or its text has an error of [`parse_list`].
pub fn load(path: &Path) -> Result<Vec<Allow>, Error> {
    let trouble = |error| {
        let what = format!("cannot read {}: {}", path.display(), reason(&error));
        Error::new(Kind::LocalFile, what).at(path)
    };
    let mut file = File::open(path).map_err(trouble)?;
    strict::check(path, &file)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(trouble)?;
    parse_list(&text, &path.display().to_string())
}

/// Returns the entry of `id`; `None` if the list has no entry for it.
pub fn find<'a>(allowed: &'a [Allow], id: &PeerId) -> Option<&'a Allow> {
    let id = id.to_string();
    allowed.iter().find(|entry| entry.id == id)
}

fn below_root(folder: &str) -> Option<PathBuf> {
    let path = Path::new(folder);
    is_below_root(path).then(|| path.to_owned())
}

/// Returns whether `path`, relative to the root, is not empty and does not leave the root.
pub fn is_below_root(path: &Path) -> bool {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.as_os_str().is_empty() && path.components().all(plain)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);

    fn allow(read: bool, write: bool, subfolder: Option<&str>) -> Allow {
        let (id, subfolder) = (A.to_string(), subfolder.map(PathBuf::from));
        Allow { id, read, write, subfolder, others: Vec::new(), name: None }
    }

    #[test]
    fn the_long_form_grants_rights_only_to_the_services_that_it_names() {
        let parsed = |tail: &str| parse(&format!("{A},{tail}"));
        for (tail, expected) in [
            ("files=ro", allow(true, false, None)),
            ("files=rw:/", allow(true, true, None)),
            ("files=WO:/in/coming", allow(false, true, Some("in/coming"))),
            ("files=ro:sub", allow(true, false, Some("sub"))),
        ] {
            assert_eq!(parsed(tail), Ok(expected), "{tail}");
        }
        let all = parsed("files=ro:/sub,share=rw:/world,stream=ro:/rooms").expect("three services");
        assert_eq!(
            (all.read, all.write, all.subfolder.as_deref()),
            (true, false, Some("sub".as_ref()))
        );
        assert!(["files", "share", "stream"].iter().all(|word| all.has(word)));
        let rooms = parsed("stream=rw:/rooms").expect("one service");
        assert!(!rooms.has("files") && !rooms.read && !rooms.write);
        let calls = parsed("rpc=/telescope").expect("one service");
        assert_eq!((calls.right("rpc"), calls.has("files")), (Some("rw:/telescope"), false));
        let watcher = parsed("status=RO").expect("one service");
        assert_eq!(watcher.right("status"), Some("RO"));
        // In the short form a comma is part of the folder.
        let short = parse(&format!("{A}:ro:a,files=rw"));
        assert_eq!(short, Ok(allow(true, false, Some("a,files=rw"))));
    }

    #[test]
    fn invalid_and_repeated_words_of_the_long_form_are_refused() {
        for (tail, why) in [
            ("", "`` is not a service"),
            ("files", "`` is not a mode"),
            ("files=", "is not a mode"),
            ("files=r", "is not a mode"),
            ("files=ro,", "`` is not a service"),
            ("File=ro", "`File` is not a service"),
            (
                "shell=rw",
                "`shell` is not a service; services: files, share, stream, channel, link, rpc",
            ),
            ("files=ro,files=rw:/sub", "named twice"),
            ("share=ro,share=ro", "named twice"),
            ("files=ro:/../x", "below the root"),
            ("files=ro://x", "below the root"),
            ("share=ro:..", "below the root"),
            ("stream=", "is not a mode"),
            ("rpc=rw", "`rpc=rw` is not a right; write rpc=/PREFIX"),
            ("rpc=/a,rpc=/b", "named twice"),
            ("status=rw", "`status=rw` is not a right; write status=ro"),
            ("stream=rooms/*", "is not a mode"),
        ] {
            let error = parse(&format!("{A},{tail}")).expect_err(tail);
            assert!(error.what.contains(why), "{tail}: {error}");
        }
    }

    #[test]
    fn the_short_form_has_an_id_and_perhaps_a_mode_and_a_folder() {
        for (tail, expected) in [
            ("", allow(true, true, None)),
            (":ro", allow(true, false, None)),
            (":wo", allow(false, true, None)),
            (":rw", allow(true, true, None)),
            (":wo:in/coming", allow(false, true, Some("in/coming"))),
            (":rw:incoming:x", allow(true, true, Some("incoming:x"))),
            (":rw:ro", allow(true, true, Some("ro"))),
            (":RO", allow(true, false, None)),
            (":Wo:RO", allow(false, true, Some("RO"))),
            (":rw:readings", allow(true, true, Some("readings"))),
        ] {
            assert_eq!(parse(&format!("{A}{tail}")), Ok(expected), "{tail}");
        }
    }

    #[test]
    fn entries_that_leave_the_root_or_have_no_valid_id_are_refused() {
        for tail in [":ro:", ":ro:/etc", ":rw:../x", ":rw:a/../../x"] {
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
    fn a_word_that_is_no_mode_is_refused_and_never_read_as_a_folder() {
        for tail in [":", ":xx", ":XX:in", ":read-only", ":run42", ":in/coming", ":../x"] {
            let error = parse(&format!("{A}{tail}")).expect_err("no mode");
            let why = "is not a mode; modes: ro, wo, rw; before a folder, write rw:";
            assert!(error.what.contains(why), "{tail}: {error}");
        }
    }

    #[test]
    fn a_short_form_mixed_with_services_is_refused_and_the_error_shows_the_long_form() {
        for (tail, long) in
            [(":rw,stream=rw", "`ID,files=rw,stream=rw`"), (":RO,statuz", "`ID,files=RO,statuz`")]
        {
            let error = parse(&format!("{A}{tail}")).expect_err("mixed forms");
            assert!(error.what.contains("cannot be mixed with services; write"), "{tail}: {error}");
            assert!(error.what.contains(long), "{tail}: {error}");
        }
        let folder = parse(&format!("{A}:rw:rw,stream=rw"));
        assert_eq!(folder, Ok(allow(true, true, Some("rw,stream=rw"))));
    }

    #[test]
    fn comments_name_clients_and_errors_name_lines() {
        let text = format!("# lab\n\n{A}:ro  # Ada\n  {B}:wo:in\t# Bob\n");
        let allowed = parse_list(&text, "file").expect("two entries");
        let ada = Allow { name: Some("Ada".to_owned()), ..allow(true, false, None) };
        assert_eq!(find(&allowed, &A), Some(&ada));
        assert_eq!(find(&allowed, &B).map(|entry| entry.write), Some(true));
        assert_eq!(find(&allowed, &PeerId([3; 32])), None);
        let allowed = parse_list(&format!("{A}:ro\t# Ada #2\n"), "file").expect("an entry");
        assert_eq!(allowed[0].name.as_deref(), Some("Ada #2"));
        let error = parse_list(&format!("{A}\nlh1:x\n"), "allowed").expect_err("no id");
        assert!(error.what.starts_with("allowed line 2: "), "{error}");
    }

    #[test]
    fn a_duplicate_id_is_refused_with_both_lines() {
        let text = format!("{A}:ro\n# twice\n{B}\n{A}:rw:sub  # Ada\n");
        let error = parse_list(&text, "allowed").expect_err("an id twice");
        assert_eq!(error.kind, Kind::Usage);
        assert_eq!(error.what, format!("allowed lines 1 and 4: both allow {A}"));
        assert!(parse_list(&format!("{A}\n{B}\n"), "allowed").is_ok());
    }

    #[test]
    fn a_list_in_a_file_is_read_if_nobody_else_can_change_it() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join("allowed");
        let error = load(&path).expect_err("there is no file");
        assert_eq!((error.kind, error.path.as_deref()), (Kind::LocalFile, Some(&*path)));
        std::fs::write(&path, format!("{A}:ro # Ada\n")).expect("the folder is ours");
        let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode));
        mode(0o644).expect("it is ours");
        let ada = Allow { name: Some("Ada".to_owned()), ..allow(true, false, None) };
        assert_eq!(load(&path), Ok(vec![ada]));
        mode(0o666).expect("it is ours");
        let error = load(&path).expect_err("others may write");
        assert!(error.what.contains("can be written by others"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text: String, tail in ":\\PC{0,20}") {
            let _ = parse_list(&text, "list");
            let _ = parse(&format!("{A}{tail}"));
            let _ = parse(&format!("{A},{}", &tail[1..]));
            let _ = parse(&format!("{A},files=ro{tail}"));
        }
    }
}
