//! `longhaul emulate` as its user meets it.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{Child, DEADLINE, Ended, Host};

/// The command, with stdout and stderr piped.
fn command(args: &[&str]) -> Command {
    piped(Command::new(env!("CARGO_BIN_EXE_longhaul")), &[&["emulate"], args].concat())
}

fn piped(mut command: Command, args: &[&str]) -> Command {
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A run of `longhaul emulate`, or nothing (said aloud) where this machine forbids it.
fn emulate(args: &[&str]) -> Option<Ended> {
    let ended = Child::spawn(&mut command(args)).end();
    // A program on a host may end with 3, too.
    if ended.status == Some(3) && ended.stderr.contains("emulation is not possible here") {
        skip(&ended.stderr);
        return None;
    }
    Some(ended)
}

fn skip(reason: &str) {
    // Not through the harness, which would hide it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// A running `longhaul emulate` whose command has said its first line.
fn started(args: &[&str]) -> Option<Child> {
    emulate(&["--", "true"])?;
    let mut child = Child::spawn(&mut command(args));
    assert_eq!(child.line().as_deref(), Some("started"));
    Some(child)
}

/// A scenario in a file of its own.
fn scenario(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("test.toml");
    fs::write(&file, text).expect("it can be written");
    let name = file.to_str().expect("plain letters").to_owned();
    (folder, name)
}

#[test]
fn a_commands_output_and_status_pass_through_and_the_end_line_tells_the_truth() {
    let script = "cat /etc/hosts; exit 7";
    let Some(ended) = emulate(&["--rate", "1G", "--rtt", "10ms", "--", "sh", "-c", script]) else {
        return;
    };
    ended.is(7, &["a > b: ", "b > a: ", "own drops", "late", "processor"]);
    assert!(ended.stdout.contains(&"10.77.0.2 b".to_owned()));
}

#[test]
fn the_last_runs_end_ends_all() {
    let args = ["--run", "b", "sleep 86322", "--run", "a", "exit 5"];
    let Some(ended) = emulate(&args) else { return };
    assert_eq!(ended.status, Some(5));
}

#[test]
fn what_cannot_be_is_a_usage_error_with_the_reason() {
    let wrong: [(&[&str], &str); 6] = [
        (&["--rate", "1G", "--queue", "100B", "--", "true"], "smaller than a packet"),
        (&["--queue", "1bdp", "--", "true"], "needs --rate"),
        (&["--rate", "1G", "--queue", "1bdp", "--", "true"], "needs --rtt"),
        (&["--run", "c", "true"], "no emulated host is named c"),
        (&["--", "/no/such/program"], "/no/such/program"),
        (&["--rate=-1G", "--", "true"], "'-1G' is negative"),
    ];
    for (args, reason) in wrong {
        let Some(ended) = emulate(args) else { return };
        ended.is(2, &[reason]);
    }
}

#[test]
fn a_scenario_that_cannot_be_read_is_trouble_with_files() {
    for (file, reason) in [("/no/such.toml", "No such file"), ("/dev/zero", "a device")] {
        let ended = Child::spawn(&mut command(&[file])).end();
        ended.is(4, &[&format!("{file} cannot be read"), reason]);
    }
}

#[test]
fn a_queue_of_less_than_a_packet_in_bdps_is_one_packet_and_says_so() {
    let args = ["--rate", "64k", "--rtt", "50ms", "--queue", "1bdp", "--", "true"];
    let Some(ended) = emulate(&args) else { return };
    ended.is(0, &["--queue 1bdp is 400 B here", "one packet, 1.54 kB"]);
    assert_eq!(ended.stderr.matches("one packet").count(), 1, "{ended}");
}

#[test]
fn a_host_that_no_link_leads_to_is_refused_with_its_line() {
    let text = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[host]]\nname = \"c\"\n\
        [[link]]\nbetween = [\"a\", \"b\"]\n";
    let (_folder, file) = scenario(text);
    let ended = Child::spawn(&mut command(&[&file, "--", "true"])).end();
    ended.is(2, &[&file, "line 5", "host c: no link leads from it to another host"]);
}

#[test]
fn a_command_that_died_while_another_went_on_is_said_and_counts() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let pid = folder.path().join("pid").display().to_string();
    let dies = format!("echo $$ > {pid}; exec /no/such/program");
    // As long as the emulator has not seen its end, the dead still has its number.
    let waits = format!(
        "until [ -s {pid} ]; do sleep 0.02; done; \
         while kill -0 $(cat {pid}) 2>/dev/null; do sleep 0.02; done; sleep 0.3; echo done"
    );
    let Some(ended) = emulate(&["--run", "b", &dies, "--run", "a", &waits]) else { return };
    ended.is(127, &["on b, 'echo $$", "ended before the end", "127"]);
    assert_eq!(ended.stdout, ["done"], "{ended}");
    let own = emulate(&["--run", "b", &dies, "--run", "a", &format!("{waits}; exit 5")]);
    own.expect("as before").is(5, &["ended before the end"]);
}

