//! The kernel's TCP between two emulated hosts: memory to memory, for a size or a time.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use longhaul_testbed::emu::Emulation;
use longhaul_testbed::scenario::{Amount, Congestion, Flow, Scenario, Tcp};
use socket2::{Domain, Protocol, Socket, Type};

use super::EmulateError;
use crate::outcome::FlowOutcome;

/// What is written by one call.
const PIECE: usize = 1 << 16;
/// A connection that moves nothing for this long is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Moves what `flow` says from one host to the other.
pub(super) fn run(
    emulation: &Emulation,
    scenario: &Scenario,
    flow: &Flow,
    tcp: &Tcp,
) -> Result<FlowOutcome, EmulateError> {
    let failed = |error: &dyn std::fmt::Display| EmulateError::of("TCP", error);
    let (from, to) = (&scenario.hosts[flow.from].name, &scenario.hosts[flow.to].name);
    let address = emulation.addresses(to)?.v4;
    let listener = emulation.enter_host(to, || listen(tcp))?.map_err(|error| failed(&error))?;
    let port = listener.local_addr().map_err(|error| failed(&error))?.port();
    let target = SocketAddr::from((address, port));
    let began = Instant::now();
    let connect = || (0..tcp.streams).map(|_| connection(target, tcp)).collect();
    let sockets: io::Result<Vec<TcpStream>> = emulation.enter_host(from, connect)?;
    let sockets = sockets.map_err(|error| failed(&error))?;
    let streams = u64::from(tcp.streams);
    let received: io::Result<Vec<u64>> = thread::scope(|scope| {
        let writers: Vec<_> = sockets
            .into_iter()
            .map(|socket| scope.spawn(move || write(socket, flow.amount, streams, began)))
            .collect();
        let readers: io::Result<Vec<_>> = (0..streams)
            .map(|_| {
                let (socket, _) = listener.accept()?;
                Ok(scope.spawn(move || read(socket)))
            })
            .collect();
        let received = readers?.into_iter().map(|reader| reader.join().expect("it cannot panic"));
        let received = received.collect::<io::Result<Vec<u64>>>()?;
        for writer in writers {
            writer.join().expect("it cannot panic")?;
        }
        Ok(received)
    });
    let received = received.map_err(|error| failed(&error))?;
    Ok(FlowOutcome {
        name: flow.name.clone(),
        bytes: Bytes::new(received.iter().sum()),
        started: flow.start,
        elapsed: Span::from_secs_f64(began.elapsed().as_secs_f64()),
        finished: true,
        ..FlowOutcome::default()
    })
}

fn listen(tcp: &Tcp) -> io::Result<TcpListener> {
    let socket = socket(tcp)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.listen(i32::try_from(tcp.streams).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

fn connection(target: SocketAddr, tcp: &Tcp) -> io::Result<TcpStream> {
    let socket = socket(tcp)?;
    // A kernel without this one takes its own: the page says which it has.
    let _ = socket.set_tcp_congestion(match tcp.congestion {
        Congestion::NewReno => b"reno",
        Congestion::Cubic => b"cubic",
    });
    socket.connect(&target.into())?;
    Ok(socket.into())
}

fn socket(tcp: &Tcp) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(window) = tcp.window {
        // Linux doubles what it is given, to count its own bookkeeping in.
        let bytes = usize::try_from(window.get()).unwrap_or(usize::MAX) / 2;
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Writes this connection's part; what a connection of an endless flow writes has no end but the
/// reader's.
fn write(mut socket: TcpStream, amount: Amount, streams: u64, began: Instant) -> io::Result<()> {
    let piece = [0u8; PIECE];
    let (mut left, until) = match amount {
        Amount::Size(size) => (size.get() / streams, None),
        Amount::Lasts(span) => (u64::MAX, Some(began + Duration::from_nanos(span.as_nanos()))),
        Amount::Endless => {
            return Err(io::Error::other("a TCP flow without an end is not emulated"));
        }
    };
    while left > 0 && until.is_none_or(|until| Instant::now() < until) {
        let now = left.min(PIECE as u64);
        socket.write_all(&piece[..now as usize])?;
        left -= now;
    }
    socket.shutdown(Shutdown::Write)
}

/// Reads to the end; how much there was.
fn read(mut socket: TcpStream) -> io::Result<u64> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut piece = vec![0u8; 4 * PIECE];
    let mut sum = 0;
    loop {
        match socket.read(&mut piece) {
            Ok(0) => return Ok(sum),
            Ok(count) => sum += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
