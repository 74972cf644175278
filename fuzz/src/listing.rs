//! A server's listing of a folder.

use longhaul_transfer::api::NameKind;
use longhaul_transfer::control::list::Listed;
use prost::Message as _;

/// Checks that an accepted name is a single path component, and that its attributes are valid.
pub fn run(bytes: &[u8]) {
    let Ok(listed) = Listed::decode(bytes) else { return };
    for name in listed.names {
        let Ok(named) = name.clone().check() else { continue };
        assert_eq!(named.name, name.name);
        assert!(!named.name.is_empty() && !named.name.contains(&b'/') && !named.name.contains(&0));
        assert!(named.name != b"." && named.name != b"..");
        if let Some(target) = named.target {
            assert_eq!((target.clone(), named.kind), (name.target, NameKind::Link));
            assert!(!target.is_empty() && target.len() <= 4096 && !target.contains(&0));
        }
        assert!(named.mode <= 0o7777 && named.modified.nanos < 1_000_000_000);
    }
}
