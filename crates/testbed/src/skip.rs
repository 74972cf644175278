//! How a test ends early on a host that cannot run it: by [`need!`](crate::need), which takes a
//! result with the error [`Skipped`]. Each function that makes a `Skipped` prints the reason.

use std::fmt::Display;
use std::io::Write;

/// Proves that the reason was printed.
#[derive(Debug)]
#[must_use = "a test that continues is not skipped: pass this to need!"]
pub struct Skipped(());

/// The value of a `Result<T, Skipped>`; an error ends the test.
#[macro_export]
macro_rules! need {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err($crate::skip::Skipped { .. }) => return,
        }
    };
}

/// Skips a test that needs something that `.ci/run` does not install, such as the emulator, IPv6,
/// root or a mount.
pub fn forbidden(reason: impl Display) -> Skipped {
    // The harness hides the output of `eprintln!`.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
    Skipped(())
}

/// Skips a test that needs a program that `.ci/run` installs.
///
/// # Panics
///
/// Under `CI_REQUIRE=1`, which `.ci/run` sets after the installation.
pub fn uninstalled(reason: impl Display) -> Skipped {
    let is_required = std::env::var_os("CI_REQUIRE").is_some_and(|value| value == "1");
    assert!(!is_required, "CI_REQUIRE=1 allows no skipping: {reason}");
    forbidden(reason)
}

/// Skips a test unless the host is `fit`.
pub fn unless(fit: bool, reason: impl Display) -> Result<(), Skipped> {
    if fit { Ok(()) } else { Err(forbidden(reason)) }
}
