//! Errors about invalid input. Also the help, the completions, and `longhaul id`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::TempDir;

use super::{longhaul, longhaul_in};

#[test]
fn a_bwlimit_without_a_unit_is_refused_with_advice() {
    longhaul(&["cp", "--bwlimit", "1000", "a", "h:b"]).is_refused(&["1000k", "names no unit"]);
}

#[test]
fn an_invalid_value_of_a_flag_is_refused_with_advice() {
    let cases = [
        ("--rate=fast", "950M"),
        ("--rate=10MB", "is a size"),
        ("--memory=lots", "300MB"),
        ("--stall=60", "60s"),
        ("--retry-for=soon", "5m"),
        ("--ports=9", "50000-50009"),
        ("--cipher=rot13", "chacha20-poly1305"),
        ("--receive=guess", "scatter"),
        ("--protocol=ftp", "rbudp"),
        ("--streams=0", "1..=64"),
        ("--rsh='ssh", "no closing '"),
    ];
    for (flag, expected) in cases {
        longhaul(&["cp", flag, "a", "h:b"]).is_refused(&[expected]);
    }
    for (flag, expected) in [("--port=1", "--listen :PORT"), ("--daemon", "foreground")] {
        longhaul(&["serve", flag]).is_refused(&[expected]);
    }
}

#[test]
fn impossible_copies_are_refused_with_the_reason() {
    let cases: [(&[&str], &str); 28] = [
        (&["-P", "2222", "a", "h:b"], "-e 'ssh -p 2222'"),
        (&["-", "h:a/"], "the other end of a pipe must be a file with a name"),
        (&["-", "b", "h:a"], "a pipe carries one file"),
        (&["-r", "h:a", "-"], "or pipe tar"),
        (&["--segment=5M", "a", "h:b"], "write 5Mi"),
        (&["--bwlimit=1m", "a", "h:b"], "1MiB/s"),
        (&["h:a", "g:a", "."], "same name, a"),
        (&["--replicas", "h:a", "."], "two sources or more"),
        (&["--weight=k=2", "h:a", "g:b", "."], "the hosts are h, g"),
        (&["--streams=4", "h:a", "g:b", "."], "--protocol gtp"),
        (&["-", "b"], "only files and folders"),
        (&["lh://h/a", "lh://g/b"], "both on other hosts"),
        (&["h:a", "b", "."], "on this host"),
        (&["a"], "without a destination"),
        (&["ftp://h/a", "."], "does not support ftp://"),
        (&["--memory=31Mi", "h:a", "b"], "at least 32Mi"),
        (&["--segment=1000", "a", "h:b"], "multiple of 1Mi"),
        (&["--streams=4", "a", "h:b"], "--protocol tcp"),
        (&["--rate=950", "a", "h:b"], "write 950M if"),
        (&["--bwlimit=1k", "a", "h:b"], "--bwlimit of 1000 bit/s"),
        (&["--stall=0s", "a", "h:b"], "--stall 0s"),
        (&["-e", "ssh -J g", "a", "lh://h/b"], "--rsh is for hosts that ssh reaches"),
        (&["--ports=5000-5009", "a", "lh://h/b"], "--ports is for hosts that ssh"),
        (&["--remote-path=x", "lh://h/b", "."], "--remote-path is for hosts that ssh"),
        (&["--data-port=9", "a", "h:b"], "--data-port is for a server"),
        (&["lh://h:65535/a", "b"], "no data port follows port 65535"),
        (&["lh://h:99999/a", "b"], "99999 is not a port from 1 to 65535"),
        (&["lh://h:/a", "b"], "no port after the ':'"),
    ];
    for (words, expected) in cases {
        longhaul(&[&["cp"], words].concat()).is_refused(&[expected]);
    }
}

