//! The output that a user sees, on a terminal and elsewhere.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};

use crate::rig::{Child, Host, Pair, Server, Terminal, bytes, content, scratch, write};

/// A copy without `--json` and without flags about trust.
fn cp(pair: &Pair, args: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = pair.client.command(["cp"]);
    command.args(args.iter().map(AsRef::as_ref)).current_dir(&pair.here);
    command
}

fn pinned(pair: &Pair) -> String {
    format!("--server-id={}", pair.server.id)
}

#[test]
fn the_user_is_asked_about_a_new_server_until_the_answer_is_yes() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(1000, 1));
    let known = pair.client.config.join("known_servers");
    for (answer, status) in [("n\n", 3), ("\n", 3), ("yes\n", 0)] {
        let mut screen = Terminal::start(cp(&pair, &[&"file", &pair.at("")]));
        screen.shows("is not known on this host");
        screen.shows(&pair.server.id);
        screen.shows("[y/N]");
        assert!(content(&pair.there).is_empty());
        screen.types(answer);
        let (ended, text) = screen.end();
        assert_eq!(ended, Some(status), "{answer:?}: {text}");
        assert_eq!(known.exists(), status == 0, "{answer:?}: {text}");
    }
    let line = format!("{} {}", pair.server.address, pair.server.id);
    assert!(fs::read_to_string(&known).unwrap().contains(&line));
    write(&pair.here.join("file"), &bytes(1001, 2));
    let (ended, text) = Terminal::start(cp(&pair, &[&"file", &pair.at("")])).end();
    assert_eq!(ended, Some(0), "{text}");
    assert!(!text.contains("is not known"), "{text}");
}

#[test]
fn a_table_that_is_redirected_to_a_file_has_no_colour_codes() {
    let scratch = scratch();
    let (file, table) = (scratch.path().join("pair.toml"), scratch.path().join("table"));
    let text = "[topology]\nkind = \"pair\"\nlink = { rate = \"5M\" }\n\
        [[flow]]\nfrom = \"a\"\nto = \"b\"\ntcp = \"cubic\"\nsize = \"20KB\"\n";
    write(&file, text.as_bytes());
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" sim \"$1\" > \"$2\"", env!("CARGO_BIN_EXE_longhaul")]);
    command.arg(&file).arg(&table).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    let (ended, text) = Terminal::start(command).end();
    assert_eq!(ended, Some(0), "{text}");
    let table = fs::read_to_string(&table).unwrap();
    assert!(table.contains("goodput") && !table.contains('\x1b'), "{table:?}");
}

#[test]
fn ctrl_c_at_the_question_about_a_new_server_means_no() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"f");
    let mut screen = Terminal::start(cp(&pair, &[&"file", &pair.at("")]));
    screen.shows("[y/N]");
    screen.signal(rustix::process::Signal::INT);
    let (ended, text) = screen.end();
    assert!(matches!(ended, Some(3 | 130)), "{ended:?}: {text}");
    assert!(!pair.client.config.join("known_servers").exists() && content(&pair.there).is_empty());
}

#[test]
fn the_progress_bar_ends_at_100_percent() {
    let pair = Pair::new();
    write(&pair.here.join("object"), &bytes(6_000_000, 1));
    let id = pinned(&pair);
    let command = cp(&pair, &[&id, &"--rate=20M", &"object", &pair.at("")]);
    let mut screen = Terminal::start(command);
    screen.shows("of 6.00 MB");
    screen.shows("[=");
    let (ended, text) = screen.end();
    assert_eq!(ended, Some(0), "{text}");
    let drawn: Vec<&str> = text.split('[').filter(|part| part.contains(" of 6.00 MB")).collect();
    let last = drawn.last().expect("it was drawn");
    assert!(last.contains("100.0 %, 6.00 MB of 6.00 MB"), "{last:?} in {text}");
    // The bar is not full before there is progress.
    let full = text.find("[============]").expect("it ends full");
    assert!(text.find("of 6.00 MB").expect("it was drawn") < full, "{text}");
}

