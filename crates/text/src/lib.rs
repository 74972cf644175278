//! Text for errors: a system error without its number, words and commands quoted for a shell, the
//! options of a call, a clipped text of a peer.

mod call_option;

use std::io;
use std::path::Path;

pub use call_option::CallOption;

const LONGEST: usize = 2000;

/// Returns at most the first 2000 characters of a text from a peer.
pub fn clipped(text: &str) -> String {
    // A text has at most as many characters as bytes.
    match text.len() <= LONGEST {
        true => text.to_owned(),
        false => text.chars().take(LONGEST).collect(),
    }
}

/// Returns the reason of a system error without its number.
pub fn reason(error: &io::Error) -> String {
    // The system's errors have a number. A refusal without a number comes from the library cap-std,
    // which confines paths to the served folder.
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        return "it leads out of the served folder".to_owned();
    }
    if error.kind() == io::ErrorKind::NotFound && error.get_ref().is_none() {
        // The standard library's text for this kind is "entity not found".
        return "No such file or directory".to_owned();
    }
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// Returns what is wrong with the `mode` of a file that holds a secret; `None` if only its owner
/// may use the file.
pub fn used_by_others(path: &Path, mode: u32) -> Option<String> {
    let is_private = mode & 0o077 == 0;
    (!is_private)
        .then(|| format!("{} can be used by others (mode {:03o})", path.display(), mode & 0o777))
}

/// Quotes a word so that a Bourne shell takes it literally.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::new();
    for (at, part) in word.split('\'').enumerate() {
        if at > 0 {
            quoted.push_str("\\'");
        }
        if !part.is_empty() || word.is_empty() {
            quoted.push('\'');
            quoted.push_str(part);
            quoted.push('\'');
        }
    }
    quoted
}

/// Quotes a path for a shell so that no command reads it as an option.
pub(crate) fn quoted_path(path: &Path) -> String {
    let shown = path.display().to_string();
    quoted(&if shown.starts_with('-') { format!("./{shown}") } else { shown })
}

/// Returns the command that creates the folder `path`.
pub fn mkdir(path: &Path) -> String {
    format!("mkdir -p {}", quoted_path(path))
}