#[test]
fn a_program_takes_its_machine_for_the_host_that_it_is_on() {
    let Some(ended) = emulate(&["--run", "b", "uname -n"]) else { return };
    assert_eq!(ended.is(0, &[]).stdout, ["b"], "{ended}");
}

/// Whether programs are there; said aloud where one is not.
fn have(programs: &[&str]) -> bool {
    let found = |program: &&str| {
        let known = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        known.is_ok_and(|known| known.status.success())
    };
    match programs.iter().find(|program| !found(program)) {
        None => true,
        Some(missing) => {
            skip(&format!("{missing} is not installed here"));
            false
        }
    }
}

#[test]
fn iperf3_measures_no_more_than_the_emulated_rate() {
    if !have(&["iperf3"]) {
        return;
    }
    let args = ["--rate", "50M", "--rtt", "10ms", "--run", "b", "iperf3 -s > /dev/null"];
    let client = "until iperf3 -c b -t 1 -J > /dev/null; do sleep 0.1; done; iperf3 -c b -t 2 -J";
    let Some(ended) = emulate(&[&args[..], &["--run", "a", client]].concat()) else { return };
    let report: Value = serde_json::from_str(&ended.is(0, &["a > b: "]).stdout.join("\n"))
        .expect("iperf3 -J prints JSON");
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate");
    // 1448 of 1538 bytes are payload.
    assert!(rate > 1e6 && rate < 50e6 * 1_448.0 / 1_538.0 * 1.01, "{rate}");
}

#[test]
fn scp_copies_through_a_real_sshd_across_an_emulated_path() {
    const SSHD: &str = "/usr/sbin/sshd";
    if !have(&[SSHD, "scp", "ssh-keygen"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skip("an sshd in a host needs root");
        return;
    }
    let made = fs::create_dir_all("/run/sshd");
    assert!(made.is_ok(), "where sshd wants an empty folder: {made:?}");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    for name in ["user_key", "host_key"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]);
        assert!(keygen.status().expect("OpenSSH has it").success());
    }
    let here = folder.path().display();
    let far = format!(
        "ListenAddress 10.77.0.2\nHostKey {here}/host_key\nAuthorizedKeysFile {here}/user_key.pub\n\
         PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
    );
    let near = format!(
        "Host b\n  IdentityFile {here}/user_key\n  IdentitiesOnly yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    );
    fs::write(path("sshd_config"), far).expect("it can be written");
    fs::write(path("ssh_config"), near).expect("it can be written");
    let content: Vec<u8> = (0..2_000_000u32).map(|i| (i ^ (i >> 9)) as u8).collect();
    fs::write(path("object"), &content).expect("it can be written");
    let serve = format!("exec {SSHD} -D -e -f {here}/sshd_config 2> {here}/log");
    let copy = format!(
        "until grep -q listening {here}/log 2>/dev/null; do sleep 0.05; done; \
         scp -F {here}/ssh_config {here}/object b:{here}/copy"
    );
    let path_flags = ["--rate", "100M", "--rtt", "10ms", "--loss", "0.1%"];
    let runs = ["--run", "b", &serve, "--run", "a", &copy];
    let Some(ended) = emulate(&[&path_flags[..], &runs[..]].concat()) else { return };
    ended.is(0, &["a > b: ", "b > a: "]);
    assert!(fs::read(path("copy")).expect("it was copied") == content, "{ended}");
}

