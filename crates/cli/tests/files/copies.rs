//! Results of copies of files and trees, in both directions.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::rig::{
    Child, Pair, Server, assert_same, assert_same_attributes, bytes, content, remains, write,
};

fn names(root: &Path) -> Vec<String> {
    content(root).into_keys().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_file_is_pushed_and_pulled() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(3_000_000, 1));
    let summary = pair.cp(&[&"file", &pair.at("")]).summary();
    assert_eq!(summary["bytes"], 3_000_000);
    assert_eq!(summary["blake3"], blake3::hash(&bytes(3_000_000, 1)).to_string());
    assert_eq!(summary["verified"], true);
    assert_same(&pair.here, &pair.there);
    pair.cp(&[&pair.at("file"), &"back"]).summary();
    assert_eq!(fs::read(pair.here.join("back")).unwrap(), bytes(3_000_000, 1));
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

fn make_everything(root: &Path) {
    write(&root.join("large"), &bytes(9_000_001, 1));
    for number in 0..200 {
        write(&root.join(format!("many/{number}")), &bytes(number * 37, number as u64));
    }
    write(&root.join(OsStr::from_bytes(b"not \xff utf-8/\xfe\n.bin")), b"bytes");
    write(&root.join("an\u{e4}\u{1f680} \"quoted\" 'name'"), b"unicode");
    write(&root.join("n".repeat(255)), b"longest");
    write(&root.join("empty"), b"");
    fs::create_dir_all(root.join("folders/within/folders")).unwrap();
    symlink("../large", root.join("many/link")).unwrap();
    symlink("no/where", root.join("dangling")).unwrap();
    symlink("loop b", root.join("loop a")).unwrap();
    symlink("loop a", root.join("loop b")).unwrap();
    symlink("..", root.join("folders/up")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 20 << 20).unwrap();
    let set = |name: &str, mode| {
        fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    };
    set("large", 0o640);
    set("many/1", 0o555);
    set("many/2", 0o400);
    set("folders/within", 0o750);
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    for name in ["many/3", "folders", "many"] {
        File::open(root.join(name)).unwrap().set_modified(then).unwrap();
    }
}

#[test]
fn a_tree_of_files_folders_and_links_keeps_permissions_and_times_both_ways() {
    let pair = Pair::new();
    make_everything(&pair.here.join("tree"));
    let summary = pair.cp(&[&"-r", &"-p", &"tree", &pair.at("")]).summary();
    // 200 files in `many`, and six others.
    assert_eq!(summary["files"], 206);
    assert_same_attributes(&pair.here, &pair.there);
    pair.cp(&[&"-a", &pair.at("tree"), &"back"]).summary();
    assert_same_attributes(&pair.here.join("tree"), &pair.here.join("back"));
    for sparse in [pair.there.join("tree/sparse"), pair.here.join("back/sparse")] {
        let taken = fs::metadata(&sparse).unwrap().blocks() * 512;
        assert!(taken <= 2 << 20, "{sparse:?} takes {taken} bytes");
    }
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
}

#[test]
fn several_sources_go_into_one_folder_both_ways() {
    let pair = Pair::new();
    write(&pair.here.join("a/one"), b"1");
    write(&pair.here.join("b/two"), &bytes(9 << 20, 2));
    write(&pair.here.join("three"), b"3");
    pair.cp(&[&"-r", &"a", &"b/", &"three", &pair.at("")]).summary();
    assert_eq!(names(&pair.there), ["a", "a/one", "three", "two"]);
    fs::create_dir(pair.here.join("back")).unwrap();
    let sources = [pair.at("a"), pair.at("three"), pair.at("two")];
    pair.cp(&[&"-r", &sources[0], &sources[1], &sources[2], &"back"]).summary();
    assert_same(&pair.there, &pair.here.join("back"));
    let twice = pair.cp(&[&"-r", &"three", &"./three", &pair.at("")]);
    twice.is(2, &["two sources have three"]);
}