#[test]
fn a_setting_that_the_protocol_does_not_have_or_that_is_out_of_range_is_refused() {
    let cases: [(&[&str], &str); 10] = [
        (&["--ack-frequency=32"], "--protocol fobs, fobs-table"),
        (&["--protocol=sabul", "--tail-copies=1"], "--protocol rbudp"),
        (&["--protocol=tcp", "--window=9"], "--window does not work with --protocol tcp"),
        (&["--protocol=fobs", "--ack-frequency=0.5"], "expected a whole number"),
        (&["--protocol=fobs", "--ack-frequency=0"], "not a whole number between 1 and"),
        (&["--protocol=gtp", "--receive-rate=957"], "expected a rate such as 950Mbit/s"),
        (&["--protocol=sabul", "--loss-threshold=150%"], "150% is not between 0% and 100%"),
        (&["--protocol=gtp", "--loss-threshold=0.005"], "expected a ratio in percent such as 0.5%"),
        (&["--protocol=netblt", "--buffers=many"], "expected a whole number"),
        (&["--protocol=fobs", "--ack-frequncy=9"], "--ack-frequency"),
    ];
    for (words, expected) in cases {
        longhaul(&[&["cp"], words, &["a", "h:b"]].concat()).is_refused(&[expected]);
    }
}

#[test]
fn an_invalid_host_or_flag_of_probe_or_doctor_is_refused() {
    let many = format!("--rate={}", ["1M"; 31].join(","));
    let cases: [(&[&str], &str); 10] = [
        (&["probe", "./folder"], "is not a host"),
        (&["probe", "http://h"], "is not a host"),
        (&["probe", "lh://h", "--rate=10M,fast"], "950M"),
        (&["probe", "lh://h", "--rate=0"], "100 Gbit/s"),
        (&["probe", "lh://h", "--time=1m"], "10ms to 10s"),
        (&["probe", "lh://h", "--time=10s", &many], "600.00 s"),
        (&["probe", "lh://h", "--datagram=100"], "512..=65000"),
        (&["doctor", "me@h:"], "did you mean lh://h?"),
        (&["doctor", "--rate=0"], "--rate 0"),
        (&["doctor", "--data-port=9"], "HOST"),
    ];
    for (words, expected) in cases {
        longhaul(words).is_refused(&[expected]);
    }
}

#[test]
fn a_host_that_ssh_would_take_for_an_option_is_refused() {
    let run = longhaul(&["cp", "--", "-oProxyCommand=touch x:y", "."]);
    run.is_refused(&["starts with '-'"]);
}

#[test]
fn a_model_without_a_solution_says_why() {
    let stream = ["model", "stream", "--frame=1x1x3", "--per-second=20", "--rtt=600ms"];
    longhaul(&[&stream[..], &["--delay=500ms"]].concat()).is_refused(&["raise --delay"]);
    let bulk = ["model", "rbudp", "--size=1M", "--rate=1M", "--rtt=1ms"];
    longhaul(&[&bulk[..], &["--loss=100%"]].concat()).is_refused(&["loses everything"]);
    longhaul(&[&bulk[..], &["--loss=2"]].concat()).is_refused(&["0.1%"]);
}

#[test]
fn a_demo_that_is_too_small_is_refused() {
    longhaul(&["demo", "--size=1MB"]).is_refused(&["at least 20MB"]);
}

#[test]
fn an_unknown_or_missing_subcommand_or_flag_gets_a_suggestion_or_the_usage() {
    longhaul(&["cp", "--bwlimt=1M", "a", "h:b"]).is_refused(&["--bwlimit"]);
    longhaul(&["srve"]).is_refused(&["serve"]);
    longhaul(&[]).is_refused(&["Usage: longhaul"]);
    longhaul(&["man", "nothing"]).is_refused(&["longhaul --help"]);
}

#[test]
fn flags_of_scp_rsync_and_rclone_are_refused_with_a_replacement_or_a_reason() {
    let cases = [
        ("--timeout=30", "--stall 30s"),
        ("--delete", "longhaul sync --delete"),
        ("-C", "not compressed"),
        ("--transfers=8", "one large file fills the path"),
        ("--chown=a:b", "owners are not copied"),
        ("-rlptgoD", "always copied as links"),
        ("--size-only", "--checksum"),
        ("--ignore-existing", "--exclude"),
        ("--rsync-path=/x", "--remote-path"),
        ("--append-verify", "only after"),
        ("--out-format=%n", "--json"),
        ("-R", "last part"),
        ("-O", "leave it out"),
        ("-i", "-e 'ssh -i KEY"),
        ("-4", "-e 'ssh -4'"),
        ("-t", "-p keeps"),
        ("--stats", "--json"),
        ("--daemon", "longhaul serve"),
    ];
    for (flag, expected) in cases {
        longhaul(&["cp", flag, "a", "h:b"]).is_refused(&[expected]);
    }
    // longhaul always keeps partial data, so it accepts this flag of rsync.
    let run = longhaul(&["cp", "--partial", "a", "b"]);
    finds_no_source(&run.stderr);
}

