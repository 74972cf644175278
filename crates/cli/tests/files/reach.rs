//! Limits of what an allowed client can reach.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::rig::{Child, Host, Pair, Server, content, write};

#[test]
fn rights_follow_the_allow_entry_and_the_servers_flags() {
    let cases: [(&str, &[&str], bool, bool); 5] = [
        ("", &[], true, true),
        (":rw", &[], true, true),
        (":ro", &[], true, false),
        (":wo", &[], false, true),
        ("", &["--read-only"], true, false),
    ];
    for (rights, args, read, write_) in cases {
        let pair = Pair::with_rights(rights, args);
        write(&pair.here.join("push"), b"push");
        write(&pair.there.join("pull"), b"pull");
        let pull = pair.cp(&[&pair.at("pull"), &"."]);
        let push = pair.cp(&[&"push", &pair.at("")]);
        for (ended, may, verb) in [(&pull, read, "may not read"), (&push, write_, "may not write")]
        {
            match may {
                true => drop(ended.summary()),
                false => drop(ended.is(3, &[verb, &pair.client.id])),
            }
        }
        assert_eq!(pair.here.join("pull").exists(), read, "{rights} {args:?}");
        assert_eq!(pair.there.join("push").exists(), write_, "{rights} {args:?}");
    }
}

#[test]
fn a_write_only_client_cannot_compare_contents() {
    let pair = Pair::with_rights(":wo", &[]);
    write(&pair.here.join("file"), b"guess");
    write(&pair.there.join("file"), b"guess");
    let to = pair.at("");
    for flags in [&["-c"][..], &["-c", "-n"]] {
        let mut args: Vec<&dyn AsRef<OsStr>> = vec![&"file", &to];
        flags.iter().for_each(|flag| args.push(flag));
        let ended = pair.cp(&args);
        ended.is(3, &["may not read here", "may not compare", &pair.client.id]);
    }
    pair.cp(&[&"file", &to]).summary();
}

#[test]
fn a_client_reaches_only_the_subfolder_of_its_allow_entry() {
    let pair = Pair::with_rights(":rw:in", &[]);
    fs::remove_dir(pair.there.join("in")).unwrap();
    pair.cp(&[&pair.at("x"), &"."])
        .is(5, &["in", "create this folder below the root on the server"]);
    write(&pair.there.join("secret"), b"s");
    write(&pair.there.join("in/open"), b"o");
    symlink("../secret", pair.there.join("in/link")).unwrap();
    pair.cp(&[&pair.at("open"), &"."]).summary();
    assert_eq!(fs::read(pair.here.join("open")).unwrap(), b"o");
    for path in ["../secret", "in/../../secret", "link", "secret"] {
        let ended = pair.cp(&[&pair.at(path), &"stolen"]);
        assert!(matches!(ended.status, Some(3 | 5)), "{path}: {ended}");
        assert!(ended.stderr.contains(path), "{path}: {ended}");
    }
    pair.cp(&[&"open", &pair.at("new")]).summary();
    assert_eq!(fs::read(pair.there.join("in/new")).unwrap(), b"o");
    assert!(!pair.here.join("stolen").exists() && !pair.there.join("new").exists());
}

