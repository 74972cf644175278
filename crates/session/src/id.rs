//! The id of a client or server: its Ed25519 public key, as text with a checksum.

use std::fmt;
use std::str::FromStr;

use data_encoding::{Encoding, Specification};

/// Length of the checksum after the key, in bytes.
const CHECK: usize = 3;
const PREFIX: &str = "lh1:";

/// An Ed25519 public key; as text `lh1:` and 56 letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub [u8; 32]);

/// DER of `SubjectPublicKeyInfo` up to the key itself (RFC 8410 section 4).
const ED25519_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

impl PeerId {
    pub(super) fn to_der(self) -> Vec<u8> {
        [&ED25519_PREFIX[..], &self.0].concat()
    }

    /// Returns the id of a key in TLS's encoding; `None` if `der` is not an Ed25519 key.
    pub(super) fn from_der(der: &[u8]) -> Option<PeerId> {
        Some(PeerId(der.strip_prefix(&ED25519_PREFIX[..])?.try_into().ok()?))
    }
}

/// Why a text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdError {
    /// The text does not start with `lh1:`.
    Prefix,
    /// The text has too few or too many characters after the prefix.
    Length {
        /// The number of characters; 56 are right.
        found: usize,
    },
    /// A character after the prefix that no id contains.
    Character,
    /// The checksum does not match: one or more characters are wrong.
    Checksum,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdError::Prefix => write!(f, "an id begins with {PREFIX}"),
            IdError::Length { found } => {
                write!(f, "an id has 56 characters after {PREFIX}, this one has {found}")
            }
            IdError::Character => {
                write!(f, "an id has only the characters a-z and 2-7 after {PREFIX}")
            }
            IdError::Checksum => f.write_str("the id's checksum does not match: a typing error?"),
        }
    }
}

impl std::error::Error for IdError {}

/// Returns RFC 4648 base 32 in lower case, without padding.
fn base32() -> Encoding {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.encoding().expect("32 different symbols are a base")
}

fn checksum(key: &[u8; 32]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(PREFIX.as_bytes()).update(key);
    let mut check = [0; CHECK];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..CHECK]);
    check
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 32 + CHECK];
        bytes[..32].copy_from_slice(&self.0);
        bytes[32..].copy_from_slice(&checksum(&self.0));
        write!(f, "{PREFIX}{}", base32().encode(&bytes))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PeerId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<PeerId, IdError> {
        let letters = text.strip_prefix(PREFIX).ok_or(IdError::Prefix)?;
        let found = letters.chars().count();
        if found != (32 + CHECK) * 8 / 5 {
            return Err(IdError::Length { found });
        }
        let bytes = base32().decode(letters.as_bytes()).map_err(|_| IdError::Character)?;
        let (key, check) = bytes.split_first_chunk::<32>().ok_or(IdError::Character)?;
        if check != checksum(key) {
            return Err(IdError::Checksum);
        }
        Ok(PeerId(*key))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_parsed_from_its_text_is_the_same_id(key: [u8; 32]) {
            let id = PeerId(key);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn one_wrong_character_is_noticed(key: [u8; 32], at in 0usize..56, by in 1usize..32) {
            let symbols = b"abcdefghijklmnopqrstuvwxyz234567";
            let mut text = PeerId(key).to_string().into_bytes();
            let place = &mut text[PREFIX.len() + at];
            let now = symbols.iter().position(|s| s == place).expect("ids have only symbols");
            *place = symbols[(now + by) % 32];
            let text = String::from_utf8(text).expect("symbols are ASCII");
            prop_assert_eq!(text.parse::<PeerId>(), Err(IdError::Checksum));
        }

        #[test]
        fn two_swapped_neighbouring_characters_are_noticed(key: [u8; 32], at in 0usize..55) {
            let mut text = PeerId(key).to_string().into_bytes();
            let at = PREFIX.len() + at;
            prop_assume!(text[at] != text[at + 1]);
            text.swap(at, at + 1);
            let text = String::from_utf8(text).expect("symbols are ASCII");
            prop_assert_eq!(text.parse::<PeerId>(), Err(IdError::Checksum));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: String, tail in "lh1:\\PC{50,60}") {
            let _ = text.parse::<PeerId>();
            let _ = tail.parse::<PeerId>();
        }
    }

    #[test]
    fn errors_name_the_mistake_in_an_id() {
        assert_eq!("abc".parse::<PeerId>(), Err(IdError::Prefix));
        assert_eq!("lh1:abc".parse::<PeerId>(), Err(IdError::Length { found: 3 }));
        let letters = "1".repeat(56);
        assert_eq!(format!("lh1:{letters}").parse::<PeerId>(), Err(IdError::Character));
    }

    #[test]
    fn an_id_is_shown_alike_in_logs_and_messages() {
        let id = PeerId([7; 32]);
        assert_eq!(format!("{id:?}"), id.to_string());
    }
}
