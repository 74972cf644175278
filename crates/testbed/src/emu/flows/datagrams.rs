//! UDP flows: a paced sending socket and a counting receiver.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use rustix::net::sockopt;

use super::end::{FlowCounts, FlowEnd};
use super::{Run, duration};
use crate::link::UDP_IP;
use crate::random::Random;
use crate::scenario::{Amount, Udp};

const BUFFER: usize = 8 << 20;
/// The receiver's polling interval. After the sender's end, the receiver waits a round trip plus
/// twice this interval for further datagrams.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of datagrams between two checks for the flow's end.
const TURN: u32 = 64;

#[derive(Default)]
struct Came {
    datagrams: u64,
    last: Option<Instant>,
}

pub(super) fn run(run: &Run<'_>, udp: &Udp, end: &mut FlowEnd) -> Result<(), String> {
    let most = u32::from(run.scenario.mtu).saturating_sub(UDP_IP).max(1);
    let payload = udp.datagram.unwrap_or(most).clamp(1, most);
    let (out, inward) = sockets(run).map_err(|error| format!("UDP: {error}"))?;
    let (sent, came) = thread::scope(|scope| {
        let sending = scope.spawn(|| send(run, udp, payload, &out));
        let came = receive(&inward, || sending.is_finished(), rtt(run));
        (sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), came)
    });
    let sent = sent.map_err(|error| format!("UDP: {error}"))?;
    end.delivered = Bytes::new(came.datagrams * u64::from(payload));
    end.took = match (run.flow.amount, came.last) {
        (Amount::Size(_), Some(last)) => {
            Span::from_secs_f64(last.saturating_duration_since(run.start()).as_secs_f64())
        }
        (Amount::Lasts(span), _) => span.min(run.took()),
        _ => run.took(),
    };
    end.finished = match run.flow.amount {
        Amount::Size(size) => sent * u64::from(payload) >= size.get(),
        Amount::Lasts(_) => run.over().is_some_and(|over| over <= Instant::now()),
        Amount::Endless => true,
    };
    end.counts = counts(sent, came.datagrams);
    Ok(())
}

/// The counts of a flow. Its datagrams have no numbers, so duplicates are unknown.
fn counts(sent: u64, came: u64) -> FlowCounts {
    let lost = Some(sent.saturating_sub(came));
    FlowCounts {
        sent: Some(sent),
        received: Some(came),
        lost,
        // Like iperf's receiver, this reports missing datagrams as lost.
        reported_lost: lost,
        retransmitted: Some(0),
        ..FlowCounts::default()
    }
}

/// The connected sending socket and the receiving socket.
fn sockets(run: &Run<'_>) -> io::Result<(UdpSocket, UdpSocket)> {
    let of = |name: &str| run.emulation.addresses(name).map_err(io::Error::other);
    let bind = |name: &str, port: u16| -> io::Result<UdpSocket> {
        let address = (of(name)?.v4, port);
        run.emulation.enter_host(name, || UdpSocket::bind(address)).map_err(io::Error::other)?
    };
    let (out, inward) = (bind(run.from(), 0)?, bind(run.to(), run.port())?);
    out.connect((of(run.to())?.v4, run.port()))?;
    if sockopt::set_socket_recv_buffer_size_force(&inward, BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&inward, BUFFER)?;
    }
    inward.set_read_timeout(Some(LOOK_EVERY))?;
    Ok((out, inward))
}

/// The round-trip time of the flow's route without queues.
fn rtt(run: &Run<'_>) -> Span {
    let mut routes = run.scenario.routes();
    let (from, to) = (run.flow.from, run.flow.to);
    let ways = [(from, to), (to, from)].map(|(from, to)| routes.between(from, to));
    ways.iter().flatten().fold(Span::ZERO, |sum, way| sum + routes.delay(way))
}

/// Sends until the flow's end; returns the number of datagrams sent.
fn send(run: &Run<'_>, udp: &Udp, payload: u32, socket: &UdpSocket) -> io::Result<u64> {
    let seed = run.scenario.seed ^ Random::new(run.place as u64).bits();
    let mut random = Random::new(seed);
    let mut length = |mean: Span| {
        let length = if udp.random { random.exponential(mean) } else { mean };
        duration(length)
    };
    let left = match run.flow.amount {
        Amount::Size(size) => size.get().div_ceil(u64::from(payload)),
        Amount::Lasts(_) | Amount::Endless => u64::MAX,
    };
    let each = duration(Bytes::new(payload.into()) / udp.rate);
    let (piece, over) = (vec![0x5a; payload as usize], run.over());
    let mut due = run.start();
    let mut silent = udp.bursts.map(|(on, _)| due + length(on));
    let mut sent = 0;
    while sent < left {
        let until = over.map_or(due, |over| due.min(over));
        // The system timer is coarse, so overdue datagrams go out together.
        if run.stop.wait(Some(until)) || over.is_some_and(|over| over <= due) {
            break;
        }
        for _ in 0..TURN {
            match socket.send(&piece) {
                Ok(_) => {}
                // The datagram is lost: the receiver has closed, or the card's queue is full.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            sent += 1;
            due += each;
            if let (Some((on, off)), Some(at)) = (udp.bursts, silent)
                && due >= at
            {
                due = due.max(at + length(off));
                silent = Some(due + length(on));
            }
            if sent >= left || due > Instant::now() {
                break;
            }
        }
    }
    Ok(sent)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Counts datagrams until `ended` and none is in flight.
fn receive(socket: &UdpSocket, ended: impl Fn() -> bool, rtt: Span) -> Came {
    let (mut room, mut came) = (vec![0; 65_536], Came::default());
    let mut quiet_since = None;
    let patience = duration(rtt) + LOOK_EVERY * 2;
    loop {
        if socket.recv(&mut room).is_ok() {
            came.datagrams += 1;
            came.last = Some(Instant::now());
            continue;
        }
        let since = *quiet_since.get_or_insert_with(Instant::now);
        if !ended() {
            quiet_since = None;
        } else if since.max(came.last.unwrap_or(since)).elapsed() >= patience {
            return came;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_udp_reports_losses_and_resends_nothing() {
        let counts = counts(10, 7);
        assert_eq!((counts.lost, counts.reported_lost), (Some(3), Some(3)));
        assert_eq!((counts.retransmitted, counts.duplicates), (Some(0), None));
    }
}
