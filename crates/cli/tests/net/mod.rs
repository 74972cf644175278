//! Copies and services over difficult networks, and with hostile peers.

mod admission;
mod between;
mod blocked;
mod cat;
mod cells;
mod channel;
mod closed_pipe;
mod coming_from;
mod compared;
mod damage;
mod drains;
mod every_message;
mod faults;
mod fetch;
mod flood;
mod gathered;
mod goodbye;
mod holes;
mod hostile_lists;
mod http;
mod http_readers;
mod http_slow;
mod killed;
mod liar;
mod live_faults;
mod ls;
mod lying_reports;
mod many;
mod many_hosts;
mod mount;
mod mount_as_user;
mod multicast;
mod pages;
mod path;
mod path_memory;
mod pipes;
mod probe;
mod protocol_faults;
mod protocols;
mod reflect;
mod relay;
mod replicas;
mod room_faults;
mod room_load;
mod rooms;
mod rpc;
mod seeing;
mod service_faults;
mod share;
mod share_load;
mod silent;
mod ssh;
mod ssh_rooms;
mod strangers;
mod stream;
mod taken_up;
mod unasked;
mod unheard;
mod untrusted;
mod wan;
mod write_at;
mod zones;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::rig::{Pair, bytes, write};
use relay::Relay;

/// A client and a server with a relay between them. `here` has a file to push, and `there` has the
/// same content to pull.
struct Relayed {
    pair: Pair,
    relay: Relay,
    content: Vec<u8>,
}

impl Relayed {
    fn new(len: usize) -> Relayed {
        Relayed::with(len, &[])
    }

    /// Like [`Relayed::new`], with further arguments for `serve`.
    fn with(len: usize, args: &[&str]) -> Relayed {
        let pair = Pair::in_memory(args);
        let relay = Relay::new(&pair.server);
        let content = bytes(len, 7);
        write(&pair.here.join("object"), &content);
        write(&pair.there.join("source"), &content);
        Relayed { pair, relay, content }
    }

    fn at(&self, path: &str) -> OsString {
        format!("lh://{}/{path}", self.relay.address()).into()
    }

    /// Returns the source, the destination, and the local path of the copy.
    fn way(&self, way: Way) -> (OsString, OsString, PathBuf) {
        match way {
            Way::Push => ("object".into(), self.at("copy"), self.pair.there.join("copy")),
            Way::Pull => (self.at("source"), "copy".into(), self.pair.here.join("copy")),
        }
    }

    #[track_caller]
    fn assert_copied(&self, way: Way) {
        let (_, _, copy) = self.way(way);
        assert!(std::fs::read(copy).expect("it was copied") == self.content, "{way:?}");
    }
}

/// The direction of a copy, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Push,
    Pull,
}

const WAYS: [Way; 2] = [Way::Push, Way::Pull];

/// Writes a substitute for ssh. It runs the remote side on this host, in the folder `data` of
/// `scratch`. Callers name a host that has no address, so all data go through the ssh channel.
/// Returns the command and the `--remote-path` argument.
fn channel_of_ssh(scratch: &Path) -> (String, String) {
    let ssh = scratch.join("ssh");
    let (home, data) = (scratch.join("home"), scratch.join("data"));
    fs::create_dir(&home).expect("the scratch folder is ours");
    let text = format!(
        "#!/bin/sh\nshift\nexport HOME={0} LONGHAUL_CONFIG_DIR={0}\ncd {1}\nexec sh -c \"$*\"\n",
        home.display(),
        data.display()
    );
    fs::write(&ssh, text).expect("the scratch folder is ours");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let command = ssh.to_str().expect("our own name").to_owned();
    (command, format!("--remote-path={}", env!("CARGO_BIN_EXE_longhaul")))
}
