//! A relay between a client and a server on loopback that can drop, delay and damage traffic.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_proto::wire::header::{Header, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rig::{DEADLINE, Server};

/// Poll interval of the relay's threads.
const LOOK: Duration = Duration::from_millis(20);

/// A TCP connection counts as one that carries chunks after it has sent more than this many bytes.
const CHUNKS: usize = 128 << 10;

/// A connection that sends nothing for this time counts as finished.
const SILENT: Duration = Duration::from_millis(500);

type Action = Box<dyn FnOnce() + Send>;

pub(super) struct Rules {
    /// Drops datagrams of the data port with more than this many bytes of UDP payload.
    pub(super) longest: AtomicUsize,
    /// Number of data datagrams to damage.
    pub(super) damaged: AtomicUsize,
    /// Drops all UDP of the data port.
    pub(super) no_data: AtomicBool,
    /// Until the client has sent data, drops what the server sends after the handshake: QUIC
    /// packets with short headers (RFC 9000, section 17.3), and datagrams of the server's data
    /// port.
    pub(super) mute_server: AtomicBool,
    /// After the server has answered, delays the client's further control datagrams until this many
    /// data datagrams have reached the server; zero turns this off.
    pub(super) data_first: AtomicUsize,
    answered: AtomicBool,
    /// Number of data datagrams sent to the server.
    data_gone: AtomicUsize,
    /// The client's data port, known after the first datagram from there.
    pub(super) client: Mutex<Option<SocketAddr>>,
    /// Bytes that clients sent to the control port, by UDP and TCP.
    pub(super) said: AtomicUsize,
    /// Drops all UDP of the control port.
    pub(super) no_control: AtomicBool,
    /// Closes new TCP connections to the control port immediately, and holds back the bytes of
    /// existing TCP connections.
    pub(super) no_tcp: AtomicBool,
    /// Passes nothing.
    pub(super) cut: AtomicBool,
    /// Swallows the chunks of one TCP connection, and closes the connection when nothing has come
    /// for [`SILENT`].
    pub(super) swallow: AtomicBool,
    pub(super) tcp_opened: AtomicUsize,
    /// A test increments this to change the relay's ports towards the server, as a NAT may do.
    pub(super) rebound: AtomicUsize,
    /// Last octet of the address 127.0.0.x of the relay's next ports towards the server.
    pub(super) address: AtomicU8,
    /// Receives copies of datagrams to the data port.
    tap: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    /// Whether the tap also gets datagrams from the data port.
    both_ways: AtomicBool,
    /// Number of data datagrams at the tap so far.
    tapped: AtomicUsize,
    /// Callback to run at the next data datagram after this many data datagrams at the tap.
    once: Mutex<Option<(usize, Action)>>,
    gone: AtomicBool,
}

/// A relay of one server's control port (UDP and TCP) and data port.
pub(super) struct Relay {
    control: SocketAddr,
    pub(super) rules: Arc<Rules>,
}

#[derive(Clone, Copy, PartialEq)]
enum Port {
    Control,
    Data,
}

impl Relay {
    /// Starts a relay to `server` that passes everything.
    pub(super) fn new(server: &Server) -> Relay {
        let control: SocketAddr = server.address.parse().expect("a server's address");
        Relay::to(control, SocketAddr::new(control.ip(), server.data_port))
    }

    pub(super) fn to(control: SocketAddr, data: SocketAddr) -> Relay {
        let rules = Arc::new(Rules {
            longest: AtomicUsize::new(usize::MAX),
            damaged: AtomicUsize::new(0),
            no_data: AtomicBool::new(false),
            mute_server: AtomicBool::new(false),
            data_first: AtomicUsize::new(0),
            answered: AtomicBool::new(false),
            data_gone: AtomicUsize::new(0),
            client: Mutex::default(),
            said: AtomicUsize::new(0),
            no_control: AtomicBool::new(false),
            no_tcp: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            swallow: AtomicBool::new(false),
            tcp_opened: AtomicUsize::new(0),
            rebound: AtomicUsize::new(0),
            address: AtomicU8::new(1),
            tap: Mutex::default(),
            both_ways: AtomicBool::new(false),
            tapped: AtomicUsize::new(0),
            once: Mutex::default(),
            gone: AtomicBool::new(false),
        });
        let (tcp, near_control, near_data) = neighbours();
        let address = near_control.local_addr().expect("bound");
        relay_udp(near_control, control, Port::Control, rules.clone());
        relay_udp(near_data, data, Port::Data, rules.clone());
        relay_tcp(tcp, control, rules.clone());
        Relay { control: address, rules }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.control
    }