#[test]
fn a_scenario_has_its_hosts_and_its_commands_run_at_their_time() {
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
    let Some(ended) = emulate(&[&file]) else { return };
    // The last of the file ends all, whenever it was started.
    ended.is(9, &["flow bulk: a real copy has an end", "left > right: ", "right1 > right: "]);
    assert_eq!(ended.stdout[..2], ["first", "left2"], "{ended}");
    assert!(ended.stdout.contains(&"10.77.0.3 right1".to_owned()), "{ended}");

    // Who wants the network alone gets it.
    let bare = emulate(&[&file, "--no-flows", "--", "echo", "alone"]).expect("as before");
    assert_eq!(bare.is(0, &["left > right: "]).stdout, ["alone"], "{bare}");

    // Who asks for a command waits for that one.
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
    let Some(ended) = emulate(&[&file, "--run", "h3", &serve, "--run", "h1", &copy]) else {
        return;
    };
    ended.is(0, &["r1 > r2: ", "r2 > r3: ", "r3 > h3: "]);
}

#[test]
fn a_wrong_scenario_is_refused_with_file_line_and_the_nearest_key() {
    let (_folder, file) = scenario("[topology]\nkind = \"pair\"\nlink = { dellay = \"1ms\" }\n");
    let ended = Child::spawn(&mut command(&[&file])).end();
    ended.is(2, &[&file, "line 3", "unknown key 'dellay'", "did you mean 'delay'?"]);
    let ended = Child::spawn(&mut command(&[&file, "--rate", "1G"])).end();
    ended.is(2, &["cannot be used with"]);
}

#[test]
fn a_trace_of_losses_lies_beside_its_scenario() {
    let text = "[topology]\nkind = \"pair\"\nlink = { loss = { trace = \"lost.txt\" } }\n";
    let (folder, file) = scenario(text);
    let ended = Child::spawn(&mut command(&[&file, "--", "true"])).end();
    ended.is(2, &["line 3: lost.txt: No such file"]);
    assert_eq!(ended.stderr.matches("lost.txt").count(), 1, "{ended}");
    fs::write(folder.path().join("lost.txt"), "0\n1x").expect("it can be written");
    let ended = Child::spawn(&mut command(&[&file, "--", "true"])).end();
    ended.is(2, &["line 3: lost.txt: line 2: 'x' is neither 0 nor 1"]);
    fs::write(folder.path().join("lost.txt"), "0001").expect("it can be written");
    if let Some(ended) = emulate(&[&file, "--", "true"]) {
        ended.is(0, &[]);
    }
}

/// Flows of every kind on a path that loses.
const FLOWS: &str = r#"
time-limit = "90s"
[topology]
kind = "dumbbell"
left = 2
right = 1
bottleneck = { rate = "80M", delay = "4ms", loss = "0.5%" }
[[host]]
name = "right1"
disk-rate = "1G"
memory = "64MiB"
[[flow]]
name = "rbudp"
from = "left1"
to = "right1"
protocol = "rbudp"
size = "3MB"
rate = "30M"
segment = "1MiB"
settings = { tail-copies = 1 }
[[flow]]
name = "sabul"
from = "left2"
to = "right1"
protocol = "sabul"
size = "1MB"
rate = "10M"
start = "100ms"
[[flow]]
name = "cut"
from = "left2"
to = "right1"
protocol = "rbudp"
rate = "9M"
lasts = "2500ms"
[[flow]]
name = "bulk"
from = "left1"
to = "right1"
tcp = "cubic"
streams = 3
size = "1MB"
[[flow]]
name = "timed"
from = "left2"
to = "right1"
tcp = "newreno"
window = "64KiB"
lasts = "300ms"
[[flow]]
name = "mice"
from = "left2"
to = "right1"
mice = 6
size = "20KB"
arrivals = "poisson"
every = "20ms"
[[flow]]
name = "turns"
from = "left1"
to = "right1"
mice = 3
size = "5KB"
arrivals = "in-turn"
[[flow]]
name = "bursts"
from = "right1"
to = "left1"
udp = "5M"
on = "30ms"
off = "20ms"
lasts = "400ms"
[[flow]]
name = "noise"
from = "right1"
to = "left2"
udp = "1M"
datagram = 500
random = true
on = "30ms"
off = "20ms"
"#;

