//! Two hosts on loopback, one of which serves a folder to the other.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Child, Ended, Host, scratch};

/// A running server that is ready.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// The UDP port of all data.
    pub(crate) data_port: u16,
    pub(crate) id: String,
}

impl Server {
    /// Serves `root` on a free port of 127.0.0.1, with further `args` (at least an `--allow`).
    pub(crate) fn start(host: &Host, root: &Path, args: &[&str]) -> Server {
        Server::start_as(&mut host.command(Server::words("127.0.0.1:0", root, args)))
    }

    /// Makes the server read its list of clients and tokens again.
    pub(crate) fn reload(&mut self) {
        self.child().signal(Signal::HUP);
        self.child().complaint("again");
    }

    pub(crate) fn words(listen: &str, root: &Path, args: &[&str]) -> Vec<OsString> {
        let mut words =
            super::words(&[&"serve", &"--json", &"--listen", &listen, &"--root", &root]);
        words.extend(args.iter().map(OsString::from));
        words
    }

    /// Starts `command`, which must be a `serve --json`, and waits for its ready line.
    pub(crate) fn start_as(command: &mut Command) -> Server {
        Server::ready(Child::spawn(command))
    }

    pub(crate) fn ready(mut child: Child) -> Server {
        let ready = child.event(|event| event["event"] == "ready");
        let text = |name: &str| ready[name].as_str().expect("the ready line has it").to_owned();
        let data_port = ready["data_port"].as_u64().and_then(|port| u16::try_from(port).ok());
        Server {
            child,
            address: text("address"),
            data_port: data_port.expect("the ready line has the port"),
            id: text("id"),
        }
    }

    /// `lh://ADDRESS/PATH`; the path may be any bytes.
    pub(crate) fn at(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut location = OsString::from(format!("lh://{}/", self.address));
        location.push(path);
        location
    }

    pub(crate) fn into_child(self) -> Child {
        self.child
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

/// A client with files in `here`, and a server of the folder `there`.
pub(crate) struct Pair {
    /// The client, which knows no server yet.
    pub(crate) client: Host,
    pub(crate) host: Host,
    /// The server, which allows the client.
    pub(crate) server: Server,
    pub(crate) here: PathBuf,
    /// The server's root.
    pub(crate) there: PathBuf,
    args: Vec<String>,
    pub(crate) scratch: TempDir,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(&[])
    }

    /// Like [`Pair::new`], with further arguments for `serve`.
    pub(crate) fn with(args: &[&str]) -> Pair {
        Pair::with_rights("", args)
    }

    /// Like [`Pair::with`], with files in memory if enough memory is free.
    pub(crate) fn in_memory(args: &[&str]) -> Pair {
        Pair::within(scratch(), "", args)
    }

    /// Like [`Pair::with`], with `rights` such as `:ro` after the client's id.
    pub(crate) fn with_rights(rights: &str, args: &[&str]) -> Pair {
        Pair::within(tempfile::tempdir().expect("there is room for a folder"), rights, args)
    }

    /// Like [`Pair::new`], with rights to services such as `stream=rw,channel=ro:lab`.
    pub(crate) fn of_services(rights: &str) -> Pair {
        Pair::with_rights(&format!(",{rights}"), &[])
    }

    fn within(scratch: TempDir, rights: &str, args: &[&str]) -> Pair {
        let (here, there) = (scratch.path().join("here"), scratch.path().join("there"));
        // A server does not start without the subfolder that rights may name.
        let short = rights.strip_prefix(':').and_then(|right| right.split_once(':'));
        let subfolder = short.map_or("", |(_, folder)| folder);
        for folder in [&here, &there.join(subfolder)] {
            std::fs::create_dir_all(folder).expect("the scratch folder is ours");
        }
        let client = Host::new(&scratch.path().join("client"));
        let host = Host::new(&scratch.path().join("server"));
        let allowed = format!("{}{rights}", client.id);
        let args = [&["--allow", &allowed], args].concat();
        let server = Server::start(&host, &there, &args);
        let args = args.into_iter().map(str::to_owned).collect();
        Pair { client, host, server, here, there, args, scratch }
    }

    /// Restarts an ended server on another port and with `args`. The client may read and write
    /// files.
    pub(crate) fn restart(&mut self, args: &[&str]) {
        let allowed = self.client.id.clone();
        let args = [&["--allow", &allowed], args].concat();
        self.server = Server::start(&self.host, &self.there, &args);
    }

    /// Kills the server. [`Pair::start_again`] starts it on the same address.
    pub(crate) fn kill_server(&mut self) {
        self.server.child().signal(Signal::KILL);
        self.server.child().ended();
    }

    /// Starts a killed server again on its address, with its first arguments.
    pub(crate) fn start_again(&mut self) {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let words = Server::words(&self.server.address, &self.there, &args);
        self.server = Server::start_as(&mut self.host.command(words));
    }

    /// The client's command `cp --json` with trust in this server, not started yet.
    pub(crate) fn cp_command(&self, args: &[&dyn AsRef<OsStr>]) -> Command {
        let id = format!("--server-id={}", self.server.id);
        let mut command = self.client.command(["cp", "--json", &id]);
        command.args(args.iter().map(AsRef::as_ref)).current_dir(&self.here);
        command
    }

    pub(crate) fn start(&self, args: &[&dyn AsRef<OsStr>]) -> Child {
        Child::spawn(&mut self.cp_command(args))
    }

    pub(crate) fn copy(
        &self,
        flags: &[impl AsRef<OsStr>],
        from: impl AsRef<OsStr>,
        to: impl AsRef<OsStr>,
    ) -> Child {
        let mut words: Vec<&dyn AsRef<OsStr>> = Vec::new();
        for flag in flags {
            words.push(flag);
        }
        words.push(&from);
        words.push(&to);
        self.start(&words)
    }

    pub(crate) fn cp(&self, args: &[&dyn AsRef<OsStr>]) -> Ended {
        self.start(args).end()
    }

    /// `lh://…/PATH` of the server.
    pub(crate) fn at(&self, path: impl AsRef<OsStr>) -> OsString {
        self.server.at(path)
    }

    /// `longhaul SERVICE VERB MORE… lh://…/NAME`, run in the client's folder.
    pub(crate) fn of_name(&self, [service, verb]: [&str; 2], name: &str, more: &[&str]) -> Command {
        let url = self.at(name).into_string().expect("our own name");
        let id = format!("--server-id={}", self.server.id);
        let words = [service, verb, &id].into_iter().chain(more.iter().copied()).chain([&*url]);
        let mut command = self.client.command(words);
        command.current_dir(&self.here);
        command
    }
}
