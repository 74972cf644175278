//! A copy within this host. It uses the source (reader) and the sink (writer) of a copy over a
//! network, without a session between them.
//!
//! One thread reads and hashes, another verifies and writes, and the calling thread reports. Only
//! chunks that fail verification or cannot be synced are copied again. A copy that failed is not
//! retried; the same call resumes it from the journal (the list of written chunks). An entry of the
//! manifest (the list of the source's content) is a file, folder or link.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use longhaul_files::{CHUNK, Failure, Plan, Sink, SinkOutcome, Source, SourceOptions};

use super::to_files::{By, ToFiles};
use crate::error::{Error, ErrorKind};
use crate::location::Location;
use crate::many::part::sink_options;
use crate::notices::{self, created, interrupted};
use crate::options::{CopyOptions, Names, Receive};
use crate::progress::{Cancel, Notice, Observer};
use crate::summary::Summary;

const BY: By = By { protocol: "local", cipher: "none", is_verified: true };
/// Maximum number of chunks in the queue from the reader to the writer.
const AHEAD: usize = 8;
/// Maximum number of passes: chunks that fail verification or cannot be synced are copied again.
const MOST_PASSES: u32 = 4;

struct Read {
    chunk: u64,
    buf: Vec<u8>,
    read: Result<longhaul_files::ChunkRead, longhaul_files::Error>,
    failures: Vec<Failure>,
}

pub(super) fn is_local(options: &CopyOptions) -> bool {
    options.destination.is_local() && options.sources.iter().all(Location::is_local)
}

/// Copies the files; blocks until the copy ends, or until a disk hangs for longer than the stall
/// limit.
pub(super) fn copy(
    options: CopyOptions,
    observer: Arc<dyn Observer>,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    check(&options)?;
    if options.rate.is_some() || options.rate_limit.is_some() {
        let what = "a rate limit applies only to a network; this copy stays on this host";
        observer.notice(Notice::Warning(what.to_owned()));
    }
    let stall = Some(options.stall);
    ToFiles::run(options, observer, cancel, stall, ToFiles::copy_local)
}

fn check(options: &CopyOptions) -> Result<(), Error> {
    let is_plain = !options.replicas
        && options.input.is_none()
        && options.output.is_none()
        && options.receive != Receive::Fake;
    if !is_plain {
        let what = "a copy within this host copies only files and folders";
        return Err(Error::new(ErrorKind::Usage, what));
    }
    if options.local.is_some() {
        return Ok(());
    }
    options.sources.iter().try_for_each(|source| {
        let (from, to) = (source.path(), options.destination.path());
        let deletes_it = options.delete.is_some() && lies_in(from, to);
        match deletes_it || leads_into_itself(from, to, options.recursive) {
            true if deletes_it => {
                let (from, to) = (from.display(), to.display());
                let what = format!("{from} lies in {to} and would be deleted there");
                Err(Error::new(ErrorKind::Usage, what).advise("name another destination"))
            }
            true => {
                let what = format!("{} would be copied onto or into itself", from.display());
                Err(Error::new(ErrorKind::Usage, what).advise("name another destination"))
            }
            false => Ok(()),
        }
    })
}

fn lies_in(path: &Path, folder: &Path) -> bool {
    let real = path.canonicalize().ok().zip(folder.canonicalize().ok());
    real.is_some_and(|(path, folder)| path != folder && path.starts_with(folder))
}

/// Returns whether the copy of `from` would be written to `from` itself, or below it.
fn leads_into_itself(from: &Path, to: &Path, recursive: bool) -> bool {
    let says_folder = from.as_os_str().as_encoded_bytes().ends_with(b"/");
    // A link that is copied as a link has no content.
    if recursive && !says_folder && from.is_symlink() {
        return false;
    }
    let Ok(real) = from.canonicalize() else { return false };
    // A missing path counts as its innermost existing folder.
    let here = |path: &Path| match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path.to_owned(),
    };
    let base = to.ancestors().find_map(|path| here(path).canonicalize().ok());
    let is_inside = real.is_dir() && base.is_some_and(|base| base.starts_with(&real));
    let target = match (to.is_dir(), from.file_name()) {
        (true, Some(name)) if !says_folder => to.join(name),
        _ => to.to_owned(),
    };
    is_inside || target.canonicalize().is_ok_and(|target| target == real)
}

