//! Reading at the sending end: chunks of the virtual object, hashed while they are cached.
//!
//! What a name stands for, as `rsync -a` and `cp -r` have it: `folder` is the folder itself, its
//! entries start with its name; `folder/` (and `.`, `..`) is what is in it. A link that is named
//! as a source is copied as a link with `recursive`, and followed without; within a tree links
//! are links. Filters judge what is found inside folders, never what was named.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{Advice, OFlags};
use rustix::io::Errno;

use super::digest::{self, Digest};
use super::filter::Filters;
use super::folders::{self, FileKind, Folders};
use super::manifest::{Entry, Manifest, Shape, walk_order};
use super::place::{self, Found, Place, show};
use super::virtual_object::{Extent, VirtualObject};
use super::walk::Walk;
use super::watch::Watch;
use super::{CHUNK, ChunkKind, Failure, LARGE};
use crate::error::{Class, Error};
use crate::options::Filter;

/// How a source is read.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Take folders with all that is in them.
    pub recursive: bool,
    /// Which files of a tree.
    pub filters: Vec<Filter>,
    /// Is told of each name that is found, and of each chunk that is compared.
    pub watch: Watch,
}

/// A chunk that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRead {
    /// Bytes of content, at the start of the buffer.
    pub len: usize,
    /// The chunk's value.
    pub value: Digest,
}

/// One thing that was named as a source.
#[derive(Debug)]
struct Origin {
    folders: Folders,
    /// How many bytes of a manifest path are not below the folder.
    strip: usize,
}

/// How many open files are kept.
const KEPT: usize = 64;

/// The files of an object at the sending end.
#[derive(Debug)]
pub struct Source {
    manifest: Arc<Manifest>,
    object: VirtualObject,
    encoded: Arc<[u8]>,
    origins: Vec<Origin>,
    /// The origin of each entry; empty if there is only one.
    origin_of: Vec<u16>,
    /// Open files, the last used at the end.
    open: Vec<(u32, File)>,
    failed: BTreeSet<u32>,
    failures: Vec<Failure>,
    warnings: Vec<String>,
    watch: Watch,
}

impl Source {
    /// Walks what `places` name. What cannot be read in a tree, or of several places, is found in
    /// [`failures`](Source::failures), the rest goes on.
    ///
    /// # Errors
    /// No source is there and can be read (`LocalFile`); a folder without `recursive`,
    /// two sources with one name, or a bad pattern (`Usage`).
    pub fn open(places: &[Place], options: &SourceOptions) -> Result<Source, Error> {
        let filters = Filters::new(&options.filters)?;
        if places.is_empty() || places.len() > usize::from(u16::MAX) {
            return Err(Error::new(Class::Usage, "between 1 and 65535 sources can be copied"));
        }
        let mut walk = Walk { watch: options.watch.clone(), ..Walk::default() };
        let (mut origins, mut shape) = (Vec::new(), Shape::Several);
        let only = places.len() == 1;
        for place in places {
            let number = origins.len() as u16;
            match take(&mut walk, number, place, only, options.recursive, &filters) {
                Ok((found, origin)) => {
                    origins.push(origin);
                    if only {
                        shape = found;
                    }
                }
                Err(Refused::Whole(error)) => return Err(error),
                Err(Refused::Place(reason)) => {
                    let path = place.path().as_os_str().as_bytes().to_vec();
                    walk.failures.push(Failure { entry: None, path, reason });
                }
            }
        }
        if let (true, Some(failure)) = (origins.is_empty(), walk.failures.first()) {
            let what = format!("cannot read {}: {}", places[0].shown(), failure.reason);
            return Err(Error::new(Class::LocalFile, what));
        }
        if shape == Shape::File && walk.entries.is_empty() {
            let reason = walk.failures.pop().map(|failure| failure.reason).unwrap_or_default();
            let what = format!("cannot read {}: {reason}", places[0].shown());
            return Err(Error::new(Class::LocalFile, what));
        }
        let (entries, origin_of) = merge(walk.entries, origins.len() > 1)?;
        let manifest = Manifest::new(shape, entries)
            .map_err(|error| Error::new(Class::LocalFile, error.to_string()))?;
        let manifest = Arc::new(manifest);
        Ok(Source {
            object: VirtualObject::new(&manifest, 0),
            manifest,
            encoded: Arc::from([]),
            origins,
            origin_of,
            open: Vec::new(),
            failed: BTreeSet::new(),
            failures: walk.failures,
            warnings: walk.warnings,
            watch: walk.watch,
        })
    }

