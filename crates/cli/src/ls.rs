//! `longhaul ls`: lists a folder on another host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul::{CancelHandle, Expanded, FileTime, Location, NameKind, Named, blocking};
use serde_json::json;

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::reach::{ReachArgs, advise_names, advise_scheme};
use crate::screen::{Screen, Show};
use crate::{console, exit, json, plain, utc};

const EXAMPLES: &str = "\
Examples:
  longhaul ls lh://dtn.example.org/run42      the names in a folder, sorted
  longhaul ls -l me@dtn.example.org:data      with mode, size and time, over ssh
  longhaul ls 'dtn.example.org:run*'          the names that match
  longhaul ls --json lh://10.0.0.2:7727/      one JSON object a line, unsorted
";

const ABOUT: &str = "\
List a folder on another host

Lists all names in the folder, hidden ones too, or the file that PATH names. Symbolic links are \
shown as links. If PATH has *, ?, [...] or {a,b}, the matching names are listed, without the \
contents of folders. Needs the right to read. Without --json all names are read and sorted before \
the first is printed.";

/// Maximum number of names to sort. Without this limit, a hostile server could fill the memory.
const SORTED: usize = 5_000_000;

/// List a folder on another host
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct LsArgs {
    /// The folder or file: lh://HOST/PATH, or over ssh HOST:PATH
    #[arg(value_name = "PATH")]
    path: Location,
    /// Show mode, size in bytes and time (UTC) of each name
    #[arg(short)]
    long: bool,
    #[command(flatten)]
    reach: ReachArgs,
    /// Write each name as a JSON object to stdout, one a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &LsArgs, settings: &[Setting]) -> u8 {
    let cancel = CancelHandle::default();
    let screen = Arc::new(Screen::new(Show::errors(args.json), cancel.clone()));
    match exit::of_view(start(args, settings, &screen, cancel).map(|()| exit::DONE)) {
        Ok(status) => status,
        Err(error) => {
            let error = advise_names(advise_scheme(error, std::slice::from_ref(&args.path)));
            screen.failed(&error);
            exit::status(error.kind)
        }
    }
}

fn start(
    args: &LsArgs,
    settings: &[Setting],
    screen: &Arc<Screen>,
    cancel: CancelHandle,
) -> Result<(), Error> {
    let client = args.reach.remote(&[&args.path], settings, screen, &cancel)?;
    console::cancel_with_stdout(&cancel)?;
    let expanded = client.expand(args.path.clone(), args.reach.options(), &cancel);
    let expanded = blocking::wait(expanded)?;
    let matches = expanded.into_iter().filter_map(|Expanded { location, named, .. }| {
        let name = location.path().as_os_str().as_bytes().to_vec();
        Some(Named { name, ..named? })
    });
    let matches: Vec<Named> = matches.collect();
    if !matches.is_empty() {
        return print(args, matches.into_iter().map(Ok));
    }
    let request = client.connect(args.path.clone()).reach(args.reach.options());
    let connection = blocking::wait(request.cancel_with(&cancel).into_future())?;
    let mut names = blocking::wait(connection.list(args.path.path()))?;
    print(args, std::iter::from_fn(|| blocking::wait(names.next())).map(|name| Ok(name?)))
}

/// Prints names sorted, or as they arrive with `--json`.
fn print(args: &LsArgs, names: impl Iterator<Item = Result<Named, Error>>) -> Result<(), Error> {
    let (mut all, mut count) = (Vec::new(), 0_u64);
    for named in names {
        let named = named?;
        if args.json {
            console::out(object(&named));
            count += 1;
            continue;
        }
        all.push(named);
        if all.len() > SORTED {
            let what = format!("the folder has more than {SORTED} names");
            return Err(Error::new(ErrorKind::Usage, what).advise("list it with --json"));
        }
    }
    if args.json {
        console::out(json!({"event": "summary", "status": exit::DONE, "names": count}));
    }
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let width = all.iter().map(|named| named.size).max().unwrap_or(0).to_string().len();
    for named in &all {
        match args.long {
            true => console::out(long(named, width)),
            false => console::out(shown(named)),
        }
    }
    Ok(())
}

fn shown(named: &Named) -> String {
    plain::path(path(named))
}

fn path(named: &Named) -> &Path {
    Path::new(OsStr::from_bytes(&named.name))
}

fn long(named: &Named, width: usize) -> String {
    let (mode, size, time) = (mode(named), named.size, utc::time(named.modified.seconds));
    format!("{mode} {size:>width$} {time} {}", shown(named))
}

fn object(named: &Named) -> String {
    let kind = match named.kind {
        NameKind::File => "file",
        NameKind::Folder => "folder",
        NameKind::Link => "link",
        _ => "other",
    };
    let FileTime { seconds, nanos } = named.modified;
    let mut value = json!({
        "event": "name",
        "type": kind,
        "mode": format!("{:04o}", named.mode),
        "bytes": named.size,
        "modified": utc::time(named.modified.seconds),
        "modified_seconds": seconds,
        "modified_nanos": nanos,
    });
    json::put_path(&mut value, "name", path(named));
    value.to_string()
}

/// The mode in the format of `ls -l`.
fn mode(named: &Named) -> String {
    let kind = match named.kind {
        NameKind::File => '-',
        NameKind::Folder => 'd',
        NameKind::Link => 'l',
        NameKind::Pipe => 'p',
        NameKind::Socket => 's',
        NameKind::CharDevice => 'c',
        NameKind::BlockDevice => 'b',
        NameKind::Other => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, mark) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = named.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, named.mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => mark,
            (false, true) => mark.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: NameKind, mode: u32) -> Named {
        let modified = FileTime { seconds: 0, nanos: 0 };
        Named { name: b"a\x1bb\xff".to_vec(), kind, mode, size: 7, modified, target: None }
    }

    #[test]
    fn a_mode_has_the_format_of_ls_l() {
        for (kind, bits, text) in [
            (NameKind::File, 0o644, "-rw-r--r--"),
            (NameKind::Folder, 0o1777, "drwxrwxrwt"),
            (NameKind::File, 0o6750, "-rwsr-s---"),
            (NameKind::File, 0o7000, "---S--S--T"),
            (NameKind::Link, 0o777, "lrwxrwxrwx"),
            (NameKind::CharDevice, 0o620, "crw--w----"),
        ] {
            assert_eq!(mode(&named(kind, bits)), text);
        }
    }

    #[test]
    fn a_name_is_escaped_for_a_terminal_and_keeps_its_bytes_in_json() {
        let named = named(NameKind::File, 0o600);
        assert!(!shown(&named).contains('\x1b'));
        let value: serde_json::Value = serde_json::from_str(&object(&named)).unwrap();
        assert_eq!(value["name_hex"], "611b62ff");
        assert_eq!((&value["mode"], &value["bytes"]), (&"0600".into(), &7.into()));
    }
}
