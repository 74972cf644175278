//! Sessions that start with the user's own ssh, which starts `longhaul` on the remote side.
//!
//! The two ends exchange ids and addresses through ssh. Then the client connects directly, over
//! QUIC or TCP, and accepts only the id that came through ssh. If the direct connection fails, both
//! ends switch the ssh channel itself to TLS.

mod far;
mod lines;
mod stdio;

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

pub use far::{SshSide, accept_over_ssh, bind_udp};
use longhaul_net::zone;

pub use self::lines::Word;
use self::lines::{ContactOffer, Lines};
use super::child::Child;
use super::id::PeerId;
use super::identity::Identity;
use super::race::{self, Lost};
use super::stream::{self, Under};
use super::tls::Expect;
use super::{Session, Settings};
use crate::{Error, Kind};
use longhaul_text::{CallOption, quoted};

/// Timeout for direct connections, before ssh's channel is used instead.
const DIRECT: Duration = Duration::from_secs(3);

/// Timeout for the look-up of the destination's address, while ssh starts.
const LOOK_UP: Duration = Duration::from_secs(3);

/// How long to wait for ssh's exit status after an output without an offer.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// How to reach the remote side.
#[derive(Clone, Debug)]
pub struct SshTarget<'a> {
    /// The ssh command, as words.
    pub command: &'a [String],
    /// `host` or `user@host`, as for ssh.
    pub destination: &'a str,
    /// Path of the remote `longhaul`; `~/` is the remote user's home.
    pub remote_path: &'a str,
    /// Ports that the remote side may open.
    pub ports: Option<(u16, u16)>,
    /// Additional arguments of the remote `serve --ssh`.
    pub arguments: &'a [String],
}

/// Starts the remote side through ssh and opens a session to it. After the remote side's offer (its
/// id, ports and addresses), `offered` gets the most likely address of the remote data port, if
/// this host knows one.
///
/// # Errors
/// [`Kind::Unreachable`]: ssh fails, there is no remote `longhaul`, or no session opens.
/// [`Kind::Usage`]: the ssh command or destination is empty, or the destination begins with `-`.
pub async fn connect_ssh(
    target: &SshTarget<'_>,
    identity: &Identity,
    settings: &Settings,
    offered: impl FnOnce(SocketAddr),
) -> Result<Session, Error> {
    let mut ssh = spawn(target)?;
    let (Some(mut stdin), Some(stdout)) = (ssh.stdin.take(), ssh.stdout.take()) else {
        return Err(Error::new(Kind::Unreachable, "ssh was started without pipes"));
    };
    let mut stdout = BufReader::new(stdout);
    let mut lines = Lines::default();
    let (line, host) = tokio::join!(lines.next(&mut stdout), look_up(target));
    let offer = match line.ok().flatten().as_deref().and_then(ContactOffer::parse) {
        Some(offer) => offer,
        None => return Err(no_offer(target, ssh, &lines).await),
    };
    send_word(&mut stdin, Word::Client(identity.id())).await?;
    let candidates = candidates(&offer, &host);
    if let Some(first) = candidates.first() {
        offered(zone::at_port(*first, offer.data_port));
    }
    let expect = Expect::Only(offer.id);
    let mut session = match race::run(&candidates, identity, expect, settings, DIRECT).await {
        Ok(session) => {
            session.keep_ssh(Child::new(ssh, Some(stdin)));
            session
        }
        Err(lost) => {
            let advice = what_to_open(target, &offer, lost);
            let session = through(stdin, stdout, identity, expect, settings).await;
            let mut session = session.map_err(|error| error.advise(&*advice))?;
            session.keep_ssh(Child::new(ssh, None));
            session.advice = Some(advice);
            session
        }
    };
    session.data_port = Some(offer.data_port);
    session.call(target.destination);
    Ok(session)
}

/// Returns the remote side's first line, with its ports and no addresses.
pub fn offer(id: PeerId, port: u16, data_port: u16) -> String {
    ContactOffer { id, port, data_port, addresses: Vec::new() }.line()
}

/// Returns the addresses of the host name; addresses that the offer also names come first. Leaves
/// out addresses that only the offer names, because they may belong to another host.
fn candidates(offer: &ContactOffer, host: &[SocketAddr]) -> Vec<SocketAddr> {
    let named = |address: &SocketAddr| {
        let ip = address.ip().to_canonical();
        offer.addresses.iter().any(|o| o.to_canonical() == ip)
    };
    let (first, others): (Vec<SocketAddr>, Vec<SocketAddr>) = host.iter().copied().partition(named);
    first.into_iter().chain(others).map(|a| zone::at_port(a, offer.port)).collect()
}

