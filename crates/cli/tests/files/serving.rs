//! A server from its owner's point of view.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::rig::{Child, Host, Pair, Server, bytes, write, write_private};

#[test]
fn the_ready_line_has_the_root_both_ports_and_the_id() {
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
    for port in [port, data] {
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_err(), "{line}");
    }
    server.signal(rustix::process::Signal::TERM);
    let ended = server.end();
    ended.is(0, &[]);
    assert_eq!(ended.stdout, [line]);
}

#[test]
fn a_server_with_the_flag_once_ends_after_one_transfer_and_does_not_count_refused_clients() {
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
fn a_server_does_not_start_with_an_unknown_mode_or_a_missing_subfolder() {
    let scratch = tempfile::tempdir().unwrap();
    let host = Host::new(&scratch.path().join("config"));
    fs::create_dir(scratch.path().join("xx")).unwrap();
    for (rights, status, said) in [
        (":xx", 2, "`xx` is not a mode; modes: ro, wo, rw; before a folder, write rw:"),
        (":read", 2, "`read` is not a mode"),
        (":ro:not/there", 4, "not/there: No such file"),
        (":rw:not-there", 4, "not-there: No such file"),
    ] {
        let allowed = format!("{}{rights}", host.id);
        let words = Server::words("127.0.0.1:0", scratch.path(), &["--allow", &allowed]);
        let ended = Child::spawn(&mut host.command(words)).end();
        ended.is(status, &[said]);
        assert_eq!(ended.events("error").len(), ended.stdout.len(), "it is ready: {ended}");
    }
}

#[test]
fn a_mode_in_capitals_is_a_mode_and_not_a_folder() {
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
fn the_data_port_need_not_follow_the_control_port() {
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
fn the_identity_stays_in_the_configuration_folder_and_only_the_user_can_read_it() {
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
fn the_error_for_an_occupied_port_names_the_address_and_the_flag_listen() {
    let pair = Pair::new();
    let words = Server::words(&pair.server.address, &pair.there, &["--allow", &pair.client.id]);
    let ended = Child::spawn(&mut pair.host.command(words)).end();
    ended.is(3, &[&pair.server.address, "--listen"]);
}

/// A pair whose server also reads a list of clients with the content `more`, and the path of that
/// list.
fn pair_by_file(scratch: &Path, more: &str) -> (Pair, std::path::PathBuf) {
    let file = scratch.join("allowed");
    write_private(&file, more);
    (Pair::with(&["--allow-file", file.to_str().unwrap()]), file)
}

#[test]
fn sighup_rereads_the_list_of_clients_and_an_invalid_list_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut pair, file) = pair_by_file(scratch.path(), "# nobody yet but --allow\n");
    write(&pair.there.join("source"), &bytes(1000, 1));
    let other = Host::new(&scratch.path().join("other"));
    let id = format!("--server-id={}", pair.server.id);
    let source = pair.at("source");
    let copy = |name: &str| {
        let words = crate::rig::words(&[&"cp", &"--retry-for=0s", &id, &source, &name]);
        Child::spawn(other.command(words).current_dir(&pair.here)).end()
    };
    copy("early").is(3, &["not allowed here"]);
    fs::write(&file, format!("{}:ro # the other one\n", other.id)).unwrap();
    pair.server.child().signal(rustix::process::Signal::HUP);
    pair.server.child().complaint("read ");
    copy("later").is(0, &[]);
    fs::write(&file, "lh1:nonsense\n").unwrap();
    pair.server.child().signal(rustix::process::Signal::HUP);
    pair.server.child().complaint("the old list stays in force");
    copy("last").is(0, &[]);
    pair.server.child().signal(rustix::process::Signal::TERM);
    pair.server.child().ended().is(0, &[]);
}

#[test]
fn a_revoked_right_ends_the_transfers_of_its_client_only() {
    let scratch = tempfile::tempdir().unwrap();
    let other = Host::new(&scratch.path().join("other"));
    let (mut pair, file) = pair_by_file(scratch.path(), &format!("{}\n", other.id));
    write(&pair.there.join("source"), &bytes(6_000_000, 1));
    let id = format!("--server-id={}", pair.server.id);
    let source = pair.at("source");
    let words = [&"cp" as &dyn AsRef<std::ffi::OsStr>, &"--json", &"--rate=10M", &id, &source];
    let words = |name| crate::rig::words(&[&words[..], &[name]].concat());
    let mut loses = Child::spawn(other.command(words(&"lost")).current_dir(&pair.here));
    let mut keeps = Child::spawn(pair.client.command(words(&"kept")).current_dir(&pair.here));
    loses.progressed(1);
    keeps.progressed(1);
    fs::write(&file, "# nobody\n").unwrap();
    pair.server.child().signal(rustix::process::Signal::HUP);
    loses.end().is(3, &["no longer allowed"]);
    keeps.end().is(0, &[]);
    assert!(fs::read(pair.here.join("kept")).unwrap() == bytes(6_000_000, 1));
    assert!(!pair.here.join("lost").exists());
}

#[test]
fn an_emptied_list_revokes_the_right_of_the_last_client() {
    let scratch = tempfile::tempdir().unwrap();
    let (host, client) =
        (Host::new(&scratch.path().join("server")), Host::new(&scratch.path().join("client")));
    let (root, file) = (scratch.path().join("root"), scratch.path().join("allowed"));
    write(&root.join("source"), &bytes(1000, 1));
    write_private(&file, &format!("{}\n", client.id));
    let mut server = Server::start(&host, &root, &["--allow-file", file.to_str().unwrap()]);
    let (id, source) = (format!("--server-id={}", server.id), server.at("source"));
    let copy = |name: &str| {
        let words = crate::rig::words(&[&"cp", &"--retry-for=0s", &id, &source, &name]);
        Child::spawn(client.command(words).current_dir(scratch.path())).end()
    };
    copy("early").is(0, &[]);
    fs::write(&file, "").unwrap();
    server.reload();
    copy("late").is(3, &["not allowed here"]);
}

#[test]
fn a_server_that_shuts_down_informs_its_clients() {
    for push in [false, true] {
        let mut pair = Pair::new();
        let folder = if push { &pair.here } else { &pair.there };
        write(&folder.join("source"), &bytes(20_000_000, 1));
        let (here, there) = (std::ffi::OsString::from("source"), pair.at("source"));
        let copy = std::ffi::OsString::from("copy");
        let (from, to) = if push { (here, pair.at("copy")) } else { (there, copy) };
        let mut copy = pair.start(&[&"--rate=10M", &"--retry-for=0s", &from, &to]);
        copy.progressed(1);
        pair.server.child().signal(rustix::process::Signal::TERM);
        copy.end().is(1, &["the server is shutting down"]);
        pair.server.child().ended().is(0, &[]);
    }
}
