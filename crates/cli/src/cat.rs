//! `longhaul cat`: writes remote files, or ranges of them, to stdout.

use std::ops::Range;
use std::sync::Arc;

use longhaul::{CancelHandle, Client, Connection, Location, RemoteFile, blocking};
use longhaul_proto::quantity::parse_bytes;

use crate::config::Setting;
use crate::error::{Error, ErrorKind};
use crate::reach::{ReachArgs, advise_names, advise_scheme};
use crate::screen::{Screen, Show};
use crate::{console, exit, plain};

const EXAMPLES: &str = "\
Examples:
  longhaul cat lh://dtn.example.org/run42/log             a whole file
  longhaul cat --range 1G-1.1G lh://dtn.example.org/data  100 MB, starting at byte 10⁹
  longhaul cat --range=-1M me@dtn.example.org:log         the last 10⁶ bytes, over ssh
  longhaul cat --range 0-8 --range 64Ki- lh://h/a lh://h/b  two ranges of each of two files
";

const ABOUT: &str = "\
Write files of another host, or ranges of them, to stdout

cat requests all ranges of a file at once, so 1,000 ranges do not cost 1,000 round trips. Your id \
needs the right to read. If a file changes while it is read, cat stops with an error; all bytes \
written so far are from the old version. cat compares each whole 1 MiB chunk in a range with its \
BLAKE3 digest; if a range covers only a part of a chunk, only the connection's encryption protects \
that part. For whole large files `longhaul cp` is faster, because it sends the data by UDP.";

/// Write files of another host, or ranges of them, to stdout
#[derive(clap::Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", exit::TABLE))]
pub(crate) struct CatArgs {
    /// The files: lh://HOST/PATH, or over ssh HOST:PATH
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<Location>,
    /// Write the bytes from FIRST to END-1 of each file; FIRST- means up to the end, -N the last N
    /// bytes. May be repeated
    #[arg(long, value_name = "FIRST-END", value_parser = parse_range, allow_hyphen_values = true)]
    range: Vec<Part>,
    #[command(flatten)]
    reach: ReachArgs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Between(u64, u64),
    From(u64),
    Last(u64),
}

fn parse_range(text: &str) -> Result<Part, String> {
    let expected =
        || format!("'{text}' is not a range; write FIRST-END, FIRST- or -N, as in 1G-1.1G");
    let (first, end) = text.split_once('-').ok_or_else(expected)?;
    let size = |text| parse_bytes(text).map(|bytes| bytes.get());
    match (first, end) {
        ("", "") => Err(expected()),
        ("", last) => Ok(Part::Last(size(last)?)),
        (first, "") => Ok(Part::From(size(first)?)),
        (first, end) => {
            let (first, end) = (size(first)?, size(end)?);
            match first <= end {
                true => Ok(Part::Between(first, end)),
                false => Err(format!("'{text}' ends before it begins")),
            }
        }
    }
}

impl Part {
    /// Returns the part of the range that is within a file of `size` bytes; `None` if the range
    /// starts after the end of the file.
    fn of(&self, size: u64) -> Option<Range<u64>> {
        let range = match *self {
            Part::Between(first, end) => first..end.min(size),
            Part::From(first) => first..size,
            Part::Last(count) => size.saturating_sub(count)..size,
        };
        (range.start <= size).then_some(range)
    }
}

pub(crate) fn run(args: &CatArgs, settings: &[Setting]) -> u8 {
    let cancel = CancelHandle::default();
    let screen = Arc::new(Screen::new(Show::errors(false), cancel.clone()));
    match exit::of_view(start(args, settings, &screen, &cancel).map(|()| exit::DONE)) {
        Ok(status) => status,
        Err(error) => {
            let error = advise_names(advise_scheme(error, &args.paths));
            screen.failed(&error);
            exit::status(error.kind)
        }
    }
}

fn start(
    args: &CatArgs,
    settings: &[Setting],
    screen: &Arc<Screen>,
    cancel: &CancelHandle,
) -> Result<(), Error> {
    let places: Vec<&Location> = args.paths.iter().collect();
    let client = args.reach.remote(&places, settings, screen, cancel)?;
    console::cancel_with_stdout(cancel)?;
    args.paths.iter().try_for_each(|path| write_file(args, &client, path, cancel))
}

fn write_file(
    args: &CatArgs,
    client: &Client,
    path: &Location,
    cancel: &CancelHandle,
) -> Result<(), Error> {
    let request = client.connect(path.clone()).reach(args.reach.options()).cancel_with(cancel);
    let connection = blocking::wait(request.into_future())?;
    let written = write_ranges(args, &connection, path);
    blocking::wait(connection.close());
    written
}

fn write_ranges(args: &CatArgs, connection: &Connection, path: &Location) -> Result<(), Error> {
    let mut reads = match early(&args.range) {
        Some(early) => {
            let (file, reads) = blocking::wait(connection.read_file(path.path(), early))?;
            ranges(args, &file, path)?;
            reads
        }
        None => {
            let file = blocking::wait(connection.open_file(path.path()))?;
            blocking::wait(file.read_ranges(ranges(args, &file, path)?))?
        }
    };
    while let Some(piece) = blocking::wait(reads.next()) {
        console::out_whole(&piece?.bytes);
    }
    Ok(())
}

/// The ranges to request before the size is known; `None` if a range counts from the end of the
/// file.
fn early(parts: &[Part]) -> Option<Vec<Range<u64>>> {
    if parts.is_empty() {
        return Some(vec![Range { start: 0, end: u64::MAX }]);
    }
    let range = |part: &Part| match *part {
        Part::Between(first, end) => Some(first..end),
        Part::From(first) => Some(first..u64::MAX),
        Part::Last(_) => None,
    };
    parts.iter().map(range).collect()
}

/// The requested ranges, cut at the end of `file`.
fn ranges(args: &CatArgs, file: &RemoteFile, path: &Location) -> Result<Vec<Range<u64>>, Error> {
    let size = file.len();
    if args.range.is_empty() {
        return Ok(vec![Range { start: 0, end: size }]);
    }
    let beyond = || {
        let path = plain::text(&path.to_string());
        let what = format!("a range begins after the end of {path} ({size} bytes)");
        Error::new(ErrorKind::RemoteFile, what).advise("`longhaul ls -l` shows the size")
    };
    args.range.iter().map(|part| part.of(size).ok_or_else(beyond)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_first_to_end_or_first_to_the_files_end_or_the_last_n_bytes() {
        let of = |text: &str, size| parse_range(text).map(|part| part.of(size));
        assert_eq!(of("1G-1.1G", 2_000_000_000), Ok(Some(1_000_000_000..1_100_000_000)));
        assert_eq!(of("2-9", 5), Ok(Some(2..5)));
        assert_eq!(of("5-", 5), Ok(Some(5..5)));
        assert_eq!(of("6-", 5), Ok(None));
        assert_eq!(of("-3", 5), Ok(Some(2..5)));
        assert_eq!(of("-1Ki", 5), Ok(Some(0..5)));
        let early = |texts: &[&str]| {
            let parts: Vec<_> = texts.iter().map(|text| parse_range(text).unwrap()).collect();
            early(&parts)
        };
        assert_eq!(early(&["1-2", "5-"]), Some(vec![1..2, 5..u64::MAX]));
        assert_eq!(early(&[]), Some(vec![Range { start: 0, end: u64::MAX }]));
        assert_eq!(early(&["1-2", "-5"]), None);
        for wrong in ["", "-", "5", "2-1", "a-b", "1-2-3", "--1"] {
            assert!(of(wrong, 5).is_err(), "{wrong}");
        }
    }
}
