//! `longhaul man`: manual pages.

use std::path::PathBuf;

use crate::error::{Error, ErrorKind};
use clap::Command;

use crate::protocol_settings::is_setting;
use crate::{console, exit};

/// Print a manual page, or write all of them into a folder
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The subcommand whose page to print (cp, model rbudp); without it, longhaul's own page
    #[arg(value_name = "SUBCOMMAND", conflicts_with = "dir")]
    subcommand: Vec<String>,
    /// Write longhaul.1 and a page for each subcommand into this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, root: Command) -> u8 {
    match render(args, root) {
        Ok(()) => exit::DONE,
        Err(error) => exit::fail(&error),
    }
}

/// The whole command line. Its help also shows the settings of protocols, which `cp --help` hides.
fn with_settings(root: Command) -> Command {
    ["cp", "sync"].into_iter().fold(root, |root, name| {
        root.mut_subcommand(name, |copying| {
            copying.mut_args(|arg| {
                let is_setting = arg.get_long().is_some_and(is_setting);
                if is_setting { arg.hide_short_help(false).hide_long_help(false) } else { arg }
            })
        })
    })
}

fn render(args: &ManArgs, root: Command) -> Result<(), Error> {
    // With the help subcommand there would be a second page (`longhaul help cp`) for each command.
    let mut root = with_settings(root).disable_help_subcommand(true);
    root.build();
    if let Some(folder) = &args.dir {
        return clap_mangen::generate_to(root, folder).map_err(|error| {
            let what = format!("cannot write manual pages into {}: {error}", folder.display());
            Error::new(ErrorKind::LocalFile, what).advise("create the folder first")
        });
    }
    let mut command = &root;
    for name in &args.subcommand {
        let Some(found) = command.find_subcommand(name) else {
            let what = format!("there is no 'longhaul {}'", args.subcommand.join(" "));
            return Err(Error::new(ErrorKind::Usage, what).advise("see longhaul --help"));
        };
        command = found;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(|error| {
        Error::new(ErrorKind::LocalFile, format!("cannot render the page: {error}"))
    })?;
    // troff prints this character only in a UTF-8 locale.
    let page = String::from_utf8_lossy(&page).replace('…', "...");
    console::out_whole(page.as_bytes());
    Ok(())
}
