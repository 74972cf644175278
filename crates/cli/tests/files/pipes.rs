//! Pipes as the source or destination of a copy: `-`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::future::IntoFuture;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::AsyncRead;
use longhaul_proto::units::Bytes;
use longhaul_transfer::api::{Client, Identity, Trust, blocking};

use crate::rig::{Child, IMPATIENT, Pair, bytes, content, side_by_side, wait_until};

/// `cp ARGS` in the client's folder, not started yet.
fn cp(pair: &Pair, args: &[&dyn AsRef<OsStr>]) -> Command {
    let id = format!("--server-id={}", pair.server.id);
    let mut command = pair.client.command(["cp", &id]);
    command.args(args.iter().map(AsRef::as_ref)).current_dir(&pair.here);
    command
}

/// Runs a copy that reads `input`; returns its stdout and stderr.
fn piped(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    std::thread::scope(|scope| {
        // A refused copy need not read its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pipe_is_copied_into_a_file_and_a_file_into_a_pipe() {
    let pair = Pair::new();
    for size in [0, 5, (9 << 20) + 3] {
        let (sent, there) = (bytes(size, 3), pair.at("d.tar"));
        let output = piped(cp(&pair, &[&"-", &there]), &sent);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", said(&output));
        assert!(said(&output).contains("verified"), "{}", said(&output));
        assert!(fs::read(pair.there.join("d.tar")).expect("it is there") == sent, "{size} bytes");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
        fs::write(pair.scratch.path().join("new"), b"").expect("a new file");
        let new = mode(&pair.scratch.path().join("new"));
        assert_eq!(mode(&pair.there.join("d.tar")) & 0o777, new & 0o644, "{size} bytes");
        let output = piped(cp(&pair, &[&there, &"-"]), b"");
        assert!(output.status.success(), "{}", said(&output));
        assert!(output.stdout == sent, "{size} bytes: {} came", output.stdout.len());
        fs::remove_file(pair.there.join("d.tar")).expect("it is there");
    }
    assert!(content(&pair.here).is_empty(), "no file is left here");
}

#[test]
fn a_pipe_may_be_larger_than_the_memory_and_is_verified_as_a_whole() {
    let pair = Pair::new();
    // The content is sent in parts. The first has 1 MiB, the others have up to 2 MiB (a quarter of
    // the memory).
    for size in [32 << 20, (9 << 20) + 1] {
        let (sent, there) = (bytes(size, 4), pair.at("d/x"));
        fs::create_dir_all(pair.there.join("d")).expect("a new folder");
        fs::write(pair.there.join("d/x"), b"before").expect("a new file");
        let output = piped(cp(&pair, &[&"--memory=8Mi", &"--json", &"-", &there]), &sent);
        assert!(output.status.success(), "{}", said(&output));
        let events = String::from_utf8_lossy(&output.stdout);
        let last: serde_json::Value =
            serde_json::from_str(events.lines().last().expect("a summary")).expect("JSON");
        assert_eq!(last["blake3"], blake3::hash(&sent).to_hex().as_str(), "{last}");
        assert_eq!((&last["bytes"], &last["verified"]), (&size.into(), &true.into()), "{last}");
        assert!(fs::read(pair.there.join("d/x")).expect("it is there") == sent, "{size} bytes");
        assert_eq!(fs::read_dir(pair.there.join("d")).expect("it is there").count(), 1);
    }
}

#[test]
fn a_pipe_of_many_parts_does_not_exceed_the_requested_rate() {
    let (pair, sent) = (Pair::new(), bytes(12_000_000, 5));
    side_by_side([("--rate=20M", "x"), ("--bwlimit=20M", "y")], |(flag, name)| {
        let there = pair.at(name);
        let output = piped(cp(&pair, &[&"--memory=8Mi", &"--json", &flag, &"-", &there]), &sent);
        assert!(output.status.success(), "{}", said(&output));
        let events = String::from_utf8_lossy(&output.stdout);
        let last: serde_json::Value =
            serde_json::from_str(events.lines().last().expect("a summary")).expect("JSON");
        let goodput = last["goodput_bps"].as_u64().expect("a rate");
        // The tolerance is 10 %.
        assert!(goodput <= 22_000_000, "{flag}: {last}");
    });
}

#[test]
fn a_pipe_of_one_part_gets_the_whole_rate() {
    let pair = Pair::new();
    let there = pair.at("x");
    let command = cp(&pair, &[&"--json", &"--rate=8M", &"-", &there]);
    let output = piped(command, &bytes(2_000_000, 5));
    assert!(output.status.success(), "{}", said(&output));
    let events = String::from_utf8_lossy(&output.stdout);
    let last: serde_json::Value =
        serde_json::from_str(events.lines().last().expect("a summary")).expect("JSON");
    // Two parts at a time would each get half of the rate. The goodput must exceed this half by
    // 10 %, the tolerance.
    assert!(last["goodput_bps"].as_u64().expect("a rate") > 4_400_000, "{last}");
}

/// Starts a pipe that does not end. Its content so far is longer than one part.
fn begun(pair: &Pair) -> (Child, ChildStdin) {
    let there = pair.at("x");
    let mut command = cp(pair, &[&"-v", &"--memory=8Mi", &"-", &there]);
    command.stdin(Stdio::piped());
    let mut copy = command.spawn().expect("the binary runs");
    let mut stdin = copy.stdin.take().expect("it is a pipe");
    stdin.write_all(&bytes(6 << 20, 5)).expect("it is read");
    (Child::adopt(copy), stdin)
}

fn names(folder: &Path) -> Vec<OsString> {
    let names = fs::read_dir(folder).expect("it is there");
    names.map(|name| name.expect("a name").file_name()).collect()
}

#[test]
fn a_pipe_leaves_its_destination_unchanged_if_client_or_server_is_killed() {
    let ends: [fn(); 2] = [kill_the_client_of_a_pipe, kill_the_server_of_a_pipe];
    side_by_side(ends, |end| end());
}

fn kill_the_client_of_a_pipe() {
    let pair = Pair::new();
    fs::write(pair.there.join("x"), b"before").expect("a new file");
    let (copy, stdin) = begun(&pair);
    wait_until("the pipe has begun", || names(&pair.there).len() == 2);
    copy.kill();
    drop(stdin);
    wait_until("the server gives it up", || names(&pair.there) == ["x"]);
    assert_eq!(fs::read(pair.there.join("x")).expect("it is there"), b"before");
}

fn kill_the_server_of_a_pipe() {
    let mut pair = Pair::new();
    let (mut copy, stdin) = begun(&pair);
    copy.complaint("connected to");
    pair.server.child().kill_group();
    copy.end().is(1, &["a pipe cannot resume"]);
    drop(stdin);
    assert!(!pair.there.join("x").exists());
}

#[test]
fn a_pipe_into_a_folder_or_without_the_right_to_write_is_refused() {
    let pair = Pair::new();
    fs::create_dir(pair.there.join("folder")).expect("a new folder");
    let there = pair.at("folder");
    let output = piped(cp(&pair, &[&"--memory=8Mi", &"-", &there]), &bytes(6 << 20, 5));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("is a folder"), "{}", said(&output));
    let pair = Pair::with_rights(":ro", &[]);
    let there = pair.at("x");
    let output = piped(cp(&pair, &[&"--memory=8Mi", &"-", &there]), &bytes(6 << 20, 5));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("may not write here"), "{}", said(&output));
    assert!(content(&pair.there).is_empty());
}

