//! A killed server, a frozen client or server, a slow receiver, and disks that hang or are slow. In
//! the names of tests, `stall` is the limit of `--stall` on the time without progress.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{WAYS, Way};
use crate::rig::slow::{HANGS, as_words, slow_calls, traced};
use crate::rig::{Child, Pair, Server, Skipped, bytes, need, peak, side_by_side, write};

fn pair(len: usize) -> (Pair, Vec<u8>) {
    let (pair, content) = (Pair::in_memory(&[]), bytes(len, 5));
    write(&pair.here.join("object"), &content);
    write(&pair.there.join("source"), &content);
    (pair, content)
}

fn start(pair: &Pair, way: Way, args: &[&str]) -> Child {
    let (from, to) = match way {
        Way::Push => ("object".into(), pair.at("copy")),
        Way::Pull => (pair.at("source"), "copy".into()),
    };
    let mut command = pair.cp_command(&[&from, &to]);
    Child::spawn(command.args(args))
}

#[track_caller]
fn assert_copied(pair: &Pair, way: Way, content: &[u8]) {
    let folder = if way == Way::Push { &pair.there } else { &pair.here };
    assert!(std::fs::read(folder.join("copy")).expect("it was copied") == content, "{way:?}");
}

#[test]
fn a_client_reconnects_to_a_restarted_server_without_user_action() {
    side_by_side(WAYS, |way| {
        let (mut pair, content) = pair(30_000_000);
        let mut copy = start(&pair, way, &["--rate=60M", "--retry-for=90s"]);
        copy.progressed(8_000_000);
        let address = pair.server.address.clone();
        pair.server.child().signal(Signal::KILL);
        copy.event(|event| event["event"] == "progress");
        let words = Server::words(&address, &pair.there, &["--allow", &pair.client.id]);
        pair.server = Server::start_as(&mut pair.host.command(words));
        let ended = copy.end();
        assert_eq!(ended.summary()["bound_by"], "rate", "{way:?} {ended}");
        assert!(!ended.events("reconnecting").is_empty(), "{way:?} {ended}");
        // The kill loses the part of the 8 MB that was not yet on the disk.
        assert!(ended.taken_up() >= 4_000_000, "{way:?} {ended}");
        assert_copied(&pair, way, &content);
    });
}

#[test]
fn a_frozen_client_resumes() {
    let (pair, content) = pair(20_000_000);
    let mut copy = start(&pair, Way::Push, &["--rate=60M"]);
    copy.progressed(5_000_000);
    copy.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(4));
    copy.signal(Signal::CONT);
    let ended = copy.end();
    assert_eq!(ended.summary()["protocol"], "rbudp", "{ended}");
    assert_copied(&pair, Way::Push, &content);
}

#[test]
fn the_client_gives_up_a_frozen_server_after_stall() {
    side_by_side(WAYS, |way| {
        let (mut pair, _) = pair(20_000_000);
        let mut copy = start(&pair, way, &["--rate=60M", "--stall=3s"]);
        copy.progressed(5_000_000);
        pair.server.child().signal(Signal::STOP);
        let ended = copy.end();
        ended.is(7, &["3 s", "same command"]);
        pair.server.child().signal(Signal::CONT);
    });
}

pub(super) fn slow_down(id: u32, on: Duration, off: Duration, over: &AtomicBool) {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a child has a number");
    while !over.load(Ordering::Relaxed) {
        let _ = kill_process(pid, Signal::STOP);
        thread::sleep(off);
        let _ = kill_process(pid, Signal::CONT);
        thread::sleep(on);
    }
}

