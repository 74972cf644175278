//! Flags of all subcommands that connect to another host.

use std::net::Ipv6Addr;
use std::sync::Arc;

use longhaul::{
    CancelHandle, Client, ClientBuilder, Location, NewServer, PathMemory, PeerId, ReachOptions,
    ServerPin, Trust,
};

use crate::config::{self, Setting};
use crate::error::{Error, ErrorKind};
use crate::quantity::parse_ports;
use crate::screen::Screen;
use crate::signals;
use crate::words::SshCommand;

/// Flags that say how to reach another host.
#[derive(clap::Args)]
pub(crate) struct ReachArgs {
    /// The ssh command, with its arguments: 'ssh -J gate'
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh")]
    #[arg(value_parser = SshCommand::parse)]
    rsh: SshCommand,
    /// Path of longhaul on the remote ssh host
    #[arg(long, value_name = "PATH", default_value = "longhaul")]
    remote_path: String,
    /// UDP port of the server's data [default: its control port + 1]
    #[arg(long, value_name = "PORT")]
    data_port: Option<u16>,
    /// UDP and TCP ports that the remote side of ssh may open, if its firewall requires a range
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_ports)]
    ports: Option<(u16, u16)>,
    /// Accept only a server with this id. HOST=ID pins one of several servers and may be repeated;
    /// a bare ID applies to servers without their own pin
    #[arg(long, value_name = "[HOST=]ID", value_parser = parse_pin)]
    server_id: Vec<ServerPin>,
    /// Accept and remember a new server without asking
    #[arg(long)]
    accept_new: bool,
    /// Print the values in force and the origin of each (command line, file and line, or default),
    /// and do nothing else
    #[arg(long = "show-config", id = "show_config")]
    _show_config: bool,
}

/// Parses `lh://host[:port]` of a server, or `[user@]host` of ssh. A path may follow.
pub(crate) fn parse_host(text: &str) -> Result<Location, Error> {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let host = without_user(text);
    let meant = match text.rsplit_once(':') {
        Some(_) if host.split('%').next().is_some_and(|it| it.parse::<Ipv6Addr>().is_ok()) => {
            Some(format!("lh://[{host}]"))
        }
        Some((before, port)) if is_port(port) && !before.is_empty() && !text.contains("//") => {
            Some(format!("lh://{host}"))
        }
        None if is_port(text) => Some(format!("lh://localhost:{text}")),
        _ => None,
    };
    let refuse = |advice: String| {
        Err(Error::new(ErrorKind::Usage, format!("'{text}' is not a host")).advise(advice))
    };
    if let Some(meant) = meant {
        return refuse(format!("did you mean {meant}?"));
    }
    // A colon outside the brackets of an IPv6 address starts a path.
    let has_path = text.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let bare = !text.contains("://") && !has_path;
    let location: Location = if bare { format!("{text}:").parse()? } else { text.parse()? };
    match location {
        Location::Local(_) | Location::Http { .. } => {
            refuse("write lh://host[:port] or [user@]host".into())
        }
        location => Ok(location),
    }
}

/// Returns the host of `[user@]host` of ssh; servers have no users.
fn without_user(destination: &str) -> &str {
    destination.rsplit('@').next().unwrap_or(destination)
}

/// Adds advice if ssh could not reach the host of `host:PORT`. The PORT was read as a path, but the
/// user probably meant a server's port.
pub(crate) fn advise_scheme(error: Error, places: &[Location]) -> Error {
    let is_meant = error.kind == ErrorKind::Unreachable && error.what.contains("cannot reach");
    let meant = places.iter().filter(|_| is_meant).find_map(|place| match place {
        Location::Ssh { destination, path } => {
            let port = path.to_str()?.trim_end_matches('/').parse::<u16>().ok()?;
            Some(match without_user(destination) {
                host if host.contains(':') => format!("did you mean lh://[{host}]:{port}/?"),
                host => format!("did you mean lh://{host}:{port}/?"),
            })
        }
        _ => None,
    });
    match meant {
        Some(meant) => error.advise(meant),
        None => error,
    }
}

/// Adds advice to an error about a path that the other host does not have.
pub(crate) fn advise_names(error: Error) -> Error {
    if error.is_missing && error.kind == ErrorKind::RemoteFile && error.advice.is_none() {
        return error.advise("`longhaul ls` of its parent folder shows the names there");
    }
    error
}

pub(crate) fn parse_pin(text: &str) -> Result<ServerPin, String> {
    let (server, id) = match text.rsplit_once('=') {
        Some((server, id)) => (Some(server.to_owned()), id),
        None => (None, text),
    };
    match id.parse::<PeerId>() {
        Ok(_) => Ok(ServerPin { server, id: id.to_owned() }),
        Err(error) => Err(format!(
            "{error}; the server prints its id when it starts, and so does `longhaul id` there"
        )),
    }
}

