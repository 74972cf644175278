//! `longhaul mount`: a remote folder as a read-only file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul::{CancelHandle, Location};
use longhaul_mount::{LEAST_CACHE, Mount, Options};
use longhaul_proto::time::Span;
use longhaul_proto::units::Bytes;
use serde_json::json;

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::quantity::{parse_bytes, parse_span};
use crate::reach::{ReachArgs, advise_scheme};
use crate::screen::{Screen, Show};
use crate::{console, exit, plain};

const EXAMPLES: &str = "\
Examples:
  longhaul mount lh://dtn.example.org/run42 mnt         a folder of a server
  longhaul mount --cache 2G me@dtn.example.org:data mnt  over ssh, with more memory
";

const ABOUT: &str = "\
Mount a folder of another host, read-only

Runs until Ctrl-C, SIGTERM or `umount DIR`, and then unmounts. Needs FUSE: the device /dev/fuse \
and, unless you are root, fusermount3 (package fuse3). Programs read files as if they were local. \
When a program reads a file in order, mount reads ahead. Each chunk of 1 MiB is verified. Names \
and sizes are up to 6 s old. After a lost connection, mount reconnects, and requests wait.";

/// How often to look for a signal.
const TICK: Duration = Duration::from_millis(50);

/// Mount a folder of another host, read-only
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct MountArgs {
    /// The folder: lh://HOST/PATH, or over ssh HOST:PATH
    #[arg(value_name = "PATH")]
    path: Location,
    /// An empty folder on this host
    #[arg(value_name = "DIR")]
    mount_point: PathBuf,
    /// Limit of file content in memory, at least 8Mi
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = parse_bytes)]
    cache: Bytes,
    /// How long requests wait for a reconnection before they fail
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    retry_for: Span,
    #[command(flatten)]
    reach: ReachArgs,
    /// Write a JSON object to stdout when the folder is mounted
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MountArgs, settings: &[Setting]) -> u8 {
    let cancel = CancelHandle::default();
    let screen = Arc::new(Screen::new(Show::errors(args.json), cancel.clone()));
    match start(args, settings, &screen, &cancel) {
        Ok(()) => exit::DONE,
        Err(error) => {
            let error = advise_scheme(error, std::slice::from_ref(&args.path));
            screen.failed(&error);
            exit::status(error.kind)
        }
    }
}

fn start(
    args: &MountArgs,
    settings: &[Setting],
    screen: &Arc<Screen>,
    cancel: &CancelHandle,
) -> Result<(), Error> {
    if args.cache.get() < LEAST_CACHE {
        let what = format!("--cache of {} is too small", args.cache);
        return Err(Error::new(ErrorKind::Usage, what).advise("give at least 8Mi"));
    }
    let client = args.reach.remote(&[&args.path], settings, screen, cancel)?;
    let options = Options {
        cache: args.cache.get(),
        retry_for: Duration::from_nanos(args.retry_for.as_nanos()),
        reach: args.reach.options(),
    };
    let warn = |warning: String| console::warn(plain::text(&warning));
    let mount = Mount::start(&client, &args.path, &args.mount_point, &options, cancel, warn)?;
    if args.json {
        let dir = args.mount_point.display().to_string();
        console::out(json!({"event": "mounted", "source": args.path.to_string(), "path": dir}));
    } else {
        console::note(format!(
            "{} is mounted on {}; Ctrl-C unmounts",
            plain::text(&args.path.to_string()),
            plain::path(&args.mount_point)
        ));
    }
    while !mount.ended(TICK)? {
        if cancel.is_cancelled() {
            if mount.unmount()? {
                console::warn("unmounted while files were open; reads of these files now fail");
            }
            return Ok(());
        }
    }
    Ok(())
}
