//! Messages on the control stream. A frame is a length of four bytes, then protobuf. The last
//! message says why the session ends.

use prost::Message;

use crate::{Error, Kind};

/// The longest message, in bytes.
pub const MAX_FRAME: usize = 1 << 20;

/// Bytes of the length in front of each message.
pub const HEADER: usize = 4;

/// The bit of the header that marks the last message.
const GOODBYE: u32 = 1 << 31;

/// Maximum characters of a text in a goodbye.
const LONGEST_TEXT: usize = 2000;

/// The meaning of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A message of this many bytes.
    Message(usize),
    /// The last message, of this many bytes.
    Goodbye(usize),
}

/// Reads a header.
///
/// # Errors
/// The length is beyond [`MAX_FRAME`].
pub fn decode_header(bytes: [u8; HEADER]) -> Result<Header, Error> {
    let word = u32::from_be_bytes(bytes);
    let length = (word & !GOODBYE) as usize;
    if length > MAX_FRAME {
        let what =
            format!("received a control message of {length} bytes; the limit is {MAX_FRAME}");
        return Err(
            Error::new(Kind::Unreachable, what).advise("check that the other side is longhaul")
        );
    }
    Ok(if word & GOODBYE == 0 { Header::Message(length) } else { Header::Goodbye(length) })
}

/// Appends `message` to `out` as a frame.
///
/// # Errors
/// The message is longer than [`MAX_FRAME`].
pub fn encode(message: &impl Message, out: &mut Vec<u8>) -> Result<(), Error> {
    append(message, 0, out)
}

/// The last message: why a session ends.
#[derive(Clone, PartialEq, Eq, Message)]
struct Goodbye {
    /// Number of the error's kind; 0 without an error.
    #[prost(uint32, tag = "1")]
    class: u32,
    /// What failed, and why, as text for people.
    #[prost(string, tag = "2")]
    what: String,
    /// The suggested action; empty for none.
    #[prost(string, tag = "3")]
    advice: String,
    /// Whether the file or folder that the error concerns does not exist.
    #[prost(bool, tag = "4")]
    missing: bool,
    /// Whether this side works, but cannot take the request now, for example for lack of memory.
    #[prost(bool, tag = "5")]
    busy: bool,
}

pub(super) fn encode_goodbye(why: Option<&Error>, out: &mut Vec<u8>) {
    let goodbye = why.map_or_else(Goodbye::default, |error| Goodbye {
        class: error.kind.code(),
        what: shown(&error.what),
        advice: error.advice.as_deref().map(shown).unwrap_or_default(),
        missing: error.is_missing,
        busy: error.is_busy,
    });
    append(&goodbye, GOODBYE, out).expect("shown texts are far below the limit");
}

/// Returns the error in the last frame from `peer`, if it contains one. Local files of `peer` are
/// remote files here, and the reverse.
pub(super) fn decode_goodbye(bytes: &[u8], peer: &str) -> Option<Error> {
    let goodbye = Goodbye::decode(bytes).unwrap_or_else(|_| Goodbye {
        class: 1,
        what: "the session ended for a reason that this release cannot read".to_owned(),
        ..Goodbye::default()
    });
    if goodbye.class == 0 {
        return None;
    }
    let kind = match Kind::of_code(goodbye.class) {
        Kind::LocalFile => Kind::RemoteFile,
        Kind::RemoteFile => Kind::LocalFile,
        kind => kind,
    };
    let what = format!("{peer} says: {}", shown(&goodbye.what));
    let (is_missing, is_busy) = (goodbye.missing, goodbye.busy);
    let error = Error { is_missing, is_busy, ..Error::new(kind, what) };
    let advice = shown(&goodbye.advice);
    Some(match kind {
        _ if advice.is_empty() => error,
        Kind::RemoteFile => error.advise(format!("on the other host: {advice}")),
        _ => error.advise(advice),
    })
}

