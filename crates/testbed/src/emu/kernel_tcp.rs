//! The kernel's TCP between two hosts: the reference for comparisons.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{Emulation, EmulationError, sys};
use crate::scenario::Amount;

/// Bytes per read or write call.
const PIECE: usize = 256 * 1024;
/// How often to check for a stop request.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of buffer to request for each byte of window. With Linux's bookkeeping, a byte takes about
/// two bytes of buffer in packets of 1500 bytes, and three in smaller packets; the rest is reserve.
const BUFFER_FOR_WINDOW: u64 = 4;
/// Connections that may wait for accept.
const BACKLOG: i32 = 1_024;

/// A bulk transfer over the kernel's TCP, memory to memory.
#[derive(Clone, Debug)]
pub struct KernelTcp {
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// The port that the receiver listens on.
    pub port: u16,
    /// Connections that share the bytes.
    pub streams: u16,
    /// The total amount; [`Running::stop`] ends an endless transfer.
    pub amount: Amount,
    /// Maximum data in flight on each connection; `None`: the kernel's choice.
    pub window: Option<Bytes>,
    /// The kernel's name of the congestion control, if set.
    pub congestion: Option<String>,
}

/// A running [`KernelTcp`]; dropping it stops the transfer.
pub struct Running {
    received: Arc<AtomicU64>,
    /// Nanoseconds from the start to the end of the last finished connection.
    ended: Arc<AtomicU64>,
    counts: Arc<Mutex<Segments>>,
    stop: Arc<AtomicBool>,
    started: Instant,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// The kernel's counters at the sending ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Segments with data, repeats included.
    pub sent: u64,
    /// Repeats, a part of `sent`.
    pub retransmitted: u64,
}

impl core::ops::AddAssign for Segments {
    fn add_assign(&mut self, other: Segments) {
        self.sent += other.sent;
        self.retransmitted += other.retransmitted;
    }
}

impl Emulation {
    /// Starts a bulk transfer. The measured time includes connecting.
    ///
    /// # Errors
    /// [`EmulationError::NoSuchHost`]; or the port is in use, or the kernel lacks the congestion
    /// control or the buffers.
    pub fn start_tcp(&self, tcp: &KernelTcp) -> Result<Running, EmulationError> {
        let failed = |error| EmulationError::System("open a TCP connection", error);
        let address = SocketAddr::new(IpAddr::V4(self.addresses(&tcp.to)?.v4), tcp.port);
        let listener = self.enter_host(&tcp.to, || listen(address, tcp))?.map_err(failed)?;
        let streams = tcp.streams.max(1);
        let open = || (0..streams).map(|_| open(tcp)).collect::<io::Result<Vec<_>>>();
        let sockets = self.enter_host(&tcp.from, open)?.map_err(failed)?;
        let (received, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (stop, counts) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Segments>>::default());
        let started = Instant::now();
        let (count, last, until) = (received.clone(), ended.clone(), stop.clone());
        let taken = tcp.clone();
        let mut threads = vec![thread::spawn(move || {
            take_all(&listener, &taken, &count, &until, || {
                last.fetch_max(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
            })
        })];
        for (index, socket) in sockets.into_iter().enumerate() {
            let end = End::of(tcp.amount, started, streams, index as u64);
            let (until, counts) = (stop.clone(), counts.clone());
            threads.push(thread::spawn(move || {
                let given = connect(socket, address, &until)
                    .and_then(|stream| stream.map_or(Ok(None), |s| give(s, end, &until).map(Some)));
                match given {
                    Ok(segments) => {
                        let mut all = counts.lock().unwrap_or_else(PoisonError::into_inner);
                        *all += segments.unwrap_or_default();
                        Ok(())
                    }
                    Err(error) => {
                        // Without a stop, the receiver would wait for this connection for ever.
                        until.store(true, Ordering::Relaxed);
                        Err(error)
                    }
                }
            }));
        }
        Ok(Running { received, ended, counts, stop, started, threads })
    }
}

impl Running {
    /// Bytes received so far.
    pub fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Span {
        Span::from_secs_f64(self.started.elapsed().as_secs_f64())
    }

    /// Whether every byte has arrived, or no more will.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// The kernel's counters of finished connections.
    pub fn segments(&self) -> Segments {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the transfer to stop; unsent data are discarded.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until all connections have ended; returns the time from the start.
    ///
    /// # Errors
    /// A broken connection.
    pub fn wait(&mut self) -> io::Result<Span> {
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(Span::from_nanos(self.ended.load(Ordering::Relaxed)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Errors of a stopped connection do not matter.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) bytes: u64,
    pub(super) at: Option<Instant>,
}

impl End {
    /// Returns when connection `index` stops sending. The `streams` connections share `amount`.
    fn of(amount: Amount, start: Instant, streams: u16, index: u64) -> End {
        let streams = u64::from(streams);
        match amount {
            Amount::Size(size) => {
                let bytes = size.get() / streams + u64::from(index < size.get() % streams);
                End { bytes, at: None }
            }
            Amount::Lasts(span) => {
                End { bytes: u64::MAX, at: Some(start + Duration::from_nanos(span.as_nanos())) }
            }
            Amount::Endless => End { bytes: u64::MAX, at: None },
        }
    }
}

/// A listening socket with a timeout on accept.
pub(super) fn listen(address: SocketAddr, tcp: &KernelTcp) -> io::Result<TcpListener> {
    let socket = socket(tcp)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LOOK_EVERY))?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

pub(super) fn open(tcp: &KernelTcp) -> io::Result<OwnedFd> {
    let socket = socket(tcp)?;
    if let Some(name) = &tcp.congestion {
        sockopt::set_tcp_congestion(&socket, name)?;
    }
    Ok(socket)
}

fn socket(tcp: &KernelTcp) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    if let Some(window) = tcp.window {
        make_room(&socket, window)?;
        clamp(socket.as_fd(), window)?;
    }
    Ok(socket)
}

fn make_room(socket: &OwnedFd, window: Bytes) -> io::Result<()> {
    let wanted = window.get().saturating_mul(BUFFER_FOR_WINDOW);
    // Linux doubles the value.
    let asked = libc::c_int::try_from(wanted / 2).unwrap_or(libc::c_int::MAX);
    let buffers = [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "rmem_max"),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "wmem_max"),
    ];
    for (force, ask, limit) in buffers {
        // Only root outside any user namespace can exceed the limit.
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, force, asked)
            .or_else(|_| sys::set_option(socket.as_fd(), libc::SOL_SOCKET, ask, asked))?;
        let granted = match ask {
            libc::SO_RCVBUF => sockopt::socket_recv_buffer_size(socket)?,
            _ => sockopt::socket_send_buffer_size(socket)?,
        };
        // Half of `wanted` is enough for packets of 1500 bytes.
        if (granted as u64) < wanted / 2 {
            return Err(io::Error::other(format!(
                "a window of {window} needs a buffer of {} and gets {}: raise \
                 net.core.{limit} to {} or make the window smaller",
                Bytes::new(wanted / 2),
                Bytes::new(granted as u64),
                asked / 2
            )));
        }
    }
    Ok(())
}

