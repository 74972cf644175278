//! A UDP socket for large amounts of data: large buffers, segmentation in both directions, and no
//! IP fragmentation unless requested.

#[allow(unsafe_code, reason = "system calls that no library offers in a safe form")]
mod sys;

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use longhaul_proto::time::Time;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use crate::clock::Reading;
use crate::zone;

pub use sys::{Segments, tcp_acknowledged, tcp_round_trip, tcp_segments};

/// Bytes of receive buffer to request: more than arrives at 50 Gbit/s while the scheduler stalls
/// the receiving thread for 5 ms (31 MB).
pub const RECEIVE_BUFFER: usize = 32 << 20;
/// Maximum number of messages in one receiving system call.
pub(crate) const MESSAGES: usize = 8;
/// Bytes of one message: the longest train (datagrams that the kernel merges into one message).
const MESSAGE_LEN: usize = 1 << 16;
/// The largest datagram that a common link carries whole (jumbo frames) over IPv4. Larger datagrams
/// are sent only at the user's request, as IP fragments.
pub const LARGEST_WHOLE: u16 = 9000 - 20 - 8;
/// How long to wait for room in the send buffer before the datagrams count as lost.
pub const SEND_PATIENCE: Duration = Duration::from_millis(100);

/// The two addresses of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The remote address.
    pub remote: SocketAddr,
    /// The local address that the peer sees, if the socket is bound to more than one. An answer
    /// must leave from the address that received the question.
    pub local: Option<IpAddr>,
}

/// A received message: a train (datagrams merged by the kernel) from one source.
pub(crate) struct Message<'a> {
    pub(crate) path: Path,
    pub(crate) bytes: &'a [u8],
    /// The size of each datagram; the last one may be shorter.
    pub(crate) stride: usize,
    pub(crate) at: Time,
}

impl From<SocketAddr> for Path {
    fn from(remote: SocketAddr) -> Path {
        Path { remote, local: None }
    }
}

/// The outcome of sending a train of datagrams.
#[derive(Debug)]
pub enum SendOutcome {
    /// The kernel accepted the train.
    Sent,
    /// The kernel accepted a part of the train or nothing: no route, no buffer, network down. To
    /// the peer this is a temporary loss.
    Lost(io::Error),
}

/// The reason why the sender must change something before it can continue.
#[derive(Debug)]
pub enum SendError {
    /// The datagrams are larger than the path's first link takes.
    TooLarge,
    /// The socket itself is broken.
    Broken(io::Error),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SendError::TooLarge => f.write_str("datagrams larger than the first link takes"),
            SendError::Broken(error) => write!(f, "the socket is broken: {error}"),
        }
    }
}

impl std::error::Error for SendError {}

/// Requests `bytes` of receive buffer for `io`; returns the size that the kernel granted.
///
/// # Errors
/// The kernel's error.
pub fn request_receive_buffer(io: &UdpSocket, bytes: usize) -> io::Result<usize> {
    // The forced form exceeds the system's limit and needs a privilege.
    if sockopt::set_socket_recv_buffer_size_force(io, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(io, bytes)?;
    }
    // The kernel reports twice the usable size.
    Ok(sockopt::socket_recv_buffer_size(io)? / 2)
}

/// A UDP socket with segmentation in both directions where the kernel has it.
pub struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    receive_buffer: usize,
}

