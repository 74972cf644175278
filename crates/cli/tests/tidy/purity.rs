//! The core (`crates/proto`) uses no clock, socket, thread, file or hash order. The simulation has
//! the same results on every machine.

use super::{none, sources};

/// Something forbidden, and the words that show its use.
type Words = (&'static str, &'static [&'static str]);

const HASH_ORDER: Words = ("hash order", &["HashMap", "HashSet"]);

const FOREIGN: [Words; 9] = [
    ("the standard library", &["std::"]),
    HASH_ORDER,
    ("a clock", &["Instant", "SystemTime"]),
    ("a socket", &["UdpSocket", "TcpStream"]),
    ("a thread", &["thread"]),
    ("a file", &["File::"]),
    ("output", &["println!"]),
    ("global state", &["static mut"]),
    ("unchecked code", &["unsafe"]),
];

/// Words that the simulation and the experiments must not contain, because with them the results
/// would differ between machines.
const UNLIKE: [Words; 2] = [
    HASH_ORDER,
    (
        "the system's mathematics",
        &[
            ".powf(",
            ".powi(",
            ".exp(",
            ".exp2(",
            ".exp_m1(",
            ".log(",
            ".ln(",
            ".ln_1p(",
            ".log2(",
            ".log10(",
            ".cbrt(",
            ".hypot(",
            ".sin(",
            ".cos(",
            ".tan(",
            ".tanh(",
            ".mul_add(",
        ],
    ),
];

/// Returns each use of a word of `foreign` in the files below `folders`. Tests and comments do not
/// count.
fn look_for(foreign: &[Words], folders: &[&str]) -> Vec<String> {
    let sources = sources();
    let mut found = Vec::new();
    for folder in folders {
        let below = sources.iter().filter(|file| file.path.starts_with(folder));
        let files: Vec<_> = below.filter(|file| !file.is_test()).collect();
        assert!(!files.is_empty(), "nothing below {folder}");
        for file in files {
            for (number, line) in file.code().into_iter().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                for (what, words) in foreign {
                    for word in words.iter().filter(|word| code.contains(**word)) {
                        found.push(format!("{}:{}: {word} is {what}", file.path, number + 1));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn the_core_uses_nothing_of_the_host() {
    none(look_for(&FOREIGN, &["crates/proto/src/"]), "the core must use nothing of the host");
}

#[test]
fn a_seed_gives_the_same_numbers_on_every_machine() {
    let folders = [
        "crates/experiments/src/",
        "crates/testbed/src/link/",
        "crates/testbed/src/random.rs",
        "crates/testbed/src/scenario/",
        "crates/testbed/src/sim/",
        "crates/testbed/src/tcp/",
    ];
    none(look_for(&UNLIKE, &folders), "libm and ordered collections give the same bits anywhere");
}

#[test]
fn the_compiler_keeps_the_core_pure() {
    let sources = sources();
    let lib = sources.iter().find(|file| file.path == "crates/proto/src/lib.rs");
    let lib = &lib.expect("the core has a front page").text;
    assert!(lib.contains("#![no_std]"), "the core is no_std");
    // The standard library is there for tests only.
    assert!(!lib.contains("extern crate std;") || lib.contains("#[cfg(test)]\nextern crate std;"));
}
