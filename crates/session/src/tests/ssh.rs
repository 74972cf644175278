//! Sessions over ssh: scripts take the place of ssh on this host.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::io::AsyncBufReadExt;
use tokio::net::unix::pipe;

use super::*;
use crate::ssh::{SshTarget, accept_over_ssh, bind_udp, connect_ssh};

/// The environment variable that makes a test process run as the remote side. The value is the
/// range of ports, `FIRST-LAST`, or `any`.
const REMOTE_SIDE: &str = "LONGHAUL_TEST_REMOTE_SIDE";

/// Not a test: the scripts below run it as `longhaul serve --ssh`. The test harness prints lines
/// before the protocol's first line, like a login banner.
#[test]
fn remote_side_of_a_copy_over_ssh() {
    if let Ok(ports) = std::env::var(REMOTE_SIDE) {
        run(remote_side(&ports));
    }
}

async fn remote_side(ports: &str) {
    let identity = Identity::generate();
    let ports = ports
        .split_once('-')
        .map(|(first, last)| (first.parse().expect("a port"), last.parse().expect("a port")));
    let data = bind_udp(ports).expect("a free port");
    let data_port = data.local_addr().expect("bound").port();
    let mut side = accept_over_ssh(&identity, ports, data_port, &settings(Carriers::Both))
        .await
        .expect("started as ssh does");
    while let Some(mut session) = side.accept().await.expect("a session") {
        while let Ok(Some(text)) = session.read::<String>().await {
            session.write(&format!("far {text}")).await.expect("open");
        }
        let _ = session.close(None).await;
    }
    // Tells the test that the remote side has ended by itself.
    if let Ok(path) = std::env::var("LONGHAUL_TEST_ENDED") {
        let _ = std::fs::write(path, "ended");
    }
}

struct Host {
    folder: TempDir,
    ended: pipe::Receiver,
    ssh: Vec<String>,
    remote_path: PathBuf,
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("writable");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
}

impl Host {
    /// Returns a host with `reached` as the address of its sshd. Its `longhaul` is a script that
    /// starts with `before`.
    fn new(reached: Option<IpAddr>, before: &str) -> Host {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let fifo = folder.path().join("ended");
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).expect("the folder is ours");
        // Open for writing too, so that the pipe outlives a remote side.
        let ended = pipe::OpenOptions::new().read_write(true).open_receiver(&fifo);
        let ended = ended.expect("it was just made");
        let ssh = folder.path().join("fake-ssh");
        let connection = reached.map_or(String::new(), |ip| format!("{ip} 1 {ip} 22"));
        script(
            &ssh,
            &format!(
                "SSH_CONNECTION='{connection}'; export SSH_CONNECTION; shift; exec sh -c \"$*\""
            ),
        );
        let remote_path = folder.path().join("it's a longhaul");
        let test = std::env::current_exe().expect("this test");
        let name = "tests::ssh::remote_side_of_a_copy_over_ssh";
        script(
            &remote_path,
            &format!(
                "{before}\n[ \"$1 $2\" = 'serve --ssh' ] || exit 9\n\
                 LONGHAUL_TEST_ENDED='{}' {REMOTE_SIDE}=\"${{4:-any}}\" exec '{}' --exact {name} \
                 --nocapture",
                fifo.display(),
                test.display()
            ),
        );
        Host { ssh: vec![ssh.display().to_string()], remote_path, ended, folder }
    }

    async fn connect(&self, ports: Option<(u16, u16)>) -> Result<Session, Error> {
        self.connect_to("somebody@127.0.0.1", ports).await
    }

    async fn connect_to(
        &self,
        destination: &str,
        ports: Option<(u16, u16)>,
    ) -> Result<Session, Error> {
        let remote_path = self.remote_path.display().to_string();
        let target = SshTarget {
            command: &self.ssh,
            destination,
            remote_path: &remote_path,
            ports,
            arguments: &[],
        };
        connect_ssh(&target, &Identity::generate(), &settings(Carriers::Both), |_| {}).await
    }

    /// Waits until the remote side has ended by itself.
    async fn ended(&self) {
        loop {
            self.ended.readable().await.expect("the pipe is open");
            // Readiness may be spurious.
            if self.ended.try_read(&mut [0; 16]).is_ok() {
                return;
            }
        }
    }
}

