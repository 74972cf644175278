//! A message as a single byte string, for datagrams.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{MAX_MESSAGE, Message};
use crate::share::Key;

/// Bytes before the key.
const HEAD: usize = 8 + 8 + 8 + 1 + 2;

/// Encodes origin, number, time and hop count, big-endian; then the length of the key, the key, and
/// the content.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut out = encode_head(message);
    out.extend(&message.bytes[..]);
    out
}

/// Encodes a message like [`encode`], without the content at the end.
pub fn encode_head(message: &Message) -> Vec<u8> {
    let key = message.key.as_ref().map_or("", Key::as_str).as_bytes();
    let mut out = Vec::with_capacity(HEAD + key.len());
    out.extend(message.origin.to_be_bytes());
    out.extend(message.number.to_be_bytes());
    out.extend(message.at.to_be_bytes());
    out.push(message.hops.min(255) as u8);
    out.extend((key.len() as u16).to_be_bytes());
    out.extend(key);
    out
}

/// Decodes the output of [`encode`]; `None` if `blob` is not the encoding of a message, or if the
/// content is longer than [`MAX_MESSAGE`]. Sets `born` and `via` to 0.
pub fn decode(blob: &[u8]) -> Option<Message> {
    let (head, rest) = blob.split_at_checked(HEAD)?;
    let word = |at: usize| head[at..at + 8].try_into().ok().map(u64::from_be_bytes);
    let len = usize::from(u16::from_be_bytes([head[HEAD - 2], head[HEAD - 1]]));
    let (key, bytes) = rest.split_at_checked(len)?;
    let key = match key {
        [] => None,
        key => Some(Key::new(core::str::from_utf8(key).ok()?).ok()?),
    };
    (bytes.len() <= MAX_MESSAGE).then_some(())?;
    let hops = head[HEAD - 3].into();
    let (origin, number, at) = (word(0)?, word(8)?, word(16)?);
    Some(Message { origin, number, at, born: 0, hops, via: 0, key, bytes: Arc::from(bytes) })
}
