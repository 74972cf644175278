//! Keys: the names of the values in a shared tree. A key is words joined by `/`, as in
//! `world/camera/7`.

use alloc::borrow::ToOwned;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::ops::Bound;

/// The longest key in bytes.
pub const MAX_KEY: usize = 512;

/// A valid key. Cloning is cheap.
///
/// Each key is also a valid key of Zenoh (a publish/subscribe protocol), so a bridge to Zenoh needs
/// no translation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The key or one of its words is empty, as in `a//b`, `/a` or `a/`.
    Empty,
    /// The key is longer than [`MAX_KEY`].
    Long,
    /// The key has a control character, one of `*$?#`, or the word `.` or `..`.
    Letter,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Empty => f.write_str("a key is words joined by single slashes"),
            KeyError::Long => write!(f, "a key has at most {MAX_KEY} bytes"),
            KeyError::Letter => {
                f.write_str("a key has no control character, none of *$?#, and no word . or ..")
            }
        }
    }
}

impl core::error::Error for KeyError {}

fn check(text: &str) -> Result<(), KeyError> {
    if text.len() > MAX_KEY {
        return Err(KeyError::Long);
    }
    if text.split('/').any(str::is_empty) {
        return Err(KeyError::Empty);
    }
    let is_bad = |letter: char| letter.is_control() || "*$?#".contains(letter);
    match text.contains(is_bad) || text.split('/').any(|word| word == "." || word == "..") {
        true => Err(KeyError::Letter),
        false => Ok(()),
    }
}

impl Key {
    /// Checks `text`.
    ///
    /// # Errors
    /// [`KeyError`] if `text` is not a key.
    pub fn new(text: &str) -> Result<Key, KeyError> {
        check(text).map(|()| Key(text.into()))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A part of the tree: a key and all keys below it, or the whole tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(Option<Key>);

impl Prefix {
    /// The whole tree.
    pub const ALL: Prefix = Prefix(None);

    /// Checks `text`; an empty text is the whole tree.
    ///
    /// # Errors
    /// [`KeyError`] if `text` is neither empty nor a key.
    pub fn new(text: &str) -> Result<Prefix, KeyError> {
        match text {
            "" => Ok(Prefix::ALL),
            text => Key::new(text).map(|key| Prefix(Some(key))),
        }
    }

    /// Returns the prefix as text.
    pub fn as_str(&self) -> &str {
        self.0.as_ref().map_or("", Key::as_str)
    }

    /// Returns whether `key` is the prefix or is below it. `world` contains `world` and `world/a`,
    /// but not `worlds`.
    pub fn contains(&self, key: &str) -> bool {
        let prefix = self.as_str();
        prefix.is_empty()
            || key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the bounds of the keys below the prefix, without the prefix itself.
    pub(super) fn below(&self) -> (Bound<Key>, Bound<Key>) {
        let Some(key) = &self.0 else { return (Bound::Unbounded, Bound::Unbounded) };
        // In ASCII '0' follows '/', so the keys below `a` are those between `a/` and `a0`.
        let bound = |end: char| {
            let mut text = key.as_str().to_owned();
            text.push(end);
            Bound::Excluded(Key(text.into()))
        };
        (bound('/'), bound('0'))
    }

    pub(super) fn own(&self) -> Option<&Key> {
        self.0.as_ref()
    }
}
