//! `longhaul demo`: kills a copy on this host half-way, runs it again, and compares both trees.
//! Then longhaul races the kernel's TCP over an emulated long path.

mod child;
#[cfg(target_os = "linux")]
mod contest;
mod table;
mod tree;
mod walk;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, ErrorKind};
use longhaul::CancelHandle;
use longhaul_proto::time::Span;
use longhaul_proto::units::{Bytes, Rate};
use tempfile::TempDir;

use crate::quantity::parse_bytes;
use crate::{console, exit, signals};
use child::{Copy, Half, Here, Server};
use table::DemoOutcome;

/// The tree's content is the same on every host.
const SEED: u64 = 7717;
/// Duration of an uninterrupted copy, long enough to kill it half-way.
const COPY_TAKES: Span = Span::from_secs(6);
/// Space for the race's file and its copy.
const CONTEST: Bytes = Bytes::new(400_000_000);
/// Minimum size of the tree.
const LEAST: Bytes = Bytes::new(20_000_000);

/// Show a killed and resumed copy, and a race against TCP, on this host
///
/// Creates a tree of files, serves it on loopback with new identities, copies it, kills the copy
/// half-way, runs the same copy again, and compares both trees byte by byte. Then sends 200 MB by
/// the kernel's TCP and by longhaul over an emulated path of 1 Gbit/s, a round trip of 100 ms and
/// 0.1 % loss, if the kernel permits emulation. Removes all files at the end.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// Size of the tree
    #[arg(long, value_name = "SIZE", default_value = "300MB", value_parser = parse_bytes)]
    size: Bytes,
    /// Folder for the files [default: a new temporary folder]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &DemoArgs) -> u8 {
    // Creates the emulated path before the first thread starts; see `contest::track`.
    #[cfg(target_os = "linux")]
    let track = contest::track();
    let cancel = CancelHandle::default();
    let watched = signals::cancel_on_signal(
        cancel.clone(),
        "cleaning up; send the signal again to stop immediately",
    );
    let shown = watched.and_then(|()| workplace(args)).and_then(|place| {
        demonstrate(args, place.path(), &cancel)?;
        #[cfg(target_os = "linux")]
        race(track, place.path(), &cancel)?;
        for line in table::NEXT {
            console::out(line);
        }
        Ok(())
    });
    match shown {
        Ok(()) => exit::DONE,
        Err(error) => exit::fail(&error),
    }
}

fn demonstrate(args: &DemoArgs, place: &Path, cancel: &CancelHandle) -> Result<(), Error> {
    let (source, served) = (place.join("run42"), place.join("served"));
    step(&format!("makes a tree of about {} in {}", args.size, place.display()));
    let made = tree::make(&source, args.size, SEED, cancel)
        .map_err(|error| interrupted_or(cancel, local("cannot make the tree", &error)))?;
    std::fs::create_dir(&served).map_err(|error| local("cannot make a folder", &error))?;
    console::out(format_args!("  {made}"));

    let client = place.join("client");
    let id = child::id(&client)?;
    let listen = format!("127.0.0.1:{}", child::free_port()?);
    let keys = place.join("server");
    let server = Server::start(&Here, &listen, &keys, &served, &id, cancel)?;
    step(&format!("serves an empty folder on {} as {}", server.address, server.id));
    let rate = args.size / COPY_TAKES;
    let copy = Copy { stage: &Here, config: &client, words: words(&source, &server, rate) };
    step(&format!("copies at no more than {rate}, and kills the copy (-9) half-way"));
    console::out(format_args!("  longhaul {}", copy.words.join(" ")));
    let (killed, first) = timed(|| copy.kill_half_way(cancel))?;
    step("runs the same command again");
    let (summary, second) = timed(|| copy.to_the_end(cancel, |_| {}))?;
    server.end();
    step("walks both trees and compares them byte by byte");
    let verdict = walk::compare(&source, &served.join("run42"), cancel)
        .map_err(|error| interrupted_or(cancel, local("cannot compare the trees", &error)))?;
    let outcome = DemoOutcome { killed, first, summary, second, verdict };
    for line in table::lines(&outcome) {
        console::out(line);
    }
    judge(&outcome, made.files)
}

/// The copy as the user would type it after `longhaul`.
fn words(source: &Path, server: &Server, rate: Rate) -> Vec<String> {
    vec![
        "cp".into(),
        "-a".into(),
        "-P".into(),
        format!("--bwlimit={}k", rate.as_bps() / 1_000),
        format!("--server-id={}", server.id),
        source.display().to_string(),
        format!("lh://{}/", server.address),
    ]
}

fn judge(outcome: &DemoOutcome, files: u64) -> Result<(), Error> {
    let wrong = |what: String| Err(Error::new(ErrorKind::Verification, what));
    let DemoOutcome { killed: Half { bytes, .. }, summary, verdict, .. } = outcome;
    if let Some(first) = verdict.differences.first() {
        let count = verdict.differences.len();
        return wrong(format!("the trees differ in {count} places, the first: {first}"));
    }
    if verdict.files != files {
        return wrong(format!("{files} files were made, {} compared", verdict.files));
    }
    if !(summary.verified || summary.unread_files > 0) {
        return wrong("the second run did not verify what it copied".into());
    }
    if summary.resumed_bytes == 0 {
        return wrong(format!(
            "the second run restarted, although {} had arrived",
            Bytes::new(*bytes)
        ));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn race(track: contest::Track, place: &Path, cancel: &CancelHandle) -> Result<(), Error> {
    match track {
        Ok(track) => contest::run(track, place, cancel),
        Err(reason) => {
            step(&format!(
                "leaves out the race with TCP; this host cannot emulate a path: {reason}"
            ));
            Ok(())
        }
    }
}

/// A temporary folder with room for the demo's files.
fn workplace(args: &DemoArgs) -> Result<TempDir, Error> {
    if args.size < LEAST {
        let what = format!("--size {} is too small to kill the copy half-way", args.size);
        return Err(Error::new(ErrorKind::Usage, what).advise("give it at least 20MB"));
    }
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let room = room(&parent).map_err(|error| local(&parent.display().to_string(), &error))?;
    // Both trees, 5 % more, and the race's files.
    let needed = Bytes::new(args.size.get() / 10 * 21) + CONTEST;
    if room < needed {
        let what = format!("{} has {room} left, the demo needs {needed}", parent.display());
        return Err(Error::new(ErrorKind::LocalFile, what).advise("set --dir or a smaller --size"));
    }
    let made = tempfile::Builder::new().prefix("longhaul-demo-").tempdir_in(&parent);
    made.map_err(|error| local("cannot make a folder to work in", &error))
}

fn room(folder: &Path) -> io::Result<Bytes> {
    let space = rustix::fs::statvfs(folder)?;
    Ok(Bytes::new(space.f_bavail.saturating_mul(space.f_frsize)))
}

fn timed<T>(act: impl FnOnce() -> Result<T, Error>) -> Result<(T, Span), Error> {
    let start = Instant::now();
    let outcome = act()?;
    Ok((outcome, Span::from_secs_f64(start.elapsed().as_secs_f64())))
}

fn step(what: &str) {
    console::out(format_args!("demo: {what}"));
}

fn local(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::LocalFile, format!("{what}: {error}")).advise("set another --dir")
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Cancelled, "the demo was interrupted; all its files are removed")
}

fn interrupted_or(cancel: &CancelHandle, error: Error) -> Error {
    if cancel.is_cancelled() { interrupted() } else { error }
}

fn goodput(bytes: u64, span: Span) -> Rate {
    Bytes::new(bytes) / span
}
