//! The keys of flows. To seal a datagram is to encrypt and authenticate it.
//!
//! HKDF-SHA256 (RFC 5869) derives from one session secret a key for each (transfer, direction,
//! flow, class, epoch); no two of these share a key. The class is data or control. An epoch is 2²³
//! packet numbers: AES-GCM's confidentiality limit for one key (RFC 9001, section 6.6). A packet
//! number itself shows its epoch.
//!
//! A value of [`FlowKeys`] gives the keys of one end ([`FlowKeys::sending_end`],
//! [`FlowKeys::receiving_end`]) and is then used up: two sealers with one key would reuse a nonce.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_128_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use longhaul_proto::endpoint::{FlowId, PacketNumber};
use longhaul_proto::wire::header::Kind;

use crate::sealing::open::Opener;
use crate::sealing::seal::Sealer;

/// Packet numbers in an epoch, as a power of two.
pub(crate) const EPOCH_BITS: u32 = 23;

const NONCE_LEN: usize = 12;

/// The cipher for data datagrams, as the user requests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-GCM if the CPUs of both ends have AES instructions, otherwise ChaCha20-Poly1305.
    #[default]
    Auto,
    /// AES-128-GCM.
    Aes128Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
    /// Data in the clear, for trusted networks; the server must allow it.
    None,
}

/// How a flow's data datagrams are sealed, as agreed by both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// AES-128-GCM.
    Aes128Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
    /// Data in the clear, with a token (8 bytes derived from the session secret) instead of a tag;
    /// everything else under AES-128-GCM.
    Plain,
}

impl Suite {
    /// Returns the suite for the requested cipher; `Auto` selects AES if both ends have it in
    /// hardware.
    pub fn choose(asked: Cipher, both_have_aes: bool) -> Suite {
        match asked {
            Cipher::Auto if both_have_aes => Suite::Aes128Gcm,
            Cipher::Auto | Cipher::ChaCha20Poly1305 => Suite::ChaCha20Poly1305,
            Cipher::Aes128Gcm => Suite::Aes128Gcm,
            Cipher::None => Suite::Plain,
        }
    }

    /// Returns the name in summaries and `--cipher`.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Aes128Gcm => "aes-128-gcm",
            Suite::ChaCha20Poly1305 => "chacha20-poly1305",
            Suite::Plain => "none",
        }
    }

    /// Returns the encrypting suite called `name`; `None` for an unknown name, and for `none`.
    pub fn sealed(name: &str) -> Option<Suite> {
        let all = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];
        all.into_iter().find(|suite| suite.name() == name)
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Suite::Aes128Gcm | Suite::Plain => &AES_128_GCM,
        }
    }
}

/// Returns whether this CPU has instructions for AES and for GCM's carry-less multiplication.
pub fn has_fast_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// The direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the sender of the object to its receiver.
    Forward,
    /// From the receiver to the sender.
    Backward,
}

/// The packet-number space of a datagram within a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Datagrams of [`Kind::Data`].
    Data,
    /// All other datagrams. Sealed in every suite.
    Control,
}

impl Class {
    /// Returns the class of a kind of datagram.
    pub fn of(kind: Kind) -> Class {
        match kind {
            Kind::Data => Class::Data,
            _ => Class::Control,
        }
    }
}

/// The keys of one flow at one end.
pub struct FlowKeys {
    root: Prk,
    suite: Suite,
    transfer: u64,
    flow: FlowId,
}

/// The keys of the end that sends the object.
pub struct SenderKeys {
    /// Seals blocks.
    pub data: Sealer,
    /// Seals control messages and challenges.
    pub control: Sealer,
    /// Opens datagrams from the receiver.
    pub reports: Opener,
}

/// The keys of the end that receives the object.
pub struct ReceiverKeys {
    /// Opens blocks.
    pub data: Opener,
    /// Opens control messages and challenges.
    pub control: Opener,
    /// Seals datagrams to the sender.
    pub reports: Sealer,
}

impl FlowKeys {
    /// Returns the keys of `flow` of `transfer` under a session's exported `secret`.
    ///
    /// The caller must use each flow id only once in a transfer, and each transfer id only once in
    /// the session: a repeated pair would repeat the keys.
    pub fn new(secret: &[u8; 32], suite: Suite, transfer: u64, flow: FlowId) -> FlowKeys {
        let root = Salt::new(HKDF_SHA256, b"longhaul datagrams 1").extract(secret);
        FlowKeys { root, suite, transfer, flow }
    }

    /// Returns the sealers and openers of the end that sends the object.
    pub fn sending_end(self) -> SenderKeys {
        SenderKeys {
            data: Sealer::new(self.schedule(Direction::Forward, Class::Data)),
            control: Sealer::new(self.schedule(Direction::Forward, Class::Control)),
            reports: Opener::new(self.schedule(Direction::Backward, Class::Control)),
        }
    }

    /// Returns the sealers and openers of the end that receives the object.
    pub fn receiving_end(self) -> ReceiverKeys {
        ReceiverKeys {
            data: Opener::new(self.schedule(Direction::Forward, Class::Data)),
            control: Opener::new(self.schedule(Direction::Forward, Class::Control)),
            reports: Sealer::new(self.schedule(Direction::Backward, Class::Control)),
        }
    }

