//! However a run ends, it leaves no process on its hosts.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{command, emulate, piped, scenario, started, until_none_is_left};
use crate::rig::{Child, DEADLINE, need};

#[test]
fn a_program_killed_by_a_signal_gives_the_status_that_a_shell_gives() {
    let ended = need!(emulate(&["--quiet", "--", "sh", "-c", "kill -9 $$"]));
    ended.is(137, &[]);
}

/// The processes in the network namespace `name`, which is written as `readlink` prints it.
fn inhabitants(name: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it is there").flatten();
    let links = entries.filter(|entry| {
        fs::read_link(entry.path().join("ns/net")).is_ok_and(|link| link.as_os_str() == name)
    });
    links.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn no_process_outlives_the_emulation() {
    let script = format!("echo started; readlink /proc/self/ns/net; {STUBBORN}");
    for signal in [Signal::KILL, Signal::TERM, Signal::HUP] {
        let mut child = need!(started(&["--run", "b", &script]));
        let host = child.line().expect("its namespace");
        assert!(host.starts_with("net:[") && !inhabitants(&host).is_empty(), "{host}");
        child.signal(signal);
        let ended = child.end();
        assert_ne!(ended.status, Some(0), "{ended}");
        until_none_is_left(|| inhabitants(&host));
    }
}

/// A shell and its children, which run for a day and ignore SIGTERM, SIGINT and SIGHUP.
const STUBBORN: &str = "trap '' TERM INT HUP; echo started; sleep 86323 & sleep 86323; wait";

#[test]
fn the_programs_of_a_killed_emulation_end() {
    let child = need!(started(&["--", "sh", "-c", STUBBORN]));
    // This call returns only when the last process with the run's stdout open has ended.
    child.kill();
}

#[test]
fn one_signal_or_two_end_a_stubborn_program() {
    for (signals, status) in [(&[Signal::INT][..], 130), (&[Signal::TERM, Signal::TERM], 143)] {
        let child = need!(started(&["--", "sh", "-c", STUBBORN]));
        signals.iter().for_each(|signal| child.signal(*signal));
        child.end().is(status, &["a > b: "]);
    }
}

#[test]
fn a_program_may_end_by_itself_after_a_signal() {
    let script = "trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.05; done";
    let child = need!(started(&["--", "sh", "-c", script]));
    child.signal(Signal::TERM);
    let ended = child.end();
    assert_eq!(ended.is(143, &[]).stdout, ["started", "bye"]);
}

#[test]
fn ctrl_c_at_any_moment_leaves_no_process_and_reports_no_success() {
    need!(emulate(&["--", "true"]));
    for millis in (0..60).step_by(4) {
        let child = Child::spawn(&mut command(&["--run", "b", STUBBORN, "--run", "a", STUBBORN]));
        std::thread::sleep(Duration::from_millis(millis));
        // The second signal ends the run without waiting for the programs.
        child.signal(Signal::INT);
        child.signal(Signal::INT);
        let ended = child.end();
        assert!(matches!(ended.status, None | Some(130)), "after {millis} ms: {ended}");
    }
}

/// The command of a run that ignores `signal` from its start, like a shell's background job.
fn deaf_to(signal: &str, args: &[&str]) -> Command {
    let script = format!("trap '' {signal}; exec \"$0\" \"$@\"");
    let program = [env!("CARGO_BIN_EXE_longhaul"), "emulate"];
    piped(Command::new("sh"), &[&["-c", &script], &program, args].concat())
}

#[test]
fn ctrl_c_works_during_the_setup_even_in_a_job_that_ignores_it() {
    need!(emulate(&["--", "true"]));
    let (_folder, file) = scenario("[topology]\nkind = \"star\"\nhosts = 60\n");
    for ignored in ["INT", "USR1"] {
        let child = Child::spawn(&mut deaf_to(ignored, &[&file, "--", "sh", "-c", STUBBORN]));
        // The setup starts a thread for each host, so a second thread shows that the setup began.
        let threads = format!("/proc/{}/task", child.id());
        let deadline = Instant::now() + DEADLINE;
        while fs::read_dir(&threads).expect("it runs").count() < 2 {
            assert!(Instant::now() < deadline, "no host is made");
        }
        child.signal(Signal::INT);
        let ended = child.end();
        assert_eq!(ended.is(130, &[]).stdout, [""; 0], "{ignored} ignored: {ended}");
    }
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    need!(emulate(&["--", "true"]));
    let mut child = Child::spawn(&mut deaf_to("HUP", &["--", "sh", "-c", STUBBORN]));
    assert_eq!(child.line().as_deref(), Some("started"));
    child.signal(Signal::HUP);
    child.signal(Signal::TERM);
    child.signal(Signal::TERM);
    child.end().is(143, &[]);
}

#[test]
fn a_program_that_hangs_is_ended_by_the_time_limit() {
    let args = ["--time-limit", "200ms", "--", "sh", "-c", STUBBORN];
    let ended = need!(emulate(&args));
    ended.is(124, &["time limit of 200.0 ms", "a > b: "]);
    let flow = format!("[[flow]]\nfrom = \"a\"\ncommand = \"{STUBBORN}\"\n");
    let text = format!("time-limit = \"200ms\"\n[topology]\nkind = \"pair\"\n{flow}");
    let (_folder, file) = scenario(&text);
    emulate(&[&file]).expect("as before").is(124, &["time limit"]);
}