#[test]
fn each_of_several_sources_has_its_own_line() {
    let pair = Pair::new();
    let other = Host::new(&pair.scratch.path().join("other"));
    let root = pair.scratch.path().join("root");
    write(&pair.there.join("one"), &bytes(3_000_000, 1));
    write(&root.join("two"), &bytes(3_000_000, 2));
    let server = Server::start(&other, &root, &["--allow", &pair.client.id]);
    let sources = [pair.at("one"), server.at("two")];
    let flags = ["--accept-new", "--rate=10M"];
    let command = cp(&pair, &[&flags[0], &flags[1], &sources[0], &sources[1], &"."]);
    let mut screen = Terminal::start(command);
    for source in &sources {
        screen.shows(&format!("{}: receiving, ", source.to_str().expect("an address")));
    }
    screen.shows("[=");
    let (ended, text) = screen.end();
    assert_eq!(ended, Some(0), "{text}");
    assert!(text.contains("copied 2 files, 6.00 MB"), "{text}");
}

#[test]
fn at_80_columns_every_quantity_is_shown() {
    let pair = Pair::new();
    for number in 0..12 {
        write(&pair.here.join(format!("tree/{number}")), &bytes(500_000, number));
    }
    let id = pinned(&pair);
    let command = cp(&pair, &[&id, &"-r", &"--rate=20M", &"tree", &pair.at("")]);
    let (ended, text) = Terminal::start(command).end();
    assert_eq!(ended, Some(0), "{text}");
    for shown in ["of 6.00 MB", "bit/s", " left", "loss ", "resent ", "average ", "of 12 files"] {
        assert!(text.contains(shown), "no {shown:?} in {text:?}");
    }
}

#[test]
fn a_terminal_that_cannot_draw_prints_lines_on_request() {
    let pair = Pair::new();
    let id = pinned(&pair);
    for (flag, shown) in [("-P", true), ("--retry-for=5m", false)] {
        write(&pair.here.join("object"), &bytes(2_000_000, flag.len() as u64));
        let command = cp(&pair, &[&id, &flag, &"object", &pair.at("")]);
        let (ended, text) = Terminal::start_on("dumb", command).end();
        assert_eq!(ended, Some(0), "{text}");
        assert_eq!(text.contains("longhaul: 100.0 %, 2.00 MB of 2.00 MB"), shown, "{text:?}");
        assert!(!text.contains('\x1b') && text.contains("copied 1 file"), "{text:?}");
    }
}

#[test]
fn the_last_line_of_progress_agrees_with_the_summary() {
    let pair = Pair::new();
    write(&pair.here.join("object"), &bytes(2_000_000, 9));
    let id = pinned(&pair);
    let ended = Child::spawn(&mut cp(&pair, &[&id, &"-v", &"object", &pair.at("")])).end();
    ended.is(0, &["100.0 %", "goodput"]);
    let after = |word: &str| {
        let rest = ended.stderr.split(word).nth(1).unwrap_or_else(|| panic!("{word}: {ended}"));
        rest.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(after(", average "), after("goodput "), "{ended}");
    assert!(!ended.stderr.contains(" 0 bit/s"), "{ended}");
}

#[test]
fn with_the_quiet_flag_only_errors_are_printed_whatever_the_other_flags_are() {
    let pair = Pair::new();
    let id = pinned(&pair);
    for (number, flags) in ["-qP", "-qn", "-vq", "-qrp"].into_iter().enumerate() {
        write(&pair.here.join("object"), &bytes(200_000, number as u64));
        let mut command = cp(&pair, &[&id, &flags, &"--progress", &"object", &pair.at("")]);
        let ended = Child::spawn(command.stdout(Stdio::piped())).end();
        ended.is(0, &[]);
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "{flags}: {ended}");
        let missing = Child::spawn(&mut cp(&pair, &[&id, &flags, &"none", &pair.at("")])).end();
        missing.is(4, &["none"]);
    }
}

#[test]
fn only_arrived_data_are_reported_as_copied() {
    let pair = Pair::new();
    let id = pinned(&pair);
    for name in ["a", "b", "c"] {
        write(&pair.here.join("tree").join(name), name.repeat(9).as_bytes());
        fs::create_dir_all(pair.there.join("tree").join(name)).unwrap();
    }
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    let none = copy(&[&id, &"-r", &"tree", &pair.at("")]);
    none.is(8, &["longhaul: copied nothing; 3 files FAILED", "failed   3 files"]);
    fs::remove_dir(pair.there.join("tree/b")).unwrap();
    let some = copy(&[&id, &"-r", &"tree", &pair.at("")]);
    some.is(8, &["longhaul: copied 1 file, 9 B in", "failed   2 files"]);
    fs::remove_dir(pair.there.join("tree/a")).unwrap();
    let ended = pair.cp(&[&"-rp", &"tree", &pair.at("")]);
    let summary = &ended.events("summary")[0];
    let told = ["files", "copied_files", "failed_files", "copied_bytes", "bytes"];
    assert_eq!(told.map(|name| summary[name].as_u64()), [3, 1, 1, 9, 27].map(Some), "{ended}");
}