#[test]
fn slashes_after_the_source_and_the_destination_decide_where_files_go() {
    let pair = Pair::new();
    write(&pair.here.join("x/y"), b"y");
    fs::create_dir(pair.there.join("there")).unwrap();
    let cases: [(&str, &str, &str); 8] = [
        ("x", "new", "new/y"),
        ("x", "there", "there/x/y"),
        ("x/", "contents", "contents/y"),
        ("x/", "there", "there/y"),
        ("x/.", "dot", "dot/y"),
        ("x/y", "file", "file"),
        ("x/y", "there/", "there/y"),
        ("x", "", "x/y"),
    ];
    for (from, to, there) in cases {
        pair.cp(&[&"-r", &from, &pair.at(to)]).summary();
        assert_eq!(fs::read(pair.there.join(there)).unwrap(), b"y", "{from} to {to}");
    }
    for (from, to, here) in [("x", "here", "here/y"), ("x/", ".", "y"), ("x/y", "z", "z")] {
        pair.cp(&[&"-r", &pair.at(from), &to]).summary();
        assert_eq!(fs::read(pair.here.join(here)).unwrap(), b"y", "{from} to {to}");
    }
}

#[test]
fn equal_files_are_skipped_and_checksum_compares_content() {
    let pair = Pair::new();
    write(&pair.here.join("t/small"), &bytes(1000, 1));
    write(&pair.here.join("t/large"), &bytes(10 << 20, 2));
    let run = |flags: &[&str]| {
        let flags = [&["-r"], flags].concat();
        pair.copy(&flags, "t", pair.at("")).end()
    };
    assert_eq!(run(&[]).summary()["skipped_files"], 0);
    let again = run(&[]).summary();
    assert_eq!(again["skipped_files"], 2);
    assert_eq!(again["resumed_bytes"], 1000 + (10 << 20));
    // The content differs, but size and time are equal.
    for (name, len) in [("small", 1000), ("large", 10 << 20)] {
        let path = pair.there.join("t").join(name);
        let then = fs::metadata(&path).unwrap().modified().unwrap();
        let mut other = bytes(len, if name == "small" { 1 } else { 2 });
        other[len / 2] ^= 1;
        fs::write(&path, other).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    }
    assert_eq!(run(&[]).summary()["skipped_files"], 2);
    // At this rate the sender completes no chunk before the comparison ends.
    let slowly = ["--checksum", "--rate=10M"];
    let closer = run(&slowly).summary();
    assert_same(&pair.here, &pair.there);
    assert_eq!(closer["resumed_bytes"], 9 << 20, "one chunk of ten differs: {closer}");
    let equal = run(&slowly).summary();
    assert!(equal["resumed_bytes"].as_u64().unwrap() >= 10 << 20, "{equal}");
}

#[test]
fn checksum_distinguishes_small_files_in_one_chunk() {
    for flags in [&["-rc"][..], &["-rc", "--protocol=tcp", "--streams=1"]] {
        let pair = Pair::new();
        for number in 0..30 {
            write(&pair.here.join(format!("t/{number}")), &bytes(50_000, number));
            let other = if number % 3 == 0 { number + 100 } else { number };
            write(&pair.there.join(format!("t/{number}")), &bytes(50_000, other));
        }
        pair.copy(flags, "t", pair.at("")).end().summary();
        assert_same(&pair.here, &pair.there);
    }
}

#[test]
fn a_dry_run_names_new_and_changed_entries_and_changes_nothing() {
    let pair = Pair::new();
    write(&pair.here.join("t/a"), b"a");
    write(&pair.here.join("t/b"), &bytes(9 << 20, 2));
    fs::create_dir(pair.here.join("t/empty")).unwrap();
    symlink("../a b", pair.here.join("t/link")).unwrap();
    let all = ["t/", "t/a", "t/b", "t/empty/", "t/link -> ../a b"];
    let id = format!("--server-id={}", pair.server.id);
    let dry = |from: &OsStr, to: &OsStr| {
        let args = [OsStr::new("cp"), OsStr::new(&id), OsStr::new("-rn"), from, to];
        Child::spawn(pair.client.command(args).current_dir(&pair.here)).end()
    };
    let push = dry(OsStr::new("t"), &pair.at(""));
    push.is(0, &["would copy 2 files, 9.44 MB"]);
    assert_eq!(push.stdout, all);
    assert!(names(&pair.there).is_empty());
    pair.cp(&[&"-r", &"t", &pair.at("")]).summary();
    fs::write(pair.there.join("t/a"), b"other").unwrap();
    let again = dry(OsStr::new("t"), &pair.at(""));
    again.is(0, &["would copy 1 file, "]);
    assert_eq!(again.stdout, ["t/a"]);
    fs::remove_dir(pair.there.join("t/empty")).unwrap();
    fs::remove_file(pair.there.join("t/link")).unwrap();
    symlink("elsewhere", pair.there.join("t/link")).unwrap();
    let again = dry(OsStr::new("t"), &pair.at(""));
    again.is(0, &["would copy 1 file, "]);
    assert_eq!(again.stdout, ["t/a", "t/empty/", "t/link -> ../a b"]);
    let pull = dry(&pair.at("t"), OsStr::new("back"));
    pull.is(0, &["would copy 2 files"]);
    assert_eq!(pull.stdout, ["t/", "t/a", "t/b", "t/link -> elsewhere"]);
    assert!(!pair.here.join("back").exists());
}

