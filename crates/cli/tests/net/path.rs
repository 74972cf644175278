//! Two emulated hosts, and a path that a test may change during a copy.

use std::ffi::OsStr;
use std::net::{Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longhaul_proto::units::Rate;
use longhaul_testbed::emu::{Emulation, EmulationSpec, available};
use longhaul_testbed::link::LinkSpec;
use tempfile::TempDir;

use super::Way;
use crate::rig::{Child, Host, Server, Skipped, bytes, scratch, skip, write};

/// The server's address on host `b`.
const ADDRESS: &str = "10.77.0.2:7717";
const ADDRESS_V6: &str = "[fd77::2]:7717";

/// A server on host `b`, a client on host `a`, and the path between them.
pub(super) struct Wan {
    // This is the first field, so that the server process ends before its emulated host.
    pub(super) server: Option<Server>,
    pub(super) emulation: Emulation,
    pub(super) client: Host,
    pub(super) host: Host,
    pub(super) here: PathBuf,
    pub(super) there: PathBuf,
    pub(super) content: Vec<u8>,
    address: &'static str,
    /// The client's rights, in the form that follows the id in `--allow`.
    rights: &'static str,
    _scratch: TempDir,
}

impl Wan {
    /// Emulates `link` in both directions, and puts an object of `len` bytes on each host.
    pub(super) fn new(link: LinkSpec, mtu: u16, len: usize) -> Result<Wan, Skipped> {
        Wan::at(ADDRESS, Wan::spec(link, mtu), "", len)
    }

    pub(super) fn over_v6(link: LinkSpec, mtu: u16, len: usize) -> Result<Wan, Skipped> {
        let has_v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        skip::unless(has_v6, "this machine has no IPv6")?;
        Wan::at(ADDRESS_V6, Wan::spec(link, mtu), "", len)
    }

    /// A path without delay and loss. The server's network card has this rate; packets that wait
    /// for the card fill the send buffers of the server process.
    pub(super) fn with_card(rate: Rate, rights: &'static str, len: usize) -> Result<Wan, Skipped> {
        let spec = EmulationSpec { cards: vec![(1, rate)], ..Wan::spec(LinkSpec::default(), 1500) };
        let wan = Wan::at(ADDRESS, spec, rights, len)?;
        let unpaced = wan.emulation.notices().iter().find(|notice| notice.contains("sch_tbf"));
        unpaced.map_or(Ok(()), |notice| Err(skip::forbidden(notice)))?;
        Ok(wan)
    }

    fn spec(link: LinkSpec, mtu: u16) -> EmulationSpec {
        EmulationSpec { mtu, ..EmulationSpec::pair(link.clone(), link) }
    }

    fn at(
        address: &'static str,
        spec: EmulationSpec,
        rights: &'static str,
        len: usize,
    ) -> Result<Wan, Skipped> {
        available().map_err(skip::forbidden)?;
        let emulation = Emulation::start(spec).expect("it is available");
        let scratch = scratch();
        let (here, there) = (scratch.path().join("here"), scratch.path().join("there"));
        let content = bytes(len, 9);
        write(&here.join("object"), &content);
        write(&there.join("source"), &content);
        let client = Host::new(&scratch.path().join("client"));
        let host = Host::new(&scratch.path().join("server"));
        let server = None;
        let mut wan = Wan {
            server,
            emulation,
            client,
            host,
            here,
            there,
            content,
            address,
            rights,
            _scratch: scratch,
        };
        wan.serve();
        Ok(wan)
    }

    pub(super) fn serve(&mut self) {
        self.server = None;
        let allowed = format!("{}{}", self.client.id, self.rights);
        let words = Server::words(self.address, &self.there, &["--allow", &allowed]);
        let command = self.host.command(words);
        self.server = Some(Server::ready(self.run("b", &command)));
    }

    /// Starts a command on an emulated host.
    pub(super) fn run(&self, host: &str, command: &Command) -> Child {
        let mut there = self.emulation.command(host, command.get_program()).expect("a known host");
        there = there.args(command.get_args());
        for (name, value) in command.get_envs() {
            there = there.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = command.get_current_dir() {
            there = there.current_dir(folder);
        }
        let there = there.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Child::adopt(there.spawn().expect("the program can be started"))
    }

    pub(super) fn start(&self, way: Way, args: &[impl AsRef<OsStr>]) -> Child {
        self.start_at(self.address, way, args)
    }

    /// Starts a copy with the server at `address`.
    pub(super) fn start_at(&self, address: &str, way: Way, args: &[impl AsRef<OsStr>]) -> Child {
        let (from, to) = match way {
            Way::Push => ("object".to_owned(), format!("lh://{address}/copy")),
            Way::Pull => (format!("lh://{address}/source"), "copy".to_owned()),
        };
        let mut command = self.client.command(["cp", "--json", "--accept-new"]);
        command.args(args).args([from, to]).current_dir(&self.here);
        self.run("a", &command)
    }

    /// Changes both directions of the path.
    pub(super) fn set(&self, link: &LinkSpec) {
        for (from, to) in [("a", "b"), ("b", "a")] {
            self.emulation.update_link(from, to, link.clone()).expect("the link exists");
        }
    }

    pub(super) fn copy(&self, way: Way) -> PathBuf {
        let folder: &Path = if way == Way::Push { &self.there } else { &self.here };
        folder.join("copy")
    }

    #[track_caller]
    pub(super) fn assert_copied(&self, way: Way) {
        let copy = std::fs::read(self.copy(way)).expect("it was copied");
        assert!(copy == self.content, "{way:?} differs");
        std::fs::remove_file(self.copy(way)).expect("it is ours");
    }
}
