//! Escapes text of other hosts for terminals: one line, without control characters or changes of
//! the text's direction.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Escapes what a terminal would interpret, such as `\n`, `\u{1b}` and `\u{202e}`.
pub(crate) fn text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if is_obeyed(letter) => plain.extend(letter.escape_default()),
            letter => plain.push(letter),
        }
    }
    plain
}

/// Escapes `path` like [`text`]. Bytes that are not UTF-8 become hexadecimal, such as `\xff`.
pub(crate) fn path(path: &Path) -> String {
    let mut plain = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        plain += &text(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(plain, "\\x{byte:02x}");
        }
    }
    plain
}

/// Whether a terminal interprets the character.
fn is_obeyed(letter: char) -> bool {
    let marks = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}');
    let turns = marks || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(letter, '\u{2028}' | '\u{2029}');
    letter.is_control() || turns || breaks
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped_and_other_text_is_unchanged() {
        assert_eq!(text("\u{1b}[2J\u{1b}]0;owned\u{7}"), "\\u{1b}[2J\\u{1b}]0;owned\\u{7}");
        assert_eq!(text("a\nlonghaul: copied\r\t\u{9b}"), "a\\nlonghaul: copied\\r\\t\\u{9b}");
        assert_eq!(text("safe\u{202e}gpj.exe"), "safe\\u{202e}gpj.exe");
        assert_eq!(text("a\u{61c}b\u{200f}c"), "a\\u{61c}b\\u{200f}c");
        let fine = "plain, 'quoted' \"twice\" back\\slash \u{e4}\u{1f680}";
        assert_eq!(text(fine), fine);
    }

    #[test]
    fn two_names_that_are_not_utf8_stay_distinct() {
        let shown = |name: &[u8]| path(Path::new(OsStr::from_bytes(name)));
        assert_eq!(shown(b"a\xff/\xc3\xa4\n"), "a\\xff/\u{e4}\\n");
        assert_ne!(shown(b"a\xff"), shown(b"a\xfe"));
    }
}