/// Everything below a folder, with content and modification time.
fn state(root: &Path) -> Vec<(String, Option<Vec<u8>>, SystemTime)> {
    let of_name = |name: String| {
        let path = root.join(&name);
        let changed = fs::symlink_metadata(&path).unwrap().modified().unwrap();
        (name, fs::read(path).ok(), changed)
    };
    names(root).into_iter().map(of_name).collect()
}

/// Runs a push and a pull with `-n --checksum`. Returns the files that each would copy, and its
/// summary.
fn dry_by_content(pair: &Pair, name: &str) -> [(Vec<String>, Value); 2] {
    let before = [state(&pair.here), state(&pair.there)];
    let ways = [(name.into(), pair.at("")), (pair.at(name), OsString::from("."))];
    let told = ways.map(|(from, to)| {
        let ended = pair.copy(&["-rnc"], from, to).end();
        let text = |event: &Value| event["path"].as_str().unwrap().to_owned();
        (ended.events("file").iter().map(text).collect(), ended.summary())
    });
    assert!([state(&pair.here), state(&pair.there)] == before, "{name}");
    assert!(remains(&pair.here).is_empty() && remains(&pair.there).is_empty());
    told
}

#[test]
fn a_dry_run_with_checksum_names_differences_and_changes_nothing() {
    let pair = Pair::new();
    for root in [&pair.here, &pair.there] {
        write(&root.join("one"), &bytes(3 << 20, 9));
        write(&root.join("t/empty"), b"");
        write(&root.join("t/large"), &bytes(9 << 20, 2));
        write(&root.join("t/longer"), &bytes(70_000, 3));
        for number in 0..20 {
            write(&root.join(format!("t/many/{number:02}")), &bytes(50_000, number));
        }
    }
    for name in ["one", "t"] {
        for (told, summary) in dry_by_content(&pair, name) {
            assert_eq!(told, [""; 0], "{summary}");
            assert_eq!(
                (&summary["copied_files"], &summary["copied_bytes"]),
                (&0.into(), &0.into())
            );
            assert_eq!(summary["unread_files"], 0, "{summary}");
        }
    }
    // Changes one bit in each of three files, and shortens a fourth.
    for name in ["one", "t/large", "t/many/07"] {
        let path = pair.there.join(name);
        let mut content = fs::read(&path).unwrap();
        content[900] ^= 1;
        fs::write(path, content).unwrap();
    }
    fs::write(pair.there.join("t/longer"), b"shorter").unwrap();
    for (told, summary) in dry_by_content(&pair, "one") {
        assert_eq!((&told[..], &summary["copied_files"]), (&["one".to_owned()][..], &1.into()));
    }
    for (told, summary) in dry_by_content(&pair, "t") {
        assert_eq!(told, ["t/large", "t/longer", "t/many/07"], "{summary}");
        // The skipped files are 19 small ones and the empty one.
        assert_eq!((&summary["copied_files"], &summary["skipped_files"]), (&3.into(), &20.into()));
        assert_eq!(summary["resumed_bytes"], 19 * 50_000, "{summary}");
    }
}

