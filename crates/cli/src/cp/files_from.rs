//! The list of `--files-from`.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, Read};
use std::path::Path;

use longhaul::{Filter, Location};

use crate::error::{Error, ErrorKind};

/// Maximum size of a list, in bytes.
const MAX_LIST: u64 = 16 << 20;

/// The source folder with a slash at the end, so the copy takes its contents.
pub(super) fn folder(sources: &[Location]) -> Result<Location, Error> {
    let [source] = sources else {
        let what = "--files-from lists paths of one folder, but there are several sources";
        return Err(Error::new(ErrorKind::Usage, what)
            .advise("name one folder that contains all listed paths"));
    };
    Ok(source.clone().contents())
}

/// Reads the list in the file `list` (`-`: from standard input). A path ends with a zero byte if
/// `zeros` is set, otherwise with a line end. If `ends_empty` is set too, an empty path ends the
/// list on standard input: with `--watch-stdin`, standard input stays open after the list.
pub(super) fn read(list: &Path, zeros: bool, ends_empty: bool) -> Result<Vec<Filter>, Error> {
    let wrong = |kind, why: &str| {
        let what = format!("cannot use the list {}: {why}", list.display());
        Error::new(kind, what).advise("check --files-from")
    };
    let mut text = Vec::new();
    let read = match list.as_os_str() == OsStr::new("-") {
        true if ends_empty => read_entries(&mut io::stdin().lock().take(MAX_LIST + 1), &mut text),
        true => io::stdin().lock().take(MAX_LIST + 1).read_to_end(&mut text),
        false => {
            fs::File::open(list).and_then(|file| file.take(MAX_LIST + 1).read_to_end(&mut text))
        }
    };
    read.map_err(|error| wrong(ErrorKind::LocalFile, &error.to_string()))?;
    if text.len() as u64 > MAX_LIST {
        return Err(wrong(ErrorKind::Usage, "it is longer than 16 MiB"));
    }
    let paths = paths(&text, zeros).map_err(|why| wrong(ErrorKind::Usage, &why))?;
    // Without a filter, everything would be copied.
    if paths.is_empty() {
        return Err(wrong(ErrorKind::Usage, "it is empty"));
    }
    Ok(paths.into_iter().map(Filter::Only).collect())
}

/// Reads zero-terminated paths, up to an empty path or the end of the input.
fn read_entries(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<usize> {
    let mut all = 0;
    loop {
        let read = from.read_until(0, text)?;
        if read <= 1 {
            return Ok(all);
        }
        all += read;
    }
}

/// Returns the paths in `text`, without `.` components and surplus slashes. Skips empty paths. If
/// `zeros` is not set, also skips comments (lines that begin with `#` or `;`).
///
/// # Errors
/// A path has a `..` component, or names the folder itself.
fn paths(text: &[u8], zeros: bool) -> Result<Vec<Vec<u8>>, String> {
    let end = if zeros { 0 } else { b'\n' };
    let mut paths = Vec::new();
    for line in text.split(|byte| *byte == end) {
        let line = if zeros { line } else { line.strip_suffix(b"\r").unwrap_or(line) };
        if !zeros && matches!(line.first(), Some(b'#' | b';')) {
            continue;
        }
        let parts = line.split(|byte| *byte == b'/');
        let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
        if parts.contains(&&b".."[..]) {
            return Err(format!("{} leads out of the folder", String::from_utf8_lossy(line)));
        }
        match parts.is_empty() {
            true if line.is_empty() => {}
            true => {
                return Err(format!(
                    "{} is not a path in the folder",
                    String::from_utf8_lossy(line)
                ));
            }
            false => paths.push(parts.join(&b'/')),
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_one_path_a_line_without_comments_and_empty_lines() {
        let text = b"# all\n./a/b\n\n/c/\r\n;x\nd e\n\xff";
        let expected = [&b"a/b"[..], b"c", b"d e", b"\xff"];
        assert_eq!(paths(text, false).unwrap(), expected);
        assert_eq!(paths(b"#a\0b\nc\0", true).unwrap(), [&b"#a"[..], b"b\nc"]);
    }

    #[test]
    fn an_empty_path_ends_a_list_even_if_its_pipe_stays_open() {
        let (mut pipe, mut text) = (&b"a\0b/c\0\0rest"[..], Vec::new());
        read_entries(&mut pipe, &mut text).unwrap();
        assert_eq!(paths(&text, true).unwrap(), [&b"a"[..], b"b/c"]);
        assert_eq!(pipe, b"rest");
    }

    #[test]
    fn a_path_that_leads_out_of_the_folder_is_refused() {
        for text in ["../x", "a/../../x", "a/.."] {
            assert!(paths(text.as_bytes(), false).unwrap_err().contains("out of the folder"));
        }
        assert!(paths(b".", false).unwrap_err().contains("not a path in"));
    }
}