    /// Returns copies of all further datagrams to the data port.
    pub(super) fn tap(&self) -> mpsc::Receiver<Vec<u8>> {
        let (sender, tapped) = mpsc::channel();
        *self.rules.tap.lock().expect("no holder panics") = Some(sender);
        tapped
    }

    /// Returns copies of all further datagrams to and from the data port.
    pub(super) fn tap_both_ways(&self) -> mpsc::Receiver<Vec<u8>> {
        self.rules.both_ways.store(true, Ordering::Relaxed);
        self.tap()
    }

    /// Runs `what` at the next data datagram after `datagrams` data datagrams at the tap. The relay
    /// passes no further datagrams to the data port until `what` returns.
    pub(super) fn once_tapped(&self, datagrams: usize, what: impl FnOnce() + Send + 'static) {
        *self.rules.once.lock().expect("no holder panics") = Some((datagrams, Box::new(what)));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.rules.gone.store(true, Ordering::Relaxed);
    }
}

impl Rules {
    fn blocks_tcp(&self) -> bool {
        self.no_tcp.load(Ordering::Relaxed) || self.cut.load(Ordering::Relaxed)
    }

    fn passes(&self, port: Port, len: usize) -> bool {
        match port {
            _ if self.cut.load(Ordering::Relaxed) => false,
            Port::Control => !self.no_control.load(Ordering::Relaxed),
            Port::Data => {
                !self.no_data.load(Ordering::Relaxed) && len <= self.longest.load(Ordering::Relaxed)
            }
        }
    }

    fn damage(&self, port: Port, datagram: &mut [u8]) {
        let more = |left: usize| left.checked_sub(1);
        let kind = Header::decode(datagram).map(|header| header.kind);
        if port == Port::Data
            && kind == Some(Kind::Data)
            && self.damaged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        {
            let middle = datagram.len() / 2;
            datagram[middle] ^= 1;
        }
    }

    fn waits(&self, port: Port) -> bool {
        let gone = self.data_gone.load(Ordering::Relaxed);
        let waits = port == Port::Control && gone < self.data_first.load(Ordering::Relaxed);
        waits && self.answered.load(Ordering::Relaxed)
    }

    fn mutes(&self, port: Port, answer: &[u8]) -> bool {
        let is_handshake = answer.first().is_some_and(|first| first & 0x80 != 0);
        self.mute_server.load(Ordering::Relaxed) && !(port == Port::Control && is_handshake)
    }

