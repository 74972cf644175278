//! A server as its owner starts it.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::rig::{Child, Host, Pair, Server, bytes, write};

#[test]
fn the_ready_line_has_one_form() {
    let scratch = tempfile::tempdir().unwrap();
    let host = Host::new(&scratch.path().join("config"));
    let root = scratch.path().to_str().unwrap();
    let words = ["serve", "--listen", "127.0.0.1:0", "--root", root, "--allow", &host.id];
    let mut server = Child::spawn(&mut host.command(words));
    let line = server.line().expect("it says that it is ready");
    let rest = line.strip_prefix(&format!("longhaul serving {root} on 127.0.0.1:")).expect(&line);
    let rest = rest.strip_suffix(&format!(") as {}", host.id)).expect(&line);
    let (port, data) = rest.split_once(" (data ").expect(&line);
    let (port, data): (u16, u16) = (port.parse().expect(&line), data.parse().expect(&line));
    assert!(port > 0 && data > 0, "{line}");
    // Both are taken.
    for port in [port, data] {
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_err(), "{line}");
    }
    server.signal(rustix::process::Signal::TERM);
    let ended = server.end();
    ended.is(0, &[]);
    assert_eq!(ended.stdout, [line]);
}

#[test]
fn once_is_one_transfer_and_a_stranger_s_is_none() {
    for pull in [false, true] {
        let mut pair = Pair::with(&["--once"]);
        write(&pair.here.join("file"), &bytes(2_000_000, 1));
        write(&pair.there.join("source"), &bytes(2_000_000, 1));
        let stranger = Host::new(&pair.scratch.path().join("stranger"));
        let id = format!("--server-id={}", pair.server.id);
        let source = pair.at("source");
        let words = crate::rig::words(&[&"cp", &id, &source, &"stolen"]);
        Child::spawn(stranger.command(words).current_dir(&pair.here)).end().is(3, &[]);
        match pull {
            true => pair.cp(&[&pair.at("source"), &"copy"]).summary(),
            false => pair.cp(&[&"file", &pair.at("copy")]).summary(),
        };
        let folder = if pull { &pair.here } else { &pair.there };
        assert!(fs::read(folder.join("copy")).unwrap() == bytes(2_000_000, 1), "{pull}");
        let after = pair.at("again");
        pair.server.child().ended().is(0, &[]);
        pair.cp(&[&"--retry-for=0s", &"file", &after]).is(3, &["cannot reach"]);
    }
}

#[test]
fn a_mode_that_is_unknown_or_a_subfolder_that_is_not_there_ends_a_server_at_its_start() {
    let scratch = tempfile::tempdir().unwrap();
    let host = Host::new(&scratch.path().join("config"));
    fs::create_dir(scratch.path().join("xx")).unwrap();
    for (rights, status, said) in [
        (":xx", 2, "`xx` is no mode; write `rw:xx` if it is a folder"),
        (":read", 2, "`read` is no mode"),
        (":ro:not/there", 4, "not/there: No such file"),
        (":not-there", 4, "not-there: No such file"),
    ] {
        let allowed = format!("{}{rights}", host.id);
        let words = Server::words("127.0.0.1:0", scratch.path(), &["--allow", &allowed]);
        let ended = Child::spawn(&mut host.command(words)).end();
        ended.is(status, &[said]);
        assert!(ended.stdout.is_empty(), "it says that it is ready: {ended}");
    }
}

#[test]
fn a_mode_in_capitals_is_that_mode_and_not_a_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let (host, client) =
        (Host::new(&scratch.path().join("server")), Host::new(&scratch.path().join("client")));
    let root = scratch.path().join("root");
    fs::create_dir_all(root.join("RO")).unwrap();
    write(&scratch.path().join("file"), b"f");
    let server = Server::start(&host, &root, &["--allow", &format!("{}:RO", client.id)]);
    let id = format!("--server-id={}", server.id);
    let words = crate::rig::words(&[&"cp", &id, &"file", &server.at("file")]);
    let ended = Child::spawn(client.command(words).current_dir(scratch.path())).end();
    ended.is(3, &["may not write here"]);
    assert!(fs::read_dir(root.join("RO")).unwrap().next().is_none());
}

#[test]
fn the_data_port_may_be_another_than_the_next() {
    let free = UdpSocket::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let pair = Pair::with(&["--data-port", &free.to_string()]);
    assert_eq!(pair.server.data_port, free);
    write(&pair.here.join("file"), &bytes(2_000_000, 1));
    let port = format!("--data-port={free}");
    for flags in [&["--rate=200M", &port][..], &["--protocol=tcp"]] {
        let ended = pair.copy(flags, "file", pair.at("copy")).end();
        let due = if flags.len() == 2 { "rbudp" } else { "tcp" };
        assert_eq!(ended.summary()["protocol"], due, "{ended}");
        assert!(ended.events("fallback").is_empty(), "{ended}");
        fs::remove_file(pair.there.join("copy")).unwrap();
    }
}

/// `longhaul id` of somebody whose home is `home`.
fn id(home: &Path, xdg: Option<&Path>) -> String {
    let mut command = Command::new(crate::rig::binary());
    command.env_remove("LONGHAUL_CONFIG_DIR").env_remove("XDG_CONFIG_HOME").env("HOME", home);
    if let Some(xdg) = xdg {
        command.env("XDG_CONFIG_HOME", xdg);
    }
    command.arg("id").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = Child::spawn(&mut command).end();
    ended.is(0, &[]);
    ended.stdout[0].clone()
}

#[test]
fn an_identity_lies_in_the_user_s_configuration_folder_for_the_user_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let (home, xdg) = (scratch.path().join("home"), scratch.path().join("xdg"));
    fs::create_dir_all(&home).unwrap();
    let key = |folder: &Path| folder.join("longhaul/identity.key");
    let (first, second) = (id(&home, None), id(&home, Some(&xdg)));
    assert_ne!(first, second);
    for (folder, id_) in [(home.join(".config"), first), (xdg.clone(), second)] {
        let meta = fs::metadata(key(&folder)).expect("the key is there");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        let again = id(&home, (folder == xdg).then_some(&*xdg));
        assert_eq!(again, id_);
    }
}

#[test]
fn a_server_whose_ports_are_taken_says_which_and_what_to_do() {
    let pair = Pair::new();
    let words = Server::words(&pair.server.address, &pair.there, &["--allow", &pair.client.id]);
    let ended = Child::spawn(&mut pair.host.command(words)).end();
    ended.is(3, &[&pair.server.address, "--listen"]);
}