/// Folders of a run's objects that are there.
fn scratches(pid: u32) -> usize {
    let prefix = format!("longhaul-emulate-{pid}-");
    let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
}

#[test]
fn every_kind_of_flow_runs_for_real_and_tells_what_it_came_to() {
    let (_folder, file) = scenario(FLOWS);
    let Some(ended) = emulate(&[&file, "--json"]) else { return };
    let flows = ended.is(0, &["NOT emulated: host right1: disk-rate"]).events("flow");
    let names: Vec<&str> = flows.iter().filter_map(|flow| flow["flow"].as_str()).collect();
    let all = ["rbudp", "sabul", "cut", "bulk", "timed", "mice", "turns", "bursts", "noise"];
    assert_eq!(names, all, "{ended}");
    for flow in &flows {
        assert_eq!((&flow["finished"], &flow["error"]), (&true.into(), &Value::Null), "{flow}");
        if flow["flow"] != "cut" {
            assert!(flow["delivered_bytes"].as_u64() > Some(0), "{flow}");
            assert!(flow["goodput_bps"].as_u64() > Some(0), "{flow}");
        }
        let object = &flow["object_bytes"];
        assert!(object.is_null() || *object == flow["delivered_bytes"], "{flow}");
    }
    let count = |place: usize, name: &str| flows[place][name].as_u64().unwrap_or_default();
    // 3 MB in blocks of 1440 at most; a 200th of them is lost on average.
    assert!(count(0, "blocks") > 2_000 && count(0, "sent") > count(0, "blocks"), "{ended}");
    assert!(count(0, "lost") > 0 && count(0, "retransmitted") > 0, "{ended}");
    // Cut off well before its object of 3.9 MB was whole.
    assert!(count(2, "delivered_bytes") < 2_900_000, "{ended}");
    assert!(count(3, "sent") >= 1_000_000 / 1_460, "{ended}");
    let lives = |place: usize| flows[place]["lives_seconds"].as_array().map(Vec::len);
    assert_eq!((lives(5), lives(6)), (Some(6), Some(3)), "{ended}");
    assert!(flows[5]["lives_seconds"][0].as_f64() > Some(0.016), "a SYN and the data: {ended}");
    // Three fifths of 5 Mbit/s at most, for 0.4 s.
    assert!(count(7, "delivered_bytes") < 200_000 && count(7, "sent") > 10, "{ended}");
    let truth = ended.summary();
    assert!(truth["valid"].is_boolean() && truth["own_drops"].is_u64(), "{truth}");
    assert_eq!(truth["links"].as_array().map(Vec::len), Some(8), "{truth}");
    assert_eq!(truth["hosts"].as_array().map(Vec::len), Some(3), "{truth}");
    assert!(truth["hosts"][2]["socket_drops"].is_u64(), "{truth}");
    assert!(truth["awake_cpu_seconds"].as_f64() > Some(0.0), "{truth}");
    assert_eq!(truth["not_emulated"].as_array().map(Vec::len), Some(1), "{truth}");
}