    /// What was found.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Makes the encoded manifest the first part of the virtual object.
    pub fn prefix_manifest(&mut self, encoded: Arc<[u8]>) {
        self.object = VirtualObject::new(&self.manifest, encoded.len() as u64);
        self.encoded = encoded;
    }

    /// Takes holes for zeros: so the chunks of the same files are the same at every source of them.
    /// To be called before anything is read.
    ///
    /// # Errors
    /// None for what [`Source::open`] has found; as [`Manifest::new`].
    pub fn fill_holes(&mut self) -> Result<(), Error> {
        let filled = self.manifest.entries().iter().cloned().map(|mut entry| {
            if let super::Kind::File { sparse, holes, .. } = &mut entry.kind {
                (*sparse, *holes) = (false, Box::default());
            }
            entry
        });
        let manifest = Manifest::new(self.manifest.shape(), filled.collect())
            .map_err(|error| Error::new(Class::LocalFile, error.to_string()))?;
        self.manifest = Arc::new(manifest);
        self.object = VirtualObject::new(&self.manifest, 0);
        Ok(())
    }

    /// How the files lie in what is sent.
    pub fn object(&self) -> &VirtualObject {
        &self.object
    }

    /// What could not be read or changed under way so far; grows at the end. An entry that stands
    /// here was, at least in part, sent as zeros and must never get its final name: the other end
    /// must learn of it before it learns the value of the chunk whose reading found it out.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// What was left out on purpose: devices, sockets, pipes, remains of unfinished copies.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Reads chunk `chunk` into the start of `buf` (as long as a chunk) and computes its value.
    ///
    /// A file that vanished or changed since the walk becomes a failure and reads as zeros. So a
    /// chunk that is read again may have another value than before.
    ///
    /// # Errors
    /// A chunk outside the object, or a buffer that is too short (`Usage`).
    pub fn read_chunk(&mut self, chunk: u64, buf: &mut [u8]) -> Result<ChunkRead, Error> {
        let kind = self.object.chunk_kind(chunk);
        let len = self.object.chunk_content(chunk);
        let (Some(kind), Some(content)) = (kind, buf.get_mut(..len)) else {
            let what = format!("chunk {chunk} is not in the object or longer than its buffer");
            return Err(Error::new(Class::Usage, what));
        };
        if kind == ChunkKind::Manifest {
            let start = (chunk * CHUNK) as usize;
            content.copy_from_slice(&self.encoded[start..start + len]);
        } else {
            let extents: Vec<Extent> = self.object.extents(chunk).collect();
            for extent in extents {
                let piece = &mut content[extent.chunk_offset..][..extent.len];
                self.read_piece(extent.entry, extent.file_offset, piece);
            }
        }
        let value = match kind {
            ChunkKind::Large { entry, chunk } => {
                digest::file_value(self.size(entry), chunk, content)
            }
            ChunkKind::Manifest | ChunkKind::Packed => digest::packed_value(content),
        };
        Ok(ChunkRead { len, value })
    }