    pub(crate) fn schedule(&self, direction: Direction, class: Class) -> Schedule {
        let mut name = [0; 14];
        name[..8].copy_from_slice(&self.transfer.to_be_bytes());
        name[8..12].copy_from_slice(&self.flow.0.to_be_bytes());
        name[12] = direction as u8;
        name[13] = class as u8;
        let root = Arc::new(self.root.clone());
        Schedule { root, suite: self.suite, flow: self.flow, class, name }
    }
}

/// The keys of one direction and class of a flow, epoch by epoch.
#[derive(Clone)]
pub(crate) struct Schedule {
    root: Arc<Prk>,
    suite: Suite,
    flow: FlowId,
    class: Class,
    name: [u8; 14],
}

/// The key of one epoch.
pub struct EpochKey {
    /// The epoch.
    pub epoch: u32,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl Schedule {
    pub(crate) fn flow(&self) -> FlowId {
        self.flow
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.class == Class::Data && self.suite == Suite::Plain
    }

    /// Returns the number of failed authentications at which the flow ends: the integrity limits of
    /// RFC 9001, section 6.6. The 64-bit token has the limit of ChaCha20-Poly1305.
    pub(crate) fn integrity_limit(&self) -> u64 {
        match self.suite.algorithm() {
            _ if self.is_plain() => 1 << 36,
            algorithm if *algorithm == AES_128_GCM => 1 << 52,
            _ => 1 << 36,
        }
    }

    /// Returns the token that replaces the tag if data go in the clear.
    pub(crate) fn token(&self) -> [u8; 8] {
        let mut token = [0; 8];
        self.expand(b"token", 0, &mut token);
        token
    }

    pub(crate) fn key(&self, epoch: u32) -> EpochKey {
        let algorithm = self.suite.algorithm();
        let mut secret = [0; 32 + NONCE_LEN];
        let secret = &mut secret[..algorithm.key_len() + NONCE_LEN];
        self.expand(b"key", epoch, secret);
        let (key, nonce) = secret.split_at(algorithm.key_len());
        let mut iv = [0; NONCE_LEN];
        iv.copy_from_slice(nonce);
        let key = UnboundKey::new(algorithm, key).expect("the key has the algorithm's length");
        EpochKey { epoch, key: LessSafeKey::new(key), iv }
    }

    fn expand(&self, label: &[u8], epoch: u32, out: &mut [u8]) {
        let info: [&[u8]; 4] = [label, &[0], &self.name, &epoch.to_be_bytes()];
        self.root
            .expand(&info, Length(out.len()))
            .and_then(|okm| okm.fill(out))
            .expect("HKDF-SHA256 gives up to 8160 bytes");
    }
}

impl EpochKey {
    pub(crate) fn epoch_of(number: PacketNumber) -> u32 {
        // Numbers have 40 bits.
        (number.0 >> EPOCH_BITS) as u32
    }

    pub(crate) fn key(&self) -> &LessSafeKey {
        &self.key
    }

    /// Returns the nonce of a packet number, as in RFC 9001, section 5.3.
    pub(crate) fn nonce(&self, number: PacketNumber) -> Nonce {
        let mut nonce = self.iv;
        for (byte, bits) in nonce[4..].iter_mut().zip(number.0.to_be_bytes()) {
            *byte ^= bits;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_serves_two_purposes() {
        let mut seen = BTreeSet::new();
        let mut secrets = 0;
        for (secret, transfer, flow) in [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)] {
            let keys = FlowKeys::new(&[secret; 32], Suite::Plain, transfer, FlowId(flow));
            for direction in [Direction::Forward, Direction::Backward] {
                for class in [Class::Data, Class::Control] {
                    let schedule = keys.schedule(direction, class);
                    for epoch in [0, 1, 1 << 16] {
                        let mut secret = [0; 28];
                        schedule.expand(b"key", epoch, &mut secret);
                        seen.insert(secret);
                        secrets += 1;
                    }
                }
            }
        }
        assert_eq!(seen.len(), secrets);
    }

    #[test]
    fn auto_takes_aes_only_where_both_ends_have_it() {
        assert_eq!(Suite::choose(Cipher::Auto, true), Suite::Aes128Gcm);
        assert_eq!(Suite::choose(Cipher::Auto, false), Suite::ChaCha20Poly1305);
        assert_eq!(Suite::choose(Cipher::None, true), Suite::Plain);
    }

    #[test]
    fn every_number_has_a_unique_nonce_within_its_key() {
        let schedule = FlowKeys::new(&[7; 32], Suite::Aes128Gcm, 1, FlowId(1))
            .schedule(Direction::Forward, Class::Data);
        let key = schedule.key(0);
        let nonces: BTreeSet<[u8; 12]> =
            (0..1000).map(|n| *key.nonce(PacketNumber(n)).as_ref()).collect();
        assert_eq!(nonces.len(), 1000);
    }
}
