//! Rooms (named places where a server passes messages between clients) and streams, for clients
//! that reach the host over ssh.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::blocking;
use super::identity::Identity;
use super::server::{Server, ServerControl};
use crate::error::public::{Error, ErrorKind};
use crate::options::Allow;
use crate::session::ssh::{Word, offer};
use crate::session::{PeerId, allow};

/// Files that identify this host by its name and its machine id.
const HOST: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/machine-id"];
/// How long a server without clients waits for a new client. A client's process waits longer than
/// this for a server that it has started, before it starts a second server.
const IDLE: Duration = Duration::from_secs(5);
/// How long a client's process tries to reach the server.
const START: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
/// How long a client's process may take to send the id.
const INTRODUCTION: Duration = Duration::from_secs(30);
const LINE: u64 = 4096;

/// The rooms and streams of one user, for clients that come over ssh.
///
/// ssh starts a process for each client, but the clients of a room need one server. So each of
/// these processes introduces its client to one server of this user on this host, through a socket
/// that only this user may open. The server admits the id of a client as long as the client's ssh
/// runs. The server ends about 5 s after the last ssh has ended.
///
/// Several hosts may share the home folder, and several identities may share the folder of the
/// socket. So the names of the socket and of the server's lock contain a digest of the host's name,
/// the machine id and the path of the identity's folder.
#[derive(Clone, Debug)]
pub struct SshRooms {
    folder: PathBuf,
    runtime: Option<PathBuf>,
    ports: Option<(u16, u16)>,
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{what}: {error}"))
}

impl SshRooms {
    /// Returns the rooms of the user whose identity is in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> SshRooms {
        SshRooms { folder: folder.into(), runtime: None, ports: None }
    }

    /// Sets the folder of the socket and the lock, such as `XDG_RUNTIME_DIR`; `None` for the folder
    /// of the identity. Locks may fail in the folder of the identity, because it may be on a
    /// network file system.
    pub fn runtime(self, folder: Option<PathBuf>) -> SshRooms {
        SshRooms { runtime: folder, ..self }
    }

    fn path(&self, extension: &str) -> PathBuf {
        let mut digest = blake3::Hasher::new();
        for file in HOST {
            let text = fs::read(file).unwrap_or_default();
            digest.update(&(text.len() as u64).to_le_bytes()).update(&text);
        }
        digest.update(self.folder.as_os_str().as_encoded_bytes());
        let digest = digest.finalize().to_hex();
        let name = format!("longhaul-rooms-{}.{extension}", &digest[..16]);
        self.runtime.as_ref().unwrap_or(&self.folder).join(name)
    }

    /// Sets the first and last port that the server may open; `None` for any port.
    pub fn ports(self, ports: Option<(u16, u16)>) -> SshRooms {
        SshRooms { ports, ..self }
    }

    /// Admits the client `id` at the server, and writes the server's ports to standard output for
    /// the client. Blocks until ssh ends, or the client reports that it cannot reach these ports.
    /// If there is no server, `start` starts a process that calls [`SshRooms::serve`].
    ///
    /// # Errors
    /// `id` is not an id, the server cannot be started or reached, or ssh's pipes fail.
    pub fn join(&self, id: &str, start: impl Fn() -> io::Result<()>) -> Result<(), Error> {
        let id: PeerId = id.parse().map_err(|error| failed("the client's id", error))?;
        let begun = Instant::now();
        let mut started: Option<Instant> = None;
        loop {
            match self.introduce(id) {
                Ok((_here, offer)) => {
                    return attend_ssh(&offer).map_err(|error| failed("ssh's pipes", error));
                }
                Err(error) if begun.elapsed() > START => {
                    return Err(failed("cannot reach the server of rooms", error));
                }
                // The server may be ending: try again.
                Err(_) => {}
            }
            if started.is_none_or(|at| at.elapsed() > IDLE) {
                start().map_err(|error| failed("cannot start the server of rooms", error))?;
                started = Some(Instant::now());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Sends the id to the server, and waits until the server has admitted the id. The id stays
    /// admitted as long as the socket is open.
    fn introduce(&self, id: PeerId) -> io::Result<(UnixStream, String)> {
        let mut socket = UnixStream::connect(self.path("sock"))?;
        socket.set_read_timeout(Some(START))?;
        socket.write_all(format!("{id}\n").as_bytes())?;
        match line(&mut BufReader::new(&socket))? {
            Some(offer) => Ok((socket, offer)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Serves until no client has been connected for 5 s; blocks. Returns immediately if another
    /// process serves.
    ///
    /// # Errors
    /// A folder cannot be used, or no port is free.
    pub fn serve(&self) -> Result<(), Error> {
        let socket = self.path("sock");
        let used = |error: io::Error| {
            Error::new(ErrorKind::LocalFile, format!("cannot use {}: {error}", socket.display()))
                .at(&socket)
        };
        let identity = Identity::load_or_create(&self.folder)?;
        let lock = File::create(self.path("lock")).map_err(used)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(()),
            locked => locked.map_err(|error| used(error.into()))?,
        }
        let mut server = self.start(&identity)?;
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).map_err(used)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o600)).map_err(used)?;
        listener.set_nonblocking(true).map_err(used)?;
        let clients = Arc::new(Clients::of(&server)?);
        let mut busy = Instant::now();
        while busy.elapsed() < IDLE {
            let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = poll(&mut waiting, Some(&second));
            clients.accept_from(&listener);
            if Arc::strong_count(&clients) > 1 {
                busy = Instant::now();
            }
        }
        let _ = fs::remove_file(&socket);
        blocking::wait(server.shutdown(Duration::ZERO));
        Ok(())
    }

    fn start(&self, identity: &Identity) -> Result<Server, Error> {
        let listen = |port: u16, data| {
            let builder = Server::builder(identity.clone()).rooms_only();
            blocking::wait(builder.listen(format!("[::]:{port}")).data_port(data).start())
        };
        let Some((first, last)) = self.ports else { return listen(0, None) };
        let pairs = (first..last).step_by(2);
        let mut tried = Err(Error::new(ErrorKind::Usage, "streams over ssh need two ports"));
        for port in pairs {
            tried = listen(port, Some(port + 1));
            if tried.is_ok() {
                break;
            }
        }
        tried
    }
}

fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let len = from.take(LINE).read_line(&mut line)?;
    Ok((len > 0).then_some(line))
}