#[test]
fn a_host_without_a_scheme_gets_advice() {
    let meant = ["did you mean lh://127.0.0.1:7801?"];
    for words in [["probe", "127.0.0.1:7801"], ["doctor", "127.0.0.1:7801"]] {
        longhaul(&words).is_refused(&meant);
    }
    longhaul(&["doctor", "dtn"]).is_refused(&["did you mean lh://dtn?"]);
    longhaul(&["probe", "7801"]).is_refused(&["did you mean lh://localhost:7801?"]);
    longhaul(&["serve", "--listen", "dtn:7801"]).is_refused(&["[::]:7717", "or :7717"]);
}

#[test]
fn reproduce_without_a_name_lists_the_experiments_and_runs_none() {
    let bare = longhaul(&["reproduce"]);
    assert_eq!((bare.status, bare.stdout), (0, longhaul(&["reproduce", "list"]).stdout));
    assert!(bare.stderr.contains("name the experiments to run, or write all"), "{}", bare.stderr);
    longhaul(&["reproduce", "--update"]).is_refused(&["no experiment named", "write all"]);
}

#[test]
fn help_is_a_subcommand_and_short_help_is_short() {
    let serve = longhaul(&["help", "serve"]);
    assert_eq!((serve.status, serve.stderr.as_str()), (0, ""));
    assert_eq!(serve.stdout, longhaul(&["serve", "--help"]).stdout);
    let long = longhaul(&["cp", "--help"]);
    let lines = |text: &str, word: &str| text.lines().position(|line| line.contains(word));
    let examples = lines(&long.stdout, "Examples:").expect("it has examples");
    assert!(examples < lines(&long.stdout, "--recursive").expect("it has flags"));
    let short = longhaul(&["cp", "-h"]).stdout;
    assert!(short.contains("Examples:") && !short.contains("--tail-copies"), "{short}");
    assert!(short.lines().count() < 100, "{}", short.lines().count());
}

#[test]
fn each_protocols_settings_are_only_on_their_own_page_and_in_the_manual() {
    let screen = longhaul(&["help", "cp"]);
    assert_eq!((screen.status, screen.stderr.as_str()), (0, ""));
    assert!(screen.stdout.starts_with("Examples:"), "{}", screen.stdout);
    assert!(screen.stdout.lines().count() <= 24, "{}", screen.stdout);
    let gtp = longhaul(&["help", "cp", "gtp"]);
    assert_eq!((gtp.status, gtp.stderr.as_str()), (0, ""));
    let line = "--loss-threshold <PERCENT>  [0% to 50%, default: 0.5%]";
    assert!(gtp.stdout.contains(line), "{}", gtp.stdout);
    for words in [&["cp", "-h"][..], &["cp", "--help"], &["help", "cp"], &["completions", "bash"]] {
        let said = longhaul(words).stdout;
        assert!(!said.contains("--loss-threshold") && said.contains("--bwlimit"), "{said}");
        assert!(!said.contains("Settings of --protocol"), "an empty heading: {said}");
    }
    let manual = longhaul(&["man", "cp"]).stdout.replace("\\-", "-");
    assert!(manual.contains("--loss-threshold") && manual.contains("0% to 50%"), "{manual}");
    longhaul(&["help", "cp", "udt"]).is_refused(&["no protocol 'udt'", "rbudp, fobs"]);
}

#[test]
fn a_server_needs_a_root_valid_ids_and_a_valid_address() {
    let (_folder, id) = identity();
    longhaul(&["serve", "--root", "."]).is_refused(&["--allow"]);
    let http = ["serve", "--root", ".", "--http", "127.0.0.1:0"];
    longhaul(&http).is_refused(&["--http-tokens FILE or --http-public", "--allow ID"]);
    longhaul(&["serve", "--allow", &id]).is_refused(&["--root"]);
    longhaul(&["serve", "--root", ".", "--allow", "me"]).is_refused(&["longhaul id"]);
    let outside = format!("{id}:rw:../x");
    longhaul(&["serve", "--root", ".", "--allow", &outside]).is_refused(&["below the root"]);
    longhaul(&["serve", "--root", ".", "--allow", &id, "--listen", "here"])
        .is_refused(&["[::]:7717"]);
}

