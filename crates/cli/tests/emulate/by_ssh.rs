//! scp, and `longhaul` with ssh, through a real sshd across an emulated path.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{emulate, have};
use crate::rig::{Ended, Skipped, bytes, need, skip, write};

const SSHD: &str = "/usr/sbin/sshd";
const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// A folder with the files of an sshd and of its client.
struct Sshd(TempDir);

impl Sshd {
    fn new() -> Result<Sshd, Skipped> {
        have(&[SSHD, "scp", "ssh-keygen"])?;
        let is_root = rustix::process::geteuid().is_root();
        skip::unless(is_root, "an sshd in an emulated host needs root")?;
        let made = fs::create_dir_all("/run/sshd");
        assert!(made.is_ok(), "the empty folder that sshd needs: {made:?}");
        let sshd = Sshd(tempfile::tempdir().expect("a folder can be made"));
        for name in ["user_key", "host_key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(sshd.path().join(name));
            assert!(keygen.status().expect("OpenSSH has it").success());
        }
        let here = sshd.path().display();
        let far = format!(
            "ListenAddress 10.77.0.2\nHostKey {here}/host_key\n\
             AuthorizedKeysFile {here}/user_key.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\n\
             Subsystem sftp internal-sftp\nSetEnv LONGHAUL_CONFIG_DIR={here}/far\n"
        );
        let near = format!(
            "Host b\n  IdentityFile {here}/user_key\n  IdentitiesOnly yes\n  \
             StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        );
        write(&sshd.path().join("sshd_config"), far.as_bytes());
        write(&sshd.path().join("ssh_config"), near.as_bytes());
        Ok(sshd)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The command that runs this sshd on the host `b`.
    fn serve(&self) -> String {
        let here = self.path().display();
        format!("exec {SSHD} -D -e -f {here}/sshd_config 2> {here}/log")
    }

    /// Commands that enter the folder and wait until the sshd listens.
    fn ready(&self) -> String {
        let here = self.path().display();
        format!("cd {here}; until grep -q listening log 2>/dev/null; do sleep 0.05; done")
    }

    fn run(&self, script: &str) -> Result<Ended, Skipped> {
        let script = format!("set -e; {}; {script}", self.ready());
        let path = ["--rate", "100M", "--rtt", "10ms", "--loss", "0.1%"];
        emulate(&[&path[..], &["--run", "b", &self.serve(), "--run", "a", &script]].concat())
    }
}

#[test]
fn scp_copies_through_a_real_sshd_across_an_emulated_path() {
    let sshd = need!(Sshd::new());
    let content = bytes(2_000_000, 1);
    write(&sshd.path().join("object"), &content);
    let copy = format!("scp -F ssh_config object b:{}/copy", sshd.path().display());
    let ended = need!(sshd.run(&copy));
    ended.is(0, &["a > b: ", "b > a: "]);
    assert!(fs::read(sshd.path().join("copy")).expect("it was copied") == content, "{ended}");
}

#[test]
fn remote_files_are_listed_read_and_mounted_by_ssh_across_an_emulated_path() {
    let sshd = need!(Sshd::new());
    let has_fuse = Path::new("/dev/fuse").exists();
    need!(skip::unless(has_fuse, "there is no /dev/fuse"));
    let (here, content) = (sshd.path(), bytes(5_000_000, 2));
    write(&here.join("data/file"), &content);
    fs::create_dir(here.join("mnt")).expect("the folder is ours");
    let reach = format!("-e 'ssh -F {}/ssh_config' --remote-path={LONGHAUL}", here.display());
    let data = format!("b:{}/data", here.display());
    let script = format!(
        "export LONGHAUL_CONFIG_DIR={here}/config; \
         {LONGHAUL} ls {reach} {data}; \
         {LONGHAUL} cat {reach} --range 1000000-3000000 {data}/file > part; \
         mkfifo ready || exit 9; \
         (exec {LONGHAUL} mount --json {reach} {data} mnt > ready) & mount=$!; \
         read -r line < ready; echo \"$line\"; cp mnt/file copy; umount mnt; wait $mount",
        here = here.display(),
    );
    let ended = need!(sshd.run(&script));
    let said = ended.is(0, &["a > b: ", "b > a: "]).stdout.join("\n");
    assert!(said.contains("file") && said.contains("\"mounted\""), "{ended}");
    let came = |name: &str| fs::read(here.join(name)).expect("it was read");
    assert!(came("part") == content[1_000_000..3_000_000], "{ended}");
    assert!(came("copy") == content, "{ended}");
}

#[test]
fn senders_and_receivers_of_streams_and_channels_meet_over_ssh_across_a_long_path() {
    let sshd = need!(Sshd::new());
    let here = sshd.path().display();
    let ready = sshd.ready();
    let near = |name: &str| format!("{ready}; export LONGHAUL_CONFIG_DIR={here}/{name}");
    let ends = format!("--rsh='ssh -F {here}/ssh_config' --remote-path={LONGHAUL} --json");
    let send = format!(
        "{}; {LONGHAUL} stream send --test-pattern --frames 60 --frame 20000 --fps 30 \
         --deadline 20s --receivers 1 {ends} b:lab/cam && \
         echo hello | {LONGHAUL} channel send {ends} b:lab/log",
        near("a")
    );
    // On the host b: a receiver of the stream, then a subscriber of the room. The subscriber may
    // come after the room's only sender has left.
    let receive = format!(
        "{}; {LONGHAUL} stream receive --check {ends} b:lab/cam > {here}/frames; \
         {LONGHAUL} channel receive --count 1 {ends} b:lab/log > {here}/message",
        near("b")
    );
    let path = ["--rate", "100M", "--rtt", "100ms", "--loss", "1%"];
    let runs = ["--run", "b", &sshd.serve(), "--run", "a", &send, "--run", "b", &receive];
    let ended = need!(emulate(&[&path[..], &runs[..]].concat()));
    let read = |name: &str| fs::read_to_string(sshd.path().join(name)).expect("it was written");
    let frames = read("frames");
    let summary = frames.lines().last().expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(summary).expect("JSON");
    assert!(summary["on_time"].as_u64() > Some(50) && summary["wrong"] == 0, "{summary} {ended}");
    assert!(read("message").contains("\"text\":\"hello\""), "{} {ended}", read("message"));
}
