//! A relay between a client and a server on loopback, which may swallow what it likes.

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

/// How often a thread looks whether the relay is gone, or what waits may go.
const LOOK: Duration = Duration::from_millis(20);

/// What a test does in the relay's thread.
type Action = Box<dyn FnOnce() + Send>;

/// What passes, and what has passed.
pub(super) struct Rules {
    /// UDP payloads of the data port that are longer vanish.
    pub(super) longest: AtomicUsize,
    /// So many more datagrams with data are damaged in their middle.
    pub(super) damaged: AtomicUsize,
    /// No UDP passes to or from the data port.
    pub(super) no_data: AtomicBool,
    /// What the server says once the handshake is done (QUIC's packets with short headers, RFC 9000
    /// section 17.3), and all that comes from its data port, is dropped until the client has sent
    /// data.
    pub(super) mute_server: AtomicBool,
    /// Once the server has answered, what else the client says to the control port waits until so
    /// many datagrams with data have gone to the server; zero: it does not wait.
    pub(super) data_first: AtomicUsize,
    /// The server has answered; datagrams with data that have gone to it.
    answered: AtomicBool,
    data_gone: AtomicUsize,
    /// The client's port for data, once something has come from there.
    pub(super) client: Mutex<Option<SocketAddr>>,
    /// Bytes that clients have sent to the control port, by UDP and TCP.
    pub(super) said: AtomicUsize,
    /// No UDP passes to or from the control port.
    pub(super) no_control: AtomicBool,
    /// Connections to the control port are closed at once.
    pub(super) no_tcp: AtomicBool,
    /// Counts up when the relay takes other ports towards the server, as a translator does.
    pub(super) rebound: AtomicUsize,
    /// The last number of the address, 127.0.0.x, that the relay's next ports are of.
    pub(super) address: AtomicU8,
    /// Copies of what goes to the data port, while somebody listens.
    tap: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    /// The tap takes what comes from there, too.
    both_ways: AtomicBool,
    /// Datagrams with data that the tap has seen.
    tapped: AtomicUsize,
    /// What to do in the relay's thread once the tap has seen so many of them.
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
    /// A relay to `server`, through which all passes for now.
    pub(super) fn new(server: &Server) -> Relay {
        let control: SocketAddr = server.address.parse().expect("a server's address");
        let data = SocketAddr::new(control.ip(), server.data_port);
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

    /// Where the client goes in place of the server.
    pub(super) fn address(&self) -> SocketAddr {
        self.control
    }

    /// Copies of what goes to the data port from now on.
    pub(super) fn tap(&self) -> mpsc::Receiver<Vec<u8>> {
        let (sender, tapped) = mpsc::channel();
        *self.rules.tap.lock().expect("no holder panics") = Some(sender);
        tapped
    }

    /// The same, and of what comes from there.
    pub(super) fn tap_both_ways(&self) -> mpsc::Receiver<Vec<u8>> {
        self.rules.both_ways.store(true, Ordering::Relaxed);
        self.tap()
    }

    /// Does `what` when the tap sees the next datagram with data and has seen `datagrams` before:
    /// nothing else passes until it is done.
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
    fn passes(&self, port: Port, len: usize) -> bool {
        match port {
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

    /// Whether what the client says has to wait for its data.
    fn waits(&self, port: Port) -> bool {
        let gone = self.data_gone.load(Ordering::Relaxed);
        let waits = port == Port::Control && gone < self.data_first.load(Ordering::Relaxed);
        waits && self.answered.load(Ordering::Relaxed)
    }

    /// Whether an answer of the server's is not for the client yet.
    fn mutes(&self, port: Port, answer: &[u8]) -> bool {
        let is_handshake = answer.first().is_some_and(|first| first & 0x80 != 0);
        self.mute_server.load(Ordering::Relaxed) && !(port == Port::Control && is_handshake)
    }

    /// Something has gone to the server.
    fn note_data(&self, port: Port, datagram: &[u8]) {
        let kind = Header::decode(datagram).map(|header| header.kind);
        if port == Port::Data && kind == Some(Kind::Data) {
            self.data_gone.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_said(&self, len: usize) {
        self.said.fetch_add(len, Ordering::Relaxed);
    }

    /// The client's first data let the server speak.
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

/// A port for TCP and UDP whose neighbour is free for UDP.
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

/// A socket towards the server, from which answers go back to the client at `client`.
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
            if rules.no_tcp.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(server) = TcpStream::connect(to) else { continue };
            client.set_nonblocking(false).expect("a socket's option");
            for stream in [&client, &server] {
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(DEADLINE));
            }
            let listening = rules.clone();
            pipe(&client, &server, move |len| listening.note_said(len));
            pipe(&server, &client, |_| {});
        }
    });
}

/// Hands on what comes, and tells how much that is.
fn pipe(from: &TcpStream, to: &TcpStream, came: impl Fn(usize) + Send + 'static) {
    let pair = (from.try_clone(), to.try_clone());
    let (Ok(mut from), Ok(mut to)) = pair else { return };
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            came(len);
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
