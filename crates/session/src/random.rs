//! Random numbers that a peer cannot guess.

/// Returns a random number.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_repeats() {
        let numbers: std::collections::HashSet<u64> = (0..100).map(|_| random_u64()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
