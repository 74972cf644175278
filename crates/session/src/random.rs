//! Random numbers that a peer cannot guess.

/// Returns a random number.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    u64::from_ne_bytes(bytes)
}