    fn note_data(&self, port: Port, datagram: &[u8]) {
        let kind = Header::decode(datagram).map(|header| header.kind);
        if port == Port::Data && kind == Some(Kind::Data) {
            self.data_gone.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_said(&self, len: usize) {
        self.said.fetch_add(len, Ordering::Relaxed);
    }

    fn unmute(&self, port: Port, datagram: &[u8]) {
        let kind = Header::decode(datagram).map(|header| header.kind);
        if port == Port::Data && kind == Some(Kind::Data) {
            self.mute_server.store(false, Ordering::Relaxed);
        }
    }

    fn tap(&self, datagram: &[u8]) {
        if Header::decode(datagram).is_some_and(|header| header.kind == Kind::Data) {
            let seen = self.tapped.fetch_add(1, Ordering::Relaxed);
            let mut once = self.once.lock().expect("no holder panics");
            if let Some((_, what)) = once.take_if(|(datagrams, _)| seen >= *datagrams) {
                what();
            }
        }
        let mut tap = self.tap.lock().expect("no holder panics");
        if tap.as_ref().is_some_and(|tap| tap.send(datagram.to_vec()).is_err()) {
            *tap = None;
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// Binds a port for TCP and UDP, and the next port for UDP.
fn neighbours() -> (TcpListener, UdpSocket, UdpSocket) {
    for _ in 0..100 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = tcp.local_addr().expect("bound").port();
        let control = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        let data = UdpSocket::bind((Ipv4Addr::LOCALHOST, port.wrapping_add(1)));
        if let (Ok(control), Ok(data)) = (control, data) {
            return (tcp, control, data);
        }
    }
    panic!("no two neighbouring ports are free");
}

fn relay_udp(near: UdpSocket, to: SocketAddr, port: Port, rules: Arc<Rules>) {
    near.set_read_timeout(Some(LOOK)).expect("a socket's option");
    thread::spawn(move || {
        let near = Arc::new(near);
        let mut fars: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let (mut buffer, mut bound) = (vec![0; 1 << 16], 0);
        let mut waiting: Vec<(Arc<UdpSocket>, Vec<u8>)> = Vec::new();
        while !rules.is_gone() {
            if !rules.waits(port) {
                waiting.drain(..).for_each(|(far, datagram)| drop(far.send(&datagram)));
            }
            let Ok((len, from)) = near.recv_from(&mut buffer) else { continue };
            match port {
                Port::Control => rules.note_said(len),
                Port::Data => *rules.client.lock().expect("no holder panics") = Some(from),
            }
            if rules.rebound.load(Ordering::Relaxed) != bound {
                bound = rules.rebound.load(Ordering::Relaxed);
                fars.clear();
            }
            let far = fars
                .entry(from)
                .or_insert_with(|| relay_back(near.clone(), from, to, port, rules.clone()));
            rules.damage(port, &mut buffer[..len]);
            rules.unmute(port, &buffer[..len]);
            if rules.passes(port, len) {
                if rules.waits(port) {
                    waiting.push((far.clone(), buffer[..len].to_vec()));
                    continue;
                }
                let _ = far.send(&buffer[..len]);
                rules.note_data(port, &buffer[..len]);
            }
            if port == Port::Data {
                rules.tap(&buffer[..len]);
            }
        }
    });
}

/// A socket towards the server that returns answers to `client`.
fn relay_back(
    near: Arc<UdpSocket>,
    client: SocketAddr,
    to: SocketAddr,
    port: Port,
    rules: Arc<Rules>,
) -> Arc<UdpSocket> {
    let address = Ipv4Addr::new(127, 0, 0, rules.address.load(Ordering::Relaxed));
    let far = Arc::new(UdpSocket::bind((address, 0)).expect("a free port"));
    far.connect(to).expect("loopback");
    far.set_read_timeout(Some(LOOK)).expect("a socket's option");
    let (answers, bound) = (far.clone(), rules.rebound.load(Ordering::Relaxed));
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while !rules.is_gone() && rules.rebound.load(Ordering::Relaxed) == bound {
            let Ok(len) = answers.recv(&mut buffer) else { continue };
            rules.answered.fetch_or(port == Port::Control, Ordering::Relaxed);
            rules.damage(port, &mut buffer[..len]);
            if port == Port::Data && rules.both_ways.load(Ordering::Relaxed) {
                rules.tap(&buffer[..len]);
            }
            if rules.passes(port, len) && !rules.mutes(port, &buffer[..len]) {
                let _ = near.send_to(&buffer[..len], client);
            }
        }
    });
    far
}

fn relay_tcp(near: TcpListener, to: SocketAddr, rules: Arc<Rules>) {
    near.set_nonblocking(true).expect("a socket's option");
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    thread::spawn(move || {
        while !rules.is_gone() {
            let mut ready = [PollFd::new(&near, PollFlags::IN)];
            let _ = poll(&mut ready, Some(&look));
            let Ok((client, _)) = near.accept() else { continue };
            if rules.blocks_tcp() {
                continue;
            }
            let Ok(server) = TcpStream::connect(to) else { continue };
            rules.tcp_opened.fetch_add(1, Ordering::Relaxed);
            client.set_nonblocking(false).expect("a socket's option");
            for stream in [&client, &server] {
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(DEADLINE));
            }
            let listening = rules.clone();
            pipe(&client, &server, rules.clone(), move |len| listening.note_said(len));
            pipe(&server, &client, rules.clone(), |_| {});
        }
    });
}

/// Copies bytes in a separate thread. `came` gets the length of each read.
fn pipe(
    from: &TcpStream,
    to: &TcpStream,
    rules: Arc<Rules>,
    came: impl Fn(usize) + Send + 'static,
) {
    let pair = (from.try_clone(), to.try_clone());
    let (Ok(mut from), Ok(mut to)) = pair else { return };
    thread::spawn(move || {
        let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            came(len);
            all += len;
            if all > CHUNKS && rules.swallow.swap(false, Ordering::Relaxed) {
                let _ = from.set_read_timeout(Some(SILENT));
                while let Ok(1..) = from.read(&mut buffer) {}
                let _ = from.shutdown(Shutdown::Both);
                break;
            }
            while rules.blocks_tcp() && !rules.is_gone() {
                thread::sleep(LOOK);
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
