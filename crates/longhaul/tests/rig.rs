//! A server and a client on loopback, and trees to copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul::{Access, Client, Event, Events, Identity, Server, ServerBuilder, Trust};
use tempfile::TempDir;

pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) client: Identity,
    pub(crate) server: Identity,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder for the test");
        fs::create_dir(folder.path().join("root")).expect("a new folder");
        fs::create_dir(folder.path().join("here")).expect("a new folder");
        Rig { folder, client: Identity::generate(), server: Identity::generate() }
    }

    /// Returns a path below the server's root.
    pub(crate) fn there(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    /// Returns a path on the client's side.
    pub(crate) fn here(&self, path: &str) -> PathBuf {
        self.folder.path().join("here").join(path)
    }

    /// Returns a server of the rig's root without allowed clients.
    pub(crate) fn closed_server(&self) -> ServerBuilder {
        Server::builder(self.server.clone()).root(self.there("")).listen("127.0.0.1:0")
    }

    pub(crate) fn server(&self) -> ServerBuilder {
        self.closed_server().allow(self.client.id().to_string(), Access::read_write())
    }

    pub(crate) fn client(&self) -> Client {
        self.client_that(Trust::only(self.server.id().to_string()))
    }

    pub(crate) fn client_that(&self, trust: Trust) -> Client {
        let builder = Client::builder().identity(self.client.clone()).trust(trust);
        builder.build().expect("it has an identity")
    }
}

pub(crate) fn url(server: &Server, path: &str) -> String {
    format!("lh://{}/{path}", server.address())
}

pub(crate) fn write_tree(folder: &Path, count: usize, large: usize) {
    fs::create_dir_all(folder).expect("a new folder");
    for number in 0..count {
        fs::write(folder.join(format!("f{number}")), format!("file {number}")).expect("a new file");
    }
    fs::write(folder.join("large"), noise(large)).expect("a new file");
}

/// Returns pseudo-random bytes; the sequence has no period within a chunk.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn read_tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.map(|path| (name(&path), fs::read(&path).expect("readable"))).collect()
}

pub(crate) async fn until_bytes(events: &mut Events, bytes: u64) {
    while let Some(event) = events.next().await {
        if matches!(&event, Event::Progress(progress) if progress.bytes >= bytes) {
            return;
        }
    }
    panic!("the transfer ended before {bytes} bytes were there");
}
