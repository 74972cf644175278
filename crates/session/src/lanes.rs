//! One byte stream over several TCP connections, its lanes; TLS runs over the stream.
//!
//! TCP slows down at a loss. Only the lane with the loss slows down, so over a long path with
//! losses several lanes carry more than a single connection.
//!
//! Each lane begins with a [`Preface`]. Before each chunk of the stream, the lane carries the
//! chunk's length in 2 bytes. Chunk n travels on lane n modulo the number of lanes. Nothing here is
//! authenticated: TLS detects changed, missing and added bytes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;

use super::random::random_u64;

/// Maximum number of lanes of a stream.
const MAX_LANES: u8 = 16;

/// The first bytes of a lane. TLS begins with another byte.
const MAGIC: [u8; 4] = *b"lane";

/// Maximum bytes of a chunk: TLS's largest record, and its overhead.
const CHUNK: usize = 17 << 10;

/// Size of the length field before each chunk, in bytes.
const LENGTH: usize = 2;

/// The first bytes of a lane: the number of its stream, and the lane's place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preface {
    /// The random number of the stream.
    bundle: u128,
    index: u8,
    lanes: u8,
}

impl Preface {
    const LEN: usize = MAGIC.len() + 16 + 2;

    fn encode(self) -> [u8; Preface::LEN] {
        let mut bytes = [0; Preface::LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..20].copy_from_slice(&self.bundle.to_be_bytes());
        bytes[20..].copy_from_slice(&[self.index, self.lanes]);
        bytes
    }

    fn decode(bytes: &[u8; Preface::LEN]) -> Option<Preface> {
        let bundle = u128::from_be_bytes(*bytes[4..].first_chunk()?);
        let preface = Preface { bundle, index: bytes[20], lanes: bytes[21] };
        let Preface { index, lanes, .. } = preface;
        (bytes.starts_with(&MAGIC) && (2..=MAX_LANES).contains(&lanes) && index < lanes)
            .then_some(preface)
    }

