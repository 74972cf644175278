//! `longhaul emulate` from the user's point of view.
#![cfg(target_os = "linux")]

mod by_ssh;
mod ends;
mod flows;
mod forbidden;
mod reproduced;
mod streams;

use std::fmt::Debug;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{Child, DEADLINE, Ended, Host, Skipped, Terminal, need, skip};

fn command(args: &[&str]) -> Command {
    piped(Command::new(env!("CARGO_BIN_EXE_longhaul")), &[&["emulate"], args].concat())
}

fn piped(mut command: Command, args: &[&str]) -> Command {
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until nothing is left. Polls, because no event reports the end.
fn until_none_is_left<T: Debug + Default + PartialEq>(left: impl Fn() -> T) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let found = left();
        if found == T::default() {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?} left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn emulate(args: &[&str]) -> Result<Ended, Skipped> {
    let ended = Child::spawn(&mut command(args)).end();
    // A program on a host may also end with 3.
    if ended.status == Some(3) && ended.stderr.contains("emulation is not possible here") {
        return Err(skip::forbidden(&ended.stderr));
    }
    Ok(ended)
}

/// Waits until the command has printed the line `started`.
fn started(args: &[&str]) -> Result<Child, Skipped> {
    emulate(&["--", "true"])?;
    let mut child = Child::spawn(&mut command(args));
    assert_eq!(child.line().as_deref(), Some("started"));
    Ok(child)
}

fn scenario(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("test.toml");
    fs::write(&file, text).expect("it can be written");
    let name = file.to_str().expect("plain letters").to_owned();
    (folder, name)
}

#[test]
fn output_and_status_of_a_command_pass_through_and_stderr_has_the_counters() {
    let script = "cat /etc/hosts; exit 7";
    let ended = need!(emulate(&["--rate", "1G", "--rtt", "10ms", "--", "sh", "-c", script]));
    ended.is(7, &["a > b: ", "b > a: ", "own drops", "late", "processor"]);
    assert!(ended.stdout.contains(&"10.77.0.2 b".to_owned()));
}

#[test]
fn the_emulation_ends_with_the_command_that_is_given_last() {
    let args = ["--run", "b", "sleep 86322", "--run", "a", "exit 5"];
    let ended = need!(emulate(&args));
    assert_eq!(ended.status, Some(5));
}

#[test]
fn a_terminal_gets_a_shell_on_the_first_host() {
    need!(emulate(&["--", "true"]));
    for words in [&["--rate", "1G", "--rtt", "10ms"][..], &["--", "bash"], &["--", "sh"]] {
        if words == ["--", "bash"] && have(&["bash"]).is_err() {
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.arg("emulate").args(words).env("SHELL", "/bin/sh");
        let mut screen = Terminal::start(command);
        screen.shows("you are on host a (10.77.0.1); across the network: b (10.77.0.2).");
        // `Terminal` discards stdout, so the text goes to stderr.
        screen.types("echo \"it is [$(uname -n)]\" >&2; exit 4\n");
        let (ended, text) = screen.end();
        assert_eq!(ended, Some(4), "{words:?}: {text}");
        assert!(text.contains("it is [a]") && text.contains("a > b: "), "{words:?}: {text}");
    }
}

#[test]
fn runs_start_in_the_order_in_which_they_are_given() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |nth: usize| folder.path().join(nth.to_string()).display().to_string();
    // Process ids of a namespace follow the order of the starts.
    let tell = |nth: usize| format!("echo $$ > {}", path(nth));
    let last = format!("until [ -s {} ] && [ -s {} ]; do sleep 0.02; done", path(0), path(1));
    let last = format!("{last}; {}", tell(2));
    let runs = ["--run", "b", &tell(0), "--run", "a", &tell(1), "--run", "b", &last];
    let ended = need!(emulate(&runs));
    ended.is(0, &[]);
    let number = |nth| -> u32 {
        let text = fs::read_to_string(path(nth)).expect("each command wrote its id");
        text.trim().parse().expect("a number")
    };
    let numbers = [0, 1, 2].map(number);
    assert!(numbers.is_sorted() && numbers[0] < numbers[2], "{numbers:?}");
}

#[test]
fn an_impossible_path_or_host_or_program_is_a_usage_error_with_the_reason() {
    let wrong: [(&[&str], &str); 6] = [
        (&["--rate", "1G", "--queue", "100B", "--", "true"], "smaller than a packet"),
        (&["--queue", "1bdp", "--", "true"], "needs --rate"),
        (&["--rate", "1G", "--queue", "1bdp", "--", "true"], "needs --rtt"),
        (&["--run", "c", "true"], "no emulated host is named c"),
        (&["--", "/no/such/program"], "/no/such/program"),
        (&["--rate=-1G", "--", "true"], "'-1G' is negative"),
    ];
    for (args, reason) in wrong {
        let ended = need!(emulate(args));
        ended.is(2, &[reason]);
    }
}

#[test]
fn a_scenario_that_cannot_be_read_is_a_file_error() {
    for (file, reason) in [("/no/such.toml", "No such file"), ("/dev/zero", "a device")] {
        let ended = Child::spawn(&mut command(&[file])).end();
        ended.is(4, &[&format!("{file} cannot be read"), reason]);
    }
}

#[test]
fn a_queue_of_less_than_a_packet_becomes_one_packet_with_a_notice() {
    // 64 kbit/s × 50 ms are 400 bytes; a full packet has 1538 bytes on the wire.
    let args = ["--rate", "64k", "--rtt", "50ms", "--queue", "1bdp", "--", "true"];
    let ended = need!(emulate(&args));
    ended.is(0, &["--queue 1bdp is 400 B here", "one packet, 1.54 kB"]);
    assert_eq!(ended.stderr.matches("one packet").count(), 1, "{ended}");
}

#[test]
fn a_host_that_no_link_leads_to_is_refused_with_its_line() {
    let text = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[host]]\nname = \"c\"\n\
        [[link]]\nbetween = [\"a\", \"b\"]\n";
    let (_folder, file) = scenario(text);
    let ended = Child::spawn(&mut command(&[&file, "--", "true"])).end();
    ended.is(2, &[&file, "line 5", "host c: no link connects it to another host"]);
}

