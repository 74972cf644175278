//! The servers that a client trusts.

use std::path::PathBuf;

use super::known::{lower, server_name};

/// Asks the user whether to trust the server `host:port` with the id `lh1:…` from now on.
pub type AskTrust<'a> = dyn Fn(&str, &str) -> bool + Sync + 'a;

/// Refuses every unknown server.
pub fn ask_nobody(_server: &str, _id: &str) -> bool {
    false
}

/// This client's key, and which servers it trusts.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The folder of the identity key and of `known_servers`.
    pub config_dir: PathBuf,
    /// The ids that servers must have.
    pub pins: Vec<ServerPin>,
    /// Whether to accept an unknown server without asking.
    pub accept_new: bool,
}

/// The only id to accept from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPin {
    /// `host` or `host:port`; `None` for servers without their own pin.
    pub server: Option<String>,
    /// The id, as `lh1:…`.
    pub id: String,
}

impl ServerPin {
    /// Returns whether the pin names the server at `host` and `port`.
    pub fn names(&self, host: &str, port: u16) -> bool {
        let Some(server) = &self.server else { return false };
        let server = lower(server);
        let name = server_name(host, port);
        let bare = name.rsplit_once(':').map_or(&*name, |(host, _)| host);
        [&*name, bare, bare.trim_matches(['[', ']'])].contains(&&*server)
    }

    /// Returns those of `pins` that count for the server at `host` and `port`: the pins that name
    /// host and port, or, if there are none, the pins that name the host alone.
    pub fn of<'a>(
        pins: &'a [ServerPin],
        host: &str,
        port: u16,
    ) -> impl Iterator<Item = &'a ServerPin> {
        let name = server_name(host, port);
        let has_port =
            move |pin: &ServerPin| pin.server.as_ref().is_some_and(|server| lower(server) == name);
        let by_port = pins.iter().any(&has_port);
        pins.iter().filter(move |pin| if by_port { has_port(pin) } else { pin.names(host, port) })
    }
}

impl Trust {
    /// Returns the same trust with `id` as the only pin.
    pub fn only(&self, id: String) -> Trust {
        Trust { pins: vec![ServerPin { server: None, id }], ..self.clone() }
    }

    /// Returns the pin of the server at `host` and `port`, or else the pin without a server.
    pub fn pin(&self, host: &str, port: u16) -> Option<&ServerPin> {
        let mut own = ServerPin::of(&self.pins, host, port);
        own.next().or_else(|| self.pins.iter().find(|pin| pin.server.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_own_pin_overrides_the_general_one() {
        let pin = |server: Option<&str>, id: &str| ServerPin {
            server: server.map(str::to_owned),
            id: id.to_owned(),
        };
        let pins = vec![pin(Some("H1"), "a"), pin(Some("[::1]:7717"), "b"), pin(None, "c")];
        let trust = Trust { config_dir: PathBuf::new(), pins, accept_new: false };
        let of = |host, port| trust.pin(host, port).map(|pin| pin.id.as_str());
        assert_eq!((of("h1", 7717), of("h1", 9), of("h2", 9)), (Some("a"), Some("a"), Some("c")));
        assert_eq!((of("::1", 7717), of("::1", 7718)), (Some("b"), Some("c")));
        let mut narrow = trust.clone();
        narrow.pins.push(pin(Some("h1:9"), "d"));
        assert_eq!(narrow.pin("h1", 9).map(|pin| &*pin.id), Some("d"));
        assert_eq!(narrow.pin("h1", 7717).map(|pin| &*pin.id), Some("a"));
        assert!(pin(Some("FE80::1%Eth0"), "d").names("fe80::1%Eth0", 9));
        assert!(pin(Some("::1"), "d").names("::1", 9) && !pin(Some("h1:9"), "d").names("h1", 8));
        let known = trust.only("e".to_owned());
        assert_eq!(known.pin("h1", 7717).map(|pin| &*pin.id), Some("e"));
        assert_eq!(Trust { pins: Vec::new(), ..trust }.pin("h1", 1), None);
        assert!(!ask_nobody("h1:1", "e"));
    }
}