fn spawn(target: &SshTarget<'_>) -> Result<tokio::process::Child, Error> {
    let usage = |what: String| Error::new(Kind::Usage, what);
    let Some((program, words)) = target.command.split_first() else {
        return Err(usage("the ssh command is empty".to_owned()));
    };
    if target.destination.is_empty() || target.destination.starts_with('-') {
        // ssh would parse a destination with a leading `-` as an option.
        return Err(usage(format!("`{}` is not a host name", target.destination)));
    }
    Command::new(program)
        .args(words)
        .arg(target.destination)
        .arg(remote_command(target))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            Error::new(Kind::Unreachable, format!("cannot start `{program}`: {error}"))
                .advise("install an ssh client, or name another program")
        })
}

fn remote_command(target: &SshTarget<'_>) -> String {
    let mut command = match target.remote_path.strip_prefix("~/") {
        Some(below_home) => format!("~/{}", quoted(below_home)),
        None => quoted(target.remote_path),
    };
    command.push_str(" serve --ssh");
    if let Some((first, last)) = target.ports {
        command.push_str(&format!(" --ports {first}-{last}"));
    }
    for argument in target.arguments {
        command.push(' ');
        command.push_str(&quoted(argument));
    }
    command
}

async fn look_up(target: &SshTarget<'_>) -> Vec<SocketAddr> {
    let found = async {
        let host = configured_host(target).await.unwrap_or_else(|| {
            let named = target.destination.rsplit('@').next().unwrap_or_default();
            named.to_owned()
        });
        if let Some(address) = zone::address(&host, 0).ok()? {
            return Some(vec![address]);
        }
        Some(tokio::net::lookup_host((host, 0)).await.ok()?.collect())
    };
    timeout(LOOK_UP, found).await.ok().flatten().unwrap_or_default()
}

/// Returns the host name according to `ssh -G` (OpenSSH).
async fn configured_host(target: &SshTarget<'_>) -> Option<String> {
    let (program, words) = target.command.split_first()?;
    if std::path::Path::new(program).file_name()? != "ssh" {
        return None;
    }
    let output = Command::new(program)
        .args(words)
        .args(["-G", target.destination])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("hostname ")).map(str::to_owned)
}

async fn send_word(stdin: &mut ChildStdin, word: Word) -> Result<(), Error> {
    let sending = async {
        stdin.write_all(word.line().as_bytes()).await?;
        stdin.flush().await
    };
    sending.await.map_err(|error: std::io::Error| {
        Error::new(Kind::Unreachable, format!("ssh ended before the session was open: {error}"))
    })
}

async fn through(
    mut stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    identity: &Identity,
    expect: Expect,
    settings: &Settings,
) -> Result<Session, Error> {
    send_word(&mut stdin, Word::Switch).await?;
    let channel = tokio::io::join(stdout, stdin);
    let handshake = stream::client(channel, Under::ssh(), identity, expect, settings);
    let failed = |why: String| {
        Error::new(Kind::Unreachable, format!("no session through ssh's channel: {why}"))
    };
    timeout(settings.handshake, handshake)
        .await
        .map_err(|_| failed("no answer".to_owned()))?
        .map_err(|failure| failed(failure.text()))
}

fn what_to_open(target: &SshTarget<'_>, offer: &ContactOffer, lost: Lost) -> String {
    let tried = match lost {
        Lost::Stranger(id) => format!("another peer, {id}, answered there"),
        Lost::Tried(tried) if tried.is_empty() => "no address to try".to_owned(),
        Lost::Tried(tried) => tried,
    };
    let range = match target.ports {
        Some((first, last)) => format!("UDP and TCP ports {first} to {last}"),
        None => format!(
            "UDP ports {} and {} (different each time; set a range with {})",
            offer.port,
            offer.data_port,
            CallOption::Ports
        ),
    };
    format!("let {range} in at {} ({tried})", target.destination)
}