impl ToFiles {
    fn copy_local(&self) -> Result<Summary, Error> {
        let options = &self.options;
        let place = |location: &Location| options.place(location.path().to_owned());
        let places: Vec<_> = options.sources.iter().map(place).collect();
        let source = Source::open(
            &places,
            &SourceOptions {
                recursive: options.recursive,
                filters: options.filters.clone(),
                watch: self.watch.clone(),
            },
        )?;
        self.bring(source)
    }

    fn bring(&self, mut source: Source) -> Result<Summary, Error> {
        let options = &self.options;
        for warning in source.warnings() {
            self.observer.notice(Notice::Warning(warning.clone()));
        }
        let manifest = source.manifest().clone();
        let to = options.place(options.destination.path().to_owned());
        let (mut sink, plan) = Sink::open(&to, &manifest, 0, &sink_options(options), &self.watch)?;
        let (resumed, skipped) = self.plan(&mut source, &mut sink, plan)?;
        if !without_entry(&source).is_empty() {
            sink.source_is_incomplete();
        }
        if options.dry_run {
            return self.rehearsed(&source, &mut sink, &skipped, resumed);
        }
        for pass in 1.. {
            let missing: Vec<u64> = sink.missing().into_iter().flatten().collect();
            if missing.is_empty() || self.watch.is_over() {
                break;
            }
            if pass > MOST_PASSES {
                let what = format!("{} chunks still differ or cannot be synced", missing.len());
                return Err(Error::new(ErrorKind::Verification, what));
            }
            self.pass(&mut source, &mut sink, &missing, resumed)?;
            // Chunks that cannot be synced count as missing again.
            sink.sync()?;
        }
        let walked: Vec<Failure> = without_entry(&source);
        let outcome = sink.finish()?;
        if outcome.unfinished > 0 && self.watch.is_over() {
            return Err(interrupted());
        }
        if outcome.unfinished > 0 {
            let what = format!("{} files could not be synced to the disk", outcome.unfinished);
            return Err(Error::new(ErrorKind::LocalFile, what)
                .advise("run the same command again to resume"));
        }
        self.made(&manifest, &outcome.named);
        self.deleted(&outcome.deleted_names);
        self.summary(BY, &manifest, outcome, walked, resumed)
    }

    /// Compares existing content. Returns the number of bytes that need not be copied, and the
    /// entries that exist already.
    fn plan(
        &self,
        source: &mut Source,
        sink: &mut Sink,
        plan: Plan,
    ) -> Result<(u64, Vec<u32>), Error> {
        let manifest = source.manifest().clone();
        let due = |sink: &Sink| -> u64 {
            let chunks = sink.missing().into_iter().flatten();
            chunks.map(|chunk| sink.object().chunk_content(chunk) as u64).sum()
        };
        let (before, mut skipped) = (due(sink), plan.skipped);
        for compare in &plan.compare {
            let known = source.failures().len();
            let same = source.compare(compare.entry, &compare.values);
            fail_in(sink, &source.failures()[known..]);
            sink.compare_result(compare.entry, &same)?;
            skipped.extend(sink.is_skipped(compare.entry).then_some(compare.entry));
        }
        let resumed = plan.resumed_bytes.saturating_add(before.saturating_sub(due(sink)));
        if self.options.names == Names::All {
            let skipped = notices::skipped(&manifest, skipped.iter().copied());
            skipped.for_each(|notice| self.observer.notice(notice));
        }
        if resumed > 0 {
            self.observer.notice(Notice::Resumed { bytes: resumed });
        }
        self.planned(&manifest, resumed);
        Ok((resumed, skipped))
    }

