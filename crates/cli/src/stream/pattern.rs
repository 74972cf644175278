//! Test frames: each starts with its number, which determines the other bytes.

/// Returns test frame `number`, of `length` bytes.
pub(super) fn frame(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut word = number;
    while bytes.len() < length {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = next(word);
    }
    bytes.truncate(length);
    bytes
}

/// Returns the first output of SplitMix64 (Steele, Lea and Flood 2014) with the seed `word`.
fn next(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether `bytes` are a test frame; false for fewer than 8 bytes.
pub(super) fn is_right(bytes: &[u8]) -> bool {
    let mut words = bytes.chunks(8);
    let Some(Ok(first)) = words.next().map(<[u8; 8]>::try_from) else { return false };
    let mut word = u64::from_le_bytes(first);
    words.all(|chunk| {
        word = next(word);
        word.to_le_bytes()[..chunk.len()] == *chunk
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_after_the_number_is_detected() {
        for length in [8, 9, 16, 1_001] {
            let mut bytes = frame(7, length);
            assert!(bytes.len() == length && is_right(&bytes));
            if let Some(last) = bytes[8..].last_mut() {
                *last ^= 1;
                assert!(!is_right(&bytes), "{length}");
            }
        }
        assert!(!is_right(b"short"));
    }
}
