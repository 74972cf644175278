//! Pipes as one end of a copy: `-`.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::rig::{Child, Pair, bytes, content};

/// `cp` as the client, trusting this server.
fn cp(pair: &Pair, args: &[&dyn AsRef<OsStr>]) -> Command {
    let id = format!("--server-id={}", pair.server.id);
    let mut command = pair.client.command(["cp", &id]);
    command.args(args.iter().map(AsRef::as_ref)).current_dir(&pair.here);
    command
}

/// Runs a copy that reads `input`; both of its outputs.
fn piped(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    std::thread::scope(|scope| {
        // A copy that is refused may not read its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pipe_is_written_into_a_file_and_a_file_into_a_pipe() {
    let pair = Pair::new();
    // The larger one has a journal.
    for size in [0, 5, (9 << 20) + 3] {
        let (sent, there) = (bytes(size, 3), pair.at("d.tar"));
        let output = piped(cp(&pair, &[&"-", &there]), &sent);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", said(&output));
        assert!(said(&output).contains("verified"), "{}", said(&output));
        assert!(fs::read(pair.there.join("d.tar")).expect("it is there") == sent, "{size} bytes");
        let output = piped(cp(&pair, &[&there, &"-"]), b"");
        assert!(output.status.success(), "{}", said(&output));
        assert!(output.stdout == sent, "{size} bytes: {} came", output.stdout.len());
        fs::remove_file(pair.there.join("d.tar")).expect("it is there");
    }
    assert!(content(&pair.here).is_empty(), "no file is left here");
}

#[test]
fn what_does_not_fit_the_memory_is_refused_and_nothing_is_written() {
    let pair = Pair::new();
    let large = bytes((32 << 20) + 1, 4);
    let there = pair.at("x");
    let output = piped(cp(&pair, &[&"--memory=32Mi", &"-", &there]), &large);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("brings more than --memory"), "{}", said(&output));
    assert!(content(&pair.there).is_empty());
    fs::write(pair.there.join("x"), &large).expect("a new file");
    let output = piped(cp(&pair, &[&"--memory=32Mi", &there, &"-"]), b"");
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("x does not fit --memory"), "{}", said(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn events_and_the_content_do_not_share_standard_output() {
    let pair = Pair::new();
    fs::write(pair.there.join("x"), b"content").expect("a new file");
    let there = pair.at("x");
    let output = piped(cp(&pair, &[&"--json", &there, &"-"]), b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("would mix"), "{}", said(&output));
}

#[test]
fn a_pipe_whose_server_is_gone_says_that_it_cannot_resume() {
    let mut pair = Pair::new();
    fs::write(pair.there.join("x"), bytes(20 << 20, 5)).expect("a new file");
    let there = pair.at("x");
    let mut copy =
        Child::spawn(&mut cp(&pair, &[&"-v", &"--retry-for=0s", &"--rate=20M", &there, &"-"]));
    copy.complaint("connected to");
    pair.server.child().kill_group();
    copy.end().is(1, &["a pipe cannot resume"]);
}