#[test]
fn impossible_server_settings_are_refused() {
    let (folder, id) = identity();
    let root = folder.path().join("served data");
    fs::create_dir(&root).expect("the folder is ours");
    let root = root.to_str().expect("it is UTF-8");
    let serve = |args: &[&str]| {
        longhaul(&[&["serve", "--listen", "127.0.0.1:0", "--root", root], args].concat())
    };
    longhaul(&["cp", "--server-id", &id, "a", "h:b"])
        .is_refused(&["ssh checks the keys of its hosts itself"]);
    let list = folder.path().join("list");
    fs::write(&list, "# nobody yet\n").expect("it can be written");
    serve(&["--allow-file", list.to_str().expect("it is UTF-8")]).is_refused(&["lists no client"]);
    let run = longhaul(&["serve", "--listen", ":65535", "--root", root, "--allow", &id]);
    run.is_refused(&["--data-port"]);
    let file = list.to_str().expect("it is UTF-8");
    let run = longhaul(&["serve", "--root", file, "--allow", &id]);
    assert!(run.status == 4 && run.stderr.contains("is not a folder"), "{}", run.stderr);
}

#[test]
fn a_configuration_folder_that_cannot_be_created_or_a_missing_allow_file_gets_advice() {
    let run = longhaul_in(std::path::Path::new("/proc/none/longhaul"), &["id"]);
    assert_eq!(run.status, 4, "{}", run.stderr);
    for said in ["cannot make the folder /proc/none/longhaul", "LONGHAUL_CONFIG_DIR"] {
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
    assert!(!run.stderr.contains("os error"), "{}", run.stderr);
    let (_folder, id) = identity();
    let run = longhaul(&["serve", "--root", ".", "--allow", &id, "--allow-file", "/no/file"]);
    assert!(run.stderr.contains("cannot read /no/file: No such file"), "{}", run.stderr);
    assert!(run.stderr.contains("check --allow-file"), "{}", run.stderr);
}

#[test]
fn missing_local_files_are_local_errors() {
    let (folder, id) = identity();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().expect("a path of a test is UTF-8");
    let run = longhaul(&["serve", "--root", missing, "--allow", &id]);
    assert_eq!(run.status, 4, "{}", run.stderr);
    let run = longhaul(&["serve", "--root", ".", "--allow-file", missing]);
    assert_eq!(run.status, 4, "{}", run.stderr);
    let run = longhaul(&["cp", "--exclude-from=/nonexistent/x", "a", "h:b"]);
    assert_eq!(run.status, 4, "{}", run.stderr);
    assert!(run.stderr.starts_with("longhaul: cannot read /nonexistent/x"), "{}", run.stderr);
}

fn identity() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = longhaul_in(&folder.path().join("config"), &["id"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    (folder, run.stdout.trim().to_owned())
}

#[test]
fn an_id_is_created_once_and_only_its_owner_can_read_the_key() {
    let (folder, id) = identity();
    let config = folder.path().join("config");
    assert!(id.starts_with("lh1:"), "{id}");
    assert_eq!(longhaul_in(&config, &["id"]).stdout.trim(), id);
    assert_ne!(identity().1, id);
    for entry in fs::read_dir(&config).expect("the folder was made") {
        let meta = entry.and_then(|entry| entry.metadata()).expect("it can be read");
        assert_eq!(meta.permissions().mode() & 0o077, 0, "nobody else reads the key");
    }
}

#[test]
fn with_json_a_refusal_is_an_event() {
    let cases: [(&[&str], &str); 5] = [
        (&["--json", "-", "b"], "only files and folders"),
        (&["--json", "--bogus", "a", "h:b"], "--bogus"),
        (&["--json"], "<LOCATION>"),
        (&["--json", "--stall=60", "a", "h:b"], "60s"),
        (&["ftp://h/a", "b", "--json"], "does not support"),
    ];
    for (words, said) in cases {
        let run = longhaul(&[&["cp"], words].concat());
        let last = run.stdout.lines().last().unwrap_or_else(|| panic!("no event: {words:?}"));
        let event: serde_json::Value = serde_json::from_str(last).expect("an event is JSON");
        assert_eq!((&event["event"], &event["class"]), (&"error".into(), &"usage".into()));
        assert_eq!((&event["status"], run.status), (&2.into(), 2), "{words:?}");
        assert!(last.contains(said) && run.stderr.contains(said), "{last}");
    }
    // Help is not an error, and a word after -- is not a flag.
    assert!(longhaul(&["cp", "--json", "--help"]).stdout.starts_with("Copy files"));
    assert_eq!(longhaul(&["cp", "--bogus", "--", "--json"]).stdout, "");
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.toml"), "[cp\n").expect("it can be written");
    let run = longhaul_in(folder.path(), &["cp", "--json", "a", "h:b"]);
    assert!(run.stdout.contains("\"event\":\"error\""), "{}", run.stdout);
}

#[test]
fn help_and_version_go_to_stdout() {
    for args in [["cp", "--help"], ["serve", "-h"], ["demo", "--help"]] {
        let run = longhaul(&args);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        assert!(run.stdout.contains("Usage: longhaul"), "{}", run.stdout);
    }
    assert!(longhaul(&["--version"]).stdout.starts_with("longhaul "));
}

#[test]
fn completions_of_bash_zsh_and_fish_contain_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = longhaul(&["completions", shell]).stdout;
        assert!(script.contains("bwlimit"), "{shell}");
    }
}

#[test]
fn flags_may_stand_anywhere() {
    let run = longhaul(&["cp", "-r", "a", "-P", "b", "--json", "c"]);
    finds_no_source(&run.stderr);
}

fn finds_no_source(stderr: &str) {
    assert!(stderr.contains("cannot read a"), "{stderr}");
}

#[test]
fn an_experiment_outside_of_a_repository_says_that_nothing_is_compared() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let output = command.args(["reproduce", "quanta-streaming"]).current_dir(&folder).output();
    let output = output.expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("nothing is compared"), "{stderr}");
}

