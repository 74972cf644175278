//! scp, and `longhaul ls`, `cat` and `mount`, through a real sshd across an emulated path.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{emulate, have};
use crate::rig::{Ended, Skipped, bytes, need, skip, write};

const SSHD: &str = "/usr/sbin/sshd";

/// The files of an sshd on the host `b`, and of its client.
struct Sshd(TempDir);

impl Sshd {
    fn new() -> Result<Sshd, Skipped> {
        have(&[SSHD, "scp", "ssh-keygen"])?;
        let is_root = rustix::process::geteuid().is_root();
        skip::unless(is_root, "an sshd in a host needs root")?;
        let made = fs::create_dir_all("/run/sshd");
        assert!(made.is_ok(), "where sshd wants an empty folder: {made:?}");
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
             Subsystem sftp internal-sftp\n"
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

    /// Runs `script` in this folder on the host `a`.
    fn run(&self, script: &str) -> Result<Ended, Skipped> {
        let here = self.path().display();
        let serve = format!("exec {SSHD} -D -e -f {here}/sshd_config 2> {here}/log");
        let script = format!(
            "set -e; cd {here}; \
             until grep -q listening log 2>/dev/null; do sleep 0.05; done; {script}"
        );
        let path = ["--rate", "100M", "--rtt", "10ms", "--loss", "0.1%"];
        emulate(&[&path[..], &["--run", "b", &serve, "--run", "a", &script]].concat())
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
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let reach = format!("-e 'ssh -F {}/ssh_config' --remote-path={longhaul}", here.display());
    let data = format!("b:{}/data", here.display());
    let script = format!(
        "export LONGHAUL_CONFIG_DIR={here}/config; \
         {longhaul} ls {reach} {data}; \
         {longhaul} cat {reach} --range 1000000-3000000 {data}/file > part; \
         mkfifo ready || exit 9; \
         (exec {longhaul} mount --json {reach} {data} mnt > ready) & mount=$!; \
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
