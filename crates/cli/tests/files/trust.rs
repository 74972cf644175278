//! Which clients a server admits, and which servers a client trusts.

use std::ffi::OsStr;
use std::fs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_transfer::api::{Client, Identity, Trust, blocking};

use crate::rig::{Child, Ended, Host, Pair, bytes, content, write};

/// Pushes `file` as the client `host`. A `--server-id` comes only from `flags`.
fn copy(pair: &Pair, host: &Host, flags: &[&str]) -> Ended {
    let there = pair.at("");
    let words = ["cp", "--json"].iter().chain(flags).map(OsStr::new);
    let mut command = host.command(words.chain([OsStr::new("file"), &there]));
    Child::spawn(command.current_dir(&pair.here)).end()
}

fn pair() -> Pair {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(1000, 1));
    pair
}

#[test]
fn a_client_without_rights_gets_its_id_and_advice() {
    let pair = pair();
    let stranger = Host::new(&pair.scratch.path().join("stranger"));
    let ended = copy(&pair, &stranger, &["--accept-new"]);
    ended.is(3, &[&stranger.id, "--allow"]);
    assert_eq!(ended.last()["class"], "unreachable");
    assert!(content(&pair.there).is_empty());
}

#[test]
fn a_server_without_the_pinned_id_is_refused_and_gets_no_file() {
    let pair = pair();
    let other = Host::new(&pair.scratch.path().join("other"));
    let flag = format!("--server-id={}", other.id);
    copy(&pair, &pair.client, &[&flag]).is(3, &[&other.id, &pair.server.id]);
    assert!(content(&pair.there).is_empty());
    let wrong = copy(&pair, &pair.client, &["--server-id=lh1:nonsense"]);
    wrong.is(2, &["lh1:nonsense"]);
}

#[test]
fn a_new_server_is_refused_without_a_terminal_and_remembered_with_accept_new() {
    let pair = pair();
    let known = pair.client.config.join("known_servers");
    let refused = copy(&pair, &pair.client, &[]);
    refused.is(3, &[&pair.server.id, "--accept-new", "--server-id"]);
    assert!(!known.exists() && content(&pair.there).is_empty());
    copy(&pair, &pair.client, &["--accept-new"]).summary();
    let line = format!("{} {}", pair.server.address, pair.server.id);
    assert!(fs::read_to_string(&known).unwrap().contains(&line));
    copy(&pair, &pair.client, &[]).summary();
}

#[test]
fn a_changed_key_is_refused_with_a_warning_that_names_the_line() {
    let pair = pair();
    let other = Host::new(&pair.scratch.path().join("other"));
    let known = pair.client.config.join("known_servers");
    fs::write(&known, format!("# mine\n\n{} {}\n", pair.server.address, other.id)).unwrap();
    for flags in [&[][..], &["--accept-new"]] {
        let ended = copy(&pair, &pair.client, flags);
        let place = format!("{} line 3", known.display());
        ended.is(3, &["HAS CHANGED", &place, &pair.server.id, &other.id]);
    }
    assert!(content(&pair.there).is_empty());
}

#[test]
fn a_malformed_known_servers_file_trusts_no_server() {
    let pair = pair();
    let known = pair.client.config.join("known_servers");
    fs::write(&known, "nonsense\n").unwrap();
    copy(&pair, &pair.client, &["--accept-new"]).is(4, &["known_servers line 1"]);
    assert!(content(&pair.there).is_empty());
}

#[test]
fn allowed_ids_may_be_in_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let list = scratch.path().join("allowed");
    let client = Host::new(&scratch.path().join("client"));
    fs::write(&list, format!("# who\n{}:ro # reads\n", client.id)).unwrap();
    let pair = Pair::with(&["--allow-file", list.to_str().unwrap()]);
    write(&pair.there.join("file"), b"f");
    write(&pair.here.join("file"), b"f");
    copy(&pair, &client, &["--accept-new"]).is(3, &["may not write"]);
    let id = format!("--server-id={}", pair.server.id);
    let from = pair.at("file");
    let words = [OsStr::new("cp"), OsStr::new(&id), &from, OsStr::new("back")];
    Child::spawn(client.command(words).current_dir(&pair.here)).end().is(0, &[]);
    assert_eq!(fs::read(pair.here.join("back")).unwrap(), b"f");
}

#[test]
fn a_private_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let pair = pair();
    let key = fs::read_dir(&pair.client.config).unwrap().map(|entry| entry.unwrap().path());
    let key = key.last().unwrap();
    let mode = fs::metadata(&key).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{key:?}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = copy(&pair, &pair.client, &["--accept-new"]);
    ended.is(4, &[key.to_str().unwrap(), "chmod"]);
}

