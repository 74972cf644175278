//! A server for the one client whose ssh started this process.

use longhaul_proto::units::Bytes;

use super::engine;
use super::identity::Identity;
use crate::error::public::Error;
use crate::options::{OwnKey, ServeOptions};
use crate::progress::Cancel;
use crate::serve::serve_over_ssh;

/// A server for the one client whose ssh started this process, over standard input and output. The
/// client can reach everything that the user of the process can reach.
#[derive(Debug)]
#[must_use = "a server does nothing until `serve` is called"]
pub struct SshServer {
    options: ServeOptions,
    ports: Option<(u16, u16)>,
    cancel: Cancel,
}

impl SshServer {
    /// Returns the description of a server with this identity.
    pub fn new(identity: Identity) -> SshServer {
        let options = ServeOptions { key: OwnKey::Given(identity.0), ..ServeOptions::default() };
        SshServer { options, ports: None, cancel: Cancel::default() }
    }

    /// Limits the memory for incomplete data. By default 512 MiB.
    pub fn memory(mut self, memory: Bytes) -> SshServer {
        self.options.memory = memory;
        self
    }

    /// Sets the first and last port (UDP and TCP) that the server may open; `None` for any port.
    pub fn ports(self, ports: Option<(u16, u16)>) -> SshServer {
        SshServer { ports, ..self }
    }

    /// Ends the server when `handle` is cancelled.
    pub fn cancel_with(self, handle: &Cancel) -> SshServer {
        SshServer { cancel: handle.clone(), ..self }
    }

    /// Serves on a separate thread until ssh ends. Dropping the future cancels the server.
    ///
    /// # Errors
    /// ssh did not start this process, the memory is too small, no port is free, the client does
    /// not introduce itself, the transfer failed, or the server was cancelled.
    pub async fn serve(self) -> Result<(), Error> {
        let (options, ports) = (self.options, self.ports);
        let wish = CancelOnDrop(self.cancel.child());
        let cancel = wish.0.clone();
        let done = engine::start("longhaul ssh server", move || {
            serve_over_ssh(options, ports, cancel).map_err(Error::from)
        })?;
        done.await.unwrap_or_else(|_| Err(engine::vanished("a server")))
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::{Child, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use longhaul_testbed::alone;

    use super::*;

    /// The environment variable of a process that acts as if ssh had started it. Its value is the
    /// path of a socket. After a byte from the socket the process drops its server, and reports
    /// through the socket which threads and descriptors the server has left.
    const STARTED: &str = "LONGHAUL_TEST_SSH_SERVER";

    const LONG: Duration = Duration::from_secs(20);

    fn held() -> Vec<String> {
        let read = |folder| fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        let threads =
            read("/proc/self/task").filter_map(|it| fs::read_to_string(it.join("comm")).ok());
        // Standard input and output (0 and 1) do not count: the server replaces them by /dev/null.
        let descriptors =
            read("/proc/self/fd").filter(|it| !it.ends_with("0") && !it.ends_with("1"));
        let targets =
            descriptors.filter_map(|it| Some(fs::read_link(it).ok()?.display().to_string()));
        let mut held: Vec<String> = threads.chain(targets).collect();
        held.sort();
        held
    }

    fn serve_and_drop(socket: &Path) {
        // Begin with a runtime: the first one of a process opens descriptors that tokio keeps.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut line = UnixStream::connect(socket).unwrap();
        let before = held();
        runtime.block_on(async {
            let mut serving = Box::pin(SshServer::new(Identity::generate()).serve());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(serving.as_mut().poll(&mut context).is_pending());
            line.read_exact(&mut [0]).unwrap();
        });
        let end = Instant::now() + LONG;
        while held() != before && Instant::now() < end {
            thread::yield_now();
        }
        let left = if held() == before { "nothing".to_owned() } else { held().join("\n") };
        line.write_all(left.as_bytes()).unwrap();
    }

    fn start(socket: &Path) -> Child {
        let name = "api::ssh_server::tests::a_dropped_server_leaves_no_thread_and_no_descriptor";
        let mut command = alone::command(name);
        command.env(STARTED, socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_dropped_server_leaves_no_thread_and_no_descriptor() {
        if let Some(socket) = std::env::var_os(STARTED) {
            return serve_and_drop(Path::new(&socket));
        }
        let folder = tempfile::tempdir().unwrap();
        // The server waits for the client's introduction, or for the client's sessions.
        for introduces in [false, true] {
            let socket = folder.path().join(introduces.to_string());
            let listener = UnixListener::bind(&socket).unwrap();
            let mut server = start(&socket);
            let (mut line, _) = listener.accept().unwrap();
            let mut input = server.stdin.take().unwrap();
            let mut output = BufReader::new(server.stdout.take().unwrap());
            let mut said = String::new();
            while !said.contains(" offer ") {
                said.clear();
                assert!(output.read_line(&mut said).unwrap() > 0, "it ended without an offer");
            }
            if introduces {
                let id = Identity::generate().id();
                writeln!(input, "longhaul-ssh/1 client id={id}").unwrap();
            }
            line.write_all(&[0]).unwrap();
            // The server closes its output, although the client keeps the server's input open.
            output.read_to_string(&mut said).unwrap();
            let mut left = String::new();
            line.read_to_string(&mut left).unwrap();
            assert_eq!(left, "nothing", "introduces: {introduces}");
            assert!(server.wait().unwrap().success());
        }
    }
}
