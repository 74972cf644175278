//! A client's permissions below a prefix of names, as in the list of clients: `ro:/world`.

use alloc::format;
use alloc::string::String;
use core::fmt;

use super::Prefix;

/// A permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The right to read and watch keys, or to receive streams and messages.
    pub read: bool,
    /// The right to put and delete keys, or to send streams and messages.
    pub write: bool,
    /// Applies to this name and the names below it.
    pub prefix: Prefix,
}

impl Right {
    /// Parses `MODE[:/PREFIX]`, where MODE is `ro`, `wo` or `rw`. `None` if the text is malformed.
    pub fn parse(text: &str) -> Option<Right> {
        let (mode, prefix) = text.split_once(':').unwrap_or((text, ""));
        let prefix = prefix.strip_prefix('/').unwrap_or(prefix);
        let prefix = Prefix::new(prefix.strip_suffix('/').unwrap_or(prefix)).ok()?;
        let (read, write) = match mode.to_ascii_lowercase().as_str() {
            "ro" => (true, false),
            "wo" => (false, true),
            "rw" => (true, true),
            _ => return None,
        };
        Some(Right { read, write, prefix })
    }

    /// Returns why a client with this right may not `verb` the key or name `name`.
    pub fn refuses(&self, verb: &str, name: impl fmt::Display) -> String {
        format!("this client may not {verb} '{name}'; its right is {self}")
    }
}

/// Formats the right as in the list of clients; with the mode `none` if the client may do nothing.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match (self.read, self.write) {
            (true, true) => "rw",
            (false, true) => "wo",
            (true, false) => "ro",
            (false, false) => "none",
        };
        write!(f, "{mode}:/{}", self.prefix.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_right_is_shown_as_the_same_text() {
        for text in ["ro:/", "wo:/world/a", "rw:/world"] {
            let right = Right::parse(text).expect("a right");
            assert_eq!(format!("{right}"), text);
        }
        let none = Right { read: false, write: false, prefix: Prefix::ALL };
        assert_eq!(format!("{none}"), "none:/");
    }

    #[test]
    fn a_right_has_a_mode_and_perhaps_a_prefix() {
        let right = |text| Right::parse(text).map(|r| (r.read, r.write, r.prefix));
        let world = Prefix::new("world").expect("a prefix");
        assert_eq!(right("ro"), Some((true, false, Prefix::ALL)));
        assert_eq!(right("RW:/"), Some((true, true, Prefix::ALL)));
        assert_eq!(right("wo:/world"), Some((false, true, world.clone())));
        assert_eq!(right("rw:world/"), Some((true, true, world)));
        for bad in ["", "r", "ro:/a//b", "ro:/*"] {
            assert_eq!(right(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_refusal_names_the_action_the_key_and_the_right() {
        let refusal = Right::parse("ro:/world").expect("a right").refuses("put", "door/1");
        for part in ["put", "'door/1'", "ro:/world"] {
            assert!(refusal.contains(part), "{refusal}");
        }
    }
}
