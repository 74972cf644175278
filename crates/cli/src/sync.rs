//! `longhaul sync`: makes a folder equal to another one, on this host or another.

use clap::ArgMatches;
use longhaul::Delete;

use crate::config::Setting;
use crate::cp::{self, CopyArgs, Mirror};
use crate::exit;

pub(crate) const EXAMPLES: &str = "\
Examples:
  longhaul sync run42 dtn.example.org:/data/          update /data/run42
  longhaul sync -nv --delete run42/ lh://dtn/backup/  print what would be done
  longhaul sync --delete --max-delete 100 run42/ dtn.example.org:/backup/
";

const ABOUT: &str = "\
Make a folder equal to another one, here or on another host

SOURCE is one folder. As in rsync, `sync run42 DEST` makes DEST/run42 equal to run42, and \
`sync run42/ DEST` makes DEST equal to run42. Times and permissions are kept, as with cp -a; files \
of equal size and time are skipped. All flags of cp and their defaults in config.toml apply.

Without --delete nothing is deleted.";

/// Make a folder equal to another one, here or on another host
#[derive(clap::Args)]
#[command(override_usage = "longhaul sync [OPTIONS] <SOURCE> <DESTINATION>")]
#[command(long_about = format!("{ABOUT}\n\n{EXAMPLES}"))]
#[command(after_help = EXAMPLES, after_long_help = exit::TABLE)]
pub(crate) struct SyncArgs {
    /// Delete files, links and folders below the destination that the source lacks, after the whole
    /// copy is verified. Deletes nothing if a file fails or the source has no files, and nothing
    /// that --exclude skips. With -n, print the names only. To delete on a server, the client
    /// needs the right to read and write
    #[arg(long)]
    delete: bool,
    /// Refuse and copy nothing if more names than this would be deleted
    #[arg(long, value_name = "COUNT", requires = "delete")]
    max_delete: Option<u64>,
    #[command(flatten)]
    copy: CopyArgs,
}

pub(crate) fn run(args: &SyncArgs, matches: &ArgMatches, settings: &[Setting]) -> u8 {
    let delete = match args.max_delete {
        Some(most) => Delete::at_most(most),
        None => Delete::all(),
    };
    let mirror = Mirror { delete: args.delete.then_some(delete) };
    cp::run(&args.copy, Some(mirror), matches, settings)
}