#[test]
fn a_failed_reader_leaves_no_file_after_few_or_many_bytes() {
    let mut pair = Pair::new();
    for brought in [100, 12 << 20] {
        let error = library(&pair, Broken { left: brought }, 8);
        let error = error.expect_err("the reader failed");
        assert!(error.to_string().contains("the producer failed"), "{error}");
        if brought > 100 {
            // The client's goodbye, not the session's idle limit, has ended the pipe.
            pair.server.child().complaint("the client disconnected before the end of its pipe");
        }
        wait_until("nothing is left", || {
            fs::read_dir(&pair.there).expect("it is there").next().is_none()
        });
    }
    let sent = bytes(12 << 20, 6);
    let summary = library(&pair, &sent[..], 8).expect("it is written");
    assert_eq!((summary.bytes, summary.files), (12 << 20, 1));
    assert!(fs::read(pair.there.join("x")).expect("it is there") == sent);
}

/// Writes `reader` to `x` by the library, with `memory` MiB of memory.
fn library(
    pair: &Pair,
    reader: impl AsyncRead + Send,
    memory: u64,
) -> Result<longhaul_transfer::summary::Summary, longhaul_transfer::api::Error> {
    let identity = Identity::load_or_create(&pair.client.config).expect("the client has one");
    let trust = Trust::only(pair.server.id.as_str());
    let client = Client::builder().identity(identity).trust(trust).build().expect("a client");
    let write = client.write(reader, pair.at("x"));
    blocking::wait(write.with(move |copy| copy.memory(Bytes::mebi(memory))).into_future())
}

/// A reader that fails after some bytes.
struct Broken {
    left: usize,
}

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = self.left.min(buf.len());
        buf[..read].fill(7);
        self.left -= read;
        Poll::Ready(if read > 0 { Ok(read) } else { Err(io::Error::other("the producer failed")) })
    }
}

