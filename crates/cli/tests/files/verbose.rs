//! The names that `-v` and `-vv` print.

use std::fs;
use std::os::unix::fs::symlink;

use crate::rig::{Ended, Pair, bytes, write};

fn events(ended: &Ended, event: &str) -> Vec<String> {
    let events = ended.events(event).into_iter();
    let mut paths: Vec<_> =
        events.map(|event| event["path"].as_str().unwrap().to_owned()).collect();
    paths.sort();
    paths
}

#[test]
fn v_prints_created_names_and_vv_also_prints_skipped_names() {
    let pair = Pair::new();
    let names: Vec<String> = (0..40).map(|n| format!("t/d{}/f{n}", n % 3)).collect();
    for root in [&pair.here, &pair.there] {
        for name in &names {
            write(&root.join(name), name.as_bytes());
        }
        write(&root.join("t/large"), &bytes(3_000_000, 4));
        write(&root.join("t/empty"), b"");
        symlink("d0/f0", root.join("t/link")).unwrap();
    }
    let mut due: Vec<String> = names;
    due.extend(["t/large".into(), "t/empty".into()]);
    due.sort();
    let ways =
        [("t".into(), pair.at("new/"), &pair.there), (pair.at("t"), "new/".into(), &pair.here)];
    for (from, to, root) in ways {
        fs::create_dir(root.join("new")).unwrap();
        for transport in ["--protocol=rbudp", "--protocol=tcp"] {
            let ended = pair.cp(&[&"-r", &"-p", &"-v", &transport, &from, &to]);
            ended.is(0, &["t/large", "t/d0/f0", "t/d1/\n", "t/link -> d0/f0"]);
            assert_eq!(events(&ended, "file"), due, "{ended}");
            assert_eq!(events(&ended, "folder"), ["t", "t/d0", "t/d1", "t/d2"], "{ended}");
            let links = ended.events("link");
            assert_eq!((links.len(), &links[0]["target"]), (1, &"d0/f0".into()), "{ended}");
            assert_eq!(ended.summary()["files"], due.len(), "{ended}");
            fs::remove_dir_all(root.join("new/t")).unwrap();
        }
        pair.cp(&[&"-r", &"-p", &from, &to]).is(0, &[]);
        fs::remove_file(root.join("new/t/large")).unwrap();
        let again = pair.cp(&[&"-rp", &"-vv", &from, &to]);
        assert_eq!(events(&again, "file"), ["t/large"], "{again}");
        // Skipped names include the link, but not the folders.
        assert_eq!(events(&again, "skipped").len(), due.len(), "{again}");
        assert!(
            events(&again, "folder").is_empty() && events(&again, "link").is_empty(),
            "{again}"
        );
        fs::remove_dir_all(root.join("new/t/d1")).unwrap();
        fs::remove_file(root.join("new/t/link")).unwrap();
        let again = pair.cp(&[&"-rp", &"-v", &from, &to]);
        assert_eq!(events(&again, "folder"), ["t/d1"], "{again}");
        assert_eq!(events(&again, "link"), ["t/link"], "{again}");
        let quiet = pair.cp(&[&"-rp", &from, &to]);
        assert!(
            events(&quiet, "file").is_empty() && events(&quiet, "skipped").is_empty(),
            "{quiet}"
        );
    }
}
