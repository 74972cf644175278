//! Copies over a real ssh: an sshd on loopback, with its own keys and folders.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use longhaul_transfer::api::{Client, Identity};
use longhaul_transfer::options::ReachOptions;
use tempfile::TempDir;

use super::liar::block_on;
use super::{WAYS, Way};
use crate::rig::{
    Child, Ended, Host, Server, Skipped, assert_same, bytes, need, remains, skip, wait_until, write,
};

const SSHD: &str = "/usr/sbin/sshd";
/// sshd needs this empty folder when root starts it.
const PRIVILEGE_FOLDER: &str = "/run/sshd";

/// An sshd, and a client whose ssh configuration names this sshd `far` and `gate`.
pub(super) struct Ssh {
    pub(super) client: Host,
    pub(super) here: PathBuf,
    there: PathBuf,
    pub(super) content: Vec<u8>,
    // Declared before `scratch`, so that sshd is killed before its folder is removed.
    _daemon: Option<Child>,
    scratch: TempDir,
}

impl Ssh {
    /// An sshd that listens on loopback.
    pub(super) fn new() -> Result<Ssh, Skipped> {
        Ssh::on("127.0.0.1")
    }

    /// An sshd that listens on `address`.
    fn on(address: &str) -> Result<Ssh, Skipped> {
        let mut ssh = Ssh::folders()?;
        let port = free_port();
        let near = format!("HostName {address}\n  Port {port}");
        ssh.configure(&near, &format!("Port {port}\nListenAddress {address}"));
        let mut command = Command::new(SSHD);
        command.arg("-D").arg("-e").arg("-f").arg(ssh.path("sshd_config"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut daemon = Child::spawn(&mut command);
        daemon.complaint("Server listening");
        ssh._daemon = Some(daemon);
        Ok(ssh)
    }

    /// An sshd in its own network namespace, so that only ssh's channel reaches the host.
    pub(super) fn only_channel() -> Result<Ssh, Skipped> {
        let ssh = Ssh::folders()?;
        let alone = Command::new("unshare").args(["-n", "true"]).output();
        if !alone.is_ok_and(|output| output.status.success()) {
            return Err(skip::forbidden("this user may not make a network namespace"));
        }
        let config = ssh.path("sshd_config");
        let proxy = format!(
            "HostName 127.0.0.1\n  ProxyCommand unshare -n {SSHD} -i -e -f {}",
            config.display()
        );
        ssh.configure(&proxy, "");
        Ok(ssh)
    }

    fn folders() -> Result<Ssh, Skipped> {
        if !Path::new(SSHD).exists() || Command::new("ssh").arg("-V").output().is_err() {
            let reason = "ssh over loopback needs openssh-server and openssh-client";
            return Err(skip::uninstalled(reason));
        }
        if rustix::process::geteuid().is_root() && fs::create_dir_all(PRIVILEGE_FOLDER).is_err() {
            return Err(skip::forbidden("sshd wants the folder /run/sshd, which cannot be made"));
        }
        let scratch = tempfile::tempdir().expect("there is room for a folder");
        let (here, there) = (scratch.path().join("here"), scratch.path().join("there"));
        let content = bytes(5_000_000, 11);
        write(&here.join("object"), &content);
        write(&there.join("source"), &content);
        let client = Host::new(&scratch.path().join("client"));
        Ok(Ssh { client, here, there, content, scratch, _daemon: None })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Writes the keys and both configurations. The parameter `near` has the lines that tell ssh
    /// how to reach the hosts `far` and `gate`. The parameter `far` has the lines that tell sshd
    /// where to listen.
    fn configure(&self, near: &str, far: &str) {
        for name in ["user_key", "host_key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(self.path(name));
            assert!(keygen.status().expect("OpenSSH has ssh-keygen").success());
        }
        fs::copy(self.path("user_key.pub"), self.path("authorized")).expect("keys were made");
        let folder = self.scratch.path().display();
        let far = format!(
            "{far}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\nPrintMotd no\nAllowTcpForwarding yes\n\
             SetEnv LONGHAUL_CONFIG_DIR={folder}/far_config\n"
        );
        write(&self.path("sshd_config"), far.as_bytes());
        let near = format!(
            "Host far gate\n  {near}\n  IdentityFile {folder}/user_key\n  \
             IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  \
             StrictHostKeyChecking no\n  LogLevel ERROR\n"
        );
        write(&self.path("ssh_config"), near.as_bytes());
    }

    /// Runs a copy; `words` are further options for ssh.
    fn cp(&self, words: &str, args: &[&str]) -> Ended {
        self.start(words, args).end()
    }

    pub(super) fn start(&self, words: &str, args: &[&str]) -> Child {
        let ssh = format!("ssh -F {} {words}", self.path("ssh_config").display());
        let longhaul = env!("CARGO_BIN_EXE_longhaul");
        let mut command = self.client.command(["cp", "--json", "-e", &ssh]);
        if !args.iter().any(|arg| arg.starts_with("--remote-path")) {
            command.args(["--remote-path", longhaul]);
        }
        command.args(args).current_dir(&self.here);
        Child::spawn(&mut command)
    }

    pub(super) fn at(&self, path: &str) -> String {
        format!("far:{}/{path}", self.there.display())
    }

    #[track_caller]
    fn copies(&self, way: Way, words: &str, args: &[&str]) -> Ended {
        let (from, to, copy) = match way {
            Way::Push => ("object".to_owned(), self.at("copy"), self.there.join("copy")),
            Way::Pull => (self.at("source"), "copy".to_owned(), self.here.join("copy")),
        };
        let ended = self.cp(words, &[args, &[&from, &to]].concat());
        ended.summary();
        assert!(fs::read(&copy).expect("it was copied") == self.content, "{way:?}");
        fs::remove_file(copy).expect("it is ours");
        ended
    }
}

fn free_port() -> u16 {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    taken.local_addr().expect("bound").port()
}

#[test]
fn a_file_is_copied_over_ssh_both_ways_with_data_by_udp() {
    let ssh = need!(Ssh::new());
    for way in WAYS {
        let ended = ssh.copies(way, "", &["--rate=100M"]);
        assert_eq!(ended.summary()["protocol"], "rbudp", "{way:?} {ended}");
        assert_eq!(ended.events("connected")[0]["carrier"], "quic", "{way:?} {ended}");
        assert!(ended.events("fallback").is_empty(), "{way:?} {ended}");
    }
}

#[test]
fn a_server_started_by_ssh_keeps_data_that_arrive_before_the_request() {
    let ssh = need!(Ssh::new());
    for _ in 0..5 {
        let summary = ssh.copies(Way::Push, "", &["--rate=300M"]).summary();
        let number = |name: &str| summary[name].as_u64().expect("a number");
        // A busy host may lose a few datagrams. A server that dropped the datagrams that arrive
        // before the request would lose up to a third of the data.
        assert!(number("path_lost") < number("sent") / 20, "{summary}");
    }
}

#[test]
fn a_copy_over_ssh_can_run_again_immediately_after_a_kill() {
    let ssh = need!(Ssh::new());
    write(&ssh.here.join("object"), &bytes(40_000_000, 11));
    let to = ssh.at("copy");
    for _ in 0..2 {
        let mut copy = ssh.start("", &["--rate=40M", "object", &to]);
        copy.progressed(1);
        copy.kill();
    }
    let ended = ssh.cp("", &["object", &to]);
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert!(fs::read(ssh.there.join("copy")).expect("it was copied") == bytes(40_000_000, 11));
}

#[test]
fn a_file_goes_over_ssh_by_ipv6() {
    need!(skip::unless(UdpSocket::bind("[::1]:0").is_ok(), "this machine has no IPv6"));
    let ssh = need!(Ssh::on("::1"));
    for way in WAYS {
        let ended = ssh.copies(way, "", &["--rate=100M"]);
        assert_eq!(ended.summary()["protocol"], "rbudp", "{way:?} {ended}");
        assert_eq!(ended.events("connected")[0]["carrier"], "quic", "{way:?} {ended}");
    }
}

#[test]
fn a_tree_is_copied_over_ssh_through_a_jump_host() {
    let ssh = need!(Ssh::new());
    for n in 0..40 {
        write(&ssh.here.join(format!("tree/d{}/f{n}", n % 5)), &bytes(n * 700, n as u64));
    }
    let to = ssh.at("");
    ssh.cp("-J gate", &["-r", "tree", &to]).is(0, &[]);
    assert_same(&ssh.here.join("tree"), &ssh.there.join("tree"));
}

#[test]
fn a_tree_copied_over_ssh_to_a_new_name_leaves_no_mark() {
    let ssh = need!(Ssh::new());
    write(&ssh.here.join("tree/f"), b"content");
    for n in 0..8 {
        ssh.cp("", &["-r", "tree", &ssh.at(&format!("new{n}"))]).is(0, &[]);
    }
    // A mark is a file next to a folder that an unfinished copy created. The server removes the
    // mark when the client has acknowledged the end of the copy, perhaps after the client has
    // exited.
    let is_mark = |name: &OsStr| name.as_encoded_bytes().ends_with(b".lh-tree");
    wait_until("the marks are removed", || {
        let mut names = fs::read_dir(&ssh.there).expect("the folder can be read");
        !names.any(|entry| is_mark(&entry.expect("the folder can be read").file_name()))
    });
    assert_eq!(remains(&ssh.there), Vec::<PathBuf>::new());
}

#[test]
fn files_of_a_server_and_an_ssh_host_are_copied_concurrently_also_as_replicas() {
    let ssh = need!(Ssh::new());
    let root = ssh.path("root");
    let content = bytes(3_000_000, 12);
    write(&root.join("part"), &content);
    write(&root.join("source"), &ssh.content);
    let host = Host::new(&ssh.path("server"));
    let server = Server::start(&host, &root, &["--allow", &ssh.client.id]);
    let of_server = |path: &str| format!("lh://{}/{path}", server.address);
    let far = ssh.at("source");
    let (part, to) = (of_server("part"), ssh.here.join("new/er"));
    ssh.cp("", &["--accept-new", &far, &part, "new/er"]).is(4, &["new/er"]);
    let ended = ssh.cp("", &["--accept-new", "--mkpath", &far, &part, "new/er"]);
    let summary = ended.summary();
    assert_eq!((&summary["protocol"], &summary["files"]), (&"gtp".into(), &2.into()), "{ended}");
    assert!(fs::read(to.join("part")).expect("it was copied") == content);
    assert!(fs::read(to.join("source")).expect("it was copied") == ssh.content);
    let both = [&far, &of_server("source")];
    let ended = ssh.cp("", &["--replicas", "--accept-new", both[0], both[1], "copy"]);
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert!(fs::read(ssh.here.join("copy")).expect("it was copied") == ssh.content);
}

#[test]
fn replicas_are_read_through_ssh_channels_if_nothing_else_passes() {
    let ssh = need!(Ssh::only_channel());
    let near = ssh.at("source");
    let other = near.replacen("far", "gate", 1);
    let ended = ssh.cp("", &["--replicas", &near, &other, "copy"]);
    let summary = ended.summary();
    assert_eq!((&summary["verified"], &summary["protocol"]), (&true.into(), &"tcp".into()));
    let connected = ended.events("connected");
    assert!(connected.len() == 2 && connected.iter().all(|event| event["carrier"] == "ssh"));
    assert!(fs::read(ssh.here.join("copy")).expect("it was copied") == ssh.content);
}

#[test]
fn an_error_about_missing_longhaul_says_how_to_install_it() {
    let ssh = need!(Ssh::new());
    let to = ssh.at("copy");
    let ended = ssh.cp("", &["--remote-path=/no/such/longhaul", "object", &to]);
    ended.is(3, &["/no/such/longhaul", "install longhaul there", "--remote-path"]);
}

#[test]
fn an_ssh_host_that_cannot_be_reached_is_named() {
    let ssh = need!(Ssh::new());
    let ended = ssh.cp("-o Port=1", &["object", "nowhere:copy"]);
    ended.is(3, &["ssh cannot reach nowhere"]);
}

#[test]
fn the_remote_side_opens_only_the_ports_that_the_option_allows() {
    let ssh = need!(Ssh::new());
    // longhaul may use only two ports on the ssh host. Both must be free.
    let is_free = |port: u16| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let free = || (0..50).map(|_| free_port()).find(|port| *port < 65_535 && is_free(port + 1));
    let first = free().filter(|port| is_free(*port)).expect("two free neighbours");
    let ports = format!("--ports={first}-{}", first + 1);
    let mut copy = ssh.start("", &[&ports, "--rate=20M", "object", &ssh.at("copy")]);
    copy.progressed(1);
    // longhaul uses one port for control and one for data.
    assert!(!is_free(first) && !is_free(first + 1), "{ports}");
    let ended = copy.end();
    assert_eq!(ended.summary()["protocol"], "rbudp", "{ended}");
    let address = ended.events("connected")[0]["address"].as_str().unwrap_or_default().to_owned();
    let port: u16 = address.rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
    assert!((first..first + 2).contains(&port), "{address} {ports}");
    assert!(fs::read(ssh.there.join("copy")).expect("it was copied") == ssh.content);
}

#[test]
fn an_occupied_remote_port_range_is_named_with_advice() {
    let ssh = need!(Ssh::new());
    let take = |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let neighbours = (0..50).find_map(|_| {
        let first = take(0).ok()?;
        let port = first.local_addr().ok()?.port();
        Some((port, first, take(port.checked_add(1)?).ok()?))
    });
    let (port, ..) = neighbours.as_ref().expect("two free neighbours");
    let to = ssh.at("copy");
    let last = port + 1;
    let ended = ssh.cp("", &[&format!("--ports={port}-{last}"), "object", &to]);
    ended.is(3, &[&format!("no port from {port} to {last}"), "wider range as --ports"]);
    assert!(!ssh.there.join("copy").exists());
}

#[test]
fn a_probe_goes_over_ssh_without_a_server() {
    let ssh = need!(Ssh::new());
    let command = format!("ssh -F {}", ssh.path("ssh_config").display());
    let longhaul = concat!("--remote-path=", env!("CARGO_BIN_EXE_longhaul"));
    let words = ["probe", "--json", "-e", &command, longhaul, "--rate=5M", "--time=100ms", "far"];
    let ended = ssh.client.run(words);
    let summary = ended.summary();
    for name in ["udp_up_bps", "udp_down_bps", "tcp_up_bps", "tcp_down_bps"] {
        assert!(summary[name].as_u64() > Some(0), "{name} {ended}");
    }
}

#[test]
fn folders_are_listed_over_ssh_and_through_its_channel_alone() {
    for (ssh, carrier) in [(Ssh::new(), "quic"), (Ssh::only_channel(), "ssh")] {
        let ssh = need!(ssh);
        let command = format!("ssh -F {}", ssh.path("ssh_config").display());
        let longhaul = env!("CARGO_BIN_EXE_longhaul");
        let remote = format!("--remote-path={longhaul}");
        let ended = ssh.client.run(["ls", "-e", &command, &remote, &ssh.at("")]);
        assert_eq!(ended.is(0, &[]).stdout, ["source"]);
        // The library's connection carries several calls.
        let mut reach = ReachOptions::default();
        reach.ssh_command = command.split(' ').map(str::to_owned).collect();
        reach.remote_path = longhaul.to_owned();
        let identity = Identity::load_or_create(&ssh.client.config).expect("the client has one");
        let client = Client::builder().identity(identity).build().expect("it has an identity");
        block_on(async {
            let connection = client.connect("far:").reach(reach).await.expect("it answers");
            assert_eq!(connection.carrier(), carrier);
            for _ in 0..3 {
                let mut names = connection.list(&ssh.there).await.expect("it is open");
                let first = names.next().await.expect("a name").expect("it is listed");
                assert_eq!(first.name, b"source");
                assert!(names.next().await.is_none());
            }
        });
    }
}

#[test]
fn data_go_through_ssh_with_a_warning_if_only_ssh_passes() {
    let ssh = need!(Ssh::only_channel());
    for way in WAYS {
        let ended = ssh.copies(way, "", &[]);
        assert_eq!(ended.events("connected")[0]["carrier"], "ssh", "{way:?} {ended}");
        let fallback = ended.events("fallback");
        assert_eq!(fallback.len(), 1, "{way:?} {ended}");
        assert_eq!(fallback[0]["carrier"], "the ssh channel", "{way:?} {ended}");
        assert!(fallback[0]["advice"].as_str().is_some_and(|a| a.contains("--ports")), "{ended}");
    }
    let ended = ssh.copies(Way::Push, "", &["--ports=4000-4010"]);
    let advice = ended.events("fallback")[0]["advice"].clone();
    let names_it = |advice: &str| advice.contains("UDP and TCP ports 4000 to 4010");
    assert!(advice.as_str().is_some_and(names_it), "{ended}");
}

#[test]
fn a_remote_path_may_have_blanks_and_the_remote_shell_may_print() {
    let ssh = need!(Ssh::new());
    let script = ssh.path("my longhaul");
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    write(&script, format!("#!/bin/sh\necho Welcome\nexec {longhaul} \"$@\"\n").as_bytes());
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("--remote-path={}", script.display());
    ssh.copies(Way::Pull, "", &[&path]);
}