#[test]
fn a_tree_that_compares_equal_is_not_reported_as_copied() {
    let pair = Pair::new();
    let id = pinned(&pair);
    write(&pair.here.join("tree/large"), &bytes(9 << 20, 1));
    write(&pair.here.join("tree/small"), b"small");
    write(&pair.here.join("tree/empty"), b"");
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    copy(&[&id, &"-r", &"tree", &pair.at("")]).is(0, &["copied 3 files, 9.44 MB"]);
    let again = copy(&[&id, &"-rc", &"tree", &pair.at("")]);
    again.is(0, &["longhaul: already there, nothing to copy: 3 files, 9.44 MB"]);
    write(&pair.here.join("tree/small"), b"other");
    let one = copy(&[&id, &"-rc", &"tree", &pair.at("")]);
    // The number of bytes is left open: some equal chunks may be sent before the comparison ends.
    one.is(0, &["longhaul: copied 1 file, ", "2 files skipped"]);
}

#[test]
fn a_copy_of_an_equal_file_prints_one_line() {
    let pair = Pair::new();
    let id = pinned(&pair);
    write(&pair.here.join("file"), &bytes(2_000_000, 1));
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    copy(&[&id, &"-p", &"file", &pair.at("")]).is(0, &["copied 1 file"]);
    for flags in ["-p", "-pc"] {
        let again = copy(&[&id, &flags, &"file", &pair.at("")]);
        again.is(0, &["already there, nothing to copy: 1 file, 2.00 MB"]);
        assert_eq!(again.stderr.lines().count(), 1, "{again}");
    }
}

#[test]
fn a_tree_of_links_reports_their_number() {
    let pair = Pair::new();
    let id = pinned(&pair);
    fs::create_dir(pair.here.join("links")).unwrap();
    for name in ["a", "b"] {
        std::os::unix::fs::symlink("somewhere", pair.here.join("links").join(name)).unwrap();
    }
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    copy(&[&id, &"-r", &"links", &pair.at("")]).is(0, &["longhaul: copied 2 links in"]);
    let again = copy(&[&id, &"-r", &"links", &pair.at("")]);
    again.is(0, &["longhaul: already there, nothing to copy"]);
}

#[test]
fn a_copy_with_quiet_or_no_progress_draws_no_bar() {
    let pair = Pair::new();
    for (flag, says) in [("-q", false), ("--no-progress", true)] {
        write(&pair.here.join("object"), &bytes(2_000_000, flag.len() as u64));
        let id = pinned(&pair);
        let (ended, text) =
            Terminal::start(cp(&pair, &[&id, &flag, &"object", &pair.at("")])).end();
        assert_eq!(ended, Some(0), "{text}");
        assert!(!text.contains("[=") && text.contains("copied") == says, "{flag}: {text:?}");
    }
}

#[test]
fn without_a_terminal_the_progress_flag_prints_a_few_lines_and_a_last_line() {
    let pair = Pair::new();
    let id = pinned(&pair);
    for flag in ["-P", "--progress"] {
        write(&pair.here.join("object"), &bytes(2_000_000, flag.len() as u64));
        let mut command = cp(&pair, &[&id, &flag, &"object", &pair.at("")]);
        let ended = Child::spawn(command.stdout(Stdio::piped())).end();
        ended.is(0, &["longhaul: 100.0 %, 2.00 MB of 2.00 MB", "longhaul: copied 1 file, 2.00 MB"]);
        assert!(ended.stdout.is_empty(), "{ended}");
        let lines: Vec<&str> = ended.stderr.lines().filter(|l| l.contains(" of 2.00 MB")).collect();
        // There is one line every 10 s, up to the tests' time limit of 120 s.
        assert!(lines.len() < 14 && !ended.stderr.contains('\r'), "{ended}");
    }
    write(&pair.here.join("object"), &bytes(2_000_000, 77));
    let ended = Child::spawn(&mut cp(&pair, &[&id, &"object", &pair.at("")])).end();
    ended.is(0, &["longhaul: copied"]);
    assert!(!ended.stderr.contains("of 2.00 MB"), "{ended}");
}