async fn echoes(session: &mut Session) {
    for text in ["one".to_owned(), "x".repeat(300_000)] {
        session.write(&text).await.expect("open");
        assert_eq!(session.read().await, Ok(Some(format!("far {text}"))));
    }
}

#[test]
fn an_address_that_only_the_remote_side_names_is_not_contacted() {
    run(async {
        // The address would answer, but the host name does not resolve to it.
        let host = Host::new(Some(LOOPBACKS[0]), "");
        let session = host.connect_to("somebody@host.invalid", None).await.expect("a remote side");
        assert_eq!(session.carrier, "ssh");
        drop(session);
        host.ended().await;
    });
}

#[test]
fn an_alias_of_sshs_configuration_is_contacted_at_its_host() {
    run(async {
        let mut host = Host::new(Some(LOOPBACKS[0]), "");
        let ssh = host.folder.path().join("ssh");
        let answer = "[ \"$1\" = -G ] && { echo user me; echo hostname 127.0.0.1; exit; }";
        script(&ssh, &format!("{answer}\nexec '{}' \"$@\"", host.ssh[0]));
        host.ssh = vec![ssh.display().to_string()];
        let session = host.connect_to("alias.invalid", None).await.expect("a remote side");
        assert_eq!((session.carrier, session.remote.ip()), ("quic", LOOPBACKS[0]));
        drop(session);
        host.ended().await;
    });
}

#[test]
fn the_remote_side_offers_the_address_that_ssh_has_reached() {
    run(async {
        let host = Host::new(None, "");
        let mut far = tokio::process::Command::new(&host.remote_path)
            .args(["serve", "--ssh"])
            .env("SSH_CONNECTION", "192.0.2.1 5 ::ffff:192.0.2.7%eth0 22")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a script");
        let said = far.stdout.take().expect("it is piped");
        let mut lines = tokio::io::BufReader::new(said).lines();
        let offer = loop {
            let line = lines.next_line().await.expect("text").expect("an offer");
            if line.contains(" offer ") {
                break line;
            }
        };
        assert!(offer.ends_with(" at=192.0.2.7"), "{offer}");
    });
}

