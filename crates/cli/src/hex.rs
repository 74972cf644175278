//! Hexadecimal numbers in `--json`, for bytes that are not UTF-8.

/// Returns the bytes as lower-case hexadecimal digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of a hexadecimal number; `None` if a digit is wrong or missing.
pub(crate) fn decode(hex: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        hex.chars().map(|digit| digit.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_hexadecimal_digits_are_bytes() {
        assert_eq!(decode(&encode(b"a\xff\0")), Some(b"a\xff\0".to_vec()));
        assert_eq!(decode("61FF"), Some(b"a\xff".to_vec()));
        for bad in ["6", "61f", "+1", "6g", "\u{e9}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
