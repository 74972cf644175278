//! Copies onto existing names: links, files with their own permissions, equal files.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::rig::{Pair, bytes, write};

#[test]
fn a_link_to_a_pipe_is_kept_and_links_to_a_file_or_to_nothing_are_replaced() {
    let pair = Pair::new();
    write(&pair.here.join("file"), b"new");
    write(&pair.there.join("file"), b"new");
    for root in [&pair.here, &pair.there] {
        mknodat(CWD, root.join("pipe"), FileType::Fifo, Mode::from_bits_truncate(0o600), 0)
            .expect("a pipe can be made");
        symlink("pipe", root.join("way")).expect("a link can be made");
        symlink("old", root.join("to a file")).expect("a link can be made");
        symlink("nothing", root.join("to nothing")).expect("a link can be made");
        write(&root.join("old"), b"old");
    }
    pair.cp(&[&pair.at("file"), &"way"]).is(4, &["way leads to a device, socket or pipe"]);
    pair.cp(&[&"file", &pair.at("way")]).is(5, &["way leads to a device, socket or pipe"]);
    for link in ["to a file", "to nothing"] {
        pair.cp(&[&pair.at("file"), &link]).summary();
        pair.cp(&[&"file", &pair.at(link)]).summary();
    }
    for root in [&pair.here, &pair.there] {
        assert!(root.join("way").is_symlink());
        assert!(fs::metadata(root.join("way")).unwrap().file_type().is_fifo());
        assert_eq!(fs::read(root.join("old")).unwrap(), b"old");
        for link in ["to a file", "to nothing"] {
            assert!(!root.join(link).is_symlink());
            assert_eq!(fs::read(root.join(link)).unwrap(), b"new");
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn without_p_a_replaced_file_keeps_its_permissions_but_not_setuid() {
    let pair = Pair::new();
    let sizes = [("t/empty", 0), ("t/small", 1000), ("t/large", 9 << 20)];
    for (name, len) in sizes {
        let (from, to) = (pair.here.join(name), pair.there.join(name));
        write(&from, &bytes(len, 1));
        write(&to, &bytes(len + 1, 2));
        fs::set_permissions(&from, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&to, Permissions::from_mode(0o4600)).unwrap();
    }
    write(&pair.there.join("single"), b"old");
    fs::set_permissions(pair.there.join("single"), Permissions::from_mode(0o640)).unwrap();
    pair.cp(&[&"-r", &"t", &pair.at("")]).summary();
    pair.cp(&[&"t/small", &pair.at("single")]).summary();
    for (name, len) in sizes {
        let to = pair.there.join(name);
        assert_eq!(fs::metadata(&to).unwrap().len(), len as u64, "{name}");
        assert_eq!(mode(&to), 0o600, "{name}");
    }
    assert_eq!(mode(&pair.there.join("single")), 0o640);
    pair.cp(&[&"-rp", &"--checksum", &"t", &pair.at("")]).summary();
    sizes.iter().for_each(|(name, _)| assert_eq!(mode(&pair.there.join(name)), 0o644, "{name}"));
}

#[test]
fn checksum_skips_an_equal_small_file() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(1000, 1));
    write(&pair.there.join("other"), &bytes(70_000, 2));
    for (from, to) in [("file".into(), pair.at("")), (pair.at("other"), ".".into())] {
        let run = || pair.copy(&["-c"], &from, &to).end().summary();
        assert_eq!(run()["copied_files"], 1);
        let again = run();
        assert_eq!((&again["copied_files"], &again["skipped_files"]), (&0.into(), &1.into()));
        assert_eq!((&again["verified"], &again["unread_files"]), (&true.into(), &0.into()));
    }
}

#[test]
fn files_skipped_by_size_and_time_do_not_count_as_verified() {
    let pair = Pair::new();
    write(&pair.here.join("file"), &bytes(3_000_000, 1));
    let run = |flags: &[&str]| pair.copy(flags, "file", pair.at("")).end();
    assert_eq!(run(&[]).summary()["unread_files"], 0);
    let path = pair.there.join("file");
    let then = fs::metadata(&path).unwrap().modified().unwrap();
    let mut other = bytes(3_000_000, 1);
    other[1001] ^= 1;
    fs::write(&path, other).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    let skipped = run(&[]).summary();
    assert_eq!((&skipped["verified"], &skipped["unread_files"]), (&false.into(), &1.into()));
    let read = run(&["--checksum"]).summary();
    assert_eq!((&read["verified"], &read["unread_files"]), (&true.into(), &0.into()));
    assert_eq!(fs::read(&path).unwrap(), bytes(3_000_000, 1));
    let equal = run(&["--checksum"]).summary();
    assert_eq!((&equal["verified"], &equal["skipped_files"]), (&true.into(), &1.into()));
}
