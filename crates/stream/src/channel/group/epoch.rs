//! The keys of a multicast group. An epoch is the time during which the same keys are valid.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand;
use longhaul_net::multicast::{self, GroupAddress};
use longhaul_net::sealing::keys::{FlowKeys, Suite};
use longhaul_net::sealing::open::Opener;
use longhaul_net::sealing::seal::Sealer;
use longhaul_proto::channel::MAX_SENDERS;
use longhaul_proto::endpoint::FlowId;
use longhaul_session::{Error, Kind, random_u64};

use crate::channel::messages::Group;
use crate::terms;

/// The server's number among the senders of an epoch.
pub(super) const SERVER: u32 = 0;
const LABEL: &[u8] = b"longhaul group";

/// The key of one flow. Create only one sealer from it, because two would use the same nonces.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FlowKey {
    epoch: u64,
    flow: u32,
    suite: Suite,
    key: [u8; 32],
}

impl FlowKey {
    pub(super) fn sealer(&self) -> Sealer {
        self.keys().sending_end().data
    }

    fn keys(&self) -> FlowKeys {
        FlowKeys::new(&self.key, self.suite, self.epoch, FlowId(self.flow))
    }
}

/// An epoch. The keys of all its flows are derived from its key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    pub(super) number: u64,
    suite: Suite,
    /// The id of the server's flow. The flow of sender `n` has this id plus `n`.
    flow: u32,
    key: [u8; 32],
}

impl Epoch {
    pub(super) fn new(number: u64, suite: Suite) -> Epoch {
        let mut key = [0; 32];
        rand::fill(&mut key).expect("the system has randomness");
        Epoch { number, suite, flow: random_u64() as u32, key }
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn sender(&self, flow: FlowId) -> Option<u32> {
        Some(flow.0.wrapping_sub(self.flow)).filter(|sender| *sender < MAX_SENDERS)
    }

    pub(super) fn of(&self, sender: u32) -> FlowKey {
        let flow = self.flow.wrapping_add(sender);
        let input = [LABEL, &self.number.to_be_bytes(), &flow.to_be_bytes()].concat();
        let signed = sign(&Key::new(HMAC_SHA256, &self.key), &input);
        let key = *signed.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        FlowKey { epoch: self.number, flow, suite: self.suite, key }
    }

    pub(super) fn opener(&self, sender: u32) -> Opener {
        self.of(sender).keys().receiving_end().data
    }

    /// Returns the message for a subscriber, with the epoch's key.
    pub(super) fn for_subscriber(&self, group: &multicast::Group) -> Group {
        let key = self.key.to_vec();
        Group { epoch: self.number, flow: self.flow, key, ..described(group, self.suite) }
    }

    /// Returns the message for a sender, with the key of this sender's flow.
    pub(super) fn for_sender(&self, group: &multicast::Group, sender: u32, origin: u64) -> Group {
        let FlowKey { epoch, flow, suite, key } = self.of(sender);
        Group { epoch, flow, key: key.to_vec(), origin, ..described(group, suite) }
    }
}

fn described(group: &multicast::Group, suite: Suite) -> Group {
    let address = group.address.address();
    Group {
        address: match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        port: address.port().into(),
        hops: group.hops.into(),
        cipher: suite.name().to_owned(),
        ..Group::default()
    }
}

/// Validates a server's description of a group, and returns the address; for the fuzzer.
///
/// # Errors
/// A value is out of its limits.
pub fn address(group: &Group) -> Result<SocketAddr, Error> {
    Described::read(group).map(|described| described.address.address())
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) address: GroupAddress,
    pub(super) hops: u8,
    /// The epoch. In a description for a sender, `flow` and `key` are those of this sender's flow.
    pub(super) epoch: Epoch,
}

impl Described {
    pub(super) fn read(group: &Group) -> Result<Described, Error> {
        let wrong = |what: String| {
            Error::new(Kind::Usage, format!("the server's group is invalid: {what}"))
        };
        let bytes = &group.address[..];
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        let ip = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
        let ip = ip.map_err(|_| wrong(format!("an address of {} bytes", bytes.len())))?;
        let port = u16::try_from(group.port);
        let port = port.map_err(|_| wrong(format!("the port {}", group.port)))?;
        let address = GroupAddress::new(SocketAddr::new(ip, port)).map_err(wrong)?;
        let hops = u8::try_from(group.hops).ok().filter(|hops| *hops > 0);
        let hops = hops.ok_or_else(|| wrong(format!("{} hops", group.hops)))?;
        let suite = terms::suite(&group.cipher)?;
        let key = <[u8; 32]>::try_from(&group.key[..]);
        let key = key.map_err(|_| wrong(format!("a key of {} bytes", group.key.len())))?;
        let epoch = Epoch { number: group.epoch, suite, flow: group.flow, key };
        Ok(Described { address, hops, epoch })
    }

    /// Returns the key of this sender's flow. Call it only if the description is for a sender.
    pub(super) fn of_sender(&self) -> FlowKey {
        let Epoch { number: epoch, suite, flow, key } = self.epoch;
        FlowKey { epoch, flow, suite, key }
    }

    pub(super) fn through(&self, interface: Option<u32>) -> multicast::Group {
        multicast::Group { address: self.address, interface, hops: self.hops }
    }
}
