//! A server's messages to its service manager, and the systemd unit of the server.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::rig::{DEADLINE, Host, Server, need, skip, write_private};

/// The next message of a server to its service manager.
fn heard(manager: &UnixDatagram) -> String {
    manager.set_read_timeout(Some(DEADLINE)).expect("it may wait");
    let mut buffer = [0; 256];
    let len = manager.recv(&mut buffer).expect("the server tells its state");
    String::from_utf8(buffer[..len].to_vec()).expect("a state is text")
}

#[test]
fn a_server_notifies_the_service_manager_of_ready_reload_and_stop() {
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let host = Host::new(&scratch.path().join("config"));
    let allowed = scratch.path().join("allowed");
    write_private(&allowed, &format!("{}\n", host.id));
    let path = scratch.path().join("notify");
    // An abstract name is written with an @ in place of its first byte, which is zero.
    let name = path.to_str().expect("text").to_owned();
    let by_path = SocketAddr::from_pathname(&path).expect("it is short");
    let by_name = SocketAddr::from_abstract_name(&name).expect("it is short");
    for (address, variable) in [(by_path, name.clone()), (by_name, format!("@{name}"))] {
        let manager = UnixDatagram::bind_addr(&address).expect("nobody has this address");
        let list = allowed.to_str().expect("text");
        let words = Server::words("127.0.0.1:0", scratch.path(), &["--allow-file", list]);
        let mut command = host.command(words);
        let mut server = Server::start_as(command.env("NOTIFY_SOCKET", &variable));
        assert_eq!(heard(&manager), "READY=1", "{variable}");
        server.child().signal(Signal::HUP);
        let reloading = heard(&manager);
        let clock = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&reloading);
        assert!(clock.parse::<u64>().is_ok_and(|micros| micros > 0), "{reloading}");
        assert_eq!(heard(&manager), "READY=1", "{variable}");
        server.child().signal(Signal::TERM);
        assert_eq!(heard(&manager), "STOPPING=1", "{variable}");
        server.into_child().end().is(0, &[]);
    }
}

#[test]
fn systemd_finds_no_mistake_in_the_unit() {
    let has = Command::new("systemd-analyze").arg("--version").output().is_ok();
    need!(skip::unless(has, "there is no systemd-analyze here"));
    let unit = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/longhaul.service"));
    let text = fs::read_to_string(unit).expect("it is there");
    let scratch = tempfile::tempdir().expect("there is room for a folder");
    let here = scratch.path().join("longhaul.service");
    // The unit names /bin/sh in place of longhaul, because longhaul need not be installed here.
    let text = text.replace("/usr/bin/longhaul", "/bin/sh");
    fs::write(&here, text).expect("it is ours");
    let mut verify = Command::new("systemd-analyze");
    let said = verify.args(["verify", "--man=no"]).arg(&here).output().expect("it is there");
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && errors.is_empty(), "{errors}");
}