#[test]
fn a_failed_command_is_reported_and_sets_the_status_while_others_continue() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let pid = folder.path().join("pid").display().to_string();
    let dies = format!("echo $$ > {pid}; exec /no/such/program");
    // Until the emulator has reaped the dead process, its id stays in use.
    let waits = format!(
        "until [ -s {pid} ]; do sleep 0.02; done; \
         while kill -0 $(cat {pid}) 2>/dev/null; do sleep 0.02; done; sleep 0.3; echo done"
    );
    let ended = need!(emulate(&["--run", "b", &dies, "--run", "a", &waits]));
    ended.is(127, &["on b, 'echo $$", "failed: exit status: 127"]);
    assert_eq!(ended.stdout, ["done"], "{ended}");
    let own = emulate(&["--run", "b", &dies, "--run", "a", &format!("{waits}; exit 5")]);
    own.expect("as before").is(5, &["failed: exit status: 127"]);
}

#[test]
fn a_program_sees_the_name_of_its_emulated_host_as_the_host_name() {
    let ended = need!(emulate(&["--run", "b", "uname -n"]));
    assert_eq!(ended.is(0, &[]).stdout, ["b"], "{ended}");
}

/// Skips the test if a program is missing.
fn have(programs: &[&str]) -> Result<(), Skipped> {
    let found = |program: &&str| {
        let known = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        known.is_ok_and(|known| known.status.success())
    };
    match programs.iter().find(|program| !found(program)) {
        None => Ok(()),
        Some(missing) => Err(skip::uninstalled(format!("{missing} is not installed here"))),
    }
}

#[test]
fn a_server_and_its_client_in_one_line_end_with_the_client() {
    need!(have(&["iperf3"]));
    let path = ["--rate", "1G", "--rtt", "100ms"];
    let runs = ["--run", "b", "iperf3 -s -1", "--run", "a", "iperf3 -c b -t 1"];
    for attempt in 1.. {
        let ended = need!(emulate(&[&path[..], &runs[..]].concat()));
        // On a busy machine the client may connect before the server listens.
        if ended.stderr.contains("refused") && attempt < 10 {
            continue;
        }
        let said = ended.is(0, &["a > b: "]).stdout.join("\n");
        assert!(said.contains("receiver") && said.contains("connected to"), "{ended}");
        break;
    }
}

#[test]
fn iperf3_measures_no_more_than_the_emulated_rate() {
    need!(have(&["iperf3"]));
    let args = ["--rate", "50M", "--rtt", "10ms", "--run", "b", "iperf3 -s > /dev/null"];
    let client = "until iperf3 -c b -t 1 -J > /dev/null; do sleep 0.1; done; iperf3 -c b -t 2 -J";
    let ended = need!(emulate(&[&args[..], &["--run", "a", client]].concat()));
    let report: Value = serde_json::from_str(&ended.is(0, &["a > b: "]).stdout.join("\n"))
        .expect("iperf3 -J prints JSON");
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
    // Of the 1538 bytes of a full packet, 1448 are TCP payload. The tolerance is 1 %.
    assert!(rate > 1e6 && rate < 50e6 * 1_448.0 / 1_538.0 * 1.01, "{rate}");
}

