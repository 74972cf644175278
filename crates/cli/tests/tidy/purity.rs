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

#[test]
fn the_core_knows_nothing_of_the_host() {
    let core = sources().into_iter().filter(|file| file.path.starts_with("crates/proto/src/"));
    let core: Vec<_> = core.filter(|file| !file.is_test()).collect();
    assert!(!core.is_empty());
    let mut found = Vec::new();
    for file in &core {
        for (number, line) in file.code().into_iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (word, what) in FOREIGN.iter().filter(|(word, _)| code.contains(word)) {
                found.push(format!("{}:{}: {word} is {what}", file.path, number + 1));
            }
        }
    }
    none(found, "the core is handed all it knows");
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
