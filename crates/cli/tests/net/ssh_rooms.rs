//! Streams and channels between clients that reach their host by ssh.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::room_load::cpu;
use super::ssh::Ssh;
use crate::rig::{Child, Host, need, skip, wait_until};

/// Returns the room servers' sockets in `folder`.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths.filter(|path| path.extension() == Some(OsStr::new("sock"))).collect()
}

impl Ssh {
    /// Starts `longhaul WORDS --json` with the test's own configuration of ssh.
    fn live(&self, words: &[&str]) -> Child {
        let ssh = format!("--rsh=ssh -F {}", self.path("ssh_config").display());
        let path = format!("--remote-path={}", crate::rig::binary().display());
        let words = words.iter().copied().chain([&*ssh, &*path, "--json"]);
        let mut command = self.client.command(words);
        Child::spawn(command.current_dir(&self.here))
    }
}

#[test]
fn clients_that_come_over_ssh_meet_in_streams_and_rooms_and_the_server_ends_after_them() {
    let ssh = need!(Ssh::new());
    let mut subscriber = ssh.live(&["channel", "receive", "--count=1", "far:lab/log"]);
    subscriber.event(|event| event["event"] == "joined");
    let receiver = ssh.live(&["stream", "receive", "--check", "far:lab/cam"]);
    let words = ["stream", "send", "--test-pattern", "--frames=40", "--frame=20000", "--fps=50"];
    let words = [&words[..], &["--deadline=20s", "--receivers=1", "far:lab/cam"]].concat();
    let sent = ssh.live(&words).end();
    assert_eq!(sent.is(0, &[]).summary()["frames"], 40, "{sent}");
    let came = receiver.end();
    assert_eq!(came.is(0, &[]).summary()["on_time"], 40, "{came}");
    let mut said = ssh.client.command([
        "channel",
        "send",
        &format!("--rsh=ssh -F {}", ssh.path("ssh_config").display()),
        &format!("--remote-path={}", crate::rig::binary().display()),
        "far:lab/log",
    ]);
    std::fs::write(ssh.path("said"), "hello\n").unwrap();
    said.stdin(std::fs::File::open(ssh.path("said")).unwrap());
    Child::spawn(&mut said).end().is(0, &["1 message, 1 taken"]);
    let heard = subscriber.end();
    assert_eq!(heard.is(0, &[]).events("message")[0]["text"], "hello", "{heard}");
    // The last client has disconnected.
    let folder = ssh.path("far_config");
    wait_until("the end of the server", || sockets(&folder).is_empty());
}

#[test]
fn the_error_names_the_ports_to_open_if_only_ssh_reaches_the_host() {
    let ssh = need!(Ssh::only_channel());
    let refused = ssh.live(&["stream", "receive", "--retry-for=0s", "far:x"]).end();
    let error = refused.is(3, &[]).last();
    let text = format!("{} {}", error["what"], error["advice"]);
    assert!(text.contains("UDP ports"), "{refused}");
}

/// Starts `longhaul serve --ssh --rooms WHO` on the host `name`, as a client's ssh does. All
/// hosts share the configuration folder of `home`. The process ends when the returned pipe is
/// closed.
fn far_end(home: &Host, name: &str, runtime: Option<&Path>) -> (Child, PipeWriter) {
    let script = format!("hostname {name} && exec \"$@\"");
    let words = ["unshare", "--uts", "sh", "-c", &script, "sh"];
    let mut command = home.wrapped(&words, ["serve", "--ssh", "--rooms", &home.id]);
    command.env_remove("XDG_RUNTIME_DIR");
    command.envs(runtime.map(|folder| ("XDG_RUNTIME_DIR", folder)));
    let (input, end) = std::io::pipe().unwrap();
    (Child::spawn(command.stdin(input)), end)
}

#[test]
fn hosts_that_share_a_home_have_a_server_each_and_clients_of_a_host_share_its_server() {
    let own = Command::new("unshare").args(["--uts", "hostname", "one"]).output();
    let own = own.is_ok_and(|output| output.status.success());
    need!(skip::unless(own, "this user may not make a namespace with a host name"));
    let scratch = tempfile::tempdir().unwrap();
    let home = Host::new(&scratch.path().join("home"));
    let mut ends = ["one", "two", "one"].map(|name| far_end(&home, name, None));
    let offers = ends.each_mut().map(|(end, _)| end.line().expect("an offer"));
    assert_eq!(offers[0], offers[2], "{offers:?}");
    assert_ne!(offers[0], offers[1], "the ports of two servers");
    assert_eq!(sockets(&home.config).len(), 2);
    // A host prefers its own runtime folder to the shared configuration folder.
    let runtime = scratch.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    let (mut end, input) = far_end(&home, "one", Some(&runtime));
    assert!(!offers.contains(&end.line().expect("an offer")));
    assert_eq!((sockets(&runtime).len(), sockets(&home.config).len()), (1, 2));
    drop(input);
    end.end().is(0, &[]);
    for (end, input) in ends {
        drop(input);
        end.end().is(0, &[]);
    }
    for folder in [&runtime, &home.config] {
        wait_until("the end of the servers", || sockets(folder).is_empty());
    }
}

#[test]
fn a_server_without_free_descriptors_does_not_spin_and_admits_a_client_when_some_are_free() {
    const LIMIT: usize = 64;
    let scratch = tempfile::tempdir().unwrap();
    let host = Host::new(&scratch.path().join("home"));
    let limit = format!("ulimit -n {LIMIT} && exec \"$@\"");
    let words = ["serve", "--ssh", "--rooms", "serve"];
    let mut command = host.wrapped(&["sh", "-c", &limit, "sh"], words);
    let server = Child::spawn(command.env_remove("XDG_RUNTIME_DIR"));
    let connect = || {
        let socket = sockets(&host.config).pop()?;
        UnixStream::connect(socket).ok()
    };
    let mut clients = Vec::new();
    wait_until("the socket of the server", || {
        clients.extend(connect());
        !clients.is_empty()
    });
    clients.extend((0..LIMIT).map(|_| connect().expect("it listens")));
    let open = || fs::read_dir(format!("/proc/{}/fd", server.id())).expect("it runs").count();
    wait_until("all descriptors are in use", || open() >= LIMIT);
    let (before, begun) = (cpu(server.id()), Instant::now());
    thread::sleep(Duration::from_secs(2));
    let share = (cpu(server.id()) - before) / begun.elapsed().as_secs_f64();
    assert!(share < 0.15, "a server that only waits uses {share} of a processor");
    clients.clear();
    let mut next = connect().expect("it listens");
    next.write_all(format!("{}\n", host.id).as_bytes()).unwrap();
    let mut offer = String::new();
    BufReader::new(&next).read_line(&mut offer).unwrap();
    assert!(offer.contains(&host.id), "{offer}");
    drop(next);
    server.end().is(0, &[]);
}
