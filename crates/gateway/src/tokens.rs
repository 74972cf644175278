//! Bearer tokens and their rights. A line of a token file is `TOKEN ro|rw[:/FOLDER]  # name`;
//! folder and name are optional.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use longhaul_text::reason;

use crate::error::Error;

/// The shortest token: 16 characters of base64 are 96 bits.
const SHORTEST: usize = 16;

/// A token and its right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The hash of the token. With a hash, the time of a lookup reveals nothing about the token.
    hash: [u8; 32],
    pub(crate) right: Right,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) write: bool,
    /// The folder to which the right is limited, relative to the root.
    pub(crate) folder: Option<PathBuf>,
    /// The user, from the comment after the token.
    pub(crate) name: Option<String>,
}

/// Returns the token of an `Authorization` header with a bearer token.
pub(crate) fn bearer(said: &str) -> Option<&str> {
    let (scheme, token) = said.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

pub(crate) fn hash(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

#[derive(Debug, Default)]
pub(crate) struct Tokens(HashMap<[u8; 32], Right>);

impl Tokens {
    pub(crate) fn new(tokens: Vec<Token>) -> Tokens {
        Tokens(tokens.into_iter().map(|token| (token.hash, token.right)).collect())
    }

    pub(crate) fn right(&self, token: &str) -> Option<&Right> {
        self.0.get(&hash(token))
    }
}

/// Reads the token file at `path`. Only this user and root may have access to the file.
///
/// # Errors
/// The file cannot be read, is not private, or has a wrong line.
pub fn load(path: &Path) -> Result<Vec<Token>, Error> {
    parse(&read_private(path)?, &path.display().to_string())
}

/// Reads a file that holds a secret. Only this user and root may have access to the file.
///
/// # Errors
/// The file cannot be read, or is not private.
pub fn read_private(path: &Path) -> Result<String, Error> {
    let shown = path.display();
    let trouble = |error: std::io::Error| {
        Error::host(format!("cannot read {shown}: {}", reason(&error)), "check the path")
    };
    let mut file = File::open(path).map_err(trouble)?;
    let found = file.metadata().map_err(trouble)?;
    let own = rustix::process::geteuid().as_raw();
    if ![own, 0].contains(&found.uid()) || found.mode() & 0o077 != 0 {
        let what = format!("other users can read or change {shown}");
        return Err(Error::host(what, "chown it to yourself, and run chmod 600 on it"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(trouble)?;
    Ok(text)
}

/// Parses a list of tokens. Errors use `name` for the list, and never contain a token.
///
/// # Errors
/// A line is wrong; the error has the number of the first such line.
pub fn parse(text: &str, name: &str) -> Result<Vec<Token>, Error> {
    let mut tokens: Vec<Token> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |why: &str| {
            let what = format!("{name} line {number}: {why}");
            Error::usage(what, "write TOKEN ro or TOKEN rw; for one folder, add :/FOLDER")
        };
        let (entry, comment) = match line.split_once('#') {
            Some((entry, comment)) => (entry, Some(comment.trim())),
            None => (line, None),
        };
        let mut words = entry.split_whitespace();
        let Some(token) = words.next() else { continue };
        let (Some(right), None) = (words.next(), words.next()) else {
            return Err(wrong("a line has two words: a token and its right"));
        };
        let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        if token.len() < SHORTEST || !is_plain {
            return Err(wrong("a token has at least 16 ASCII characters and no colon"));
        }
        let right = read_right(right, comment).map_err(|why| wrong(&why))?;
        let token = Token { hash: hash(token), right };
        if tokens.iter().any(|other| other.hash == token.hash) {
            return Err(wrong("an earlier line has the same token"));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

fn read_right(text: &str, comment: Option<&str>) -> Result<Right, String> {
    let (mode, folder) = match text.split_once(':') {
        Some((mode, folder)) => (mode, Some(folder.strip_prefix('/').unwrap_or(folder))),
        None => (text, None),
    };
    let write = match mode {
        "ro" => false,
        "rw" => true,
        _ => return Err("its right is neither ro nor rw".to_owned()),
    };
    let folder = folder.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let is_below =
        |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
    if folder.as_ref().is_some_and(|folder| !is_below(folder)) {
        return Err("its folder is not below the root".to_owned());
    }
    let name = comment.filter(|name| !name.is_empty()).map(str::to_owned);
    Ok(Right { write, folder, name })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaa";

    #[test]
    fn a_listed_token_has_its_right_and_an_unlisted_token_has_none() {
        let text = format!("# tokens\n\n{A} ro\nbbbbbbbbbbbbbbbb rw:/in/coming # Ada\n");
        let tokens = Tokens::new(parse(&text, "list").unwrap());
        assert_eq!(tokens.right(A), Some(&Right { write: false, folder: None, name: None }));
        let ada = tokens.right("bbbbbbbbbbbbbbbb").unwrap();
        assert_eq!((ada.write, ada.name.as_deref()), (true, Some("Ada")));
        assert_eq!(ada.folder.as_deref(), Some(Path::new("in/coming")));
        assert!(tokens.right("").is_none() && tokens.right("aaaaaaaaaaaaaaab").is_none());
    }

    #[test]
    fn the_error_of_a_wrong_line_has_the_lines_number_and_no_token() {
        for (line, why) in [
            ("short ro", "16 ASCII characters"),
            (A, "two words"),
            ("aaaaaaaaaaaaaaaa rx", "neither ro nor rw"),
            ("aaaaaaaaaaaaaaaa rw:/../x", "below the root"),
            ("aaaaaaaaaaaaaaaa rw:/a more", "two words"),
            ("aaaaaaaa:aaaaaaa ro", "no colon"),
            ("aaaaaaaaaaaaaaaa ro\naaaaaaaaaaaaaaaa rw", "the same token"),
        ] {
            let error = parse(line, "list").unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("list line "), "{error}");
            assert!(!error.contains(A) && !error.contains("short"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("{A} ro\n")).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(load(&path).unwrap_err().what.contains("other users can read"));
        mode(0o600);
        assert_eq!(load(&path).unwrap().len(), 1);
        assert!(load(&folder.path().join("none")).unwrap_err().what.contains("cannot read"));
    }
}