async fn no_offer(target: &SshTarget<'_>, mut ssh: tokio::process::Child, lines: &Lines) -> Error {
    let status = timeout(LAST_BREATH, ssh.wait()).await;
    let status: Option<ExitStatus> = status.ok().and_then(Result::ok);
    let noise = lines.noise();
    let said = if noise.is_empty() { String::new() } else { format!(" (it said: {noise})") };
    let host = target.destination;
    match status.map(|status| status.code()) {
        Some(Some(255)) => Error::new(Kind::Unreachable, format!("ssh cannot reach {host}{said}"))
            .advise(format!("see its own message above, and try `ssh {host}` by itself")),
        Some(Some(0)) | None => Error::new(
            Kind::Unreachable,
            format!("`{}` on {host} did not answer like longhaul{said}", target.remote_path),
        )
        .advise(format!(
            "check that the same release is installed there, or name its path with {}",
            CallOption::RemotePath
        )),
        Some(code) => {
            let code = code.map_or("a signal".to_owned(), |code| format!("status {code}"));
            let what = format!(
                "`{}` does not run on {host}: it ended with {code}{said}",
                target.remote_path
            );
            Error::new(Kind::Unreachable, what).advise(format!(
                "install longhaul there (copy this program to ~/bin or /usr/local/bin), or name \
                 where it is with {}",
                CallOption::RemotePath
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target<'a>(remote_path: &'a str, arguments: &'a [String]) -> SshTarget<'a> {
        let ports = Some((7000, 7010));
        SshTarget { command: &[], destination: "host", remote_path, ports, arguments }
    }

    #[test]
    fn the_remote_command_is_quoted_for_a_shell_and_keeps_the_home_folder() {
        let arguments = ["--root".to_owned(), "/a b".to_owned()];
        assert_eq!(
            remote_command(&target("~/my bin/longhaul", &arguments)),
            "~/'my bin/longhaul' serve --ssh --ports 7000-7010 --root '/a b'"
        );
        assert_eq!(
            remote_command(&target("longhaul", &[])),
            "longhaul serve --ssh --ports 7000-7010"
        );
    }

    #[test]
    fn a_destination_that_ssh_would_take_for_an_option_is_refused() {
        let command = ["true".to_owned()];
        let target = SshTarget {
            command: &command,
            destination: "-oProxyCommand=touch x",
            ..target("longhaul", &[])
        };
        assert_eq!(spawn(&target).expect_err("an option").kind, Kind::Usage);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_shell_returns_quoted_words_unchanged(word in "[^\\x00]{0,30}") {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(&word))])
                .output()
                .expect("a shell");
            prop_assert_eq!(output.stdout, word.into_bytes());
        }
    }

    const ID: PeerId = PeerId([5; 32]);

    #[test]
    fn candidates_are_the_hosts_addresses_and_begin_with_those_in_the_offer() {
        let addresses = ["192.0.2.2", "192.0.2.9"].map(|text| text.parse().expect("an address"));
        let offer = ContactOffer { id: ID, port: 7, data_port: 8, addresses: addresses.into() };
        let host = ["192.0.2.1:0", "[::ffff:192.0.2.2]:0"].map(|text| text.parse().expect("one"));
        let tried = candidates(&offer, &host).iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        assert_eq!(tried, ["[::ffff:192.0.2.2]:7", "192.0.2.1:7"]);
        let line = format!("longhaul-ssh/1 offer id={ID} port=7 data=8 at=\n");
        assert_eq!(super::offer(ID, 7, 8), line);
    }

    #[test]
    fn the_advice_names_the_ports_to_open_and_the_attempts() {
        let offer = ContactOffer { id: ID, port: 7, data_port: 8, addresses: Vec::new() };
        let range = target("longhaul", &[]);
        let any = SshTarget { ports: None, ..range.clone() };
        let advice = |lost| what_to_open(&range, &offer, lost);
        let open = "let UDP and TCP ports 7000 to 7010 in at host";
        assert_eq!(
            advice(Lost::Tried("UDP: no answer".into())),
            format!("{open} (UDP: no answer)")
        );
        assert_eq!(advice(Lost::Tried(String::new())), format!("{open} (no address to try)"));
        assert_eq!(
            advice(Lost::Stranger(ID)),
            format!("{open} (another peer, {ID}, answered there)")
        );
        let each = what_to_open(&any, &offer, Lost::Stranger(ID));
        assert!(each.starts_with("let UDP ports 7 and 8 (different each time"), "{each}");
    }
}