    /// Reads a part of chunk `chunk`, from byte `start` of it on, without computing anything; what
    /// lies behind the content is zero.
    ///
    /// # Errors
    /// As [`read_chunk`](Source::read_chunk).
    pub fn read_within(&mut self, chunk: u64, start: usize, buf: &mut [u8]) -> Result<(), Error> {
        let Some(kind) = self.object.chunk_kind(chunk) else {
            return Err(Error::new(Class::Usage, format!("chunk {chunk} is not in the object")));
        };
        buf.fill(0);
        let end = start + buf.len();
        if kind == ChunkKind::Manifest {
            let at = chunk * CHUNK;
            let content = &self.encoded[at as usize..][..self.object.chunk_content(chunk)];
            let part = content.get(start..end.min(content.len())).unwrap_or_default();
            buf[..part.len()].copy_from_slice(part);
            return Ok(());
        }
        let extents: Vec<Extent> = self.object.extents(chunk).collect();
        for extent in extents {
            let from = extent.chunk_offset.max(start);
            let to = (extent.chunk_offset + extent.len).min(end);
            if from < to {
                let at = extent.file_offset + (from - extent.chunk_offset) as u64;
                self.read_piece(extent.entry, at, &mut buf[from - start..to - start]);
            }
        }
        Ok(())
    }

    /// Which of a file's chunks have the values that the other end found in what it has.
    ///
    /// `values` are chunks counted in the file (of a small file too) and may come from anybody;
    /// what is not in the file does not match.
    pub fn compare(&mut self, entry: u32, values: &[(u64, Digest)]) -> Vec<bool> {
        let size = self.manifest.entries().get(entry as usize).and_then(Entry::size);
        let size = size.unwrap_or(0);
        let mut buf = vec![0; CHUNK as usize];
        let mut same = |(chunk, value): &(u64, Digest)| {
            self.watch.step();
            let start = chunk.checked_mul(CHUNK).filter(|start| *start < size);
            start.is_some_and(|start| {
                let content = &mut buf[..(size - start).min(CHUNK) as usize];
                self.read_piece(entry, start, content)
                    && digest::file_value(size, *chunk, content) == *value
            })
        };
        values.iter().map(&mut same).collect()
    }

    fn size(&self, entry: u32) -> u64 {
        self.manifest.entries()[entry as usize].size().unwrap_or(0)
    }

    /// Fills `piece` from a file, with zeros (and false) if the file has failed.
    fn read_piece(&mut self, entry: u32, offset: u64, piece: &mut [u8]) -> bool {
        if !self.failed.contains(&entry) {
            match self.read_unchanged(entry, offset, piece) {
                Ok(()) => return true,
                Err(reason) => self.fail(entry, reason),
            }
        }
        piece.fill(0);
        false
    }

    fn fail(&mut self, entry: u32, reason: String) {
        self.open.retain(|(number, _)| *number != entry);
        self.failed.insert(entry);
        let path = self.manifest.entries()[entry as usize].path.to_vec();
        self.failures.push(Failure { entry: Some(entry), path, reason });
    }

    /// Reads, then sees that the file still is what the manifest says: what was read before any
    /// change that this misses is what it was at the walk.
    fn read_unchanged(&mut self, entry: u32, at: u64, piece: &mut [u8]) -> Result<(), String> {
        let cached = self.open.iter().position(|(number, _)| *number == entry);
        let file = match cached {
            Some(at) => self.open.remove(at).1,
            None => self.open_file(entry).map_err(|error| place::reason(&error))?,
        };
        file.read_exact_at(piece, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "it shrank while it was copied".to_owned(),
            _ => place::reason(&error),
        })?;
        let now = folders::look_at(&file).map_err(|error| place::reason(&error))?;
        let then = &self.manifest.entries()[entry as usize];
        let size = then.size().unwrap_or(0);
        if now.kind != FileKind::File || now.size != size || now.modified != then.modified {
            return Err(match now.size {
                to if to != size => {
                    format!("it changed while it was copied, from {size} to {to} bytes")
                }
                _ => "it was modified while it was copied".to_owned(),
            });
        }
        if at + (piece.len() as u64) < size || size >= LARGE {
            if self.open.len() == KEPT {
                self.open.remove(0);
            }
            self.open.push((entry, file));
        }
        Ok(())
    }

    fn open_file(&mut self, entry: u32) -> io::Result<File> {
        let origin = self.origin_of.get(entry as usize).map_or(0, |o| usize::from(*o));
        let origin = &mut self.origins[origin];
        let entry = &self.manifest.entries()[entry as usize];
        let folder = origin.folders.at(entry.folder().get(origin.strip..).unwrap_or(&[]))?;
        let file = folders::open(folder, entry.name(), OFlags::RDONLY)?;
        if entry.size().is_some_and(|size| size >= LARGE) {
            // Advice only: without it the file is read as well.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(file)
    }
}