#[test]
fn datagrams_and_tcp_streams_carry_a_file_larger_than_the_memory_into_a_pipe() {
    let pair = Pair::new();
    let (there, content) = (pair.at("x"), bytes((70 << 20) + 5, 4));
    fs::write(pair.there.join("x"), &content).expect("a new file");
    for protocol in ["rbudp", "tcp"] {
        let protocol = format!("--protocol={protocol}");
        let output = piped(cp(&pair, &[&"--memory=32Mi", &protocol, &there, &"-"]), b"");
        assert!(output.status.success(), "{}", said(&output));
        assert!(output.stdout == content, "{protocol}: {} came", output.stdout.len());
        let digest = blake3::hash(&content).to_hex();
        let output = piped(cp(&pair, &[&"-v", &protocol, &there, &"-"]), b"");
        assert!(said(&output).contains(digest.as_str()), "{}", said(&output));
    }
}

#[test]
fn holes_of_a_file_are_zeros_in_a_pipe() {
    let pair = Pair::new();
    let file = fs::File::create(pair.there.join("x")).expect("a new file");
    file.set_len(20 << 20).expect("there is room");
    std::os::unix::fs::FileExt::write_all_at(&file, b"content", 9 << 20).expect("there is room");
    let there = pair.at("x");
    let output = piped(cp(&pair, &[&there, &"-"]), b"");
    assert!(output.status.success(), "{}", said(&output));
    let content = fs::read(pair.there.join("x")).expect("it is there");
    assert!(output.stdout == content, "{} bytes came", output.stdout.len());
}

#[test]
fn a_slow_reader_of_a_pipe_is_no_stall_and_a_closed_pipe_ends_the_copy() {
    let pair = Pair::new();
    let (there, content) = (pair.at("x"), bytes(80 << 20, 4));
    fs::write(pair.there.join("x"), &content).expect("a new file");
    side_by_side([false, true], |leaves| {
        let args: [&dyn AsRef<OsStr>; 4] = [&"--stall=1s", &"--memory=32Mi", &there, &"-"];
        let mut command = cp(&pair, &args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut copy = command.spawn().expect("the binary runs");
        let mut out = copy.stdout.take().expect("it is a pipe");
        let mut first = vec![0; 1000];
        out.read_exact(&mut first).expect("it begins");
        // The pause is longer than the stall timeout of 1 s.
        std::thread::sleep(Duration::from_secs(3));
        if !leaves {
            out.read_to_end(&mut first).expect("it goes on");
            assert!(first == content, "{} bytes came", first.len());
        }
        drop(out);
        let ended = copy.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(if leaves { 4 } else { 0 }), "{}", said(&ended));
    });
}

#[test]
fn a_slow_reader_of_a_pipe_is_named_as_the_bottleneck() {
    let pair = Pair::new();
    let (there, len) = (pair.at("x"), 40 << 20);
    fs::write(pair.there.join("x"), bytes(len, 4)).expect("a new file");
    let mut command = cp(&pair, &[&"-v", &there, &"-"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut copy = command.spawn().expect("the binary runs");
    let mut out = copy.stdout.take().expect("it is a pipe");
    let mut piece = vec![0; 1 << 20];
    // The reader takes at most 20 MiB/s.
    for _ in 0..len >> 20 {
        out.read_exact(&mut piece).expect("it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(out);
    let ended = copy.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{}", said(&ended));
    assert!(said(&ended).contains("bound    by writing at the destination"), "{}", said(&ended));
}

#[test]
fn a_copy_that_mostly_waits_for_the_input_of_a_pipe_names_no_bottleneck() {
    let pair = Pair::new();
    let there = pair.at("x");
    // Each of two parts takes less than a second at its half of the rate.
    let mut command = cp(&pair, &[&"--json", &"--memory=8Mi", &"--rate=20M", &"-", &there]);
    let mut copy = command.stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = copy.stdin.take().expect("it is a pipe");
    stdin.write_all(&bytes(2 << 20, 5)).expect("it is read");
    std::thread::sleep(Duration::from_secs(4));
    drop(stdin);
    let ended = Child::adopt(copy).end();
    assert_eq!(ended.summary()["bound_by"], "nothing", "{ended}");
}

#[test]
fn events_and_the_content_do_not_share_standard_output() {
    let pair = Pair::new();
    fs::write(pair.there.join("x"), b"content").expect("a new file");
    let there = pair.at("x");
    let output = piped(cp(&pair, &[&"--json", &there, &"-"]), b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("would be mixed"), "{}", said(&output));
}

#[test]
fn a_copy_into_a_pipe_reports_that_it_cannot_resume_after_its_server_is_killed() {
    let mut pair = Pair::new();
    fs::write(pair.there.join("x"), bytes(20 << 20, 5)).expect("a new file");
    let there = pair.at("x");
    let mut copy = Child::spawn(&mut cp(&pair, &[&"-v", &IMPATIENT, &"--rate=20M", &there, &"-"]));
    copy.complaint("connected to");
    pair.server.child().kill_group();
    copy.end().is(7, &["a pipe cannot resume"]);
}