#[test]
fn only_a_switch_message_starts_a_session_through_ssh() {
    run(async {
        let host = Host::new(None, "");
        let mut far = tokio::process::Command::new(&host.remote_path)
            .args(["serve", "--ssh"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a script");
        let mut input = far.stdin.take().expect("it is piped");
        let client = Identity::generate().id();
        let messages = format!("longhaul-ssh/1 client id={client}\nlonghaul-ssh/1 newer\n");
        tokio::io::AsyncWriteExt::write_all(&mut input, messages.as_bytes()).await.expect("open");
        drop(input);
        assert!(far.wait().await.expect("it ends").success());
    });
}

#[test]
fn ssh_starts_the_remote_side_and_the_session_is_direct() {
    run(async {
        let host = Host::new(Some(LOOPBACKS[0]), "echo 'Welcome to host'; printf 'prompt> '");
        let mut session = host.connect(None).await.expect("a remote side");
        assert_eq!((session.carrier, session.remote.ip()), ("quic", LOOPBACKS[0]));
        assert_ne!(session.data_port, None);
        assert_eq!(session.advice, None);
        echoes(&mut session).await;
        session.close(None).await.expect("delivered");
        host.ended().await;
    });
}

#[test]
fn if_ssh_delivers_the_clients_id_after_the_client_connects_the_client_waits_and_is_admitted() {
    run(async {
        let late = "[ \"$LATE\" ] || { { sleep 1; exec cat; } | LATE=1 \"$0\" \"$@\"; exit; }";
        let host = Host::new(Some(LOOPBACKS[0]), late);
        let mut session = host.connect(None).await.expect("a remote side");
        assert_eq!(session.carrier, "quic");
        echoes(&mut session).await;
        session.close(None).await.expect("delivered");
        host.ended().await;
    });
}

#[test]
fn the_remote_side_opens_ports_of_the_given_range() {
    run(async {
        let host = Host::new(Some(LOOPBACKS[1]), "");
        let mut session = host.connect(Some((47_310, 47_330))).await.expect("a remote side");
        echoes(&mut session).await;
        for port in [session.remote.port(), session.data_port.unwrap_or_default()] {
            assert!((47_310..=47_330).contains(&port), "{port}");
        }
        assert_ne!(Some(session.remote.port()), session.data_port);
    });
}

#[test]
fn ssh_carries_the_session_if_nothing_else_connects_and_advice_names_the_ports() {
    run(async {
        let host = Host::new(None, "");
        let ports = Some((47_340, 47_360));
        let mut session = host.connect_to("host.invalid", ports).await.expect("a remote side");
        assert_eq!((session.carrier, session.rtt), ("ssh", None));
        let advice = session.advice.clone().expect("what to open");
        assert!(advice.contains("47340 to 47360"), "{advice}");
        echoes(&mut session).await;
        session.close(None).await.expect("delivered");
        host.ended().await;
    });
}

#[test]
fn while_ssh_carries_the_session_its_control_port_admits_nobody_else() {
    run(async {
        let host = Host::new(None, "");
        let ports = Some((47_362, 47_365));
        let mut session = host.connect_to("host.invalid", ports).await.expect("a remote side");
        assert_eq!(session.carrier, "ssh");
        echoes(&mut session).await;
        let mut stranger = Client::new(Carriers::Tcp);
        stranger.trust = stranger.trust.only(session.peer.to_string());
        let mut refused = 0;
        for port in 47_362..=47_365 {
            // One port of the range is the control port.
            let to = SocketAddr::new(LOOPBACKS[0], port);
            let Ok(mut other) = stranger.connect(to).await else { continue };
            let _ = other.write(&"let me in".to_owned()).await;
            let error = other.read::<String>().await.expect_err("it is a stranger");
            assert!(error.what.contains("serves another id"), "{error}");
            refused += 1;
        }
        assert_eq!(refused, 1);
        echoes(&mut session).await;
        session.close(None).await.expect("delivered");
        host.ended().await;
    });
}

#[test]
fn the_remote_side_ends_when_ssh_does() {
    run(async {
        let host = Host::new(Some(LOOPBACKS[0]), "");
        let mut session = host.connect(None).await.expect("a remote side");
        echoes(&mut session).await;
        drop(session);
        host.ended().await;
    });
}

#[test]
fn a_missing_longhaul_and_a_failing_ssh_are_distinguished() {
    run(async {
        let mut host = Host::new(None, "");
        host.remote_path = PathBuf::from("/nowhere/longhaul");
        let error = host.connect(None).await.expect_err("it is not there");
        assert_eq!(error.kind, Kind::Unreachable);
        let text = error.to_string();
        assert!(text.contains("status 127") && text.contains("`remote_path`"), "{text}");
        assert!(text.contains("install longhaul"), "{text}");

        script(Path::new(&host.ssh[0]), "exit 255");
        let error = host.connect(None).await.expect_err("ssh fails");
        assert!(error.what.contains("ssh cannot reach"), "{error}");

        script(Path::new(&host.ssh[0]), "echo This account is not available.");
        let error = host.connect(None).await.expect_err("no longhaul");
        assert!(error.what.contains("account is not available"), "{error}");

        host.ssh = vec!["/nowhere/ssh".to_owned()];
        let error = host.connect(None).await.expect_err("no ssh");
        assert!(error.to_string().contains("name another program"), "{error}");
    });
}
