//! Runs a test in its own process of the test program.

use std::process::{Command, Output};

/// Returns a command that runs only the test `name`, the test's path in this program.
///
/// # Panics
///
/// The system does not know the path of this program.
pub fn command(name: &str) -> Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]);
    command
}

/// Checks that a finished [`command`] has run its test.
///
/// # Panics
///
/// The test has failed, or does not exist.
#[track_caller]
pub fn assert_passed(output: &Output) {
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said)).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: &str = "LONGHAUL_TEST_ALONE";

    #[test]
    fn a_test_that_is_missing_has_not_passed() {
        // The process that this test starts must not start another one.
        if std::env::var_os(ALONE).is_none() {
            let run = |name| command(name).env(ALONE, "1").output().expect("it starts");
            assert_passed(&run("alone::tests::a_test_that_is_missing_has_not_passed"));
            let none = run("alone::tests::no_test");
            assert!(std::panic::catch_unwind(|| assert_passed(&none)).is_err());
        }
    }
}