#[test]
fn a_list_or_a_key_that_others_can_change_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let set_mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let pair = pair();
    let folder = pair.scratch.path().join("lists");
    let list = folder.join("allowed");
    write(&list, format!("{}\n", pair.client.id).as_bytes());
    let flags = ["--allow-file", list.to_str().unwrap()];
    let words = crate::rig::Server::words("127.0.0.1:0", &pair.there, &flags);
    for (of_folder, of_list, named) in [(0o755, 0o664, &list), (0o777, 0o644, &folder)] {
        set_mode(&folder, of_folder);
        set_mode(&list, of_list);
        let ended = Child::spawn(&mut pair.host.command(&words)).end();
        ended.is(4, &[&format!("{} can be written by others", named.display()), "chmod go-w"]);
    }
    set_mode(&pair.client.config, 0o770);
    let ended = copy(&pair, &pair.client, &["--accept-new"]);
    ended.is(4, &[pair.client.config.to_str().unwrap(), "chmod go-w"]);
    assert!(content(&pair.there).is_empty());
}

#[test]
fn two_ids_for_one_server_are_refused_with_both_line_numbers() {
    let pair = pair();
    let known = pair.client.config.join("known_servers");
    let other = Host::new(&pair.scratch.path().join("other"));
    let line = |id: &str| format!("{} {id}\n", pair.server.address);
    for ids in [[&pair.server.id, &other.id], [&other.id, &pair.server.id]] {
        fs::write(&known, ids.map(|id| line(id)).concat()).unwrap();
        let ended = copy(&pair, &pair.client, &["--accept-new"]);
        ended.is(4, &["two ids, in lines 1 and 2"]);
    }
    assert!(content(&pair.there).is_empty());
}

#[test]
fn the_configuration_sets_the_id_of_a_host_unless_the_command_line_does() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(1000, 1));
    let config = pair.client.config.join("config.toml");
    let copy = |id: &str, flags: &[&str]| {
        fs::write(&config, format!("[host.\"127.0.0.1\"]\nserver-id = \"{id}\"\n")).unwrap();
        let to = pair.at("copy");
        let mut command = pair.client.command(["cp"]);
        command.args(flags).arg("file").arg(&to).current_dir(&pair.here);
        crate::rig::Child::spawn(&mut command).end()
    };
    let (right, wrong) = (&pair.server.id[..], &pair.client.id[..]);
    copy(wrong, &[]).is(3, &[right]);
    copy(right, &[]).is(0, &[]);
    copy(wrong, &[&format!("--server-id={right}")]).is(0, &[]);
}

#[test]
fn the_copy_time_of_one_source_excludes_the_question_about_a_new_server() {
    let pair = pair();
    let identity = Identity::load_or_create(&pair.client.config).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let answer = asked.clone();
    let trust = Trust::ask(move |_| {
        let answer = answer.clone();
        async move {
            let asked = Instant::now();
            std::thread::sleep(Duration::from_millis(700));
            answer.store(asked.elapsed().as_nanos() as u64, Ordering::Relaxed);
            true
        }
    });
    let client = Client::builder().identity(identity).trust(trust).build().unwrap();
    let began = Instant::now();
    let copy =
        client.copy([pair.here.join("file").to_str().unwrap()], &*pair.at("").to_string_lossy());
    let summary = blocking::wait(copy.start().unwrap().finish()).unwrap();
    let all = began.elapsed().as_nanos() as u64;
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked > 0);
    assert!(summary.elapsed.as_nanos() + asked <= all, "{} {asked} {all}", summary.elapsed);
    assert!(summary.setup <= summary.elapsed);
}

#[test]
fn the_copy_time_of_several_sources_excludes_the_question_about_a_new_server() {
    let pair = pair();
    for name in ["a", "b"] {
        crate::rig::write(&pair.there.join(name), b"content");
    }
    let identity = Identity::load_or_create(&pair.client.config).unwrap();
    let trust = Trust::ask(move |_| async {
        std::thread::sleep(Duration::from_millis(700));
        true
    });
    let client = Client::builder().identity(identity).trust(trust).build().unwrap();
    let sources = ["a", "b"].map(|name| pair.at(name).to_string_lossy().into_owned());
    let began = Instant::now();
    let copy = client.copy(sources, pair.here.to_str().unwrap());
    let summary = blocking::wait(copy.start().unwrap().finish()).unwrap();
    let all = began.elapsed();
    assert!(summary.elapsed.as_nanos() + 700_000_000 <= all.as_nanos() as u64, "{all:?}");
}
