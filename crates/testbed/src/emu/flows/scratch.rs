//! A temporary folder for a run, in memory if possible.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use longhaul_proto::units::Bytes;
use tempfile::TempDir;

/// Linux's in-memory folder.
const MEMORY: &str = "/dev/shm";
/// Removes a folder when its [`Scratch`] is dropped, or when this process is killed. On a drop,
/// this process writes a word to the script's input. If the input ends without a word, this process
/// was killed. Programs that it started may still create files, so the script tries several times.
const SWEEP: &str = r#"
trap '' INT TERM HUP
read -r word
for try in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" && [ "$word" ] && exit
    sleep 0.3
    [ -e "$1" ] || exit
done
"#;

pub(super) struct Scratch {
    // The sweeper removes the folder on a normal exit; `TempDir` removes what is left.
    folder: TempDir,
    sweeper: Child,
}

impl Scratch {
    /// Creates a folder with room for `bytes`, in memory if possible.
    pub(super) fn new(bytes: Bytes) -> io::Result<Scratch> {
        let elsewhere = std::env::temp_dir();
        let places = [Path::new(MEMORY), &elsewhere];
        let place = places.into_iter().find(|place| room(place) >= bytes.get());
        let Some(place) = place else {
            let what = format!(
                "the objects at both ends need {bytes}; neither {MEMORY} nor {} has that much \
                 room: send less, or set TMPDIR",
                elsewhere.display()
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        };
        let prefix = format!("longhaul-emulate-{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(place)?;
        let sweeper = Command::new("/bin/sh")
            .args(["-c", SWEEP, "sh"])
            .arg(folder.path())
            // A shell's `kill -9 %1` kills this process with its whole group. The sweeper must
            // survive, so it has its own group.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Scratch { folder, sweeper })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(mut input) = self.sweeper.stdin.take() {
            // If the write fails, the sweeper only takes longer.
            let _ = input.write_all(b"ended\n");
        }
        // The sweeper removes the folder.
        let _ = self.sweeper.wait();
    }
}

fn room(place: &Path) -> u64 {
    rustix::fs::statvfs(place).map_or(0, |free| free.f_bavail.saturating_mul(free.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_with_its_content() {
        let scratch = Scratch::new(Bytes::new(1_000)).unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("root")).unwrap();
        std::fs::write(path.join("root/object"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn objects_that_fit_nowhere_are_refused_with_a_hint_to_tmpdir() {
        let error = Scratch::new(Bytes::new(u64::MAX)).err().unwrap().to_string();
        assert!(error.contains("need") && error.contains("TMPDIR"), "{error}");
    }
}
