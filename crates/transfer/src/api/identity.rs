//! The key pair of a client or server.

use std::fmt;
use std::path::Path;

use crate::error::public::Error;
use crate::session;
use crate::session::PeerId;

/// An Ed25519 key pair, which identifies a client or a server.
#[derive(Clone)]
pub struct Identity(pub(super) session::Identity);

impl Identity {
    /// Loads the key in `folder`; creates the key and the folder if they do not exist. If two
    /// processes call this at the same time, both get the same key.
    ///
    /// # Errors
    /// [`ErrorKind::LocalFile`](super::ErrorKind::LocalFile): others can read or replace the key
    /// file, the file holds no key, or the system cannot read or write the file.
    pub fn load_or_create(folder: impl AsRef<Path>) -> Result<Identity, Error> {
        Ok(Identity(session::Identity::load_or_create(folder.as_ref())?))
    }

    /// Returns the identity of an Ed25519 seed, the 32 bytes that RFC 8032 calls the private key.
    /// For programs that store their keys themselves.
    pub fn from_bytes(seed: &[u8; 32]) -> Identity {
        Identity(session::Identity::from_bytes(seed))
    }

    /// Returns a new identity, which is not stored.
    pub fn generate() -> Identity {
        Identity(session::Identity::generate())
    }

    /// Returns the public key.
    pub fn id(&self) -> PeerId {
        self.0.id()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