#[test]
fn a_receiver_that_runs_a_tenth_of_the_time_gets_a_complete_copy_in_bounded_memory() {
    const MEMORY: u64 = 32 << 20;
    const OBJECT: usize = 100_000_000;
    let mut pair = Pair::in_memory(&["--memory", "32Mi"]);
    let content = bytes(OBJECT, 5);
    write(&pair.here.join("object"), &content);
    // A small copy first, to measure the memory of the program itself.
    write(&pair.here.join("little"), b"l");
    pair.cp(&[&"little", &pair.at("little")]).summary();
    let id = pair.server.child().id();
    let before = peak(id);
    let over = AtomicBool::new(false);
    let stop = &over;
    let ended = thread::scope(|scope| {
        let mut copy = start(&pair, Way::Push, &["--rate=160M"]);
        copy.event(|event| event["event"] == "connected");
        let (on, off) = (Duration::from_millis(30), Duration::from_millis(270));
        scope.spawn(move || slow_down(id, on, off, stop));
        let ended = copy.end();
        over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert_copied(&pair, Way::Push, &content);
    let more = peak(id) - before;
    // 24 MiB besides the limit: stacks, batches of datagrams, memory that the allocator keeps.
    assert!(more < MEMORY + (24 << 20), "{more} bytes more than {before}");
}

/// Freezes the server during a copy until its socket buffer overflows. Returns how many datagrams
/// the server reports as missing, and how many as dropped by its own host.
fn lost_while_frozen(object: usize, datagram: u64) -> (u64, u64) {
    let (mut pair, content) = pair(object);
    let each = format!("--datagram={datagram}");
    let mut copy = start(&pair, Way::Push, &["--rate=400M", &each]);
    let before = copy.progressed(20_000_000)["sent"].as_u64().expect("it is a count");
    let server = pair.server.child();
    server.signal(Signal::STOP);
    // Meanwhile 5/8 of the object (100 MB) are sent.
    let enough = before + object as u64 * 5 / 8 / datagram;
    copy.event(|event| event["sent"].as_u64() >= Some(enough));
    server.signal(Signal::CONT);
    let ended = copy.end();
    let summary = ended.summary();
    let count = |name: &str| summary[name].as_u64().expect("it is a count");
    assert!(count("socket_lost") * datagram > 9_000_000, "{ended}");
    assert_copied(&pair, Way::Push, &content);
    (count("path_lost"), count("socket_lost") + count("memory_lost"))
}

#[test]
fn kernel_drops_at_a_frozen_receiver_count_as_socket_losses() {
    // The kernel merges datagrams into buffers, and counts a dropped buffer once. longhaul
    // multiplies this count by the average number of datagrams in a received buffer. Datagrams of
    // 40,000 bytes are too large to be merged, so the product is nearly exact.
    let (missing, own) = lost_while_frozen(160_000_000, 40_000);
    assert!(missing <= own + 10 && own <= missing * 9 / 8, "{own} of {missing}");
    // Datagrams of 8900 bytes are merged. A dropped buffer may hold twice as many as a received
    // one.
    let (missing, own) = lost_while_frozen(160_000_000, 8900);
    assert!(missing <= own * 2, "{own} of {missing}");
}

/// Returns a command that runs a program and makes each of its writes `millis` milliseconds longer.
pub(super) fn slow_disk(millis: u32) -> Result<Vec<String>, Skipped> {
    slow_calls("pwrite64", millis * 1000)
}

pub(super) fn serve_slowly(pair: &mut Pair, slow: &[String], memory: &str) {
    let mut words = Server::words("127.0.0.1:0", &pair.there, &["--memory", memory, "--allow"]);
    words.push(pair.client.id.clone().into());
    pair.server = Server::start_as(&mut pair.host.wrapped(&as_words(slow), words));
}

#[test]
fn a_disk_slower_than_the_network_slows_the_sender_which_wastes_little() {
    // Each write of 1 MiB takes 60 ms longer, so the disk writes at most 17.5 MB/s.
    let slow = need!(slow_disk(60));
    let (mut pair, content) = pair(90_000_000);
    serve_slowly(&mut pair, &slow, "32Mi");
    let ended = start(&pair, Way::Push, &["--rate=400M"]).end();
    let summary = ended.summary();
    assert_eq!(summary["bound_by"], "destination-disk", "{ended}");
    assert!(summary["waste"].as_f64() < Some(0.05), "{ended}");
    assert_copied(&pair, Way::Push, &content);
}

#[test]
fn a_remote_disk_that_hangs_before_the_first_data_ends_the_copy_after_stall() {
    // The disk hangs at the creation of the partial file, or while the source is walked.
    let calls = [(Way::Push, "ftruncate"), (Way::Pull, "getdents64")];
    for (way, call) in calls {
        let hangs = need!(slow_calls(call, HANGS));
        let (mut pair, _) = pair(20_000_000);
        write(&pair.there.join("tree/file"), b"f");
        serve_slowly(&mut pair, &hangs, "32Mi");
        let copy = match way {
            Way::Push => start(&pair, way, &["--stall=3s"]),
            Way::Pull => pair.start(&[&"-r", &"--stall=3s", &pair.at("tree"), &"."]),
        };
        copy.end().is(7, &["3 s", "neither disk made progress", "same command"]);
    }
}

#[test]
fn a_local_disk_that_hangs_before_the_first_data_ends_the_copy_after_stall() {
    let hangs = need!(slow_calls("ftruncate", HANGS));
    let (pair, _) = pair(20_000_000);
    let id = format!("--server-id={}", pair.server.id);
    let from = pair.at("source");
    let words = crate::rig::words(&[&"cp", &"--json", &id, &"--stall=3s", &from, &"copy"]);
    let mut command = pair.client.wrapped(&as_words(&hangs), words);
    let mut copy = Child::spawn(command.current_dir(&pair.here));
    let last = copy.event(|event| event["event"] == "error");
    assert_eq!((&last["status"], &last["class"]), (&7.into(), &"stalled".into()), "{last}");
}

#[test]
fn the_walk_of_a_hung_local_disk_ends_after_stall_or_on_a_signal() {
    let hangs = need!(slow_calls("getdents64", HANGS));
    let (pair, _) = pair(1);
    write(&pair.here.join("tree/file"), b"f");
    let id = format!("--server-id={}", pair.server.id);
    let start = |stall: &str| {
        let to = pair.at("");
        let words = crate::rig::words(&[&"cp", &"--json", &id, &stall, &"-r", &"tree", &to]);
        let mut command = pair.client.wrapped(&as_words(&hangs), words);
        Child::spawn(command.current_dir(&pair.here))
    };
    let last = start("--stall=3s").event(|event| event["event"] == "error");
    assert_eq!((&last["status"], &last["class"]), (&7.into(), &"stalled".into()), "{last}");
    let mut copy = start("--stall=600s");
    copy.event(|event| event["event"] == "progress");
    let traced = i32::try_from(traced(copy.id())).ok().and_then(Pid::from_raw);
    kill_process(traced.expect("a child has a number"), Signal::INT).expect("it is ours");
    let last = copy.event(|event| event["event"] == "error");
    assert_eq!((&last["status"], &last["class"]), (&130.into(), &"interrupted".into()), "{last}");
}

#[test]
fn hashing_existing_data_for_longer_than_stall_is_no_stall() {
    const CHUNKS: usize = 16;
    // Reading the 15 existing chunks takes 6 s longer, which exceeds the stall timeout of 4 s.
    let slow = need!(slow_calls("pread64", 400_000));
    let (mut pair, content) = pair(CHUNKS << 20);
    // The existing file has no journal, so all of it is read.
    write(&pair.there.join(".copy.lh-part"), &content[..(CHUNKS - 1) << 20]);
    serve_slowly(&mut pair, &slow, "32Mi");
    let ended = start(&pair, Way::Push, &["--stall=4s"]).end();
    assert_eq!(ended.summary()["verified"], true, "{ended}");
    assert!(ended.summary()["seconds"].as_f64() > Some(4.0), "{ended}");
    assert_copied(&pair, Way::Push, &content);
}

#[test]
fn a_slow_source_disk_limits_a_copy() {
    copy_from_a_slow_disk(["--protocol=rbudp", "--rate=400M"]);
}

#[test]
fn a_slow_source_disk_limits_a_copy_by_streams() {
    // No `--rate`: the pauses of a rate limit would hide the pauses of the disk.
    copy_from_a_slow_disk(["--protocol=tcp", "--streams=4"]);
}

fn copy_from_a_slow_disk(flags: [&str; 2]) {
    // Each read of a chunk takes 40 ms longer, so the disk reads at most 26.3 MB/s.
    let slow = need!(slow_calls("pread64", 40_000));
    let (pair, content) = pair(40_000_000);
    let id = format!("--server-id={}", pair.server.id);
    let (to, [by, how]) = (pair.at("copy"), flags);
    let words = crate::rig::words(&[&"cp", &"--json", &id, &by, &how, &"object", &to]);
    let mut command = pair.client.wrapped(&as_words(&slow), words);
    let ended = Child::spawn(command.current_dir(&pair.here)).end();
    assert_eq!(ended.summary()["bound_by"], "source-disk", "{ended}");
    assert_copied(&pair, Way::Push, &content);
}

#[test]
fn the_creation_of_files_limits_a_copy_of_many_small_files() {
    // Each file takes 4 ms longer to get its name.
    let slow = need!(slow_calls("renameat,renameat2,linkat", 4_000));
    let mut pair = Pair::new();
    for n in 0..1000 {
        write(&pair.here.join(format!("tree/{n}")), &bytes(1000, n));
    }
    serve_slowly(&mut pair, &slow, "512Mi");
    for protocol in ["--protocol=rbudp", "--protocol=tcp"] {
        let ended = pair.cp(&[&"-r", &protocol, &"tree/", &pair.at(protocol)]);
        assert_eq!(ended.summary()["bound_by"], "small-files", "{ended}");
        crate::rig::assert_same(&pair.here.join("tree"), &pair.there.join(protocol));
    }
}

#[test]
fn three_copies_onto_a_slow_disk_lose_nothing_for_want_of_memory() {
    // Each copy reserves 32 of the 64 MiB, and the other 32 MiB stay free for other clients. So the
    // copies of this client run one after another.
    let slow = need!(slow_disk(60));
    let (mut pair, content) = pair(60_000_000);
    serve_slowly(&mut pair, &slow, "64Mi");
    let server = traced(pair.server.child().id());
    let names = ["one", "two", "three"];
    let copies = names
        .map(|name| Child::spawn(pair.cp_command(&[&"object", &pair.at(name)]).arg("--rate=400M")));
    for ended in copies.map(Child::end) {
        let summary = ended.summary();
        assert_eq!(summary["memory_lost"], 0, "{ended}");
        assert_eq!(summary["verified"], true, "{ended}");
    }
    // The peak is the limit, plus at most 64 MB of datagrams that arrive before their flow is
    // known, plus at most 64 MB for the program itself.
    let peak = peak(server);
    assert!(peak < (64 << 20) + 128_000_000, "{peak} bytes");
    for name in names {
        assert!(std::fs::read(pair.there.join(name)).expect("it was copied") == content);
    }
}

#[test]
fn a_slow_disk_slows_streams_and_their_chunks_wait_in_bounded_memory() {
    // Each write of 1 MiB takes 20 ms longer, so the disk writes at most 52.5 MB/s.
    let slow = need!(slow_disk(20));
    let (mut pair, content) = pair(200_000_000);
    serve_slowly(&mut pair, &slow, "32Mi");
    let server = traced(pair.server.child().id());
    let ended = start(&pair, Way::Push, &["--protocol=tcp"]).end();
    assert_eq!(ended.summary()["bound_by"], "destination-disk", "{ended}");
    let peak = peak(server);
    // The peak is the limit of 32 MiB, plus at most 94 MB for the program itself.
    assert!(peak < 128_000_000, "{peak} bytes: {ended}");
    assert_copied(&pair, Way::Push, &content);
}