/// Limits the other end to `window` bytes in flight. Must be repeated: as packets arrive, kernels
/// from version 6.4 on re-estimate how much of a buffer is bookkeeping, and so change the offered
/// window.
fn clamp(socket: BorrowedFd<'_>, window: Bytes) -> io::Result<()> {
    let window = libc::c_int::try_from(window.get()).unwrap_or(libc::c_int::MAX);
    sys::set_option(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
}

/// Connects a socket; `None` if `stop` was set first.
pub(super) fn connect(
    socket: OwnedFd,
    address: SocketAddr,
    stop: &AtomicBool,
) -> io::Result<Option<TcpStream>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
            let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
            while rustix::event::poll(&mut fds, Some(&wait))? == 0 {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(Some(socket.into()))
}

/// Accepts the next connection; `None` if `stop` was set first.
pub(super) fn accept(
    listener: &TcpListener,
    stop: &AtomicBool,
) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    while !stop.load(Ordering::Relaxed) {
        if let Some(accepted) = patiently(listener.accept())? {
            return Ok(Some(accepted));
        }
    }
    Ok(None)
}

/// Receives all connections' data; calls `ended` when a connection ends without an error.
fn take_all(
    listener: &TcpListener,
    tcp: &KernelTcp,
    received: &AtomicU64,
    stop: &AtomicBool,
    ended: impl Fn() + Sync,
) -> io::Result<()> {
    thread::scope(|scope| {
        let mut taking = Vec::new();
        for _ in 0..tcp.streams.max(1) {
            let Some((stream, _)) = accept(listener, stop)? else { break };
            let ended = &ended;
            let window = tcp.window;
            taking
                .push(scope.spawn(move || take(&stream, window, received, stop).map(|()| ended())));
        }
        taking.into_iter().try_for_each(|taking| {
            taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Writes until `end`, and waits until the other host closes; returns the counters.
pub(super) fn give(stream: TcpStream, end: End, stop: &AtomicBool) -> io::Result<Segments> {
    match pour(&stream, end, stop) {
        // After a stop, an error only means that the other end closed first.
        Err(error) if !stop.load(Ordering::Relaxed) => return Err(error),
        _ => {}
    }
    let (sent, retransmitted) = sys::tcp_segments(stream.as_fd())?;
    Ok(Segments { sent: sent.into(), retransmitted: retransmitted.into() })
}

fn pour(mut stream: &TcpStream, end: End, stop: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(LOOK_EVERY))?;
    let piece = vec![0x5a; PIECE.min(usize::try_from(end.bytes).unwrap_or(PIECE)).max(1)];
    let mut left = end.bytes;
    let is_time = |at: Option<Instant>| at.is_none_or(|at| Instant::now() < at);
    while left > 0 && is_time(end.at) && !stop.load(Ordering::Relaxed) {
        let len = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
        left -= patiently(stream.write(&piece[..len]))?.unwrap_or(0) as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    // The other end closes after reading everything.
    take(stream, None, &AtomicU64::new(0), stop)
}

/// Reads until the other end closes or `stop` is set. Offers at most `window`.
pub(super) fn take(
    mut stream: &TcpStream,
    window: Option<Bytes>,
    received: &AtomicU64,
    stop: &AtomicBool,
) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    let mut piece = vec![0; PIECE];
    while !stop.load(Ordering::Relaxed) {
        if let Some(window) = window {
            clamp(stream.as_fd(), window)?;
        }
        match patiently(stream.read(&mut piece))? {
            Some(0) => break,
            read => received.fetch_add(read.unwrap_or(0) as u64, Ordering::Relaxed),
        };
    }
    Ok(())
}

/// Turns a timeout or an interrupted call into `None`.
fn patiently<T>(moved: io::Result<T>) -> io::Result<Option<T>> {
    match moved {
        Ok(moved) => Ok(Some(moved)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_the_connections_add_up_to_the_amount() {
        for (bytes, streams) in [(0, 3), (10, 3), (1_000_001, 8), (5, 8)] {
            let amount = Amount::Size(Bytes::new(bytes));
            let share = |i: u16| End::of(amount, Instant::now(), streams, i.into()).bytes;
            assert_eq!((0..streams).map(share).sum::<u64>(), bytes);
        }
    }
}
