//! `longhaul completions`: what the shell needs to complete flags.

use clap::Command;
use clap_complete::Shell;

use crate::{console, exit};

/// Print the completion script of a shell
///
/// For bash: longhaul completions bash > ~/.local/share/bash-completion/completions/longhaul
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that the script is for
    shell: Shell,
}

/// Prints the script that completes the flags of `root`, the whole command line.
pub(crate) fn run(args: &CompletionsArgs, mut root: Command) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut root, "longhaul", &mut script);
    console::out_whole(&script);
    exit::DONE
}