#[test]
fn filters_decide_in_their_order_both_ways() {
    let files = ["a.o", "keep.o", "b.c", "cache/x", "d/cache/y", "d/z.o", "d/z.c"];
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--exclude=*.o"], &["b.c", "cache/x", "d/cache/y", "d/z.c"]),
        (&["--include=keep.o", "--exclude=*.o", "--exclude=cache/"], &["b.c", "d/z.c", "keep.o"]),
        (&["--exclude=/cache"], &["a.o", "b.c", "d/cache/y", "d/z.c", "d/z.o", "keep.o"]),
        (&["--exclude=d/*.c", "--exclude=cache"], &["a.o", "b.c", "d/z.o", "keep.o"]),
    ];
    let pair = Pair::new();
    for file in files {
        write(&pair.here.join("t").join(file), b"x");
        write(&pair.there.join("t").join(file), b"x");
    }
    for (number, (filters, expected)) in cases.into_iter().enumerate() {
        assert_both_ways(&pair, number, filters, expected);
    }
}

/// Copies both ways into new folders, named after `number`, and asserts which files arrive.
#[track_caller]
fn assert_both_ways(pair: &Pair, number: usize, filters: &[&str], expected: &[&str]) {
    let copy = |from: &OsStr, to: &OsStr| {
        pair.copy(&[&["-r"], filters].concat(), from, to).end().summary();
    };
    let into = format!("to {number}");
    copy(OsStr::new("t/"), &pair.at(&into));
    copy(&pair.at("t/"), OsStr::new(&into));
    for root in [pair.there.join(&into), pair.here.join(&into)] {
        let is_file = |name: &String| root.join(name).is_file();
        let found: Vec<String> = names(&root).into_iter().filter(is_file).collect();
        assert_eq!(found, expected, "{filters:?}");
    }
}

#[test]
fn size_limits_skip_files_of_a_folder_both_ways() {
    let cases: [(&[&str], &[&str]); 3] = [
        (&["--max-size=2k", "--include=*"], &["d/one", "none", "two"]),
        (&["--min-size", "1000"], &["d/big", "d/one", "two"]),
        (&["--min-size=1k", "--max-size=3k", "--exclude=two"], &["d/one"]),
    ];
    let pair = Pair::new();
    for (file, size) in [("none", 0), ("d/one", 1000), ("two", 2000), ("d/big", 3001)] {
        write(&pair.here.join("t").join(file), &bytes(size, 1));
        write(&pair.there.join("t").join(file), &bytes(size, 1));
    }
    for (number, (limits, expected)) in cases.into_iter().enumerate() {
        assert_both_ways(&pair, number, limits, expected);
    }
    // The command names the file, so no limit applies.
    pair.copy(&["--max-size=1"], OsStr::new("t/d/big"), pair.at("named")).end().summary();
    assert!(pair.there.join("named").is_file());
    let refused =
        pair.copy(&["-r", "--min-size=2k", "--max-size=1k"], pair.at("t/"), OsStr::new("refused"));
    refused.end().is(2, &["at least 2.00 kB and at most 1.00 kB"]);
}

#[test]
fn a_server_on_all_addresses_is_reached_by_ipv4_by_ipv6_and_by_name() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(100_000, 1));
    let allow = ["--allow", pair.client.id.as_str()];
    let words = Server::words("[::]:0", &pair.there, &allow);
    let server = Server::start_as(&mut pair.host.command(words));
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    for (number, host) in ["127.0.0.1", "[::1]", "localhost"].into_iter().enumerate() {
        let there = format!("lh://{host}:{port}/{number}");
        pair.cp(&[&"file", &there]).summary();
        pair.cp(&[&there, &format!("back {number}")]).summary();
        let back = fs::read(pair.here.join(format!("back {number}"))).unwrap();
        assert!(back == bytes(100_000, 1), "{host}");
    }
}

#[test]
fn a_folder_without_r_and_a_missing_source_are_refused_on_either_side() {
    let pair = Pair::new();
    fs::create_dir(pair.here.join("d")).unwrap();
    fs::create_dir(pair.there.join("d")).unwrap();
    pair.cp(&[&"d", &pair.at("")]).is(2, &["d is a folder", "-r"]);
    pair.cp(&[&pair.at("d"), &"."]).is(2, &["d is a folder", "-r"]);
    pair.cp(&[&"missing", &pair.at("")]).is(4, &["missing", "No such file"]);
    let ended = pair.cp(&[&pair.at("missing"), &"."]);
    ended.is(5, &["missing", "No such file"]);
    assert_eq!(ended.last()["class"], "remote-file");
    assert_eq!(names(&pair.here), [PathBuf::from("d").to_string_lossy()]);
}

