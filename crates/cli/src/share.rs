//! `longhaul share`: reads and changes a server's tree of small values.

mod lines;

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use longhaul::{CancelHandle, Edited, Location, Share, ShareEvent, SharedValue, blocking};
use serde_json::json;

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::quantity::parse_span;
use crate::reach::ReachArgs;
use crate::screen::{Screen, Show};
use crate::{console, exit, plain};
use longhaul::units::Span;
use longhaul_proto::share::MAX_VALUE;

const EXAMPLES: &str = "\
Examples:
  longhaul share put lh://dtn.example.org/world/camera 3,4,5
  longhaul share get lh://dtn.example.org/world/camera
  longhaul share watch --json lh://dtn.example.org/world
  longhaul share export lh://dtn.example.org/ > tree.jsonl
";

/// Read, change and watch small values that the clients of a server share
///
/// The server runs with `longhaul serve --share FILE`, and its --allow gives your id the right
/// `share=rw:/` (or ro, or only a prefix of the keys). A key is a path of words, such as
/// world/camera; a value has at most 64 KiB. When `put`, `rm` or `import` succeeds, the change is
/// on the disk of the server, except for `put --presence`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct ShareArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Write the value of a key to stdout
    Get(GetArgs),
    /// Set the value of a key, from the command line or from stdin
    Put(PutArgs),
    /// Print the value of a key and all values below it, then each change
    Watch(ListArgs),
    /// List a key and all keys below it
    Ls(ListArgs),
    /// Delete a key
    Rm(RmArgs),
    /// Set values from JSON lines on stdin, in the format of `export`
    Import(OneArgs),
    /// Write the value of a key and all values below it as JSON lines
    Export(OneArgs),
}

#[derive(Args)]
struct OneArgs {
    /// The server and the key: lh://HOST/KEY
    #[arg(value_name = "URL")]
    url: Location,
    #[command(flatten)]
    reach: ReachArgs,
    /// How long to keep retrying a lost connection
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_span)]
    retry_for: Span,
}

#[derive(Args)]
struct GetArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Write the key, its value and its version as a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ListArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Write each value or event as a JSON object on stdout, one a line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct PutArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The value [default: all of stdin]
    value: Option<std::ffi::OsString>,
    /// Set the value only if the key has this version; 0: only if the key does not exist
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Keep the value only while this command runs; a signal ends the command
    ///
    /// Prints the version after the value is set.
    #[arg(long)]
    presence: bool,
}

#[derive(Args)]
struct RmArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Delete the key only if it has this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

pub(crate) fn run(args: &ShareArgs, settings: &[Setting]) -> u8 {
    let changes = matches!(args.what, What::Put(_) | What::Rm(_) | What::Import(_));
    let on = |one, work: &dyn Fn(&Tree) -> Result<(), Error>| {
        let tree = open(one, settings, !changes)?;
        let done = work(&tree);
        blocking::wait(tree.share.close());
        done
    };
    let done = match &args.what {
        What::Get(args) => on(&args.one, &|tree| get(tree, args.json)),
        What::Put(args) => on(&args.one, &|tree| put(tree, args)),
        What::Watch(args) => on(&args.one, &|tree| watch(tree, args.json)),
        What::Ls(args) => on(&args.one, &|tree| list(tree, args.json)),
        What::Rm(args) => on(&args.one, &|tree| remove(tree, args.if_version)),
        What::Import(args) => on(args, &|tree| import(tree)),
        What::Export(args) => on(args, &|tree| export(tree)),
    };
    match exit::of_view(done.map(|()| exit::DONE)) {
        Ok(status) => status,
        Err(error) => exit::fail(&error),
    }
}

/// The server's tree, and the key of the command.
struct Tree {
    share: Share,
    key: String,
    cancel: CancelHandle,
}

/// Opens the shared tree. With `only_shows`, the command ends when nobody can read stdout.
fn open(args: &OneArgs, settings: &[Setting], only_shows: bool) -> Result<Tree, Error> {
    let usage = |what: String| {
        let error = Error::new(ErrorKind::Usage, what);
        error.advise("name a key of a server: lh://host/key")
    };
    if !matches!(args.url, Location::Daemon { .. }) {
        return Err(usage(format!("{} is not a server with a shared tree", args.url)));
    }
    let key = args.url.path().to_str();
    let key = key.ok_or_else(|| usage(format!("{} is not UTF-8", args.url)))?;
    let key = key.trim_matches('/').to_owned();
    let cancel = CancelHandle::default();
    let screen = Arc::new(Screen::new(Show::errors(false), cancel.clone()));
    let client = args.reach.remote(&[&args.url], settings, &screen, &cancel)?;
    if only_shows {
        console::cancel_with_stdout(&cancel)?;
    }
    let request = client.share(args.url.clone()).reach(args.reach.options());
    let request =
        request.retry_for(Duration::from_nanos(args.retry_for.as_nanos())).cancel_with(&cancel);
    let share = blocking::wait(request.into_future())?;
    Ok(Tree { share, key, cancel })
}

fn get(tree: &Tree, json: bool) -> Result<(), Error> {
    let Some(value) = blocking::wait(tree.share.get(&tree.key))? else {
        let what = format!("the key {} does not exist", plain::text(&tree.key));
        return Err(Error::new(ErrorKind::RemoteFile, what));
    };
    match json {
        true => console::out(lines::value(&tree.key, &value)),
        false => console::out_whole(&value.bytes),
    }
    Ok(())
}

