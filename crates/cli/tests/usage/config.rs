//! The file `config.toml`: defaults for the flags of `cp` and `serve`, and in a section
//! `[host.NAME]` the defaults for one host.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::{Run, longhaul_in};

fn with(text: &str, args: &[&str]) -> (Run, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("config.toml"), text).expect("it can be written");
    (longhaul_in(folder.path(), args), folder)
}

#[test]
fn the_error_of_a_mistake_names_file_line_and_the_nearest_key() {
    let (run, _folder) = with("[cp]\n\nbwlimt = \"5M\"\n", &["cp", "a", "h:b"]);
    run.is_refused(&["config.toml:3: unknown key 'bwlimt'", "did you mean 'bwlimit'?"]);
    let (run, _folder) = with("[cp]\nbwlimit = 5\n", &["cp", "a", "h:b"]);
    run.is_refused(&["config.toml:2: ", "names no unit"]);
    let (run, _folder) = with("[cp\n", &["cp", "a", "h:b"]);
    run.is_refused(&["config.toml:1: "]);
}

#[test]
fn the_example_in_running_md_is_a_valid_file() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/running.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let example = example.expect("the page has an example");
    for place in ["dtn.example.org:x", "lh://dtn.example.org/x"] {
        let (run, _folder) = with(example, &["cp", "--show-config", place, "."]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(run.stdout.contains("--rate=940M"), "{}", run.stdout);
    }
}

#[test]
fn a_file_that_others_can_write_is_refused_and_the_error_names_the_chmod_command() {
    let (_, folder) = with("[cp]\nrate = \"5M\"\n", &["cp", "--show-config"]);
    let file = folder.path().join("config.toml");
    for (mode, is_refused) in [(0o664, true), (0o646, true), (0o644, false), (0o600, false)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("it is ours");
        let run = longhaul_in(folder.path(), &["cp", "--show-config"]);
        assert_eq!(run.stderr.contains("can be written by others"), is_refused, "{mode:o}");
        assert_eq!(run.stderr.contains("chmod go-w"), is_refused, "{mode:o}");
        assert_eq!(run.status != 0, is_refused, "{mode:o}: {}", run.stderr);
    }
}