#[test]
fn a_list_selects_the_files_to_copy_both_ways() {
    let pair = Pair::new();
    for file in ["a/b/x", "a/b/not", "whole/of/it", "*", "star"] {
        write(&pair.here.join("t").join(file), file.as_bytes());
        write(&pair.there.join("t").join(file), file.as_bytes());
    }
    write(&pair.here.join("list"), b"# these\n./a/b/x\n/whole/\n*\n");
    let taken = ["*", "a", "a/b", "a/b/x", "whole", "whole/of", "whole/of/it"];
    pair.copy(&["--files-from", "list"], OsStr::new("t"), pair.at("to")).end().summary();
    assert_eq!(names(&pair.there.join("to")), taken);
    pair.copy(&["--files-from=list"], pair.at("t"), OsStr::new("to")).end().summary();
    assert_eq!(names(&pair.here.join("to")), taken);
    write(&pair.here.join("zeros"), b"star\0a/b/not\0");
    let zeros = ["--files-from=zeros", "--from0"];
    pair.copy(&zeros, OsStr::new("t"), pair.at("zeros")).end().summary();
    assert_eq!(names(&pair.there.join("zeros")), ["a", "a/b", "a/b/not", "star"]);
}

#[test]
fn listed_files_that_are_missing_or_outside_are_named_and_the_others_are_copied() {
    let pair = Pair::new();
    for root in [&pair.here, &pair.there] {
        write(&root.join("t/x"), b"x");
        symlink("/etc", root.join("t/out")).unwrap();
    }
    write(&pair.here.join("list"), b"x\nno/such\nout/passwd\n");
    for (from, to) in [("t".into(), pair.at("to")), (pair.at("t"), OsString::from("to"))] {
        let ended = pair.copy(&["--files-from=list"], from, to).end();
        ended.is(8, &["no/such", "out/passwd", "2 files FAILED"]);
    }
    for root in [&pair.here, &pair.there] {
        assert_eq!(names(&root.join("to")), ["x"]);
    }
}

#[test]
fn a_list_with_outside_paths_or_without_paths_is_refused() {
    let pair = Pair::new();
    write(&pair.here.join("t/x"), b"x");
    write(&pair.here.join("up"), b"x\n../secret\n");
    write(&pair.here.join("empty"), b"# none\n\n");
    let copy = |list: &str| pair.copy(&[list], OsStr::new("t"), pair.at("to")).end();
    copy("--files-from=up").is(2, &["../secret leads out of the folder"]);
    copy("--files-from=empty").is(2, &["it is empty"]);
    copy("--files-from=missing").is(4, &["missing"]);
    pair.cp(&[&"--files-from=up", &"t", &"t", &pair.at("to")]).is(2, &["several sources"]);
    assert!(names(&pair.there).is_empty());
}

#[test]
fn mkpath_creates_the_parents_of_the_destination_both_ways() {
    let pair = Pair::new();
    for root in [&pair.here, &pair.there] {
        write(&root.join("file"), b"f");
        write(&root.join("t/x"), b"x");
    }
    let cases: [(&[&str], &str, &str); 5] = [
        (&["file"], "a/b/name", "a/b/name"),
        (&["file"], "c/d/", "c/d/file"),
        (&["t"], "e/f/t", "e/f/t/x"),
        (&["t/"], "g/h", "g/h/x"),
        (&["t", "file"], "i/j", "i/j/t/x"),
    ];
    for (sources, to, made) in cases {
        let far: Vec<OsString> = sources.iter().map(|source| pair.at(source)).collect();
        let near: Vec<OsString> = sources.iter().map(OsString::from).collect();
        let ends = [(near, pair.at(to), &pair.there), (far, to.into(), &pair.here)];
        for (sources, to, root) in ends {
            let run = |flags: &[&'static str]| {
                let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"-r"];
                words.extend(flags.iter().map(|flag| flag as &dyn AsRef<OsStr>));
                words.extend(sources.iter().map(|source| source as &dyn AsRef<OsStr>));
                words.push(&to);
                pair.cp(&words)
            };
            let before = names(root);
            run(&[]).is(if root == &pair.there { 5 } else { 4 }, &["mkdir"]);
            run(&["--mkpath", "-n"]).summary();
            assert_eq!(names(root), before, "{made}");
            run(&["--mkpath"]).summary();
            assert!(root.join(made).is_file(), "{made}");
        }
    }
}