#[test]
fn no_path_leads_out_of_the_root() {
    let pair = Pair::new();
    let outside = pair.scratch.path().join("outside");
    write(&outside.join("secret"), b"secret");
    write(&pair.here.join("file"), b"evil");
    write(&pair.there.join("in/x"), b"x");
    symlink(&outside, pair.there.join("absolute")).unwrap();
    symlink("../outside", pair.there.join("relative")).unwrap();
    symlink("../outside/secret", pair.there.join("file link")).unwrap();
    symlink("../outside/new", pair.there.join("dangling")).unwrap();
    let absolute = outside.join("secret").display().to_string();
    let reads = [
        "../outside/secret",
        "in/../../outside/secret",
        absolute.as_str(),
        "absolute/secret",
        "relative/secret",
        "file link",
        "absolute/",
        "relative/../outside/secret",
    ];
    for path in reads {
        let ended = pair.cp(&[&"-r", &pair.at(path), &"stolen"]);
        // With -r a link is copied as a link.
        if path == "file link" && ended.status == Some(0) {
            assert!(pair.here.join("stolen").is_symlink());
            fs::remove_file(pair.here.join("stolen")).unwrap();
            let ended = pair.cp(&[&pair.at(path), &"stolen"]);
            assert!(matches!(ended.status, Some(3 | 5)), "{path}: {ended}");
        } else {
            assert!(matches!(ended.status, Some(3 | 5)), "{path}: {ended}");
            let said = path.trim_start_matches('/').trim_end_matches('/');
            assert!(ended.stderr.contains(said), "{path}: {ended}");
        }
        assert!(pair.here.join("stolen").symlink_metadata().is_err(), "{path}");
    }
    let writes =
        ["../outside/new", "in/../../outside/new", "absolute/new", "relative/", "absolute/secret"];
    for path in writes {
        let ended = pair.cp(&[&"file", &pair.at(path)]);
        assert!(matches!(ended.status, Some(3 | 5)), "{path}: {ended}");
    }
    for name in ["file link", "dangling"] {
        let ended = pair.cp(&[&"file", &pair.at(name)]);
        ended.is(5, &[name, "it leads out of the served folder"]);
        assert!(pair.there.join(name).is_symlink());
    }
    // An absolute path means a path below the root.
    let ended = pair.cp(&[&"file", &pair.at(format!("/{}", outside.join("new").display()))]);
    assert!(matches!(ended.status, Some(3 | 5)), "{ended}");
    assert_eq!(content(&outside).len(), 1);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[test]
fn links_that_point_outside_a_tree_are_copied_as_links() {
    let pair = Pair::new();
    write(&pair.scratch.path().join("secret"), b"s");
    write(&pair.there.join("t/x"), b"x");
    symlink("../../secret", pair.there.join("t/out")).unwrap();
    symlink("../..", pair.there.join("t/up")).unwrap();
    pair.cp(&[&"-r", &pair.at("t"), &"."]).summary();
    assert_eq!(content(&pair.here.join("t")), content(&pair.there.join("t")));
    // A push writes nothing through a link that is in the place of a folder; the rest is copied.
    write(&pair.here.join("p/up/secret"), b"evil");
    write(&pair.here.join("p/fine"), b"f");
    let ended = pair.cp(&[&"-r", &"p/", &pair.at("t")]);
    ended.is(8, &["up"]);
    assert_eq!(fs::read(pair.there.join("t/fine")).unwrap(), b"f");
    assert_eq!(fs::read(pair.scratch.path().join("secret")).unwrap(), b"s");
}

#[test]
fn links_of_a_write_only_client_are_stored_unchanged_and_lead_no_client_out_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let reader = Host::new(&folder.path().join("reader"));
    let (whole, inner) = (format!("{}:rw", reader.id), Host::new(&folder.path().join("inner")));
    let within = format!("{}:rw:in", inner.id);
    let mut pair = Pair::new();
    let outside = pair.scratch.path().join("outside");
    write(&outside.join("secret"), b"secret");
    write(&pair.there.join("other/secret"), b"other");
    fs::create_dir(pair.there.join("in")).unwrap();
    let writer = format!("{}:wo:in", pair.client.id);
    let allow = ["--allow", &writer, "--allow", &whole, "--allow", &within];
    pair.server = Server::start(&pair.host, &pair.there, &allow);
    let targets = [
        ("absolute", outside.join("secret")),
        ("relative", PathBuf::from("../../../outside/secret")),
        ("folder", outside.clone()),
        ("dangling", outside.join("new")),
        ("beside", PathBuf::from("../../other/secret")),
    ];
    write(&pair.here.join("t/file"), b"f");
    for (name, target) in &targets {
        symlink(target, pair.here.join("t").join(name)).unwrap();
    }
    pair.cp(&[&"-r", &"t", &pair.at("")]).summary();
    assert_eq!(content(&pair.here.join("t")), content(&pair.there.join("in/t")));
    let cp = |host: &Host, args: &[&dyn AsRef<OsStr>]| {
        let mut command =
            host.command(["cp", "--json", &format!("--server-id={}", pair.server.id)]);
        command.args(args.iter().map(AsRef::as_ref)).current_dir(&pair.here);
        Child::spawn(&mut command).end()
    };
    write(&pair.here.join("file"), b"evil");
    for (host, root) in [(&reader, "in/t"), (&inner, "t")] {
        for name in ["absolute", "relative", "folder/secret", "dangling"] {
            let there = pair.at(format!("{root}/{name}"));
            let read = cp(host, &[&there, &"stolen"]);
            assert!(matches!(read.status, Some(3 | 5)), "{name}: {read}");
            let written = cp(host, &[&"file", &there]);
            assert!(matches!(written.status, Some(3 | 5)), "{name}: {written}");
        }
        cp(host, &[&"-r", &pair.at(root), &"back"]).summary();
        assert_eq!(content(&pair.here.join("back")), content(&pair.here.join("t")));
        fs::remove_dir_all(pair.here.join("back")).unwrap();
    }
    // The server follows a link within its root only to files that the client's rights include.
    let read = cp(&inner, &[&pair.at("t/beside"), &"stolen"]);
    assert!(matches!(read.status, Some(3 | 5)), "{read}");
    assert!(!pair.here.join("stolen").exists());
    cp(&reader, &[&pair.at("in/t/beside"), &"allowed"]).summary();
    assert_eq!(fs::read(pair.here.join("allowed")).unwrap(), b"other");
    assert_eq!(content(&outside).len(), 1);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[test]
fn longhauls_internal_names_and_invalid_names_are_refused() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"f");
    for name in [".x.lh-part", ".x.lh-journal", &"n".repeat(256), &"n".repeat(300)] {
        let ended = pair.cp(&[&"file", &pair.at(name)]);
        assert!(matches!(ended.status, Some(2 | 3 | 5)), "{name}: {ended}");
        assert!(ended.stderr.contains(name), "{ended}");
    }
    let long = "n".repeat(300);
    pair.cp(&[&pair.at(&long), &"."]).is(5, &[&long, "longer than 255 bytes"]);
    assert!(content(&pair.there).is_empty());
}
