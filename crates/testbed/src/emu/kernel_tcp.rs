//! The kernel's TCP between two hosts: what everything else is compared with.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{Emulation, EmulationError};
use crate::scenario::Amount;

/// What one call writes or reads.
const PIECE: usize = 256 * 1024;
/// How soon an order to stop is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A bulk transfer over the kernel's TCP, memory to memory, neither sealed nor verified.
#[derive(Clone, Debug)]
pub struct KernelTcp {
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// The port that it listens on.
    pub port: u16,
    /// Connections that share the bytes.
    pub streams: u16,
    /// How much in all; what is endless is stopped.
    pub amount: Amount,
    /// The buffers of each connection's two ends; nothing for what the system finds.
    pub window: Option<Bytes>,
    /// The kernel's name of the congestion control; nothing for the system's.
    pub congestion: Option<String>,
}

/// A [`KernelTcp`] under way; it is stopped when this is dropped.
pub struct Running {
    received: Arc<AtomicU64>,
    /// Nanoseconds from the start to the last byte of a connection that has ended.
    ended: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    started: Instant,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Emulation {
    /// Starts a bulk transfer. The time counts from before the connections are opened.
    ///
    /// # Errors
    /// [`EmulationError::NoSuchHost`]; where the connections cannot be made, or the kernel has no
    /// such congestion control.
    pub fn start_tcp(&self, tcp: &KernelTcp) -> Result<Running, EmulationError> {
        let failed = |error| EmulationError::System("open a TCP connection", error);
        let address = SocketAddr::new(IpAddr::V4(self.addresses(&tcp.to)?.v4), tcp.port);
        let listener = self.enter_host(&tcp.to, || listen(address, tcp))?.map_err(failed)?;
        let started = Instant::now();
        let streams = tcp.streams.max(1);
        let connect =
            || (0..streams).map(|_| connect(address, tcp)).collect::<io::Result<Vec<_>>>();
        let connected = self.enter_host(&tcp.from, connect)?.map_err(failed)?;
        let (received, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let stop = Arc::<AtomicBool>::default();
        let mut threads = Vec::new();
        for (index, stream) in connected.into_iter().enumerate() {
            let end = End::of(tcp.amount, started, streams, index as u64);
            let (accepted, _) = listener.accept().map_err(failed)?;
            let (count, last, until) = (received.clone(), ended.clone(), stop.clone());
            threads.push(thread::spawn(move || {
                take(accepted, &count, &until)?;
                last.fetch_max(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
                Ok(())
            }));
            let until = stop.clone();
            threads.push(thread::spawn(move || give(stream, end, &until)));
        }
        Ok(Running { received, ended, stop, started, threads })
    }
}

impl Running {
    /// Bytes that have come so far.
    pub fn received(&self) -> Bytes {
        Bytes::new(self.received.load(Ordering::Relaxed))
    }

    /// How long ago it was started.
    pub fn elapsed(&self) -> Span {
        Span::from_secs_f64(self.started.elapsed().as_secs_f64())
    }

    /// Whether every byte has come, or nothing more will.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until every byte has come; gives how long that took from the start.
    ///
    /// # Errors
    /// A connection that broke.
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
            // What a stopped connection says no longer matters.
            let _ = thread.join();
        }
    }
}

/// When a connection has written enough.
#[derive(Clone, Copy)]
struct End {
    bytes: u64,
    at: Option<Instant>,
}

impl End {
    /// The end of the connection `index` of `streams`, which share `amount` from `start` on.
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

fn listen(address: SocketAddr, tcp: &KernelTcp) -> io::Result<TcpListener> {
    let socket = socket(tcp)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, tcp.streams.max(1).into())?;
    Ok(socket.into())
}

fn connect(address: SocketAddr, tcp: &KernelTcp) -> io::Result<TcpStream> {
    let socket = socket(tcp)?;
    if let Some(name) = &tcp.congestion {
        sockopt::set_tcp_congestion(&socket, name)?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn socket(tcp: &KernelTcp) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    if let Some(window) = tcp.window {
        // Linux doubles what it is given, to count its own bookkeeping in.
        let bytes = usize::try_from(window.get()).unwrap_or(usize::MAX) / 2;
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    Ok(socket)
}

fn give(mut stream: TcpStream, end: End, stop: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(LOOK_EVERY))?;
    let piece = vec![0x5a; PIECE];
    let mut left = end.bytes;
    let is_time = |at: Option<Instant>| at.is_none_or(|at| Instant::now() < at);
    while left > 0 && is_time(end.at) && !stop.load(Ordering::Relaxed) {
        let len = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        left -= patiently(stream.write(&piece[..len]))?.unwrap_or(0) as u64;
    }
    stream.shutdown(Shutdown::Write)
}

fn take(mut stream: TcpStream, received: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    let mut piece = vec![0; PIECE];
    while !stop.load(Ordering::Relaxed) {
        match patiently(stream.read(&mut piece))? {
            Some(0) => break,
            read => received.fetch_add(read.unwrap_or(0) as u64, Ordering::Relaxed),
        };
    }
    Ok(())
}

/// A time-out is no error, only a moment to look up.
fn patiently(moved: io::Result<usize>) -> io::Result<Option<usize>> {
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
    fn the_shares_make_up_the_whole() {
        for (bytes, streams) in [(0, 3), (10, 3), (1_000_001, 8), (5, 8)] {
            let amount = Amount::Size(Bytes::new(bytes));
            let share = |i: u16| End::of(amount, Instant::now(), streams, i.into()).bytes;
            assert_eq!((0..streams).map(share).sum::<u64>(), bytes);
        }
    }
}