#[test]
fn mkpath_creates_nothing_outside_the_root_of_a_server() {
    let pair = Pair::new();
    let outside = tempfile::tempdir().unwrap();
    write(&pair.here.join("file"), b"f");
    symlink(outside.path(), pair.there.join("out")).unwrap();
    for to in ["../up/x", "out/new/x", "made/../../up/x"] {
        let ended = pair.copy(&["--mkpath"], OsStr::new("file"), pair.at(to)).end();
        assert_ne!(ended.status, Some(0), "{to}: {ended}");
    }
    assert!(names(outside.path()).is_empty());
    assert!(!pair.there.parent().unwrap().join("up").exists());
}

fn pair_with_runs() -> Pair {
    let pair = Pair::new();
    for file in ["run1/x.h5", "run2/x.h5", "run2/y.h5", "run3/other", ".run4/x.h5", "run5"] {
        write(&pair.there.join(file), file.as_bytes());
    }
    pair
}

#[test]
fn a_pattern_in_a_source_is_expanded_on_the_other_host() {
    let pair = pair_with_runs();
    let cases: [(&str, &[&str]); 5] = [
        ("run2/*.h5", &["x.h5", "y.h5"]),
        ("run[13]", &["run1", "run1/x.h5", "run3", "run3/other"]),
        ("run?/other", &["other"]),
        ("{run1,run5}", &["run1", "run1/x.h5", "run5"]),
        ("run[12]/y*", &["y.h5"]),
    ];
    for (number, (pattern, made)) in cases.into_iter().enumerate() {
        let to = pair.here.join(format!("to{number}"));
        fs::create_dir(&to).unwrap();
        pair.cp(&[&"-r", &pair.at(pattern), &to]).summary();
        assert_eq!(names(&to), made, "{pattern}");
    }
    // A single match is copied as if the command had named it.
    pair.cp(&[&pair.at("run2/y*"), &"new"]).summary();
    assert_eq!(fs::read(pair.here.join("new")).unwrap(), b"run2/y.h5");
    pair.cp(&[&pair.at("run[12]/x.h5"), &"to0"]).is(2, &["two sources have x.h5"]);
    pair.cp(&[&pair.at("nothing*"), &"."]).is(5, &["no name matches the pattern", "nothing*"]);
}

#[test]
fn a_literal_name_has_priority_over_an_equal_pattern() {
    let pair = Pair::new();
    for file in ["a*", "ab", "c[d", "e[f]/g"] {
        write(&pair.there.join(file), file.as_bytes());
    }
    for (pattern, made) in [("a*", "a*"), ("c[d", "c[d"), ("e[f]/g", "g")] {
        let to = pair.here.join("to");
        fs::create_dir(&to).unwrap();
        pair.cp(&[&pair.at(pattern), &to]).summary();
        assert_eq!(names(&to), [made]);
        fs::remove_dir_all(&to).unwrap();
    }
    pair.cp(&[&pair.at("z[d"), &"."]).is(2, &["z[d", "is not a glob"]);
}

#[test]
fn a_pattern_matches_nothing_outside_the_root_even_through_a_link() {
    let pair = Pair::new();
    let outside = tempfile::tempdir().unwrap();
    write(&outside.path().join("secret"), b"s");
    symlink(outside.path(), pair.there.join("link")).unwrap();
    symlink(outside.path().join("secret"), pair.there.join("to secret")).unwrap();
    write(&pair.there.join("folder/secret"), b"mine");
    for pattern in ["../*", "link/*", "folder/../../*/*", "l*/secret"] {
        let ended = pair.cp(&[&"-r", &pair.at(pattern), &"."]);
        assert_ne!(ended.status, Some(0), "{pattern}: {ended}");
        assert!(names(&pair.here).is_empty(), "{pattern}");
    }
    // Without -r the copy follows a link. This one leads out of the root.
    assert_ne!(pair.cp(&[&pair.at("to s*"), &"."]).status, Some(0));
    pair.cp(&[&pair.at("*/secret"), &"mine"]).summary();
    assert_eq!(fs::read(pair.here.join("mine")).unwrap(), b"mine");
}