/// Checks three rules: each pin with a name names a server of the command; pins with the same name
/// have the same id; and all pins without a name have the same id.
fn check_pins(pins: &[ServerPin], places: &[&Location]) -> Result<(), Error> {
    let usage = |what: String, advice: &str| Err(Error::new(ErrorKind::Usage, what).advise(advice));
    let servers = || {
        places.iter().filter_map(|place| match place {
            Location::Daemon { host, port, .. } => Some((host.as_str(), *port)),
            _ => None,
        })
    };
    for pin in pins {
        let Some(name) = &pin.server else { continue };
        if servers().any(|(host, port)| pin.names(host, port)) {
            continue;
        }
        let names: Vec<String> = places.iter().filter_map(|place| place.server()).collect();
        let what = format!("--server-id names {name}, which is not a server of this command");
        return match names.is_empty() {
            true => usage(what, "leave it out: ssh checks the keys of its hosts itself"),
            false => usage(what, &format!("the servers are {}", names.join(", "))),
        };
    }
    let mut of_all = pins.iter().filter(|pin| pin.server.is_none());
    if let Some(first) = of_all.next()
        && let Some(other) = of_all.find(|pin| pin.id != first.id)
    {
        let what = format!("--server-id {} and {}: which server has which?", first.id, other.id);
        return usage(what, "write --server-id HOST=ID for each server");
    }
    for place in places {
        let (Location::Daemon { host, port, .. }, Some(name)) = (place, place.server()) else {
            continue;
        };
        let mut own = ServerPin::of(pins, host, *port);
        let Some(first) = own.next() else { continue };
        if let Some(other) = own.find(|pin| pin.id != first.id) {
            let what = format!("--server-id gives {name} two ids, {} and {}", first.id, other.id);
            return usage(what, "give one id; if the host has several servers, name the port");
        }
    }
    Ok(())
}

impl ReachArgs {
    /// Each given flag must apply to one of `places`, except flags from a configuration file
    /// (`is_default`). A server at port 65535 needs `--data-port`, because no port follows.
    pub(crate) fn check(
        &self,
        places: &[&Location],
        is_default: &dyn Fn(&str) -> bool,
    ) -> Result<(), Error> {
        let has_ssh = places.iter().any(|place| matches!(place, Location::Ssh { .. }));
        let has_server = places.iter().any(|place| matches!(place, Location::Daemon { .. }));
        let given = [
            ("rsh", self.rsh.0 != ["ssh"], true),
            ("remote-path", self.remote_path != "longhaul", true),
            ("ports", self.ports.is_some(), true),
            ("data-port", self.data_port.is_some(), false),
            ("server-id", !self.server_id.is_empty(), false),
        ];
        for (flag, given, of_ssh) in given {
            if !given || is_default(flag) || if of_ssh { has_ssh } else { has_server } {
                continue;
            }
            let (what, advice) = match of_ssh {
                true => ("is for hosts that ssh reaches", "leave it out, or write host:path"),
                false if flag == "server-id" => {
                    ("is for a server", "leave it out: ssh checks the keys of its hosts itself")
                }
                false => ("is for a server, lh://host[:port]", "leave it out"),
            };
            let what = format!("--{flag} {what}, and this command has none");
            return Err(Error::new(ErrorKind::Usage, what).advise(advice));
        }
        let last = |place: &&&Location| {
            matches!(place, Location::Daemon { port: u16::MAX, .. }) && self.data_port.is_none()
        };
        if let Some(place) = places.iter().find(last) {
            let what = format!("{place}: no data port follows port 65535");
            let advice = "add the --data-port that the server runs with";
            return Err(Error::new(ErrorKind::Usage, what).advise(advice));
        }
        Ok(())
    }

    /// `ask` decides about new servers, and may block.
    pub(crate) fn client(
        &self,
        places: &[&Location],
        ask: impl Fn(&NewServer) -> bool + Clone + Send + Sync + 'static,
    ) -> Result<ClientBuilder, Error> {
        check_pins(&self.server_id, places)?;
        let folder = config::folder()?;
        let trust = Trust::known_servers(&folder).pins(self.server_id.clone());
        let trust = match self.accept_new {
            true => trust.or_accept_new(),
            false => trust.or_ask(move |server| {
                let ask = ask.clone();
                async move { ask(&server) }
            }),
        };
        Ok(Client::builder().identity_in(folder).trust(trust))
    }

