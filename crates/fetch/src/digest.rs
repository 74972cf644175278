//! Digests that servers publish: `Repr-Digest` (RFC 9530), `Digest` (RFC 3230) and `Content-MD5`.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use data_encoding::BASE64;
use md5::Digest as _;

/// A digest of the whole file, as a server published it.
#[derive(Clone, PartialEq, Eq)]
pub struct Digest {
    algorithm: Algorithm,
    value: Vec<u8>,
}

/// The algorithms, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Sha512,
    Sha256,
    Md5,
}

impl Algorithm {
    fn named(name: &str) -> Option<Algorithm> {
        match name.trim().to_ascii_lowercase().as_str() {
            "sha-512" => Some(Algorithm::Sha512),
            "sha-256" => Some(Algorithm::Sha256),
            "md5" => Some(Algorithm::Md5),
            _ => None,
        }
    }

    fn len(self) -> usize {
        match self {
            Algorithm::Sha512 => 64,
            Algorithm::Sha256 => 32,
            Algorithm::Md5 => 16,
        }
    }
}

impl Digest {
    /// Returns the strongest known digest in the lists of `Repr-Digest` and `Digest`, and in
    /// `Content-MD5`. Values that are malformed or have a wrong length are ignored.
    pub(crate) fn strongest(
        repr: Option<&str>,
        digest: Option<&str>,
        content_md5: Option<&str>,
    ) -> Option<Digest> {
        let pairs = |list: Option<&str>| -> Vec<(String, String)> {
            let items = list.unwrap_or_default().split(',');
            let pairs = items.filter_map(|item| item.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
        };
        let bytes = |value: &str| BASE64.decode(value.as_bytes()).ok();
        // A structured field puts a sequence of bytes between colons; parameters may follow.
        let quoted = |value: &str| {
            let value = value.split_once(';').map_or(value, |(value, _)| value.trim_end());
            bytes(value.strip_prefix(':')?.strip_suffix(':')?)
        };
        let repr = pairs(repr).into_iter().map(|(name, value)| (name, quoted(&value)));
        let digest = pairs(digest).into_iter().map(|(name, value)| (name, bytes(&value)));
        let md5 = content_md5.map(|value| ("md5".to_owned(), bytes(value.trim())));
        let all = repr.chain(digest).chain(md5);
        let known = all.filter_map(|(name, value)| {
            let (algorithm, value) = (Algorithm::named(&name)?, value?);
            (value.len() == algorithm.len()).then_some(Digest { algorithm, value })
        });
        known.min_by_key(|digest| digest.algorithm)
    }

    /// Returns a new hasher for this kind of digest.
    pub fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha512 => Hasher::Sha(Context::new(&SHA512)),
            Algorithm::Sha256 => Hasher::Sha(Context::new(&SHA256)),
            Algorithm::Md5 => Hasher::Md5(md5::Md5::new()),
        }
    }

    /// Returns the name of the algorithm.
    pub fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha512 => "SHA-512",
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Md5 => "MD5",
        }
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), data_encoding::HEXLOWER.encode(&self.value))
    }
}

/// Computes a digest over the file from its start.
#[derive(Clone)]
pub enum Hasher {
    #[doc(hidden)]
    Sha(Context),
    #[doc(hidden)]
    Md5(md5::Md5),
}

impl Hasher {
    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha(context) => context.update(bytes),
            Hasher::Md5(md5) => md5.update(bytes),
        }
    }

    /// Returns whether the digest of the bytes equals `published`.
    pub fn is(self, published: &Digest) -> bool {
        match self {
            Hasher::Sha(context) => context.finish().as_ref() == published.value,
            Hasher::Md5(md5) => md5.finalize()[..] == published.value[..],
        }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The digests of "abc", from RFC 1321 and FIPS 180-2.
    const MD5: &str = "kAFQmDzST7DWlj99KOF/cg==";
    const SHA256: &str = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";

    fn is_of_abc(digest: &Digest) -> bool {
        let mut hasher = digest.hasher();
        hasher.update(b"ab");
        hasher.update(b"c");
        hasher.is(digest)
    }

    #[test]
    fn the_strongest_of_the_published_digests_is_used() {
        let repr = format!("md5=:{MD5}:, sha-256=:{SHA256}:");
        let found = Digest::strongest(Some(&repr), None, None).unwrap();
        let with = format!("{repr};x=1");
        assert_eq!(Digest::strongest(Some(&with), None, None), Some(found.clone()));
        assert_eq!(found.name(), "SHA-256");
        assert!(is_of_abc(&found));
        let old = format!("adler32=03da0195,SHA-256={SHA256}");
        assert_eq!(Digest::strongest(None, Some(&old), Some(MD5)), Some(found));
        let md5 = Digest::strongest(None, None, Some(MD5)).unwrap();
        assert!(md5.name() == "MD5" && is_of_abc(&md5));
    }

    #[test]
    fn a_digest_of_another_file_does_not_match() {
        let digest = Digest::strongest(None, None, Some(MD5)).unwrap();
        let mut hasher = digest.hasher();
        hasher.update(b"abd");
        assert!(!hasher.is(&digest));
    }

    #[test]
    fn malformed_and_unknown_digests_are_ignored() {
        for wrong in [
            "",
            "sha-256",
            "sha-256=",
            "sha-256=::",
            "sha-256=:YWJj:",
            "sha-256=:!:",
            "crc32=:YWJj:",
            "sha-256=:",
        ] {
            assert_eq!(Digest::strongest(Some(wrong), None, None), None, "{wrong}");
        }
        let unquoted = format!("sha-256={SHA256}");
        assert_eq!(Digest::strongest(Some(&unquoted), None, None), None);
        assert_eq!(Digest::strongest(None, Some("md5=YWJj"), Some("YWJj")), None);
    }
}
