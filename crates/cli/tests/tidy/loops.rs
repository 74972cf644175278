//! No two modules of a crate import each other, directly or indirectly. The modules of `transfer`
//! have levels, and import only modules of lower levels. Only modules of level 0 may import others
//! of their level.
//!
//! A module here is a file or folder right below `src/`. It imports the paths that start with
//! `crate::` in any of its files, or with `super::` in `NAME.rs` or `NAME/mod.rs`. Tests do not
//! count.

use std::collections::{BTreeMap, BTreeSet};

use super::{Text, none, sources};

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The crate, the module below its `src/`, and whether the file is the module's front page.
fn place(path: &str) -> Option<(&str, &str, bool)> {
    let (name, inner) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let (module, rest) = inner.split_once('/').unwrap_or((inner, ""));
    let module = module.strip_suffix(".rs").unwrap_or(module);
    let is_root = matches!(module, "lib" | "main");
    (!is_root).then_some((name, module, matches!(rest, "" | "mod.rs")))
}

/// The code of a file without comments and unit tests.
fn code(file: &Text) -> String {
    let lines = file.code().into_iter();
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// The first names of all paths that begin with `root`: `a` and `c` for `crate::{a::b, c}`.
fn first_names(code: &str, root: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.trim_start().chars().take_while(|c| is_part(*c)).collect::<String>()
    };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(root) {
        let rest = &code[at + root.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(word(rest));
            continue;
        };
        names.insert(word(group));
        let mut depth = 1;
        for (at, letter) in group.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => drop(names.insert(word(&group[at + 1..]))),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

fn imports() -> BTreeMap<String, Imports> {
    let mut crates: BTreeMap<String, Imports> = BTreeMap::new();
    let sources = sources();
    let files = sources.iter().filter(|file| !file.is_test() && !file.path.ends_with("_tests.rs"));
    for file in files {
        let Some((name, module, is_front)) = place(&file.path) else { continue };
        let code = code(file);
        let mut names = first_names(&code, "crate::");
        if is_front {
            names.extend(first_names(&code, "super::"));
        }
        let modules = crates.entry(name.to_owned()).or_default();
        modules.entry(module.to_owned()).or_default().extend(names);
    }
    for modules in crates.values_mut() {
        let known: BTreeSet<String> = modules.keys().cloned().collect();
        for (module, names) in modules {
            names.retain(|name| known.contains(name) && name != module);
        }
    }
    crates
}

/// The modules that `module` imports, directly or indirectly.
fn reached(imports: &Imports, module: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![module.to_owned()];
    while let Some(module) = left.pop() {
        let new = imports[&module].iter().filter(|name| reached.insert((*name).clone()));
        left.extend(new.cloned().collect::<Vec<_>>());
    }
    reached
}

/// The loops of a crate, each as the names of the modules in the loop.
fn loops(imports: &Imports) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|module| (module, reached(imports, module))).collect();
    let with = |module: &String| {
        let of_loop = |other: &&String| reached[module].contains(*other);
        let all = reached.keys().copied().filter(of_loop);
        all.filter(|other| reached[*other].contains(module)).cloned().collect::<Vec<_>>()
    };
    imports.keys().map(with).filter(|modules| !modules.is_empty()).collect()
}

#[test]
fn no_modules_of_a_crate_import_each_other_in_a_loop() {
    let crates = imports();
    assert!(crates.contains_key("proto") && crates.contains_key("transfer"));
    let loops = crates.iter().flat_map(|(name, imports)| {
        loops(imports).into_iter().map(move |modules| format!("{name}: {}", modules.join(" ")))
    });
    none(loops.collect(), "modules of a crate must not import each other in a loop");
}

/// The levels of the modules of `transfer`. Its other modules have level 0.
const TRANSFER: [(&str, u8); 19] = [
    ("api", 10),
    ("channel", 9),
    ("copy", 8),
    ("serve", 8),
    ("rpc", 8),
    ("share", 8),
    ("stream", 8),
    ("list", 7),
    ("probe", 7),
    ("file", 6),
    ("calls", 6),
    ("watching", 6),
    ("many", 6),
    ("roles", 5),
    ("reach", 5),
    ("flow", 4),
    ("write", 3),
    ("counters", 2),
    ("control", 1),
];

/// Imports of a module whose level is not below the level of the importing module. Imports between
/// two modules of level 0 are allowed.
fn upward(imports: &Imports, level: impl Fn(&str) -> u8) -> Vec<String> {
    let all = imports.iter().flat_map(|(module, names)| names.iter().map(move |n| (module, n)));
    let wrong = all.filter(|(module, name)| level(name) >= level(module).max(1));
    wrong.map(|(module, name)| format!("{module} must not import {name}")).collect()
}

#[test]
fn modules_of_transfer_import_only_modules_below_them() {
    let crates = imports();
    let transfer = &crates["transfer"];
    for (module, _) in TRANSFER {
        assert!(transfer.contains_key(module), "{module} is gone: change TRANSFER");
    }
    let level = |name: &str| TRANSFER.iter().find(|(of, _)| *of == name).map_or(0, |(_, l)| *l);
    none(upward(transfer, level), "a module of transfer imports only lower modules");
}

#[test]
fn an_import_of_a_module_above_is_found() {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    let imports: Imports = [
        ("high".to_owned(), names(&["low", "leaf"])),
        ("low".to_owned(), names(&["high"])),
        ("leaf".to_owned(), names(&["low", "other"])),
        ("other".to_owned(), names(&[])),
    ]
    .into();
    let level = |name: &str| match name {
        "high" => 2,
        "low" => 1,
        _ => 0,
    };
    let found = upward(&imports, level);
    assert_eq!(found, ["leaf must not import low", "low must not import high"]);
}

#[test]
fn a_loop_is_found_once_and_names_are_read_from_imports() {
    let imports = |list: &[(&str, &str)]| -> Imports {
        let split = |names: &str| names.split_whitespace().map(str::to_owned).collect();
        list.iter().map(|(module, names)| ((*module).to_owned(), split(names))).collect()
    };
    let found = loops(&imports(&[("a", "b d"), ("b", "c"), ("c", "a"), ("d", "")]));
    assert_eq!(found, BTreeSet::from([["a", "b", "c"].map(str::to_owned).to_vec()]));
    assert_eq!(loops(&imports(&[("a", "b c"), ("b", "c"), ("c", "")])), BTreeSet::new());
    let names = first_names("use crate::{a::{b, c}, d};\ncrate::e::f(); crate::g", "crate::");
    assert_eq!(names, ["a", "d", "e", "g"].map(str::to_owned).into());
}