    /// Copies chunks: a second thread reads them, this thread writes them.
    fn pass(
        &self,
        source: &mut Source,
        sink: &mut Sink,
        missing: &[u64],
        resumed: u64,
    ) -> Result<(), Error> {
        thread::scope(|scope| {
            let (send, chunks) = mpsc::sync_channel(AHEAD);
            let (give_back, buffers) = mpsc::channel();
            scope.spawn(move || {
                for chunk in missing.iter().copied() {
                    self.watch.step();
                    let buf = buffers.try_recv();
                    let mut buf = buf.unwrap_or_else(|_| vec![0; CHUNK as usize]);
                    let known = source.failures().len();
                    let read = source.read_chunk(chunk, &mut buf);
                    let failures = source.failures()[known..].to_vec();
                    if send.send(Read { chunk, buf, read, failures }).is_err() {
                        return;
                    }
                }
            });
            for Read { chunk, buf, read, failures } in chunks {
                if self.watch.is_over() {
                    return Ok(());
                }
                fail_in(sink, &failures);
                let read = read?;
                sink.write_chunk(chunk, &buf[..read.len], &read.value)?;
                let _ = give_back.send(buf);
                self.wrote(sink, resumed);
            }
            Ok(())
        })
    }

    fn rehearsed(
        &self,
        source: &Source,
        sink: &mut Sink,
        skipped: &[u32],
        resumed: u64,
    ) -> Result<Summary, Error> {
        let manifest = source.manifest();
        let skipped: BTreeSet<u32> = skipped.iter().copied().collect();
        let failures: Vec<Failure> =
            without_entry(source).into_iter().chain(sink.failures().iter().cloned()).collect();
        let failed: BTreeSet<u32> = failures.iter().filter_map(|failure| failure.entry).collect();
        let deleted = sink.would_delete()?;
        let mut outcome = SinkOutcome {
            failures,
            deleted: deleted.count,
            kept_extra: sink.keeps_extra(),
            ..SinkOutcome::default()
        };
        for (number, entry) in (0..).zip(manifest.entries()) {
            let is_file = entry.size().is_some();
            match skipped.contains(&number) {
                true => outcome.skipped += u64::from(is_file),
                false if failed.contains(&number) => {}
                false => {
                    outcome.files += u64::from(is_file);
                    self.observer.notice(created(manifest, number, &manifest.path(number)));
                }
            }
        }
        self.deleted(&deleted.names);
        self.summary(BY, manifest, outcome, Vec::new(), resumed)
    }
}

/// Marks the files that the source could not read as failed, so the sink stops writing them.
fn fail_in(sink: &mut Sink, failures: &[Failure]) {
    for Failure { entry, reason, .. } in failures {
        if let Some(entry) = entry {
            sink.fail_entry(*entry, reason);
        }
    }
}

/// Returns the failures from the walk over the source, which belong to no entry.
fn without_entry(source: &Source) -> Vec<Failure> {
    source.failures().iter().filter(|failure| failure.entry.is_none()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;
    use crate::progress::Nobody;
    use crate::session::trust::Trust;

    #[test]
    fn if_the_source_changes_after_its_listing_the_copy_fails_and_the_old_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        for (path, byte) in [(&from, b'a'), (&to, b'b')] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("x"), vec![byte; 3 << 20]).unwrap();
        }
        let place = |path: &Path| path.display().to_string().parse::<Location>().unwrap();
        let trust = Trust { config_dir: to.clone(), pins: Vec::new(), accept_new: false };
        let mut options = CopyOptions::new(vec![place(&from.join("x"))], place(&to), trust);
        options.checksum = true;
        let local = ToFiles::new(options.clone(), Arc::new(Nobody));
        let places = [options.place(from.join("x"))];
        let source = Source::open(&places, &SourceOptions::default()).unwrap();
        let mut file = fs::File::options().append(true).open(from.join("x")).unwrap();
        file.write_all(b"more").unwrap();
        let error = local.bring(source).unwrap_err();
        assert!(error.what.contains("cannot copy x"), "{error}");
        assert!(fs::read(to.join("x")).unwrap() == vec![b'b'; 3 << 20]);
    }
}
