//! `longhaul completions`: completion scripts for shells.

use clap::{Arg, Command};
use clap_complete::Shell;

use crate::protocol_settings::is_setting;
use crate::{console, exit};

/// Print the completion script of a shell
///
/// For bash: longhaul completions bash > ~/.local/share/bash-completion/completions/longhaul
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Removes the settings of protocols: among so many flags, a user would not find the usual ones.
fn without_settings(root: Command) -> Command {
    ["cp", "sync"].into_iter().fold(root, |root, name| {
        root.mut_subcommand(name, |copying| {
            let is_setting = |arg: &Arg| arg.get_long().is_some_and(is_setting);
            let others = copying.get_arguments().filter(|arg| !is_setting(arg)).cloned();
            let about = copying.get_about().cloned().unwrap_or_default();
            Command::new(name).about(about).args(others)
        })
    })
}

pub(crate) fn run(args: &CompletionsArgs, root: Command) -> u8 {
    let mut root = without_settings(root);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut root, "longhaul", &mut script);
    console::out_whole(&script);
    exit::DONE
}