fn ended(key: &str, edited: Edited) -> Result<u64, Error> {
    let key = plain::text(key);
    let now = match edited {
        Edited::Made(version) => return Ok(version),
        Edited::Conflict(Some(SharedValue { version, .. })) => format!("has version {version}"),
        Edited::Conflict(None) => "does not exist, or may not be read".to_owned(),
        _ => {
            let what = format!("{key} may have been changed: the server has discarded the outcome");
            let error = Error::new(ErrorKind::Unfinished, what);
            return Err(error.advise("read the key and decide again"));
        }
    };
    let what = format!("{key} was not changed: it {now}");
    Err(Error::new(ErrorKind::Unfinished, what).advise("read the key and decide again"))
}

fn put(tree: &Tree, args: &PutArgs) -> Result<(), Error> {
    let value = match &args.value {
        Some(value) => value.as_bytes().to_vec(),
        None => {
            let mut value = Vec::new();
            // One byte more than the limit shows that the value is too long.
            let read = std::io::stdin().lock().take(MAX_VALUE as u64 + 1).read_to_end(&mut value);
            read.map_err(|error| {
                Error::new(ErrorKind::LocalFile, format!("cannot read stdin: {error}"))
            })?;
            value
        }
    };
    if value.len() > MAX_VALUE {
        let what = format!("the value is longer than 64 KiB ({MAX_VALUE} bytes), the limit");
        let advice = "copy the object with `longhaul cp`, and put its lh:// URL as the value";
        return Err(Error::new(ErrorKind::Usage, what).advise(advice));
    }
    let mut edit = tree.share.put(&tree.key, value);
    if let Some(version) = args.if_version {
        edit = edit.if_version(version);
    }
    if args.presence {
        edit = edit.presence();
    }
    let version = ended(&tree.key, blocking::wait(edit.into_future())?)?;
    if args.presence {
        // Tells the calling program that the command holds the key.
        console::out(format_args!("{} has version {version}", plain::text(&tree.key)));
        return Err(hold(tree));
    }
    Ok(())
}

/// Keeps a presence (a value that exists only while the command runs) until it is lost or a signal
/// arrives. Returns the reason.
fn hold(tree: &Tree) -> Error {
    let lost = blocking::wait(tree.share.presence_lost(&tree.key));
    let now = match lost {
        Err(_) if tree.cancel.is_cancelled() => {
            return Error::new(ErrorKind::Cancelled, "interrupted");
        }
        Err(error) => return error.into(),
        Ok(Some(SharedValue { version, .. })) => format!("has version {version} now"),
        Ok(None) => "was deleted with the lost connection".to_owned(),
    };
    let what = format!("the presence of {} is lost: the key {now}", plain::text(&tree.key));
    Error::new(ErrorKind::Unfinished, what).advise("read the key and decide again")
}

fn remove(tree: &Tree, version: Option<u64>) -> Result<(), Error> {
    let mut edit = tree.share.delete(&tree.key);
    if let Some(version) = version {
        edit = edit.if_version(version);
    }
    ended(&tree.key, blocking::wait(edit.into_future())?).map(drop)
}

fn list(tree: &Tree, json: bool) -> Result<(), Error> {
    for (key, value) in blocking::wait(tree.share.snapshot(&tree.key))? {
        match json {
            true => console::out(lines::value(&key, &value)),
            false => console::out(plain::text(&key)),
        }
    }
    Ok(())
}

fn watch(tree: &Tree, json: bool) -> Result<(), Error> {
    let mut watch = blocking::wait(tree.share.watch(&tree.key))?;
    while let Some(event) = blocking::wait(watch.next()) {
        match event? {
            ShareEvent::Snapshot(values) => {
                if json {
                    console::out(json!({"event": "snapshot", "values": values.len()}));
                }
                values.iter().for_each(|(key, value)| show(key, value, json));
            }
            ShareEvent::Put(key, value) => show(&key, &value, json),
            ShareEvent::Deleted(key, version) => match json {
                true => {
                    console::out(json!({"event": "deleted", "key": key, "version": version}));
                }
                false => console::out(format_args!("{} deleted", plain::text(&key))),
            },
            _ => {}
        }
    }
    Ok(())
}

fn show(key: &str, value: &SharedValue, json: bool) {
    match json {
        true => console::out(lines::value(key, value)),
        false => {
            let text = String::from_utf8_lossy(&value.bytes);
            console::out(format_args!("{} {}", plain::text(key), plain::text(&text)));
        }
    }
}

fn export(tree: &Tree) -> Result<(), Error> {
    for (key, value) in blocking::wait(tree.share.snapshot(&tree.key))? {
        console::out(lines::value(&key, &value));
    }
    Ok(())
}

fn import(tree: &Tree) -> Result<(), Error> {
    for (number, line) in std::io::stdin().lines().enumerate() {
        let wrong = |what: String| {
            let what = format!("line {} of stdin: {what}", number + 1);
            Error::new(ErrorKind::Usage, what).advise("write lines as `share export` does")
        };
        let line = line.map_err(|error| wrong(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let (key, value) = lines::parse(&line).map_err(wrong)?;
        if !(tree.key.is_empty() || key == tree.key || key.starts_with(&format!("{}/", tree.key))) {
            return Err(wrong(format!("{key} is not below {}", tree.key)));
        }
        let edit = tree.share.put(&key, value);
        ended(&key, blocking::wait(edit.into_future())?)?;
    }
    Ok(())
}
