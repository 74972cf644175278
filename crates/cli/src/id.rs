//! `longhaul id`: prints this user's id.

use longhaul::Identity;

use crate::{config, console, exit};

/// Print this user's id, for `longhaul serve --allow` on the other host
///
/// longhaul creates your key at first use, in the configuration folder. Only you can read the key.
#[derive(clap::Args)]
pub(crate) struct IdArgs {}

pub(crate) fn run(_args: &IdArgs) -> u8 {
    match config::folder().and_then(|folder| Ok(Identity::load_or_create(&folder)?)) {
        Ok(identity) => {
            console::out(identity.id());
            exit::DONE
        }
        Err(error) => exit::fail(&error),
    }
}
