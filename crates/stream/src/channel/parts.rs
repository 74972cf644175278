//! Cuts messages that may be longer than a frame of the control stream into parts, and joins them.

use std::sync::Arc;

use longhaul_proto::channel::{MAX_HOPS, MAX_MESSAGE, Message};
use longhaul_proto::share::Key;
use longhaul_session::{Error, Kind};

use super::messages::Part;
use super::stamp;

/// Maximum content of a part in bytes. A part fits into a frame of the control stream.
const PART: usize = 512 << 10;

/// Returns the parts of a message. A subscriber that connects again continues at position `next`.
pub(super) fn cut(message: &Message, next: u64) -> impl Iterator<Item = Part> + '_ {
    let all = &message.bytes[..];
    let count = all.len().div_ceil(PART).max(1);
    (0..count).map(move |at| {
        let end = all.len().min((at + 1) * PART);
        let part = Part {
            rest: (all.len() - end) as u64,
            bytes: all[at * PART..end].to_vec(),
            ..Part::default()
        };
        if at > 0 {
            return part;
        }
        let key = message.key.as_ref().map_or("", Key::as_str).to_owned();
        let Message { origin, number, at: at_micros, hops, .. } = *message;
        let age_micros = (stamp() as i64).saturating_sub(message.born).max(0) as u64;
        Part { origin, number, at_micros, hops, key, next, age_micros, ..part }
    })
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(Kind::Usage, what)
}

/// Joins parts into messages.
#[derive(Debug, Default)]
pub struct Parts {
    /// The message without content, the content so far, the number of missing bytes, and the
    /// position after the message.
    begun: Option<(Message, Vec<u8>, usize, u64)>,
}

impl Parts {
    /// Returns how many bytes of the incomplete message have arrived.
    pub fn held(&self) -> usize {
        self.begun.as_ref().map_or(0, |(_, bytes, ..)| bytes.len())
    }

    /// Takes a part. Returns the complete message and the position after it, if the part is the
    /// message's last.
    ///
    /// # Errors
    /// The part does not continue its message, is invalid, or exceeds a limit.
    pub fn take(&mut self, part: Part) -> Result<Option<(Message, u64)>, Error> {
        let rest = usize::try_from(part.rest).unwrap_or(usize::MAX);
        let (message, bytes, next) = match self.begun.take() {
            Some((message, mut bytes, expected, next)) => {
                if part.bytes.is_empty() || part.bytes.len().saturating_add(rest) != expected {
                    return Err(wrong("a part does not continue its message"));
                }
                bytes.extend_from_slice(&part.bytes);
                (message, bytes, next)
            }
            None => {
                if part.bytes.len().saturating_add(rest) > MAX_MESSAGE {
                    let most = MAX_MESSAGE >> 20;
                    return Err(wrong(format!("a message is longer than {most} MiB")));
                }
                (first(&part)?, part.bytes, part.next)
            }
        };
        if rest > 0 {
            if bytes.is_empty() {
                return Err(wrong("a part of a message is empty"));
            }
            self.begun = Some((message, bytes, rest, next));
            return Ok(None);
        }
        Ok(Some((Message { bytes: Arc::from(bytes), ..message }, next)))
    }
}

fn first(part: &Part) -> Result<Message, Error> {
    let key = match &*part.key {
        "" => None,
        key => Some(Key::new(key).map_err(|error| wrong(format!("the key is invalid: {error}")))?),
    };
    // Numbers grow from 1 by 1, so no sender reaches half of the range.
    if part.number > u64::MAX / 2 || part.hops > MAX_HOPS {
        return Err(wrong("the number or the hop count of a message is out of its limits"));
    }
    let Part { origin, number, at_micros: at, hops, .. } = *part;
    let born = (stamp() as i64).saturating_sub_unsigned(part.age_micros);
    Ok(Message { origin, number, at, born, hops, via: 0, key, bytes: Arc::from([]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Message {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        let key = Key::new("world/a").ok();
        let born = stamp() as i64 - 2_000_000;
        Message { origin: 5, number: 9, at: 3, born, hops: 2, via: 0, key, bytes: Arc::from(bytes) }
    }

    #[test]
    fn a_message_of_any_length_is_cut_and_joined() {
        for len in [0, 1, PART, PART + 1, MAX_MESSAGE] {
            let (whole, mut parts) = (message(len), Parts::default());
            let cut: Vec<Part> = cut(&whole, 77).collect();
            assert_eq!(cut.len(), len.div_ceil(PART).max(1));
            let (last, first) = cut.split_last().expect("a part");
            for part in first {
                assert_eq!(parts.take(part.clone()), Ok(None));
            }
            assert_eq!(parts.held(), len - last.bytes.len());
            let (came, next) = parts.take(last.clone()).unwrap().expect("it is whole");
            assert!(came == Message { born: came.born, ..whole.clone() } && next == 77);
            assert!((0..60_000_000).contains(&(came.born - whole.born)) && parts.held() == 0);
        }
    }

    #[test]
    fn parts_that_no_honest_end_sends_are_refused() {
        let part = |len: usize, rest| Part { bytes: vec![0; len], rest, ..Part::default() };
        let key = |key: &str| Part { key: key.to_owned(), ..Part::default() };
        for (wrong, why) in [
            (part(1, MAX_MESSAGE as u64), "longer than 16 MiB"),
            (part(1, u64::MAX), "longer than 16 MiB"),
            (part(0, 5), "is empty"),
            (key("a//b"), "the key is invalid"),
            (key("../x"), "the key is invalid"),
            (Part { number: u64::MAX, ..Part::default() }, "out of its limits"),
            (Part { hops: 17, ..Part::default() }, "out of its limits"),
        ] {
            let error = Parts::default().take(wrong.clone()).expect_err("a lie");
            assert!(error.what.contains(why), "{wrong:?}: {error}");
        }
        for second in [part(3, 3), part(5, 6), part(0, 10), part(10, u64::MAX)] {
            let mut parts = Parts::default();
            assert_eq!(parts.take(part(5, 10)), Ok(None));
            assert!(parts.take(second).is_err_and(|error| error.what.contains("not continue")));
        }
    }
}
