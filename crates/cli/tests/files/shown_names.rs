//! File names from the other host: control characters do not reach the user's terminal, and names
//! that are not UTF-8 stay distinct.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::rig::{Child, Ended, Pair, Terminal, write};

/// Clears the screen, sets the title, and starts a new line.
const HOSTILE: &str = "\x1b[2J\x1b]0;owned\x07\nlonghaul: copied 9 files";
/// [`HOSTILE`] as longhaul prints it.
const SHOWN: &str = "\\u{1b}[2J\\u{1b}]0;owned\\u{7}\\nlonghaul: copied 9 files";

fn cp(pair: &Pair, args: &[&dyn AsRef<OsStr>]) -> Command {
    let id = format!("--server-id={}", pair.server.id);
    let mut command = pair.client.command(["cp", &id]);
    command.args(args.iter().map(AsRef::as_ref)).current_dir(&pair.here);
    command
}

fn run(pair: &Pair, args: &[&dyn AsRef<OsStr>]) -> Ended {
    Child::spawn(cp(pair, args).stdout(Stdio::piped())).end()
}

#[test]
fn a_hostile_name_is_shown_on_one_line_and_cannot_move_the_cursor() {
    let pair = Pair::new();
    write(&pair.there.join("tree").join(HOSTILE), b"x");
    write(&pair.there.join("tree/plain"), b"y");
    let from = pair.at("tree");
    let list = run(&pair, &[&"-rn", &from, &"copy"]);
    list.is(0, &[]);
    assert_eq!(list.stdout.len(), 3, "{list}");
    assert!(list.stdout.iter().any(|line| line.ends_with(SHOWN)), "{list}");
    // The destination has a folder with the name of the file, so an error shows the name.
    fs::create_dir_all(pair.here.join("copy/tree").join(HOSTILE)).unwrap();
    for (flag, status) in [("-rv", 8), ("-r", 8)] {
        let (ended, text) = Terminal::start(cp(&pair, &[&flag, &from, &"copy/"])).end();
        assert_eq!(ended, Some(status), "{text:?}");
        assert!(text.contains(SHOWN), "{text:?}");
        assert!(!text.contains("\x1b[2J") && !text.contains("\x1b]0;"), "{text:?}");
    }
    fs::remove_dir_all(pair.here.join("copy")).unwrap();
    run(&pair, &[&"-rv", &from, &"copy"]).is(0, &[SHOWN]);
    let again = run(&pair, &[&"-rvv", &from, &"copy"]);
    assert!(!again.stderr.contains('\x1b'), "{again}");
    let missing = run(&pair, &[&pair.at(format!("no{HOSTILE}")), &"x"]);
    missing.is(5, &[SHOWN]);
    assert!(!missing.stderr.contains("\x1b[2J"), "{missing}");
}

#[test]
fn names_that_are_not_utf8_stay_distinct_in_a_list_and_in_json() {
    let pair = Pair::new();
    for name in [&b"a\xff"[..], b"a\xfe"] {
        write(&pair.there.join("tree").join(OsStr::from_bytes(name)), name);
    }
    let from = pair.at("tree");
    let list = run(&pair, &[&"-rn", &from, &"copy"]);
    list.is(0, &[]);
    assert!(list.stdout.iter().any(|line| line.ends_with("a\\xff")), "{list}");
    let ended = pair.cp(&[&"-rn", &from, &"copy"]);
    let mut told: Vec<_> =
        ended.events("file").iter().map(|event| event["path_hex"].to_string()).collect();
    told.sort();
    let hex = |byte: &str| format!("\"{}61{byte}\"", "747265652f");
    assert_eq!(told, [hex("fe"), hex("ff")], "{ended}");
}
