//! `longhaul id`: who this user is to other hosts.

use longhaul::Identity;

use crate::{config, console, exit};

/// Print this user's id, for `longhaul serve --allow` on the other host
///
/// The key is made at first use and kept in the configuration folder, readable by its owner only.
#[derive(clap::Args)]
pub(crate) struct IdArgs {}

/// Prints the id.
pub(crate) fn run(_args: &IdArgs) -> u8 {
    match config::folder().and_then(|folder| Ok(Identity::load_or_create(&folder)?)) {
        Ok(identity) => {
            console::out(identity.id());
            exit::DONE
        }
        Err(error) => exit::fail(&error),
    }
}
