//! The core knows no clock, socket, thread, file or hash order.

use super::{none, sources};

/// What must not stand in the core, and what it would be.
const FOREIGN: [(&str, &str); 12] = [
    ("std::", "the standard library"),
    ("HashMap", "hash order"),
    ("HashSet", "hash order"),
    ("Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("UdpSocket", "a socket"),
    ("TcpStream", "a socket"),
    ("thread", "a thread"),
    ("File::", "a file"),
    ("println!", "output"),
    ("static mut", "state that nobody handed in"),
    ("unsafe", "what the compiler does not check"),
];

/// What gives other bits on another machine, of all that a simulation and its pages are made with.
const UNLIKE: [(&str, &str); 19] = [
    ("HashMap", "hash order"),
    ("HashSet", "hash order"),
    (".powf(", "the system's mathematics"),
    (".powi(", "the system's mathematics"),
    (".exp(", "the system's mathematics"),
    (".exp2(", "the system's mathematics"),
    (".exp_m1(", "the system's mathematics"),
    (".log(", "the system's mathematics"),
    (".ln_1p(", "the system's mathematics"),
    (".tan(", "the system's mathematics"),
    (".tanh(", "the system's mathematics"),
    (".ln(", "the system's mathematics"),
    (".log2(", "the system's mathematics"),
    (".log10(", "the system's mathematics"),
    (".cbrt(", "the system's mathematics"),
    (".hypot(", "the system's mathematics"),
    (".sin(", "the system's mathematics"),
    (".cos(", "the system's mathematics"),
    (".mul_add(", "the system's mathematics"),
];

/// Says of each line below `folders`, tests apart, which of the words stand in it.
fn look_for(words: &[(&str, &str)], folders: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for folder in folders {
        let below = sources().into_iter().filter(|file| file.path.starts_with(folder));
        let files: Vec<_> = below.filter(|file| !file.is_test()).collect();
        assert!(!files.is_empty(), "nothing below {folder}");
        for file in &files {
            for (number, line) in file.code().into_iter().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                for (word, what) in words.iter().filter(|(word, _)| code.contains(word)) {
                    found.push(format!("{}:{}: {word} is {what}", file.path, number + 1));
                }
            }
        }
    }
    found
}

#[test]
fn the_core_knows_nothing_of_the_host() {
    none(look_for(&FOREIGN, &["crates/proto/src/"]), "the core is handed all it knows");
}

#[test]
fn what_a_seed_gives_is_the_same_on_every_machine() {
    let folders = ["link/", "random.rs", "scenario/", "sim/", "tcp/"]
        .map(|part| format!("crates/testbed/src/{part}"));
    let mut folders: Vec<&str> = folders.iter().map(String::as_str).collect();
    folders.push("crates/experiments/src/");
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