    /// Reads the preface of a lane; `None` if the first byte is not [`MAGIC`]'s.
    pub(super) async fn read(stream: &mut TcpStream) -> io::Result<Option<Preface>> {
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0] != MAGIC[0] {
            return Ok(None);
        }
        let mut bytes = [0; Preface::LEN];
        stream.read_exact(&mut bytes).await?;
        Preface::decode(&bytes).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Opens the other lanes of the stream whose first lane is `first`. `tune` sets the options of each
/// new lane.
pub(super) async fn connect(
    first: TcpStream,
    remote: SocketAddr,
    lanes: u8,
    tune: impl Fn(&TcpStream),
) -> io::Result<Lanes> {
    let lanes = lanes.min(MAX_LANES);
    let mut streams = vec![first];
    let mut connecting: JoinSet<_> = (1..lanes).map(|_| TcpStream::connect(remote)).collect();
    while let Some(connected) = connecting.join_next().await {
        let stream = connected.map_err(io::Error::other)??;
        tune(&stream);
        streams.push(stream);
    }
    let bundle = u128::from(random_u64()) << 64 | u128::from(random_u64());
    for (index, stream) in (0..).zip(&mut streams) {
        stream.write_all(&Preface { bundle, index, lanes }.encode()).await?;
    }
    Ok(Lanes::new(streams))
}

/// A lane that waits for the other lanes of its stream. Dropping the sender wakes the lane's task.
type Waiting = (TcpStream, oneshot::Sender<()>);

struct Incomplete {
    ip: IpAddr,
    lanes: Vec<Option<Waiting>>,
}

/// The lanes at a server that wait for the other lanes of their streams. The listener limits their
/// number.
#[derive(Default)]
pub(super) struct Meeting(Mutex<HashMap<u128, Incomplete>>);

impl Meeting {
    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Incomplete>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lane from `ip`. The call for the last lane returns all lanes; the others return
    /// `None`. A dropped call closes its lane.
    pub(super) async fn join(
        self: &Arc<Meeting>,
        stream: TcpStream,
        preface: Preface,
        ip: IpAddr,
    ) -> io::Result<Option<Lanes>> {
        let Preface { bundle, index, lanes } = preface;
        let (wakes, woken) = oneshot::channel();
        {
            let mut all = self.lock();
            let empty = || Incomplete { ip, lanes: (0..lanes).map(|_| None).collect() };
            let incomplete = all.entry(bundle).or_insert_with(empty);
            let is_free = incomplete.lanes.get(usize::from(index)).is_some_and(Option::is_none);
            if incomplete.ip != ip || incomplete.lanes.len() != usize::from(lanes) || !is_free {
                return Err(io::ErrorKind::InvalidData.into());
            }
            incomplete.lanes[usize::from(index)] = Some((stream, wakes));
            if incomplete.lanes.iter().all(Option::is_some) {
                let whole = all.remove(&bundle).map(|incomplete| incomplete.lanes);
                let streams = whole.into_iter().flatten().flatten().map(|(stream, _)| stream);
                return Ok(Some(Lanes::new(streams.collect())));
            }
        }
        let mut parked = Parked { meeting: self.clone(), bundle, index, woken };
        // Waits until the sender is dropped: then the stream is complete.
        let _ = (&mut parked.woken).await;
        Ok(None)
    }
}

struct Parked {
    meeting: Arc<Meeting>,
    bundle: u128,
    index: u8,
    woken: oneshot::Receiver<()>,
}

impl Drop for Parked {
    fn drop(&mut self) {
        let mut all = self.meeting.lock();
        // After the completion of this lane's stream, another stream may have the same number.
        let is_complete = self.woken.try_recv() == Err(TryRecvError::Closed);
        if let Some(incomplete) = all.get_mut(&self.bundle).filter(|_| !is_complete) {
            incomplete.lanes[usize::from(self.index)] = None;
            if incomplete.lanes.iter().all(Option::is_none) {
                all.remove(&self.bundle);
            }
        }
    }
}

/// One byte stream over several connections.
pub(super) struct Lanes<S = TcpStream> {
    lanes: Vec<S>,
    /// The lane of the next chunk to write.
    out: usize,
    /// The length of the chunk that is being written, and the chunk.
    chunk: Vec<u8>,
    /// How much of `chunk` the lane has taken.
    taken: usize,
    /// The lane of the next chunk to read.
    from: usize,
    head: [u8; LENGTH],
    /// Number of bytes of `head` that have arrived.
    come: usize,
    /// Unread bytes of the chunk that is being read.
    left: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lanes<S> {
    pub(super) fn new(lanes: Vec<S>) -> Lanes<S> {
        let chunk = Vec::with_capacity(LENGTH + CHUNK);
        Lanes { lanes, out: 0, chunk, taken: 0, from: 0, head: [0; LENGTH], come: 0, left: 0 }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.taken < self.chunk.len() {
            let lane = Pin::new(&mut self.lanes[self.out]);
            let taken = ready!(lane.poll_write(cx, &self.chunk[self.taken..]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.taken += taken;
        }
        if !self.chunk.is_empty() {
            (self.out, self.taken) = ((self.out + 1) % self.lanes.len(), 0);
            self.chunk.clear();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the length of the next chunk; returns whether there is one.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.come < LENGTH {
            let mut rest = ReadBuf::new(&mut self.head[self.come..]);
            ready!(Pin::new(&mut self.lanes[self.from]).poll_read(cx, &mut rest))?;
            match rest.filled().len() {
                0 if self.come == 0 => return Poll::Ready(Ok(false)),
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                count => self.come += count,
            }
        }
        self.left = u16::from_be_bytes(self.head).into();
        match self.left {
            1..=CHUNK => Poll::Ready(Ok(true)),
            _ => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Lanes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.left == 0 && !ready!(this.poll_head(cx))? {
            return Poll::Ready(Ok(()));
        }
        let room = this.left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(Pin::new(&mut this.lanes[this.from]).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        if count == 0 && room > 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        buffer.advance(count);
        this.left -= count;
        if this.left == 0 {
            (this.from, this.come) = ((this.from + 1) % this.lanes.len(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lanes<S> {
    /// Takes at most one chunk. If its lane has no room, the next call or a flush writes the rest.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_chunk(cx))?;
        let len = bytes.len().min(CHUNK);
        if len > 0 {
            self.chunk.extend_from_slice(&(len as u16).to_be_bytes());
            self.chunk.extend_from_slice(&bytes[..len]);
            let _ = self.poll_chunk(cx)?;
        }
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_chunk(cx))?;
        for lane in &mut self.lanes {
            ready!(Pin::new(lane).poll_flush(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_chunk(cx))?;
        for lane in &mut self.lanes {
            ready!(Pin::new(lane).poll_shutdown(cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::run;

    #[test]
    fn a_preface_with_a_wrong_magic_lane_count_or_index_is_refused() {
        let preface = Preface { bundle: 1 << 100 | 7, index: 15, lanes: 16 };
        assert_eq!(Preface::decode(&preface.encode()), Some(preface));
        for (index, lanes) in [(0, 0), (0, 1), (2, 2), (255, 255), (0, 17)] {
            assert_eq!(Preface::decode(&Preface { index, lanes, ..preface }.encode()), None);
        }
        let mut other = preface.encode();
        other[3] = b'x';
        assert_eq!(Preface::decode(&other), None);
    }

    fn ends(lanes: usize) -> [Lanes<tokio::io::DuplexStream>; 2] {
        let (near, far) = (0..lanes).map(|_| tokio::io::duplex(100)).unzip();
        [Lanes::new(near), Lanes::new(far)]
    }

    #[test]
    fn bytes_arrive_in_order_whatever_the_sizes_of_writes_and_reads() {
        run(async {
            for lanes in [1, 2, 3, 16] {
                let [mut near, mut far] = ends(lanes);
                let sent: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
                let content = sent.clone();
                let writing = tokio::spawn(async move {
                    let mut rest = &content[..];
                    for len in [1, 99, 100, 101, 20_000].into_iter().cycle() {
                        let (now, later) = rest.split_at(rest.len().min(len));
                        near.write_all(now).await.expect("the other end reads");
                        near.flush().await.expect("the other end reads");
                        rest = later;
                        if rest.is_empty() {
                            break;
                        }
                    }
                    near.shutdown().await.expect("the other end reads");
                });
                let mut came = Vec::new();
                far.read_to_end(&mut came).await.expect("it ends");
                writing.await.expect("no panic");
                assert!(came == sent, "{lanes} lanes: {} bytes", came.len());
            }
        });
    }

    #[test]
    fn a_lane_that_ends_within_a_chunk_and_a_chunk_of_invalid_length_are_errors() {
        run(async {
            for (bytes, is_end) in [
                (&[][..], true),
                (&[0], false),
                (&[0, 0], false),
                (&[0xff, 0xff, 1], false),
                (&[0, 2, 1], false),
                (&[0, 2, 1, 1], true),
            ] {
                let (mut lie, near) = tokio::io::duplex(100);
                let (other, also_near) = tokio::io::duplex(100);
                lie.write_all(bytes).await.expect("there is room");
                drop((lie, other));
                let mut lanes = Lanes::new(vec![near, also_near]);
                let read = lanes.read_to_end(&mut Vec::new()).await;
                assert_eq!(read.is_ok(), is_end, "{bytes:?}: {read:?}");
            }
        });
    }

    #[test]
    fn an_empty_write_sends_nothing_and_a_read_without_room_takes_nothing() {
        run(async {
            let [mut near, mut far] = ends(2);
            assert_eq!(near.write(&[]).await.expect("the other end is open"), 0);
            near.write_all(b"ab").await.expect("the other end is open");
            near.flush().await.expect("the other end is open");
            assert_eq!(far.read(&mut []).await.expect("no end"), 0);
            let mut came = [0; 2];
            far.read_exact(&mut came).await.expect("two bytes came");
            assert_eq!(&came, b"ab");
        });
    }

    #[test]
    fn a_flush_ends_when_the_lanes_have_taken_all_bytes() {
        run(async {
            let [mut near, mut far] = ends(2);
            near.write_all(&[7; 150]).await.expect("the other end is open");
            let mut flush = std::pin::pin!(near.flush());
            let waits =
                std::future::poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx).is_pending()));
            assert!(waits.await, "a lane takes 100 bytes");
            let mut came = [0; 150];
            far.read_exact(&mut came[..98]).await.expect("the first bytes came");
            flush.await.expect("there is room");
            far.read_exact(&mut came[98..]).await.expect("the rest came");
            assert_eq!(came, [7; 150]);
        });
    }

    #[test]
    fn a_shutdown_ends_the_other_sides_input() {
        run(async {
            let [mut near, mut far] = ends(2);
            near.shutdown().await.expect("the other end is open");
            let read = tokio::time::timeout(Duration::ZERO, far.read_u8()).await;
            let error = read.expect("no more can come").expect_err("it has ended");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        });
    }

    async fn tcp() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).await;
        (near.expect("loopback"), listener.accept().await.expect("loopback").0)
    }

    #[test]
    fn the_lanes_of_a_stream_send_its_random_number_and_their_places() {
        run(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("bound");
            let mut halves = std::collections::HashSet::from([0]);
            for _ in 0..2 {
                let first = TcpStream::connect(address).await.expect("loopback");
                let _near = connect(first, address, 3, |_| ()).await.expect("loopback");
                let mut prefaces = Vec::new();
                for _ in 0..3 {
                    let (mut far, _) = listener.accept().await.expect("loopback");
                    prefaces.push(Preface::read(&mut far).await.expect("whole").expect("a lane"));
                }
                prefaces.sort_by_key(|preface| preface.index);
                let bundle = prefaces[0].bundle;
                assert_eq!(prefaces, [0, 1, 2].map(|index| Preface { bundle, index, lanes: 3 }));
                halves.extend([bundle as u64, (bundle >> 64) as u64]);
            }
            assert_eq!(halves.len(), 5, "neither half is zero or repeats");
        });
    }

    #[test]
    fn lanes_meet_in_any_order_but_only_if_their_addresses_and_lane_counts_agree() {
        run(async {
            let (meeting, ip) = (Arc::<Meeting>::default(), IpAddr::from([127, 0, 0, 1]));
            let preface = |index, lanes| Preface { bundle: 5, index, lanes };
            let mut near = Vec::new();
            let mut waits = Vec::new();
            for index in [2, 0] {
                let (mut end, far) = tcp().await;
                end.write_all(&[index]).await.expect("loopback");
                near.push(end);
                let meeting = meeting.clone();
                let join = async move { meeting.join(far, preface(index, 3), ip).await };
                waits.push(tokio::spawn(join));
                tokio::task::yield_now().await;
            }
            let other = IpAddr::from([127, 0, 0, 2]);
            let lies = [(preface(0, 3), ip), (preface(1, 2), ip), (preface(1, 3), other)];
            for (preface, ip) in lies {
                let (_end, far) = tcp().await;
                assert!(meeting.join(far, preface, ip).await.is_err(), "{preface:?} {ip}");
            }
            let (mut end, far) = tcp().await;
            end.write_all(&[1]).await.expect("loopback");
            let whole = meeting.join(far, preface(1, 3), ip).await.expect("it fits");
            for (index, lane) in (0..).zip(&mut whole.expect("it is the last").lanes) {
                assert_eq!(lane.read_u8().await.expect("loopback"), index);
            }
            for wait in waits {
                assert!(wait.await.expect("no panic").expect("it fits").is_none());
            }
            assert!(meeting.lock().is_empty());
            let (_end, far) = tcp().await;
            let join = meeting.join(far, preface(0, 3), ip);
            let late = tokio::time::timeout(Duration::from_millis(1), join).await;
            assert!(late.is_err() && meeting.lock().is_empty());
        });
    }

    #[test]
    fn a_new_stream_with_the_number_of_a_complete_stream_keeps_its_own_lanes() {
        run(async {
            let (meeting, ip) = (Arc::<Meeting>::default(), IpAddr::from([127, 0, 0, 1]));
            let join = async |index, lanes| {
                let (_, far) = tcp().await;
                let preface = Preface { bundle: 5, index, lanes };
                let meeting = meeting.clone();
                let mut join = Box::pin(async move { meeting.join(far, preface, ip).await });
                // The first poll adds the lane.
                let whole = tokio::time::timeout(Duration::ZERO, &mut join).await;
                (join, whole.is_ok_and(|whole| whole.is_ok_and(|whole| whole.is_some())))
            };
            let ((last, _), (first, _)) = (join(2, 3).await, join(0, 3).await);
            assert!(join(1, 3).await.1, "all three have met");
            // The new stream begins before the waiting lanes of the complete stream are woken.
            let (new, _) = join(0, 2).await;
            assert!(last.await.expect("it fits").is_none());
            drop(first);
            assert!(join(1, 2).await.1, "both have met");
            assert!(new.await.expect("it fits").is_none());
        });
    }
}