#[test]
fn a_scenario_creates_its_hosts_and_runs_its_commands_at_their_times() {
    let marks = tempfile::tempdir().expect("a folder can be made");
    let mark = marks.path().join("mark").display().to_string();
    let (_folder, file) = scenario(&format!(
        r#"
        [topology]
        kind = "dumbbell"
        left = 2
        right = 1
        bottleneck = {{ rate = "100M", delay = "1ms" }}
        [[flow]]
        from = "left2"
        start = "300ms"
        command = "echo $LONGHAUL_EMULATED_HOST; cat /etc/hosts; touch {mark}; exit 6"
        [[flow]]
        name = "bulk"
        from = "left1"
        to = "right1"
        protocol = "rbudp"
        [[flow]]
        from = "left1"
        command = "echo first; until [ -e {mark} ]; do sleep 0.05; done; exit 9"
        "#
    ));
    let ended = need!(emulate(&[&file]));
    // The run ends with the command that is last in the file.
    ended.is(9, &["flow bulk: a real copy must end", "left > right: ", "right1 > right: "]);
    assert_eq!(ended.stdout[..2], ["first", "left2"], "{ended}");
    assert!(ended.stdout.contains(&"10.77.0.3 right1".to_owned()), "{ended}");

    let bare = emulate(&[&file, "--no-flows", "--", "echo", "alone"]).expect("as before");
    assert_eq!(bare.is(0, &["left > right: "]).stdout, ["alone"], "{bare}");

    // With a command on the command line, the run ends with that command.
    let asked = emulate(&[&file, "--quiet", "--", "sh", "-c", "echo $LONGHAUL_EMULATED_HOST"]);
    let asked = asked.expect("as before");
    assert!(asked.is(0, &[]).stdout.contains(&"left1".to_owned()), "{asked}");
}

#[test]
fn a_copy_crosses_every_link_of_a_scenario() {
    let (folder, file) = scenario(
        r#"
        [topology]
        kind = "parking-lot"
        hops = 2
        bottleneck = { rate = "200M", delay = "3ms", loss = "0.5%" }
        "#,
    );
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    fs::write(path("source"), vec![7; 3_000_000]).expect("it can be written");
    let [near, far] = ["near", "far"].map(|name| Host::new(&folder.path().join(name)));
    let dressed = |host: &Host| {
        let config = host.config.display();
        format!("LONGHAUL_CONFIG_DIR={config} {}", env!("CARGO_BIN_EXE_longhaul"))
    };
    let serve = format!(
        "{} serve --listen 10.77.0.3:4000 --root {} --allow {} > {}",
        dressed(&far),
        folder.path().display(),
        near.id,
        path("ready")
    );
    let copy = format!(
        "until [ -s {ready} ]; do sleep 0.05; done; \
         {near} cp --server-id {far} {source} lh://h3:4000/copy && cmp {source} {copy}",
        near = dressed(&near),
        far = far.id,
        ready = path("ready"),
        source = path("source"),
        copy = path("copy"),
    );
    let ended = need!(emulate(&[&file, "--run", "h3", &serve, "--run", "h1", &copy]));
    ended.is(0, &["r1 > r2: ", "r2 > r3: ", "r3 > h3: "]);
}

#[test]
fn the_error_of_a_wrong_scenario_names_file_line_and_the_nearest_key() {
    let (_folder, file) = scenario("[topology]\nkind = \"pair\"\nlink = { dellay = \"1ms\" }\n");
    let ended = Child::spawn(&mut command(&[&file])).end();
    ended.is(2, &[&file, "line 3", "unknown key 'dellay'", "did you mean 'delay'?"]);
    let ended = Child::spawn(&mut command(&[&file, "--rate", "1G"])).end();
    ended.is(2, &["cannot be used with"]);
}

#[test]
fn a_trace_is_found_relative_to_its_scenario() {
    let text = "[topology]\nkind = \"pair\"\nlink = { loss = { trace = \"lost.txt\" } }\n";
    let (folder, file) = scenario(text);
    let ended = Child::spawn(&mut command(&[&file, "--", "true"])).end();
    ended.is(2, &["line 3: lost.txt: No such file"]);
    assert_eq!(ended.stderr.matches("lost.txt").count(), 1, "{ended}");
    fs::write(folder.path().join("lost.txt"), "0\n1x").expect("it can be written");
    let ended = Child::spawn(&mut command(&[&file, "--", "true"])).end();
    ended.is(2, &["line 3: lost.txt: line 2: 'x' is neither 0 nor 1"]);
    fs::write(folder.path().join("lost.txt"), "0001").expect("it can be written");
    need!(emulate(&[&file, "--", "true"])).is(0, &[]);
}
