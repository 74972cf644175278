//! Content of unknown length, read by a separate thread and split into parts.

use std::io::{self, Read};
use std::thread;

use longhaul_proto::units::Bytes;
use tokio::sync::mpsc;

use crate::control::pipe::MAX_EXTENT;
use crate::error::{Error, ErrorKind};
use crate::options::Input;
use longhaul_files::CHUNK;
use longhaul_files::digest::Digest;

/// Parts in memory at a time: one is being read, one waits, two are being sent.
const HELD: u64 = 4;
/// Size of the largest part divided by the size of the first part, which has at least one chunk. A
/// small first part is read quickly, so its data leave early.
const SMALLER: u64 = 4;

pub(super) struct Fed {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

pub(super) enum Next {
    Part(Fed),
    /// The last part, and the digest of the whole content.
    Last(Fed, Digest),
    Failed(Error),
}

pub(super) struct Feed(mpsc::Receiver<Next>);

impl Feed {
    /// Starts to read `input`; the parts in memory at a time fit into `memory`, if that is 4 MiB or
    /// more.
    ///
    /// # Errors
    /// The input was read before, or the system cannot start a thread.
    pub(super) fn start(input: &Input, memory: Bytes) -> Result<Feed, Error> {
        let taken = || Error::new(ErrorKind::Usage, "the content to send was read already");
        let reader = input.take().ok_or_else(taken)?;
        let (parts, feed) = mpsc::channel(1);
        let largest = largest(memory);
        let started = thread::Builder::new()
            .name("feed".into())
            .spawn(move || read(reader, largest, |next| parts.blocking_send(next).is_ok()));
        started.map(|_| Feed(feed)).map_err(|error| {
            Error::new(ErrorKind::Unfinished, format!("cannot start a reading thread: {error}"))
        })
    }

    pub(super) async fn next(&mut self) -> Next {
        let ended = || Error::new(ErrorKind::Unfinished, "the reading thread ended early");
        self.0.recv().await.unwrap_or_else(|| Next::Failed(ended()))
    }
}

/// Returns the size of the largest part in bytes: a whole number of chunks, at least one.
fn largest(memory: Bytes) -> u64 {
    (memory.get() / HELD / CHUNK).clamp(1, MAX_EXTENT / CHUNK) * CHUNK
}

/// Reads parts until the input ends or fails, or `report` returns false. Each part except the last
/// is twice as large as the one before, up to `largest`.
fn read(mut reader: impl Read, largest: u64, mut report: impl FnMut(Next) -> bool) {
    let mut hasher = blake3::Hasher::new();
    let (mut offset, mut ahead) = (0, Vec::new());
    let mut size = (largest / SMALLER / CHUNK).max(1) * CHUNK;
    loop {
        let read = fill(&mut reader, size, std::mem::take(&mut ahead));
        let (bytes, next) = match read {
            Ok(read) => read,
            Err(error) => {
                let what = format!("cannot read the content to send: {error}");
                report(Next::Failed(Error::new(ErrorKind::LocalFile, what)));
                return;
            }
        };
        hasher.update(&bytes);
        let (len, fed) = (bytes.len() as u64, Fed { offset, bytes });
        let Some(next) = next else {
            report(Next::Last(fed, *hasher.finalize().as_bytes()));
            return;
        };
        if !report(Next::Part(fed)) {
            return;
        }
        ahead.push(next);
        (offset, size) = (offset + len, (size * 2).min(largest));
    }
}

/// Reads a part of `size` bytes that starts with `bytes`, and one byte more. That byte shows
/// whether another part follows.
fn fill(
    reader: &mut impl Read,
    size: u64,
    mut bytes: Vec<u8>,
) -> io::Result<(Vec<u8>, Option<u8>)> {
    bytes.reserve_exact((size as usize).saturating_sub(bytes.len()));
    reader.by_ref().take(size - bytes.len() as u64).read_to_end(&mut bytes)?;
    let mut next = [0];
    loop {
        match reader.read(&mut next) {
            Ok(0) => return Ok((bytes, None)),
            Ok(_) => return Ok((bytes, Some(next[0]))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(content: &[u8], largest: u64) -> Vec<(u64, usize, Option<Digest>)> {
        let mut parts = Vec::new();
        read(content, largest, |next| {
            match next {
                Next::Part(fed) => parts.push((fed.offset, fed.bytes.len(), None)),
                Next::Last(fed, digest) => {
                    parts.push((fed.offset, fed.bytes.len(), Some(digest)));
                }
                Next::Failed(error) => panic!("{error}"),
            }
            true
        });
        parts
    }

    #[test]
    fn parts_grow_to_the_largest_size_and_the_last_part_has_the_digest_of_the_content() {
        const MIB: usize = 1 << 20;
        let content: Vec<u8> = (0..17 * MIB + 5).map(|at| (at / 3) as u8).collect();
        let all = Some(*blake3::hash(&content).as_bytes());
        let mib = MIB as u64;
        assert_eq!(
            fed(&content, 8 * mib),
            [(0, 2 * MIB, None), (2 * mib, 4 * MIB, None), (6 * mib, 8 * MIB, None)]
                .into_iter()
                .chain([(14 * mib, 3 * MIB + 5, all)])
                .collect::<Vec<_>>()
        );
        let exact = Some(*blake3::hash(&content[..MIB]).as_bytes());
        assert_eq!(fed(&content[..MIB], mib), [(0, MIB, exact)]);
        assert_eq!(fed(b"", mib), [(0, 0, Some(*blake3::hash(b"").as_bytes()))]);
        assert_eq!(largest(Bytes::new(1)), mib);
        assert_eq!(largest(Bytes::mebi(512)), 128 * mib);
    }

    #[test]
    fn a_read_error_is_not_the_end_of_the_input() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the producer failed"))
            }
        }
        let content = vec![7; 3 << 20];
        let mut reports = Vec::new();
        read((&content[..]).chain(Broken), 1 << 20, |next| {
            reports.push(match next {
                Next::Part(_) => "part".to_owned(),
                Next::Last(..) => "last".to_owned(),
                Next::Failed(error) => error.what,
            });
            true
        });
        let failed = "cannot read the content to send: the producer failed";
        assert_eq!(reports, ["part", "part", failed]);
    }
}