    /// A signal cancels the command through `cancel`; `screen` asks about new servers.
    pub(crate) fn remote(
        &self,
        places: &[&Location],
        settings: &[Setting],
        screen: &Arc<Screen>,
        cancel: &CancelHandle,
    ) -> Result<Client, Error> {
        if let Some(place) = places.iter().find(|place| place.is_local()) {
            let error = Error::new(ErrorKind::Usage, format!("{place} is on this host"));
            return Err(error.advise("name a path on another host: lh://host/path or host:path"));
        }
        self.check(places, &|flag| config::has(settings, flag))?;
        signals::cancel_on_signal(cancel.clone(), signals::ENDING)?;
        let asking = screen.clone();
        let client = self.client(places, move |server| asking.trusts(server))?;
        Ok(client.path_memory(PathMemory::in_file(config::path_file()?)).build()?)
    }

    pub(crate) fn options(&self) -> ReachOptions {
        let mut options = ReachOptions::default();
        options.ssh_command = self.rsh.0.clone();
        options.remote_path = self.remote_path.clone();
        options.data_port = self.data_port;
        options.ports = self.ports;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_file_of_the_other_host_gets_the_advice_to_list_its_folder() {
        let other = Error::new(ErrorKind::RemoteFile, "h says: \"No such file or directory\"");
        let missing = Error { is_missing: true, ..other.clone() };
        let here = Error { kind: ErrorKind::LocalFile, ..missing.clone() };
        let advised = [missing, other, here].map(|error| advise_names(error).advice.is_some());
        assert_eq!(advised, [true, false, false]);
    }

    fn check(pins: &[(Option<&str>, &str)], places: &[&str]) -> Result<(), String> {
        let pins: Vec<ServerPin> = pins
            .iter()
            .map(|(server, id)| ServerPin {
                server: server.map(str::to_owned),
                id: (*id).to_owned(),
            })
            .collect();
        let places: Vec<Location> = places.iter().map(|place| place.parse().unwrap()).collect();
        let places: Vec<&Location> = places.iter().collect();
        check_pins(&pins, &places).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pin_must_name_a_server_of_the_command_and_pins_of_the_same_name_must_agree() {
        let places = ["lh://h1/a", "lh://h2:9/b", "me@h3:c", "here"];
        let fine = [(Some("h1"), "a"), (Some("h2:9"), "b"), (None, "c"), (None, "c")];
        assert_eq!(check(&fine, &places), Ok(()));
        let refused = |pins: &[_]| check(pins, &places).unwrap_err();
        let refusal = refused(&[(Some("h3"), "a")]);
        assert!(refusal.contains("names h3") && refusal.contains("h1:7717, h2:9"), "{refusal}");
        assert!(refused(&[(Some("h2:8"), "a")]).contains("names h2:8"));
        for ids in [&["a", "b"][..], &["a", "b", "a"], &["a", "a", "b"]] {
            let pins: Vec<_> = ids.iter().map(|id| (None, *id)).collect();
            let refusal = refused(&pins);
            assert!(refusal.contains("a and b") && refusal.contains("HOST=ID"), "{refusal}");
        }
        assert_eq!(check(&[(Some("h1"), "a"), (Some("h1:7717"), "b")], &places), Ok(()));
        let refusal = refused(&[(Some("h1"), "a"), (Some("H1"), "b")]);
        assert!(refusal.contains("h1:7717 two ids, a and b"), "{refusal}");
        assert!(check(&[(Some("::1"), "a"), (Some("[::1]"), "b")], &["lh://[::1]/a"]).is_err());
        let refusal = check(&[(Some("h3"), "a")], &["me@h3:c", "here"]).unwrap_err();
        assert!(refusal.contains("ssh"), "{refusal}");
    }

    #[test]
    fn a_host_is_a_server_or_an_ssh_host_and_a_host_with_a_port_gets_the_advice_to_write_lh() {
        let read = |text: &str| parse_host(text).map(|place| place.to_string());
        assert_eq!(read("lh://h:9").unwrap(), "lh://h:9/");
        assert_eq!(read("me@h").unwrap(), "me@h:");
        assert_eq!(read("h:").unwrap(), "h:");
        assert_eq!(read("h:scratch").unwrap(), "h:scratch");
        assert_eq!(read("[::1]").unwrap(), read("[::1]:").unwrap());
        for (text, meant) in [
            ("127.0.0.1:7801", "lh://127.0.0.1:7801"),
            ("[::1]:9", "lh://[::1]:9"),
            ("::1", "lh://[::1]"),
            ("me@h:9", "lh://h:9"),
            ("7801", "lh://localhost:7801"),
        ] {
            let refusal = read(text).unwrap_err().to_string();
            assert!(refusal.contains(&format!("did you mean {meant}?")), "{refusal}");
        }
        assert!(read("./here").unwrap_err().to_string().contains("write lh://host"));
        for wrong in ["", "http://h", "-oX"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_refusal_of_an_invalid_server_id_says_which_command_prints_the_id() {
        for wrong in ["nonsense", "h1=", "h1=lh1:abc", "lh1:nonsense"] {
            assert!(parse_pin(wrong).unwrap_err().contains("longhaul id"), "{wrong}");
        }
    }
}