fn append(message: &impl Message, mark: u32, out: &mut Vec<u8>) -> Result<(), Error> {
    let length = message.encoded_len();
    if length > MAX_FRAME {
        let what = format!("a control message has {length} bytes; the limit is {MAX_FRAME}");
        return Err(Error::new(Kind::Usage, what));
    }
    out.extend_from_slice(&(length as u32 + mark).to_be_bytes());
    message.encode(out).expect("a Vec grows");
    Ok(())
}

/// Returns at most [`LONGEST_TEXT`] characters of a text, without control characters.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: &str = "dtn.example.org";

    #[test]
    fn lengths_beyond_the_limit_are_refused_from_the_header_alone() {
        let limit = MAX_FRAME as u32;
        assert_eq!(decode_header(limit.to_be_bytes()), Ok(Header::Message(MAX_FRAME)));
        assert_eq!(decode_header((limit | GOODBYE).to_be_bytes()), Ok(Header::Goodbye(MAX_FRAME)));
        for word in [limit + 1, !GOODBYE, u32::MAX, u32::from_be_bytes(*b"GET ")] {
            let error = decode_header(word.to_be_bytes()).expect_err("too long");
            assert!(error.what.contains("1048576"), "{error}");
        }
    }

    #[test]
    fn a_message_beyond_the_limit_is_not_sent() {
        let mut out = vec![1];
        let text = "x".repeat(MAX_FRAME);
        let error = encode(&text, &mut out).expect_err("the tag makes it longer than the limit");
        assert_eq!((error.kind, out.len()), (Kind::Usage, 1));
        encode(&text[4..].to_owned(), &mut out).expect("exactly the limit");
        assert_eq!(out.len(), 1 + HEADER + MAX_FRAME);
    }

    fn decoded(error: Option<&Error>) -> Option<Error> {
        let mut out = Vec::new();
        encode_goodbye(error, &mut out);
        let (header, body) = out.split_first_chunk().expect("a header");
        assert_eq!(decode_header(*header), Ok(Header::Goodbye(body.len())));
        decode_goodbye(body, PEER)
    }

    #[test]
    fn a_received_goodbye_keeps_the_error_but_swaps_local_and_remote_files() {
        assert_eq!(decoded(None), None);
        let error = Error::new(Kind::LocalFile, "disk\x1b[2J full").advise("make room");
        let heard = decoded(Some(&error)).expect("an error");
        assert_eq!(heard.kind, Kind::RemoteFile);
        assert_eq!(heard.what, "dtn.example.org says: disk [2J full");
        assert_eq!(heard.advice.as_deref(), Some("on the other host: make room"));
        assert!(!heard.is_missing);
        let missing = Error { is_missing: true, ..error.clone() };
        let heard = decoded(Some(&missing)).expect("an error was sent");
        assert!(heard.is_missing && !heard.is_busy);
        let busy = Error { is_busy: true, ..error };
        let heard = decoded(Some(&busy)).expect("an error was sent");
        assert!(heard.is_busy && !heard.is_missing);
        let usage = Error::new(Kind::Usage, "x").advise("say y");
        assert_eq!(decoded(Some(&usage)).and_then(|heard| heard.advice), usage.advice);
        for kind in (1..10).map(Kind::of_code) {
            let heard = decoded(Some(&Error::new(kind, "x"))).expect("an error");
            assert_eq!(heard.advice, None, "{kind:?}");
        }
        let mine = decoded(Some(&Error::new(Kind::RemoteFile, "x").advise("y"))).expect("an error");
        assert_eq!((mine.kind, mine.advice.as_deref()), (Kind::LocalFile, Some("y")));
    }

    proptest! {
        #[test]
        fn any_goodbye_gives_no_error_or_one_without_control_characters(bytes: Vec<u8>) {
            if let Some(error) = decode_goodbye(&bytes, PEER) {
                prop_assert!(!error.what.contains(char::is_control));
            }
        }
    }
}
