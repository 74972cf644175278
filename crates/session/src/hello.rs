//! The first message in each direction of each stream: the sender's protocol versions and the
//! stream's service. Neither side waits for the other's hello, so hellos cost no round trip.

use std::ops::RangeInclusive;

use prost::Message;

use crate::{Error, Kind};

/// The versions of the control protocol in this build.
pub const VERSIONS: RangeInclusive<u32> = 2..=2;

/// The first message of each side of a stream.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// The lowest supported version.
    #[prost(uint32, tag = "1")]
    pub min: u32,
    /// The highest supported version.
    #[prost(uint32, tag = "2")]
    pub max: u32,
    /// The release, for error messages only.
    #[prost(string, tag = "3")]
    pub release: String,
    /// From the side that opens the stream: the service to answer. Empty: the server's first
    /// service.
    #[prost(string, tag = "4")]
    pub service: String,
    /// From the side that opens the stream: the version of the service that its messages need. A
    /// service of an older version refuses the stream, because it would skip a required field.
    #[prost(uint32, tag = "5")]
    pub needs: u32,
    /// From a client: the client opens more streams. Over TCP and ssh, a multiplexer carries all
    /// streams after this message.
    #[prost(bool, tag = "6")]
    pub streams: bool,
}

const LONGEST_RELEASE: usize = 40;

impl Hello {
    /// Returns the hello of this build, for `versions`.
    pub fn new(versions: &RangeInclusive<u32>) -> Hello {
        Hello {
            min: *versions.start(),
            max: *versions.end(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            ..Hello::default()
        }
    }

    pub(crate) fn ask_for(&mut self, service: &str, needs: u32) {
        self.service = service.to_owned();
        self.needs = needs;
    }

    /// Returns the highest version that both support.
    ///
    /// # Errors
    /// There is no common version; the error names both ranges.
    pub fn agree(&self, theirs: &Hello) -> Result<u32, Error> {
        let version = self.max.min(theirs.max);
        if version >= self.min.max(theirs.min) {
            return Ok(version);
        }
        let what = format!(
            "no common protocol version: longhaul {} here has {}, {} on the other host has {}",
            self.release,
            range(self),
            release(theirs),
            range(theirs)
        );
        let older = if version == theirs.max { "on the other host" } else { "here" };
        Err(Error::new(Kind::Unreachable, what).advise(format!("install a newer longhaul {older}")))
    }
}

/// Decodes a hello.
///
/// # Errors
/// The bytes are not a hello, or its range is empty or includes version 0.
pub fn decode(bytes: &[u8]) -> Result<Hello, Error> {
    match Hello::decode(bytes) {
        Ok(hello) if hello.min >= 1 && hello.min <= hello.max => Ok(hello),
        _ => Err(Error::new(
            Kind::Unreachable,
            "the other side's first message is not a longhaul hello",
        )
        .advise("check that longhaul is the program on the other side")),
    }
}

fn range(hello: &Hello) -> String {
    if hello.min == hello.max {
        format!("version {}", hello.min)
    } else {
        format!("versions {} to {}", hello.min, hello.max)
    }
}

fn release(hello: &Hello) -> String {
    hello.release.chars().filter(char::is_ascii_graphic).take(LONGEST_RELEASE).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_ends_choose_the_highest_common_version() {
        let [old, new] = [Hello::new(&(1..=3)), Hello::new(&(2..=5))];
        assert_eq!(old.agree(&new), Ok(3));
        assert_eq!(new.agree(&old), Ok(3));
    }

    #[test]
    fn without_a_common_version_both_errors_name_both_ranges() {
        let [old, new] = [Hello::new(&(1..=1)), Hello::new(&(2..=5))];
        let at_old = old.agree(&new).expect_err("no common version").to_string();
        let at_new = new.agree(&old).expect_err("no common version").to_string();
        for text in [&at_old, &at_new] {
            assert!(text.contains("version 1") && text.contains("versions 2 to 5"), "{text}");
        }
        assert!(at_old.ends_with("newer longhaul here"), "{at_old}");
        assert!(at_new.ends_with("newer longhaul on the other host"), "{at_new}");
    }

    #[test]
    fn a_range_that_touches_the_other_has_one_version_in_common() {
        let [low, high] = [Hello::new(&(1..=2)), Hello::new(&(2..=5))];
        assert_eq!((low.agree(&high), high.agree(&low)), (Ok(2), Ok(2)));
        let same = Hello::new(&(7..=7));
        assert_eq!(same.agree(&same), Ok(7));
    }

    #[test]
    fn a_release_is_shown_up_to_40_printable_characters() {
        let long = "\u{1b}[2J".to_owned() + &"x".repeat(50);
        let theirs = Hello { min: 9, max: 9, release: long, ..Hello::default() };
        let error = Hello::new(&VERSIONS).agree(&theirs).expect_err("no common version");
        let shown = format!("longhaul {} here", env!("CARGO_PKG_VERSION"));
        assert!(error.what.contains(&shown), "{error}");
        assert!(
            error.what.contains(&format!(", [2J{} on the other host", "x".repeat(37))),
            "{error}"
        );
    }

    #[test]
    fn a_hello_with_an_empty_range_or_version_0_is_refused() {
        assert!(decode(&[]).is_err());
        assert!(decode(&Hello { min: 0, max: 2, ..Hello::default() }.encode_to_vec()).is_err());
        let one = Hello { min: 1, max: 1, ..Hello::default() };
        assert_eq!(decode(&one.encode_to_vec()), Ok(one));
        assert!(decode(&Hello { min: 3, max: 2, ..Hello::default() }.encode_to_vec()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_an_error(bytes: Vec<u8>) {
            if let Ok(hello) = decode(&bytes) {
                prop_assert!(hello.min <= hello.max);
                let _ = Hello::new(&VERSIONS).agree(&hello);
            }
        }
    }
}