#[test]
fn show_config_names_the_line_of_each_value_from_the_file() {
    let text = "[cp]\nrate = \"940M\"\nexclude = [\".git\"]\n";
    let (run, folder) = with(text, &["cp", "--show-config"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let file = folder.path().join("config.toml");
    let lines: Vec<&str> = run.stdout.lines().collect();
    let file = file.display();
    for line in [format!("--exclude=.git  # {file}:3"), format!("--rate=940M  # {file}:2")] {
        assert!(lines.contains(&&line[..]), "{line} in {lines:?}");
    }
    assert!(lines.contains(&"--retry-for=5m  # default"), "{lines:?}");
}

#[test]
fn the_values_of_a_server_are_shown_without_starting_it() {
    let text = "[serve]\nmemory = \"1Gi\"\nread-only = true\n";
    let (run, folder) = with(text, &["serve", "--show-config", "--root=/data", "--once"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let file = folder.path().join("config.toml");
    let (lines, file): (Vec<&str>, _) = (run.stdout.lines().collect(), file.display());
    for line in [
        format!("--memory=1Gi  # {file}:2"),
        format!("--read-only  # {file}:3"),
        "--root=/data  # flag".to_owned(),
        "--once  # flag".to_owned(),
        "--listen=[::]:7717  # default".to_owned(),
    ] {
        assert!(lines.contains(&&line[..]), "no {line} in {lines:#?}");
    }
    assert_eq!(longhaul_in(folder.path(), &["serve", "--show-config"]).status, 0);
}

#[test]
fn show_config_shows_a_folder_given_by_a_flag_but_no_positional_argument() {
    let (run, _folder) = with("", &["doctor", "--show-config", "--dir", "/data"]);
    assert!(run.stdout.lines().any(|line| line == "--dir=/data  # flag"), "{}", run.stdout);
    let (run, _folder) = with("", &["mount", "--show-config", "lh://dtn/x", "/data"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(!run.stdout.contains("/data"), "{}", run.stdout);
}

#[test]
fn flags_override_the_host_section_which_overrides_cp_which_overrides_the_defaults() {
    let text = "[cp]\nrate = \"1M\"\nmemory = \"64Mi\"\nstall = \"9s\"\nexclude = [\"a\"]\n\
                [host.dtn]\nrate = \"2M\"\nmemory = \"128Mi\"\nremote-path = \"/opt/lh\"\n\
                rsh = \"ssh -p 2222\"\n[host.other]\nretry-for = \"1s\"\n";
    for place in ["me@dtn:x", "dtn:x", "lh://dtn:9/x"] {
        let words = ["cp", "--show-config", "--rate=3M", "--exclude=b", place, "."];
        let (run, folder) = with(text, &words);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let file = folder.path().join("config.toml").display().to_string();
        let lines: Vec<&str> = run.stdout.lines().collect();
        for line in [
            "--rate=3M  # flag".to_owned(),
            format!("--memory=128Mi  # {file}:8"),
            format!("--stall=9s  # {file}:4"),
            format!("--remote-path=/opt/lh  # {file}:9"),
            format!("--exclude=a --exclude=b  # flag, {file}:5"),
            "--retry-for=5m  # default".to_owned(),
        ] {
            assert!(lines.contains(&&line[..]), "{place}: no {line} in {lines:#?}");
        }
    }
}

#[test]
fn the_error_of_a_mistake_in_the_section_of_a_host_names_file_and_line() {
    for (text, said) in [
        ("[host.dtn]\nratee = \"1M\"\n", "config.toml:2: unknown key 'ratee' in [host.dtn]"),
        ("[host.dtn]\nrate = \"fast\"\n", "config.toml:2: "),
        ("[host.dtn]\nserver-id = \"x\"\n", "config.toml:2: "),
    ] {
        // The section belongs to the host of this copy, or to another host.
        for place in ["dtn:x", "h:x"] {
            let (run, _folder) = with(text, &["cp", place, "."]);
            run.is_refused(&[said]);
        }
    }
}

#[test]
fn flags_win_over_the_file() {
    let text = "[cp]\nmemory = \"32Mi\"\n";
    let (run, _folder) = with(text, &["cp", "--memory=1Mi", "h:a", "b"]);
    run.is_refused(&["--memory 1.05 MB"]);
}

#[test]
fn help_works_with_a_broken_file() {
    let (run, _folder) = with("[cp\n", &["cp", "--help"]);
    assert_eq!(run.status, 0);
}

#[test]
fn every_command_reads_from_the_host_section_how_to_reach_the_host() {
    let text = "[cp]\nrsh = \"ssh -C\"\n[host.dtn]\nrate = \"2M\"\nremote-path = \"/opt/lh\"\n\
                data-port = 9\nports = \"5000-5009\"\n";
    let cases: [(&[&str], bool); 11] = [
        (&["ls", "dtn:x"], true),
        (&["probe", "me@dtn"], true),
        (&["sync", "dtn:x", "."], true),
        (&["share", "get", "lh://dtn/x"], true),
        (&["doctor", "lh://dtn"], false),
        (&["cat", "dtn:x"], true),
        (&["mount", "dtn:x", "folder"], true),
        (&["top", "lh://dtn"], true),
        (&["stream", "send", "-", "lh://dtn/x", "--frame=1", "--fps=1", "--deadline=1s"], true),
        (&["stream", "receive", "lh://dtn/x"], true),
        (&["channel", "send", "lh://dtn/x"], true),
    ];
    for (words, is_by_ssh) in cases {
        let (run, folder) = with(text, &[words, &["--show-config"]].concat());
        assert_eq!(run.status, 0, "{words:?}: {}", run.stderr);
        let file = folder.path().join("config.toml").display().to_string();
        let names_host = ["=dtn", "=me@dtn", "=lh://"].iter().any(|of| run.stdout.contains(of));
        assert!(!names_host, "{words:?}: {}", run.stdout);
        let data_port = format!("--data-port=9  # {file}:6");
        assert!(run.stdout.lines().any(|line| line == data_port), "{words:?}: {}", run.stdout);
        let path = format!("--remote-path=/opt/lh  # {file}:5");
        assert_eq!(run.stdout.contains(&path), is_by_ssh, "{words:?}: {}", run.stdout);
        // The rate and all of [cp] apply only to copies.
        let is_copy = words[0] == "sync";
        assert_eq!(run.stdout.contains("--rate=2M"), is_copy, "{words:?}: {}", run.stdout);
        assert_eq!(run.stdout.contains("ssh -C"), is_copy, "{words:?}: {}", run.stdout);
    }
    let (run, _folder) = with(text, &["ls", "--data-port=8", "--show-config", "lh://dtn/"]);
    assert!(run.stdout.contains("--data-port=8  # flag"), "{}", run.stdout);
    let (run, _folder) = with("[host.dtn]\nratee = \"1M\"\n", &["ls", "dtn:"]);
    run.is_refused(&["config.toml:2: unknown key 'ratee' in [host.dtn]"]);
}