#[test]
fn a_table_says_what_each_flow_came_to_and_the_status_what_did_not() {
    let text = "time-limit = \"2s\"\n[topology]\nkind = \"pair\"\nlink = { rate = \"5M\" }\n\
        [[flow]]\nname = \"small\"\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"20KB\"\n\
        [[flow]]\nname = \"large\"\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"1GB\"\n";
    let (_folder, file) = scenario(text);
    let Some(ended) = emulate(&[&file]) else { return };
    ended.is(124, &["time limit of 2.0", "a > b: "]);
    let line = |name: &str| {
        let line = ended.stdout.iter().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {ended}")).clone()
    };
    assert!(line("flow").contains("goodput") && line("small").contains("20.00 kB"), "{ended}");
    assert!(line("NOT FINISHED").contains("1.00 GB were to come"), "{ended}");

    // What has no end ends with the last that has one, and is no failure.
    let endless = text.replace("size = \"1GB\"", "");
    let (_folder, file) = scenario(&endless);
    let ended = emulate(&[&file, "--quiet"]).expect("as before");
    assert!(ended.is(0, &[]).stdout.iter().any(|line| line.contains("large")), "{ended}");
}

#[test]
fn a_flow_that_cannot_run_is_refused_by_name_before_anything_starts() {
    let flow = "[[flow]]\nname = \"odd\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1MB\"\n";
    let pair = "[topology]\nkind = \"pair\"\nlink = { delay = \"1ms\" }\n";
    let wrong = [
        ("protocol = \"rbupd\"", "no protocol 'rbupd'"),
        ("protocol = \"rbudp\"\nsettings = { no-such = 1 }", "no setting no-such"),
        ("protocol = \"rbudp\"\n#", "need"),
    ];
    for (how, reason) in wrong {
        let size = if how.ends_with('#') { "size = \"900TB\"" } else { "size = \"1MB\"" };
        let flow = flow.replace("size = \"1MB\"", size);
        let (_folder, file) = scenario(&format!("{pair}{flow}{how}\n"));
        let Some(ended) = emulate(&[&file]) else { return };
        ended.is(2, &[reason]);
        assert!(ended.stdout.is_empty(), "{ended}");
    }
}

