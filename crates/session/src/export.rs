//! Keys for the data plane, from the session's secret.

use std::fmt;

use aws_lc_rs::hkdf;

/// Derives keys that only the two sides of one session know: HKDF-Expand (RFC 5869) over the output
/// of the TLS exporter (RFC 8446 section 7.5). An exporter also works after the session has ended.
#[derive(Clone)]
pub struct Exporter(hkdf::Prk);

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Exporter {
    /// Derives keys from a secret that only the two sides know.
    pub fn of_secret(secret: &[u8; 32]) -> Exporter {
        Exporter(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret))
    }

    /// Returns the key of `label` and `context`. The derivation includes the lengths of both, so
    /// different pairs get different keys.
    pub fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        let lengths = [label.len() as u64, context.len() as u64].map(u64::to_be_bytes);
        let described = [&lengths[0][..], label, &lengths[1][..], context];
        let mut key = [0; 32];
        self.0
            .expand(&described, Length(key.len()))
            .and_then(|expanded| expanded.fill(&mut key))
            .expect("HKDF gives 32 bytes from any description");
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_wherever_secret_label_or_context_do() {
        let one = Exporter::of_secret(&[1; 32]);
        let keys = [
            one.export(b"ab", b"c"),
            one.export(b"a", b"bc"),
            one.export(b"abc", b""),
            one.export(b"", b"abc"),
            Exporter::of_secret(&[2; 32]).export(b"ab", b"c"),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "key {i} came twice");
        }
        assert_eq!(one.clone().export(b"ab", b"c"), keys[0]);
        assert_eq!(format!("{one:?}"), "Exporter", "the secret is not shown");
    }
}
