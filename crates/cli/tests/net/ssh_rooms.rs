//! Streams and channels between clients that reach their host by ssh.

use super::ssh::Ssh;
use crate::rig::{Child, need, wait_until};

impl Ssh {
    /// Starts `longhaul WORDS --json` with this user's ssh.
    fn live(&self, words: &[&str]) -> Child {
        let ssh = format!("--rsh=ssh -F {}", self.path("ssh_config").display());
        let path = format!("--remote-path={}", crate::rig::binary().display());
        let words = words.iter().copied().chain([&*ssh, &*path, "--json"]);
        let mut command = self.client.command(words);
        Child::spawn(command.current_dir(&self.here))
    }
}

#[test]
fn clients_that_come_over_ssh_meet_in_streams_and_rooms_and_the_server_ends_after_them() {
    let ssh = need!(Ssh::new());
    let mut subscriber = ssh.live(&["channel", "receive", "--count=1", "far:lab/log"]);
    subscriber.event(|event| event["event"] == "joined");
    let receiver = ssh.live(&["stream", "receive", "--check", "far:lab/cam"]);
    let words = ["stream", "send", "--test-pattern", "--frames=40", "--frame=20000", "--fps=50"];
    let words = [&words[..], &["--deadline=20s", "--receivers=1", "far:lab/cam"]].concat();
    let sent = ssh.live(&words).end();
    assert_eq!(sent.is(0, &[]).summary()["frames"], 40, "{sent}");
    let came = receiver.end();
    assert_eq!(came.is(0, &[]).summary()["on_time"], 40, "{came}");
    let mut said = ssh.client.command([
        "channel",
        "send",
        &format!("--rsh=ssh -F {}", ssh.path("ssh_config").display()),
        &format!("--remote-path={}", crate::rig::binary().display()),
        "far:lab/log",
    ]);
    std::fs::write(ssh.path("said"), "hello\n").unwrap();
    said.stdin(std::fs::File::open(ssh.path("said")).unwrap());
    Child::spawn(&mut said).end().is(0, &["1 message, 1 taken"]);
    let heard = subscriber.end();
    assert_eq!(heard.is(0, &[]).events("message")[0]["text"], "hello", "{heard}");
    // The last client has disconnected, so the server ends.
    let socket = ssh.path("far_config").join("rooms.sock");
    wait_until("the end of the server", || !socket.exists());
}

#[test]
fn a_host_that_only_its_ssh_channel_reaches_names_the_ports_to_open() {
    let ssh = need!(Ssh::only_channel());
    let refused = ssh.live(&["stream", "receive", "--retry-for=0s", "far:x"]).end();
    let error = refused.is(3, &[]).last();
    let text = format!("{} {}", error["what"], error["advice"]);
    assert!(text.contains("UDP ports"), "{refused}");
}