/// Sends `offer`, which has the server's ports, to the client through ssh. Waits until ssh ends, or
/// until the client reports that it cannot reach these ports.
fn attend_ssh(offer: &str) -> io::Result<()> {
    let mut output = io::stdout();
    output.write_all(offer.as_bytes())?;
    output.flush()?;
    let mut input = io::stdin().lock();
    while let Some(line) = line(&mut input)? {
        if Word::of_line(&line) == Some(Word::Switch) {
            break;
        }
    }
    Ok(())
}

struct Clients {
    control: ServerControl,
    offer: String,
    /// The number of connected clients with each id.
    ids: Mutex<BTreeMap<PeerId, usize>>,
}

impl Clients {
    fn of(server: &Server) -> Result<Clients, Error> {
        let id = server.id().parse().map_err(|error| failed("the id of the server", error))?;
        let offer = offer(id, server.address().port(), server.data_port());
        Ok(Clients { control: server.control(), offer, ids: Mutex::default() })
    }

    fn accept_from(self: &Arc<Clients>, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let clients = self.clone();
                    let _ = thread::Builder::new().name("ssh client".into()).spawn(move || {
                        // A failure ends only the connection of this client.
                        let _ = clients.attend(&stream);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Without a free descriptor the client waits. The socket stays readable, so without
                // this pause the loop would spin.
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }

    /// Admits the id of a client until the process that ssh started for the client ends.
    fn attend(&self, stream: &UnixStream) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        if peer.uid != rustix::process::geteuid() {
            return Ok(());
        }
        stream.set_read_timeout(Some(INTRODUCTION))?;
        let mut from = BufReader::new(stream);
        let id = line(&mut from)?.and_then(|line| line.trim_end().parse().ok());
        let Some(id) = id else { return Ok(()) };
        let admitted = self.count(id, true).and_then(|()| {
            (&*stream).write_all(self.offer.as_bytes())?;
            stream.set_read_timeout(None)?;
            from.read(&mut [0; 1])
        });
        self.count(id, false)?;
        admitted.map(drop)
    }

    fn count(&self, id: PeerId, comes: bool) -> io::Result<()> {
        // The server gets the list under the lock, so that lists arrive in order. No thread panics
        // while it holds the lock.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ids.entry(id).or_default();
        *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        ids.retain(|_, count| *count > 0);
        let entries = ids.keys().map(|id| allow::parse(&format!("{id},stream=rw,channel=rw")));
        let list: Result<Vec<Allow>, _> = entries.collect();
        let list = list.map_err(|error| io::Error::other(error.to_string()))?;
        blocking::wait(self.control.set_access(list)).map_err(io::Error::other)
    }
}
