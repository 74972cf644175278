//! Every source file is part of a crate: a `mod` names it, or cargo finds it itself.

use std::collections::BTreeMap;

use super::{Text, none, sources};

/// The files that may name the module in `path`.
fn parents(path: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').expect("sources lie in folders");
    // `a/b/mod.rs` is the module b of the folder a.
    let folder = match (file, folder.rsplit_once('/')) {
        ("mod.rs", Some((above, _))) => above,
        _ => folder,
    };
    let inside = ["mod.rs", "lib.rs", "main.rs"].map(|name| format!("{folder}/{name}"));
    inside.into_iter().chain([format!("{folder}.rs")]).collect()
}

fn name(path: &str) -> &str {
    let (folder, file) = path.rsplit_once('/').expect("sources lie in folders");
    match file {
        "mod.rs" => folder.rsplit('/').next().expect("a folder has a name"),
        file => file.strip_suffix(".rs").expect("a source ends in .rs"),
    }
}

/// Whether cargo itself finds the file.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [.., "src" | "tests", "lib.rs" | "main.rs"] | [_, _, "build.rs"] => true,
        [.., "benches" | "tests", _, "main.rs"] => true,
        [.., "bin" | "benches" | "examples" | "fuzz_targets", _] => true,
        [_, _, "tests", _] => !path.starts_with("crates/cli/"),
        _ => false,
    }
}

#[test]
fn every_file_is_found_by_cargo_or_named_by_a_mod() {
    let sources = sources();
    let texts: BTreeMap<&str, &Text> = sources.iter().map(|file| (&*file.path, file)).collect();
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| !is_root(&file.path)) {
        let line = format!("mod {};", name(&file.path));
        let path = format!("/{}\"]", file.path.rsplit('/').next().unwrap_or_default());
        let names = |text: &Text| {
            let declared = text.text.lines().any(|l| l == line || l.ends_with(&format!(" {line}")));
            declared || text.text.lines().any(|l| l.contains("#[path") && l.contains(&path))
        };
        let named =
            parents(&file.path).iter().filter_map(|p| texts.get(p.as_str())).any(|t| names(t));
        if !named {
            found.push(file.path.clone());
        }
    }
    none(found, "cargo does not compile a file that no `mod` names");
}

#[test]
fn parents_are_the_files_that_may_declare_a_module() {
    assert!(parents("crates/a/src/b/c.rs").contains(&"crates/a/src/b.rs".to_owned()));
    assert!(parents("crates/a/src/b/c.rs").contains(&"crates/a/src/b/mod.rs".to_owned()));
    assert!(parents("crates/a/src/b/mod.rs").contains(&"crates/a/src/lib.rs".to_owned()));
    assert_eq!(name("crates/a/src/b/mod.rs"), "b");
}
