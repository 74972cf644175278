//! The client's side of a survey: requests the list of a source's files and the hashes of its
//! chunks, to find out which sources have the same object.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::paths;
use crate::control::{FilterWire, Frame, MAX_MANIFEST, Message, Survey, Surveyed};
use crate::error::{Error, ErrorKind};
use crate::options::CopyOptions;
use crate::reach::route::Route;
use crate::session::Session;
use longhaul_files::digest::Digest;
use longhaul_files::{ListMemory, Manifest, VirtualObject};

/// Timeout for a silent source. A source that reads sends a sign of life every second.
const SILENCE: Duration = Duration::from_secs(30);

/// Maximum number of chunks of an object that can be compared. This is 64 TiB; the hashes, 32 bytes
/// each, take 2 GiB of memory.
const MOST_CHUNKS: u64 = 64 << 20;

/// The survey's result for one source.
#[derive(Debug)]
pub struct Found {
    /// The list of the source's files.
    pub manifest: Arc<Manifest>,
    /// BLAKE3 of the manifest as received.
    pub digest: Digest,
    /// The hash of each chunk.
    pub values: Arc<Vec<Digest>>,
    /// A digest of the object: sources of the same object, and only these, have equal digests.
    pub identity: Digest,
    /// The memory charge for the list and the hashes.
    pub(super) _memory: Box<dyn ListMemory>,
}

/// Surveys the object at the paths of `route` over `session`, and leaves `session` ready for
/// another request. Gives up on a source that sends signs of life but makes no progress for
/// `stall`. `memory` is charged for the answer.
pub(super) async fn survey(
    session: &mut Session,
    options: &CopyOptions,
    route: &Route,
    stall: Duration,
    memory: Box<dyn ListMemory>,
) -> Result<Found, Error> {
    let bytes = |path: &std::path::PathBuf| path.as_os_str().as_bytes().to_vec();
    let survey = Survey {
        paths: paths(route).iter().map(bytes).collect(),
        recursive: options.recursive,
        filters: options.filters.iter().map(FilterWire::from).collect(),
    };
    session.write(&Frame::from(Message::Survey(survey))).await?;
    let mut answer = Answer { memory, ..Answer::default() };
    let (mut progressed, mut looked) = (Instant::now(), 0);
    loop {
        let frame = timeout(SILENCE, session.read::<Frame>()).await.map_err(|_| {
            let seconds = SILENCE.as_secs();
            Error::new(ErrorKind::Stalled, format!("it was silent for {seconds} s"))
        })?;
        let piece = match frame? {
            Some(Frame { message: Some(Message::Surveyed(piece)) }) => piece,
            // A message of another kind counts as an empty piece, which is no progress.
            Some(_) => Surveyed::default(),
            None => return Err(Error::new(ErrorKind::Unfinished, "the other side hung up")),
        };
        let brings = !piece.manifest.is_empty() || !piece.values.is_empty();
        if brings || piece.looked > looked {
            (progressed, looked) = (Instant::now(), piece.looked.max(looked));
        } else if progressed.elapsed() >= stall {
            return Err(hangs(stall));
        }
        if answer.take(piece)? {
            return answer.end();
        }
    }
}

/// Returns the error of a source that answers but reads nothing.
fn hangs(stall: Duration) -> Error {
    let seconds = stall.as_secs();
    let what = format!("it has read nothing for {seconds} s");
    let advice = "check that host's disk; slow clients of that host may delay it too";
    Error::new(ErrorKind::Stalled, what).advise(advice)
}

/// The answer so far.
#[derive(Debug)]
pub struct Answer {
    encoded: Vec<u8>,
    manifest: Option<(Arc<Manifest>, u64)>,
    values: Vec<Digest>,
    memory: Box<dyn ListMemory>,
}

impl Default for Answer {
    /// Returns an empty answer without a memory limit.
    fn default() -> Answer {
        let (encoded, manifest, values) = (Vec::new(), None, Vec::new());
        Answer { encoded, manifest, values, memory: Box::new(()) }
    }
}

fn nonsense(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, what)
        .advise("use the same release of longhaul on both sides")
}

impl Answer {
    /// Adds a piece; returns whether it was the last.
    ///
    /// # Errors
    /// The piece does not follow the earlier pieces or exceeds a limit, or the list of files is
    /// invalid.
    pub fn take(&mut self, piece: Surveyed) -> Result<bool, Error> {
        if !piece.manifest.is_empty() {
            if self.manifest.is_some() {
                return Err(nonsense("a part of the list of files arrived after the first hashes"));
            }
            if (self.encoded.len() + piece.manifest.len()) as u64 > MAX_MANIFEST {
                let what = format!("the list of files is longer than {MAX_MANIFEST} bytes");
                return Err(nonsense(what));
            }
            self.memory.hold((self.encoded.len() + piece.manifest.len()) as u64)?;
            self.encoded.extend_from_slice(&piece.manifest);
        }
        if !piece.values.is_empty() || piece.done {
            let chunks = self.decode()?;
            let (values, rest) = piece.values.as_chunks::<32>();
            let all = (self.values.len() + values.len()) as u64;
            if !rest.is_empty() || all > chunks || (piece.done && all < chunks) {
                return Err(nonsense(format!("{all} hashes arrived for {chunks} chunks")));
            }
            self.values.extend_from_slice(values);
        }
        Ok(piece.done)
    }