#[test]
fn existing_files_are_reported_and_nothing_is_copied() {
    let pair = Pair::new();
    write(&pair.here.join("tree/a"), &bytes(500_000, 1));
    write(&pair.here.join("tree/b"), b"b");
    let id = pinned(&pair);
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    copy(&[&id, &"-rp", &"tree", &pair.at("")]).is(0, &["longhaul: copied 2 files"]);
    let again = copy(&[&id, &"-rp", &"tree", &pair.at("")]);
    again.is(0, &["longhaul: already there, nothing to copy: 2 files"]);
    for word in ["bound", "goodput", "would help"] {
        assert!(!again.stderr.contains(word), "{word}: {again}");
    }
}

#[test]
fn a_small_copy_prints_one_line_and_more_on_request() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"four");
    let id = pinned(&pair);
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    let plain = copy(&[&id, &"file", &pair.at("one")]);
    plain.is(0, &["longhaul: copied 1 file, 4 B", "verified"]);
    assert_eq!(plain.stderr.lines().count(), 1, "{plain}");
    copy(&[&id, &"-v", &"file", &pair.at("two")]).is(0, &["blake3", "goodput", "on the path"]);
    let told = copy(&[&id, &"-n", &"file", &pair.at("three")]);
    told.is(0, &["would copy 1 file"]);
    assert!(!pair.there.join("three").exists());
}

#[test]
fn messages_name_the_other_host() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"f");
    let id = pinned(&pair);
    let copy = |args: &[&dyn AsRef<OsStr>]| Child::spawn(&mut cp(&pair, args)).end();
    let says = format!("{} says: ", pair.server.address);
    let missing = copy(&[&id, &pair.at("nofile"), &"."]);
    missing.is(5, &[&says, "nofile"]);
    assert!(!missing.stderr.contains(&pair.server.id), "{missing}");
    copy(&[&id, &"file", &pair.at("no/such/file")]).is(5, &[&says, "on the other host: mkdir -p"]);
    let glob = copy(&[&id, &pair.at("*.dat"), &"."]);
    glob.is(5, &["no name matches the pattern", "*.dat"]);
}

#[test]
fn a_small_copy_and_a_measurement_report_their_rate() {
    let pair = Pair::new();
    let id = pinned(&pair);
    write(&pair.here.join("object"), &bytes(2_000, 1));
    let measured = ["--receive=fake", "measured 2.00 kB in ", "nothing was written"];
    for [flag, first, last] in [["--stall=60s", "copied 1 file, 2.00 kB in ", "verified"], measured]
    {
        let mut command = cp(&pair, &[&id, &flag, &"object", &pair.at("")]);
        let ended = Child::spawn(command.stdout(Stdio::piped())).end();
        ended.is(0, &[first, "bit/s", last]);
    }
}

#[test]
fn at_40_columns_the_rate_the_time_left_and_the_name_are_shown() {
    let pair = Pair::new();
    for number in 0..12 {
        write(&pair.here.join(format!("tree/deep/{number}.h5")), &bytes(500_000, number));
    }
    let id = pinned(&pair);
    let command = cp(&pair, &[&id, &"-r", &"--rate=20M", &"tree", &pair.at("")]);
    let mut screen = Terminal::start_within(40, command);
    screen.shows("bit/s, ");
    screen.shows(" left");
    screen.shows("/deep/");
    let (ended, text) = screen.end();
    assert_eq!(ended, Some(0), "{text}");
    assert!(!text.contains("[="), "{text}");
    // Without -v the names of files are not listed.
    assert!(!text.contains("0.h5\r\n"), "{text}");
}

#[test]
fn a_copy_of_one_file_shows_the_name_of_the_file() {
    let pair = Pair::new();
    write(&pair.here.join("run42.h5"), &bytes(6_000_000, 1));
    let id = pinned(&pair);
    let mut screen = Terminal::start(cp(&pair, &[&id, &"--rate=20M", &"run42.h5", &pair.at("")]));
    screen.shows("run42.h5");
    assert_eq!(screen.end().0, Some(0));
}