/// Why a place is not taken.
enum Refused {
    /// Nothing can be copied.
    Whole(Error),
    /// This place cannot be read, and why; others may be.
    Place(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Whole(error)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Place(place::reason(&error))
    }
}

/// Walks one place.
fn take(
    walk: &mut Walk,
    number: u16,
    place: &Place,
    only: bool,
    recursive: bool,
    filters: &Filters,
) -> Result<(Shape, Origin), Refused> {
    let contents = place.says_folder();
    // With `recursive`, a name without a slash that is a link stays one.
    let as_link = match (recursive && !contents, place.name()) {
        (true, Some(name)) => {
            let parent = place.parent().folder()?;
            let attributes = folders::look(&parent, &name)?;
            (attributes.kind == FileKind::Link).then_some((parent, name, attributes))
        }
        _ => None,
    };
    if let Some((parent, name, attributes)) = as_link {
        walk.link(number, &parent, &name, &attributes);
        return Ok((Shape::Named, Origin { folders: Folders::new(parent), strip: 0 }));
    }
    match place.find_at_end()? {
        Found::Nothing { .. } => Err(io::Error::from(Errno::NOENT).into()),
        Found::Folder(_) if !recursive => {
            let what = format!("{} is a folder", place.shown());
            Err(Error::new(Class::Usage, what).advise("add -r").into())
        }
        Found::Folder(base) if contents => {
            let folders = walk.tree(number, base, &[], filters)?;
            Ok((Shape::Contents, Origin { folders, strip: 0 }))
        }
        Found::Folder(base) => {
            let name = place.name().ok_or_else(|| io::Error::from(Errno::NOENT))?;
            let attributes = folders::look_at(&base)?;
            walk.folder(number, &name, &attributes);
            let folders = walk.tree(number, base, &name, filters)?;
            Ok((Shape::Named, Origin { folders, strip: name.len() + 1 }))
        }
        Found::Other { .. } if contents => Err(io::Error::from(Errno::NOTDIR).into()),
        Found::Other { parent, name, attributes } if attributes.kind == FileKind::File => {
            let large_from = if only { 1 } else { LARGE };
            walk.file(number, &parent, &name, &attributes, large_from);
            Ok((Shape::File, Origin { folders: Folders::new(parent), strip: 0 }))
        }
        Found::Other { .. } => {
            let reason = "it is a device, socket or pipe, which cannot be copied";
            Err(Refused::Place(reason.to_owned()))
        }
    }
}

/// Brings entries into order and sees that no two sources collide; folders of one name are one.
fn merge(mut found: Vec<(Entry, u16)>, several: bool) -> Result<(Vec<Entry>, Vec<u16>), Error> {
    found.sort_by(|a, b| walk_order(&a.0.path, &b.0.path));
    let is_folder = |entry: &Entry| matches!(entry.kind, super::Kind::Folder);
    found.dedup_by(|b, a| a.0.path == b.0.path && is_folder(&a.0) && is_folder(&b.0));
    let twice = found.windows(2).find(|pair| pair[0].0.path == pair[1].0.path);
    if let Some([(entry, _), _]) = twice {
        let what = format!("two sources have {}", show(&entry.path));
        return Err(Error::new(Class::Usage, what).advise("copy them one after the other"));
    }
    let origin_of = if several { found.iter().map(|(_, o)| *o).collect() } else { Vec::new() };
    Ok((found.into_iter().map(|(entry, _)| entry).collect(), origin_of))
}