#[test]
fn a_signal_ends_the_flows_and_a_kill_leaves_no_object_behind() {
    let text = "[topology]\nkind = \"pair\"\nlink = { rate = \"8M\", delay = \"5ms\" }\n\
        [[flow]]\nname = \"copy\"\nfrom = \"a\"\nto = \"b\"\nprotocol = \"rbudp\"\n\
        size = \"20MB\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\n\
        [[flow]]\nfrom = \"a\"\ncommand = \"echo started; sleep 86324\"\n";
    let (_folder, file) = scenario(text);
    for signal in [Signal::INT, Signal::KILL] {
        let Some(child) = started(&[&file]) else { return };
        let pid = child.id();
        assert_eq!(scratches(pid), 1);
        child.signal(signal);
        if signal == Signal::INT {
            child.signal(signal);
        }
        let ended = child.end();
        if signal == Signal::INT {
            ended.is(130, &["a > b: "]);
            assert!(ended.stdout.iter().any(|line| line.contains("copy")), "{ended}");
        }
        let deadline = Instant::now() + DEADLINE;
        while scratches(pid) > 0 {
            assert!(Instant::now() < deadline, "the objects are still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn ctrl_c_at_any_moment_of_flows_leaves_nothing_and_is_no_success() {
    if emulate(&["--", "true"]).is_none() {
        return;
    }
    let (_folder, file) = scenario(FLOWS);
    for millis in (0..600).step_by(60) {
        let child = Child::spawn(&mut command(&[&file]));
        let pid = child.id();
        std::thread::sleep(Duration::from_millis(millis));
        child.signal(Signal::INT);
        let ended = child.end();
        assert!(matches!(ended.status, None | Some(130)), "after {millis} ms: {ended}");
        assert_eq!(scratches(pid), 0, "after {millis} ms: {ended}");
    }
}

#[test]
fn a_server_that_dies_fails_its_copy_by_name_and_nothing_else() {
    let kill = "for p in /proc/[0-9]*; do grep -aq '[a]llow' $p/cmdline && kill -9 ${p#/proc/}; \
        done; sleep 0.3; exit 3";
    let text = format!(
        "[topology]\nkind = \"pair\"\nlink = {{ rate = \"8M\" }}\n[[flow]]\nname = \"copy\"\n\
         from = \"a\"\nto = \"b\"\nprotocol = \"rbudp\"\nsize = \"90MB\"\n[[flow]]\n\
         name = \"tcp\"\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"10KB\"\n[[flow]]\n\
         from = \"b\"\nstart = \"500ms\"\ncommand = \"{kill}\"\n"
    );
    let (_folder, file) = scenario(&text);
    let Some(ended) = emulate(&[&file, "--json"]) else { return };
    let flows = ended.is(3, &[]).events("flow");
    assert_eq!(flows[0]["finished"], false, "{ended}");
    assert_eq!(flows[1]["finished"], true, "{ended}");
}

#[test]
fn a_program_that_a_signal_kills_ends_the_run_as_a_shell_would_tell() {
    let Some(ended) = emulate(&["--quiet", "--", "sh", "-c", "kill -9 $$"]) else { return };
    ended.is(137, &[]);
}

/// Who is in the network namespace `name`, as `readlink` shows it.
fn inhabitants(name: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it is there").flatten();
    let links = entries.filter(|entry| {
        fs::read_link(entry.path().join("ns/net")).is_ok_and(|link| link.as_os_str() == name)
    });
    links.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn nobody_is_left_in_a_host_whichever_way_the_emulation_ends() {
    let script = format!("echo started; readlink /proc/self/ns/net; {STUBBORN}");
    for signal in [Signal::KILL, Signal::TERM, Signal::HUP] {
        let Some(mut child) = started(&["--run", "b", &script]) else { return };
        let host = child.line().expect("its namespace");
        assert!(host.starts_with("net:[") && !inhabitants(&host).is_empty(), "{host}");
        child.signal(signal);
        let ended = child.end();
        assert_ne!(ended.status, Some(0), "{ended}");
        let deadline = Instant::now() + DEADLINE;
        while !inhabitants(&host).is_empty() {
            assert!(Instant::now() < deadline, "{:?}", inhabitants(&host));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A program with a child of its own that no signal but the last ends.
const STUBBORN: &str = "trap '' TERM INT HUP; echo started; sleep 86323 & sleep 86323; wait";

#[test]
fn a_killed_emulation_takes_its_programs_with_it() {
    let Some(child) = started(&["--", "sh", "-c", STUBBORN]) else { return };
    // It ends when the last that holds its stdout has.
    child.kill();
}

#[test]
fn a_signal_ends_a_stubborn_program_and_a_second_one_does_so_at_once() {
    for (signals, status) in [(&[Signal::INT][..], 130), (&[Signal::TERM, Signal::TERM], 143)] {
        let Some(child) = started(&["--", "sh", "-c", STUBBORN]) else { return };
        signals.iter().for_each(|signal| child.signal(*signal));
        child.end().is(status, &["a > b: "]);
    }
}

#[test]
fn a_program_may_end_by_itself_when_it_is_asked_to() {
    let script = "trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.05; done";
    let Some(child) = started(&["--", "sh", "-c", script]) else { return };
    child.signal(Signal::TERM);
    let ended = child.end();
    assert_eq!(ended.is(143, &[]).stdout, ["started", "bye"]);
}

#[test]
fn ctrl_c_at_any_moment_leaves_nothing_and_is_no_success() {
    if emulate(&["--", "true"]).is_none() {
        return;
    }
    for millis in (0..60).step_by(4) {
        let child = Child::spawn(&mut command(&["--run", "b", STUBBORN, "--run", "a", STUBBORN]));
        std::thread::sleep(Duration::from_millis(millis));
        // Twice: it need not wait for the programs.
        child.signal(Signal::INT);
        child.signal(Signal::INT);
        let ended = child.end();
        assert!(matches!(ended.status, None | Some(130)), "after {millis} ms: {ended}");
    }
}

#[test]
fn a_program_that_hangs_is_ended_by_the_time_limit() {
    let args = ["--time-limit", "200ms", "--", "sh", "-c", STUBBORN];
    let Some(ended) = emulate(&args) else { return };
    ended.is(124, &["time limit of 200.0 ms", "a > b: "]);
    let flow = format!("[[flow]]\nfrom = \"a\"\ncommand = \"{STUBBORN}\"\n");
    let text = format!("time-limit = \"200ms\"\n[topology]\nkind = \"pair\"\n{flow}");
    let (_folder, file) = scenario(&text);
    emulate(&[&file]).expect("as before").is(124, &["time limit"]);
}

#[test]
fn where_the_machine_forbids_it_the_exit_status_and_the_reason_say_so() {
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let no_tun = format!("mount -t tmpfs none /dev/net && exec {longhaul} emulate -- true");
    let none_left = format!(
        "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces \
         && exec {longhaul} emulate -- true"
    );
    for (script, reason) in [(no_tun, "/dev/net/tun"), (none_left, "namespace")] {
        let Some(ended) = unshared(&["--map-root-user", "--mount"], &script) else { return };
        ended.is(3, &["emulation is not possible here", reason]);
    }
}

#[test]
fn a_demo_where_the_machine_forbids_it_says_so_and_does_the_rest() {
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let script = format!("mount -t tmpfs none /dev/net && exec {longhaul} demo --size 20MB");
    let Some(ended) = unshared(&["--map-root-user", "--mount"], &script) else { return };
    let said = ended.is(0, &[]).stdout.join("\n");
    for words in ["cannot emulate a long path here, so no contest with TCP", "/dev/net/tun"] {
        assert!(said.contains(words), "no {words:?} in {ended}");
    }
    assert!(said.contains("compares them byte by byte") && !said.contains("8 streams"), "{ended}");
}

#[test]
fn without_any_privilege_it_makes_a_user_namespace_of_its_own() {
    if emulate(&["--", "true"]).is_none() {
        return;
    }
    let powerless = "grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 9";
    let script = format!("{powerless}; exec {} emulate -- id -u", env!("CARGO_BIN_EXE_longhaul"));
    let Some(ended) = unshared(&["--map-user=1000", "--map-group=1000"], &script) else { return };
    assert_eq!(ended.is(0, &["a > b: "]).stdout, ["0"]);
}

#[test]
fn without_any_privilege_a_user_namespace_can_be_had_at_each_of_many_starts() {
    // Without a device a start ends right after its namespaces, so there can be very many.
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let start = format!("{longhaul} emulate -- true 2>&1 | grep /dev/net/tun");
    let many = format!("n=800; while [ $n -gt 0 ]; do n=$((n-1)); {start} || exit 9; done");
    let powerless = "unshare --user --map-user=1000 --map-group=1000";
    let script = format!("mount -t tmpfs none /dev/net && exec {powerless} sh -c '{many}'");
    let Some(ended) = unshared(&["--map-root-user", "--mount"], &script) else { return };
    assert_eq!(ended.is(0, &[]).stdout.len(), 800, "{ended}");
}

/// A shell's run in a user namespace, or nothing (said aloud) where there can be none.
fn unshared(flags: &[&str], script: &str) -> Option<Ended> {
    let args = [&["--user"], flags, &["sh", "-c", script]].concat();
    let Ok(child) = piped(Command::new("unshare"), &args).spawn() else {
        skip("no unshare here");
        return None;
    };
    let ended = Child::adopt(child).end();
    if ended.status == Some(1) && ended.stderr.contains("unshare") {
        skip(&ended.stderr);
        return None;
    }
    Some(ended)
}