#[test]
fn a_refusal_is_the_last_event_of_a_command_with_json() {
    let (folder, id) = identity();
    let missing = folder.path().join("none").display().to_string();
    let cases: [(&[&str], u64, &str); 9] = [
        (&["cp", "--nonsense", "a", "h:b"], 2, "--nonsense"),
        (&["sync", "a"], 2, "destination"),
        (&["ls", "here"], 2, "is on this host"),
        (&["ls", "--nonsense", "h:"], 2, "--nonsense"),
        (&["probe", "127.0.0.1:7801"], 2, "did you mean lh://127.0.0.1:7801?"),
        (&["doctor", "dtn"], 2, "did you mean lh://dtn?"),
        (&["doctor", "--rate", "0"], 2, "--rate 0"),
        (&["serve", "--root", "."], 2, "--allow"),
        (&["serve", "--root", &missing, "--allow", &id], 4, "does not exist"),
    ];
    for (words, status, said) in cases {
        let run = longhaul(&[words, &["--json"]].concat());
        assert_eq!(run.status, status as i32, "{words:?}: {}", run.stderr);
        let last = run.stdout.lines().last().unwrap_or_else(|| panic!("no event: {words:?}"));
        let event: serde_json::Value = serde_json::from_str(last).expect("events are JSON");
        assert_eq!((&event["event"], &event["status"]), (&"error".into(), &status.into()));
        let told = format!("{} {}", event["what"], event["advice"]);
        assert!(told.contains(said) && event["class"].is_string(), "{words:?}: {event}");
    }
}

#[test]
fn the_help_of_sync_fits_a_screen_and_begins_with_examples() {
    let screen = longhaul(&["help", "sync"]);
    assert_eq!((screen.status, screen.stderr.as_str()), (0, ""));
    assert!(screen.stdout.starts_with("Examples:\n  longhaul sync "), "{}", screen.stdout);
    assert!(screen.stdout.contains("--delete") && screen.stdout.lines().count() <= 24);
}

#[test]
fn a_port_after_an_ssh_host_gets_advice_about_servers() {
    let ssh = "sh -c 'exit 255'";
    for words in
        [&["ls", "-e", ssh, "h.example:7801"][..], &["cp", "-e", ssh, "a", "h.example:7801"]]
    {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("a"), "a").expect("the folder is ours");
        let words: Vec<String> = words
            .iter()
            .map(|word| match *word {
                "a" => folder.path().join("a").display().to_string(),
                word => word.to_owned(),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = longhaul(&words);
        assert_eq!(run.status, 3, "{}", run.stderr);
        assert!(run.stderr.contains("did you mean lh://h.example:7801/?"), "{}", run.stderr);
    }
}