    fn decode(&mut self) -> Result<u64, Error> {
        if let Some((_, chunks)) = &self.manifest {
            return Ok(*chunks);
        }
        let refused =
            |error| nonsense(format!("the other side's list of files is refused: {error}"));
        let measured = Manifest::measure(&self.encoded).map_err(refused)?;
        let bytes = self.encoded.len() as u64 + measured.bytes();
        self.memory.hold(bytes)?;
        let manifest = Arc::new(measured.read().map_err(refused)?);
        let object = VirtualObject::new(&manifest, 0);
        if object.hole_chunks().next().is_some() {
            return Err(nonsense("the other side's list of files has holes"));
        }
        if object.chunks() > MOST_CHUNKS {
            let what = format!("an object of {} MiB is too large to compare", object.chunks());
            return Err(Error::new(ErrorKind::Usage, what)
                .advise(format!("copy at most {MOST_CHUNKS} MiB at a time")));
        }
        self.memory.hold(bytes + object.chunks() * size_of::<Digest>() as u64)?;
        self.manifest = Some((manifest, object.chunks()));
        Ok(object.chunks())
    }

    /// Returns the result, after the last piece.
    ///
    /// # Errors
    /// No list of files arrived.
    pub fn end(self) -> Result<Found, Error> {
        let (manifest, _) = self.manifest.ok_or_else(|| nonsense("no list of files arrived"))?;
        let digest = *blake3::hash(&self.encoded).as_bytes();
        let found = Found::new(manifest, digest, self.values);
        Ok(Found { _memory: self.memory, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Ping;
    use crate::location::Location;
    use crate::options::Trust;
    use crate::session::PeerId;
    use longhaul_files::manifest::FileTime;
    use longhaul_files::{CHUNK, Kind, Listed, Shape};

    fn encoded(holes: Vec<std::ops::Range<u64>>) -> Vec<u8> {
        let kind =
            Kind::File { size: 2 * CHUNK + 1, sparse: !holes.is_empty(), holes: holes.into() };
        let path = b"x".to_vec().into();
        let entry = Listed { path, kind, mode: 0o644, modified: FileTime::default() };
        Manifest::new(Shape::File, vec![entry]).unwrap().encode()
    }

    fn answer(pieces: Vec<Surveyed>) -> Result<Found, Error> {
        let mut answer = Answer::default();
        for piece in pieces {
            if answer.take(piece)? {
                return answer.end();
            }
        }
        panic!("it never ended");
    }

    fn values(count: usize, done: bool) -> Surveyed {
        Surveyed { values: vec![7; 32 * count], done, ..Surveyed::default() }
    }

    #[test]
    fn an_answer_may_arrive_in_pieces_of_any_size() {
        let encoded = encoded(Vec::new());
        let (first, second) = encoded.split_at(3);
        let manifest = |bytes: &[u8]| Surveyed { manifest: bytes.to_vec(), ..Surveyed::default() };
        let sign = Surveyed::default;
        let pieces =
            vec![manifest(first), sign(), manifest(second), values(1, false), values(2, true)];
        let found = answer(pieces).unwrap();
        assert_eq!(found.values.len(), 3);
        assert_eq!(&found.digest, blake3::hash(&encoded).as_bytes());
    }

    #[tokio::test]
    async fn a_source_that_sends_only_pings_counts_as_stalled() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let [mut client, mut source] = [near, far].map(|end| {
            let (input, out) = tokio::io::split(end);
            Session::over(PeerId([3; 32]), input, out)
        });
        for _ in 0..2 {
            source.write(&Frame::from(Message::Ping(Ping { answer: false }))).await.unwrap();
        }
        let from = Location::Daemon { host: "far".into(), port: 9, path: "x".into() };
        let trust = Trust { config_dir: "/".into(), pins: Vec::new(), accept_new: false };
        let options = CopyOptions::new(vec![from], Location::Local("x".into()), trust);
        let route = &Route::all(&options).unwrap()[0];
        let found = survey(&mut client, &options, route, Duration::ZERO, Box::new(())).await;
        assert_eq!(found.unwrap_err().what, hangs(Duration::ZERO).what);
    }

    #[test]
    fn impossible_answers_are_refused() {
        let manifest = || Surveyed { manifest: encoded(Vec::new()), ..Surveyed::default() };
        let holes =
            Surveyed { manifest: encoded(std::iter::once(0..1).collect()), ..values(3, true) };
        let wrong = [
            vec![values(3, true)],
            vec![manifest(), values(2, true)],
            vec![manifest(), values(4, false)],
            vec![manifest(), Surveyed { values: vec![7; 33], ..Surveyed::default() }],
            vec![manifest(), values(1, false), manifest()],
            vec![holes],
        ];
        for (number, pieces) in wrong.into_iter().enumerate() {
            assert!(answer(pieces).is_err(), "{number}");
        }
    }
}