impl Socket {
    /// Binds a socket to `address`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        Socket::new(UdpSocket::bind(address)?, RECEIVE_BUFFER)
    }

    /// Prepares `io` for large amounts of data, requesting `receive_buffer` bytes;
    /// [`Socket::receive_buffer`] returns the granted size.
    ///
    /// # Errors
    /// The kernel's error. A refused optional setting is not an error.
    pub fn new(io: UdpSocket, receive_buffer: usize) -> io::Result<Socket> {
        let state = UdpSocketState::new((&io).into())?;
        let receive_buffer = request_receive_buffer(&io, receive_buffer)?;
        // This buffer keeps the device busy while the sending thread does not run.
        sockopt::set_socket_send_buffer_size(&io, 4 << 20)?;
        let local = io.local_addr()?;
        Ok(Socket { io, state, local, receive_buffer })
    }

    /// Returns the address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size in bytes of the receive buffer that the kernel granted.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Returns the maximum number of datagrams per sending system call; 1 if the kernel or the
    /// device cannot segment.
    pub fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Returns whether the kernel merges received datagrams.
    pub fn joins(&self) -> bool {
        self.state.gro_segments() > 1
    }

    /// Returns the number of trains and single datagrams that this socket dropped for lack of
    /// receive buffer, wrapping at 2³²; `None` if the kernel does not report it.
    pub fn kernel_drops(&self) -> Option<u32> {
        sys::socket_drops(&self.io).ok()
    }

    /// Allows this host to send datagrams larger than the first link's MTU, as IP fragments. IPv4
    /// routers may then also fragment datagrams.
    ///
    /// # Errors
    /// The kernel's error. Larger datagrams are then still refused.
    pub fn allow_fragments(&self) -> io::Result<()> {
        if self.local.is_ipv6() {
            sockopt::set_ipv6_mtu_discover(&self.io, Ipv6PathMtuDiscovery::DONT)?;
        }
        // An IPv6 socket sends to IPv4 addresses too.
        Ok(sockopt::set_ip_mtu_discover(&self.io, Ipv4PathMtuDiscovery::DONT)?)
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&self, path: Path, datagram: &[u8]) -> Result<SendOutcome, SendError> {
        self.send_train(path, datagram, datagram.len())
    }

    /// Sends `train`, divided into datagrams of `size` bytes (the last may be shorter). Waits
    /// briefly if the send buffer is full.
    ///
    /// # Errors
    /// [`SendError`]; part of the train may have been sent.
    pub fn send_train(
        &self,
        path: Path,
        train: &[u8],
        size: usize,
    ) -> Result<SendOutcome, SendError> {
        let (mut rest, mut outcome, mut waited) = (train, SendOutcome::Sent, false);
        loop {
            let before = rest.len();
            if let lost @ SendOutcome::Lost(_) = self.try_send_train(path, &mut rest, size)? {
                outcome = lost;
            }
            if rest.is_empty() {
                return Ok(outcome);
            }
            // After one wait without room in the buffer, the path counts as stuck.
            if waited && rest.len() == before {
                return Ok(SendOutcome::Lost(io::ErrorKind::WouldBlock.into()));
            }
            let mut writable = [PollFd::new(&self.io, PollFlags::OUT)];
            let tv_nsec = SEND_PATIENCE.subsec_nanos().into();
            let patience = Timespec { tv_sec: 0, tv_nsec };
            waited = poll(&mut writable, Some(&patience)).is_ok_and(|n| n == 0);
        }
    }

    /// Sends the datagrams at the start of `train` for which the send buffer has room, without
    /// waiting, and leaves the others in `train`. Otherwise like [`Socket::send_train`].
    ///
    /// # Errors
    /// [`SendError`]; part of the train may have been sent.
    pub fn try_send_train(
        &self,
        path: Path,
        train: &mut &[u8],
        size: usize,
    ) -> Result<SendOutcome, SendError> {
        let mut outcome = SendOutcome::Sent;
        while !train.is_empty() {
            // The kernel does not segment a train into datagrams that need IP fragments.
            let is_whole = size <= usize::from(LARGEST_WHOLE);
            let segments = if is_whole { self.segments() } else { 1 };
            let (now, later) = train.split_at(train.len().min(segments.saturating_mul(size)));
            match self.transmit(path, now, size) {
                Ok(()) => *train = later,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => match classify(error) {
                    // The device refused to segment and quinn-udp has turned segmentation off. The
                    // next iteration sends one datagram at a time.
                    _ if segments > 1 && self.segments() == 1 => {}
                    Refusal::Fatal(error) => return Err(error),
                    Refusal::Loss(error) => {
                        outcome = SendOutcome::Lost(error);
                        *train = later;
                    }
                },
            }
        }
        Ok(outcome)
    }

    fn transmit(&self, path: Path, contents: &[u8], size: usize) -> io::Result<()> {
        let transmit = Transmit {
            destination: self.reachable(path.remote),
            ecn: None,
            contents,
            segment_size: Some(size),
            src_ip: path.local,
        };
        self.state.try_send((&self.io).into(), &transmit)
    }

    /// Returns `remote` as this socket reaches it: an IPv6 socket needs the mapped form of IPv4
    /// addresses.
    fn reachable(&self, remote: SocketAddr) -> SocketAddr {
        match (self.local, remote.ip()) {
            (SocketAddr::V6(_), IpAddr::V4(ip)) => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), remote.port())
            }
            _ => remote,
        }
    }

    /// Receives one message into `slices`; `WouldBlock` if there is none.
    pub(crate) fn receive_scattered(
        &self,
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<sys::Scattered> {
        sys::receive_scattered(&self.io, slices)
    }

    /// Receives up to [`MESSAGES`] waiting messages into `inbox`; `WouldBlock` if there is none.
    pub(crate) fn receive(&self, inbox: &mut Inbox) -> io::Result<()> {
        inbox.filled = 0;
        let mut slices = inbox.buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        inbox.filled = self.state.recv((&self.io).into(), &mut slices, &mut inbox.metas)?;
        inbox.read = Reading::now();
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

enum Refusal {
    Fatal(SendError),
    Loss(io::Error),
}

fn classify(error: io::Error) -> Refusal {
    match Errno::from_io_error(&error) {
        Some(Errno::MSGSIZE) => Refusal::Fatal(SendError::TooLarge),
        Some(Errno::BADF | Errno::NOTSOCK | Errno::FAULT | Errno::AFNOSUPPORT) => {
            Refusal::Fatal(SendError::Broken(error))
        }
        _ => Refusal::Loss(error),
    }
}

pub(crate) struct Inbox {
    buffers: [Box<[u8]>; MESSAGES],
    metas: [RecvMeta; MESSAGES],
    filled: usize,
    /// When the last [`Socket::receive`] returned.
    read: Reading,
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            buffers: std::array::from_fn(|_| vec![0; MESSAGE_LEN].into_boxed_slice()),
            metas: [RecvMeta::default(); MESSAGES],
            filled: 0,
            read: Reading::now(),
        }
    }

    /// Returns the messages of the last [`Socket::receive`] in the order of arrival, followed by
    /// empty ones. `since` must not be later than any arrival; no returned arrival time is before
    /// `since`.
    pub(crate) fn messages(&self, since: Time) -> [Message<'_>; MESSAGES] {
        std::array::from_fn(|n| {
            let meta = &self.metas[n];
            let remote = zone::canonical(meta.addr);
            let len = if n < self.filled { meta.len } else { 0 };
            let path = Path { remote, local: meta.dst_ip };
            let at = self.read.at(meta.timestamp, since);
            Message { path, bytes: &self.buffers[n][..len], stride: meta.stride.max(1), at }
        })
    }

    pub(crate) fn trains(&self) -> u64 {
        self.filled as u64
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == MESSAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use longhaul_proto::time::Span;
    use longhaul_testbed::{need, skip};
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::SystemTime;

    fn receive_all(socket: &Socket, count: usize) -> Vec<(Path, Vec<u8>)> {
        let mut inbox = Inbox::new();
        let mut all = Vec::new();
        while all.len() < count {
            let mut readable = [PollFd::new(socket, PollFlags::IN)];
            let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut readable, Some(&patience)), Ok(1), "nothing arrived");
            if socket.receive(&mut inbox).is_ok() {
                for message in inbox.messages(Time::ZERO) {
                    let datagrams = message.bytes.chunks(message.stride);
                    all.extend(datagrams.map(|bytes| (message.path, bytes.to_vec())));
                }
            }
        }
        all
    }

    fn loopback() -> Socket {
        Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    #[test]
    fn a_train_arrives_as_its_datagrams() {
        let (sender, receiver) = (loopback(), loopback());
        let train: Vec<u8> = (0..44 * 1000 + 7).map(|n| (n / 1000) as u8).collect();
        let path = receiver.local_addr().into();
        assert!(matches!(sender.send_train(path, &train, 1000), Ok(SendOutcome::Sent)));
        let got = receive_all(&receiver, 45);
        let expected: Vec<&[u8]> = train.chunks(1000).collect();
        assert_eq!(got.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>(), expected);
        assert!(got.iter().all(|(path, _)| path.remote == sender.local_addr()));
    }

    #[test]
    fn a_train_that_fits_into_the_send_buffer_is_sent_completely() {
        let (sender, receiver) = (loopback(), loopback());
        let (path, train) = (receiver.local_addr().into(), [7; 2_500]);
        let mut rest = &train[..];
        let sent = sender.try_send_train(path, &mut rest, 1000);
        assert!(matches!(sent, Ok(SendOutcome::Sent)) && rest.is_empty());
        let got = receive_all(&receiver, 3);
        assert_eq!(got.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
    }

    #[test]
    fn a_dual_stack_socket_talks_to_both_kinds_of_address() {
        let dual = Socket::bind((Ipv6Addr::UNSPECIFIED, 0).into());
        let dual = need!(dual.map_err(|error| skip::forbidden(format!("no IPv6 here: {error}"))));
        let four = loopback();
        let to_four = Path::from(four.local_addr());
        assert!(matches!(dual.send(to_four, b"hello"), Ok(SendOutcome::Sent)));
        let asked = receive_all(&four, 1)[0].0;
        assert!(matches!(four.send(asked, b"yes"), Ok(SendOutcome::Sent)));
        let answered = receive_all(&dual, 1);
        assert_eq!(answered[0].0.remote, four.local_addr());
        assert!(matches!(dual.send(answered[0].0, b"bye"), Ok(SendOutcome::Sent)));
        assert_eq!(receive_all(&four, 1)[0].1, b"bye");
    }

    #[test]
    fn a_datagram_larger_than_udp_allows_is_refused_as_too_large() {
        let sender = loopback();
        let too_large = vec![0; 65_507 + 1];
        let path = sender.local_addr().into();
        assert!(matches!(sender.send(path, &too_large), Err(SendError::TooLarge)));
    }

    #[test]
    fn the_kernel_counts_what_it_drops() {
        let receiver =
            Socket::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), 4096).unwrap();
        let sender = loopback();
        for _ in 0..200 {
            sender.send(receiver.local_addr().into(), &[0; 1000]).unwrap();
        }
        assert!(receiver.kernel_drops().is_some_and(|drops| drops > 0));
    }

    /// Returns two sockets. The kernel timestamps the datagrams that the second socket receives.
    fn dated() -> (Socket, Socket) {
        let (sender, receiver) = (loopback(), loopback());
        // Timestamps begin a moment after the request.
        let mut inbox = Inbox::new();
        loop {
            let before = SystemTime::now();
            sender.send(receiver.local_addr().into(), &[0; 100]).unwrap();
            let sent = SystemTime::now();
            wait_until(clock::now() + Span::from_millis(3));
            receiver.receive(&mut inbox).unwrap();
            let stamp = SystemTime::UNIX_EPOCH + inbox.metas[0].timestamp.unwrap();
            if (before..=sent).contains(&stamp) {
                return (sender, receiver);
            }
        }
    }

    fn wait_until(time: Time) {
        while clock::now() < time {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_message_read_late_has_its_arrival_time() {
        let (sender, receiver) = dated();
        let sent: Vec<[Time; 2]> = (0..3)
            .map(|n| {
                let before = clock::now();
                sender.send(receiver.local_addr().into(), &[n; 100]).unwrap();
                let after = clock::now();
                wait_until(after + Span::from_millis(5));
                [before, after]
            })
            .collect();
        let mut inbox = Inbox::new();
        receiver.receive(&mut inbox).unwrap();
        let messages = inbox.messages(Time::ZERO);
        let came: Vec<Time> = messages[..3].iter().map(|message| message.at).collect();
        // The two clocks are read one after the other.
        let slack = Span::from_millis(1);
        for (came, [before, after]) in came.into_iter().zip(sent) {
            assert!(came + slack >= before && came <= after + slack, "{came:?}: {before:?}");
        }
    }

    #[test]
    fn a_scattered_message_has_its_arrival_time() {
        let (sender, receiver) = dated();
        sender.send(receiver.local_addr().into(), &[1; 100]).unwrap();
        let after = SystemTime::now();
        wait_until(clock::now() + Span::from_millis(5));
        let mut buffer = [0; 200];
        let came = receiver.receive_scattered(&mut [IoSliceMut::new(&mut buffer)]).unwrap();
        assert_eq!(came.len, 100);
        assert!(SystemTime::UNIX_EPOCH + came.stamp.unwrap() <= after);
    }
}
