//! Where `longhaul stream receive` writes the frames.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul::StreamFrame;
use longhaul_text::mkdir;

use crate::console;
use crate::error::{Error, ErrorKind};

#[derive(Debug)]
pub(super) enum Output {
    /// Discards frames.
    None,
    /// Consecutive frames to stdout.
    Stdout,
    /// Consecutive frames in one file.
    File(File, PathBuf),
    /// One file for each frame.
    Folder(PathBuf),
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot write {}: {error}", path.display());
    Error::new(ErrorKind::LocalFile, what)
}

impl Output {
    /// Opens the output that `-o` names; without `-o`, frames are discarded.
    pub(super) fn open(path: Option<&Path>) -> Result<Output, Error> {
        Ok(match path {
            None => Output::None,
            Some(path) if path == Path::new("-") => Output::Stdout,
            Some(path) if path.is_dir() => Output::Folder(path.to_owned()),
            Some(path) if path.as_os_str().as_bytes().ends_with(b"/") => {
                let what = format!("the folder {} does not exist", path.display());
                let advice = format!("create it with `{}`, or name a file", mkdir(path));
                return Err(Error::new(ErrorKind::LocalFile, what).advise(advice));
            }
            Some(path) => {
                let file = File::create(path).map_err(|error| failed(path, &error))?;
                Output::File(file, path.to_owned())
            }
        })
    }

    pub(super) fn is_stdout(&self) -> bool {
        matches!(self, Output::Stdout)
    }

    pub(super) fn write(&mut self, frame: &StreamFrame) -> Result<(), Error> {
        match self {
            Output::None => Ok(()),
            Output::Stdout => {
                console::out_whole(&frame.bytes);
                Ok(())
            }
            Output::File(file, path) => {
                file.write_all(&frame.bytes).map_err(|error| failed(path, &error))
            }
            Output::Folder(folder) => {
                let path = folder.join(format!("frame-{:010}", frame.number));
                fs::write(&path, &frame.bytes).map_err(|error| failed(&path, &error))
            }
        }
    }
}
