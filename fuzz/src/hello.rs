//! The first message of a session.

use longhaul_transfer::session::hello::{self, Hello, VERSIONS};

/// Checks that both ends choose the same version, which both offer, or that both choose none.
pub fn run(bytes: &[u8]) {
    let Ok(theirs) = hello::decode(bytes) else { return };
    let ours = Hello::new(&VERSIONS);
    match (ours.agree(&theirs), theirs.agree(&ours)) {
        (Ok(version), Ok(other)) => {
            assert_eq!(version, other);
            assert!(VERSIONS.contains(&version));
            assert!((theirs.min..=theirs.max).contains(&version));
        }
        (Err(error), Err(_)) => assert!(error.what.len() < 300 && error.what.is_ascii()),
        _ => panic!("one end agrees and the other does not"),
    }
}
