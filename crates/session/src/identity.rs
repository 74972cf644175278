//! This user's Ed25519 key, created at first use in the config folder. Only this user can read it.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use data_encoding::{BASE64, HEXLOWER};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::id::PeerId;
use super::strict;
use crate::{Error, Kind};
use longhaul_text::reason;

/// The name of the key file in the config folder. The file holds the key as PKCS#8 in PEM.
pub(crate) const KEY_FILE: &str = "identity.key";

/// The bytes before the seed of an Ed25519 key in PKCS#8 version 1 (RFC 8410, section 7).
const PKCS8_HEAD: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Maximum number of bytes that are read from a key file.
const LONGEST_KEY_FILE: u64 = 4096;

/// An Ed25519 key pair, shared by clones.
#[derive(Clone)]
pub struct Identity {
    id: PeerId,
    pub(super) key: Arc<CertifiedKey>,
    /// The secret for deriving QUIC's stateless reset keys, the same after a restart.
    pub(super) resets: [u8; 32],
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.id)
    }
}

impl Identity {
    /// Returns the identity in `config_dir`; creates the folder and the key if missing.
    ///
    /// # Errors
    /// The file can be read or replaced by others, holds no key, or cannot be read or written.
    pub fn load_or_create(config_dir: &Path) -> Result<Identity, Error> {
        let path = config_dir.join(KEY_FILE);
        match Identity::load(&path) {
            Err(Missing::File) => {}
            Err(Missing::Other(error)) => return Err(error),
            Ok(identity) => return Ok(identity),
        }
        create(config_dir, &path)?;
        Identity::load(&path).map_err(|missing| match missing {
            Missing::File => {
                Error::new(Kind::LocalFile, format!("{} vanished", path.display())).at(&path)
            }
            Missing::Other(error) => error,
        })
    }

    /// Returns the identity of an Ed25519 seed (RFC 8032's private key).
    pub fn from_bytes(seed: &[u8; 32]) -> Identity {
        Identity::from_pkcs8(&[PKCS8_HEAD, seed].concat()).expect("every seed is a key")
    }

    /// Returns a new identity, which is not stored.
    pub fn generate() -> Identity {
        Identity::from_pkcs8(&generate()).expect("a key just made is a key")
    }

    /// Returns the public key, which identifies this side to its peers.
    pub fn id(&self) -> PeerId {
        self.id
    }

    fn load(path: &Path) -> Result<Identity, Missing> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Missing::File),
            opened => opened.map_err(|error| unusable(path, error))?,
        };
        let mode = file.metadata().map_err(|error| unusable(path, error))?.permissions().mode();
        if let Some(what) = longhaul_text::used_by_others(path, mode) {
            return Err(Missing::Other(Error::new(Kind::LocalFile, what).at(path).advise(
                format!(
                    "chmod 600 {0}; if others may have read it, remove it to get a new key",
                    path.display()
                ),
            )));
        }
        strict::check(path, &file)?;
        let mut pem = Vec::new();
        file.take(LONGEST_KEY_FILE).read_to_end(&mut pem).map_err(|error| unusable(path, error))?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(&pem).ok();
        der.and_then(|der| Identity::from_pkcs8(der.secret_pkcs8_der())).ok_or_else(|| {
            let what = format!("{} holds no Ed25519 key", path.display());
            Missing::Other(
                Error::new(Kind::LocalFile, what)
                    .at(path)
                    .advise("restore it from a copy, or remove it to get a new key"),
            )
        })
    }

    fn from_pkcs8(der: &[u8]) -> Option<Identity> {
        let pair = Ed25519KeyPair::from_pkcs8(der).ok()?;
        let id = PeerId(pair.public_key().as_ref().try_into().ok()?);
        let der = PrivatePkcs8KeyDer::from(der.to_vec());
        let signer = rustls::crypto::aws_lc_rs::sign::any_eddsa_type(&der).ok()?;
        let public = CertificateDer::from(id.to_der());
        let key = Arc::new(CertifiedKey::new(vec![public], signer));
        Some(Identity {
            id,
            key,
            resets: blake3::derive_key("longhaul quic resets", der.secret_pkcs8_der()),
        })
    }
}

enum Missing {
    File,
    Other(Error),
}

impl From<Error> for Missing {
    fn from(error: Error) -> Missing {
        Missing::Other(error)
    }
}

fn unusable(path: &Path, error: std::io::Error) -> Error {
    let what = format!("cannot use {}: {}", path.display(), reason(&error));
    Error::new(Kind::LocalFile, what).at(path).advise("check its owner and permissions")
}

fn generate() -> Vec<u8> {
    let random = SystemRandom::new();
    let document = Ed25519KeyPair::generate_pkcs8v1(&random).expect("the system gives randomness");
    document.as_ref().to_vec()
}

/// Creates the key file atomically, by a hard link. A key that another process created first stays.
fn create(config_dir: &Path, path: &Path) -> Result<(), Error> {
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700);
    folders.create(config_dir).map_err(|error| {
        let (folder, why) = (config_dir.display(), reason(&error));
        let what = format!("cannot make the folder {folder} for this user's key: {why}");
        Error::new(Kind::LocalFile, what)
            .at(config_dir)
            .advise("make its parent writable, or name another folder in LONGHAUL_CONFIG_DIR")
    })?;
    let temporary = temporary_sibling(path);
    let written = write_new(&temporary, pem(&generate()).as_bytes());
    let linked = written.and_then(|()| match std::fs::hard_link(&temporary, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => File::open(config_dir)?.sync_all(),
    });
    let removed = std::fs::remove_file(&temporary);
    linked.and(removed).map_err(|error| {
        unusable(path, error)
            .advise("longhaul stores this user's key there; check the folder and its disk")
    })
}

/// Returns a unique name in the same folder.
pub(super) fn temporary_sibling(path: &Path) -> PathBuf {
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).expect("the system gives randomness");
    path.with_extension(format!("{}.new", HEXLOWER.encode(&random)))
}

/// Writes a new file of mode 0600 with `content`, and syncs it.
pub(super) fn write_new(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64.encode(der))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_created_once_and_readable_by_its_owner_only() {
        let parent = tempfile::tempdir().expect("a folder for the test");
        let folder = parent.path().join("a/longhaul");
        let first = Identity::load_or_create(&folder).expect("a new key");
        let again = Identity::load_or_create(&folder).expect("the same key");
        assert_eq!(first.id(), again.id());
        let mode = |path: &Path| path.metadata().expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode(&folder.join(KEY_FILE)), 0o600);
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(std::fs::read_dir(&folder).expect("readable").count(), 1, "only the key");
    }

    #[test]
    fn a_seed_gives_the_public_key_of_the_test_in_rfc_8032() {
        // RFC 8032, section 7.1, test 1.
        let hex = |text: &str| HEXLOWER.decode(text.as_bytes()).expect("hexadecimal");
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let identity = Identity::from_bytes(&seed.try_into().expect("32 bytes"));
        assert_eq!(identity.id().0, public[..]);
    }

    #[test]
    fn a_key_that_another_process_has_just_created_stays() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join(KEY_FILE);
        create(folder.path(), &path).expect("a new key");
        let first = std::fs::read(&path).expect("it exists");
        create(folder.path(), &path).expect("there is a key");
        assert_eq!(std::fs::read(&path).expect("it exists"), first);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1, "only the key");
    }

    #[test]
    fn a_key_that_cannot_be_opened_or_stored_is_an_error_about_its_file() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("the folder is ours");
        let error = Identity::load_or_create(&file).expect_err("it is no folder");
        let key = file.join(KEY_FILE);
        assert_eq!(error.path.as_deref(), Some(&*key));
        assert!(error.what.starts_with("cannot use "), "{error}");
        let too_long = folder.path().join(format!("key.{}", "x".repeat(300)));
        let error = create(folder.path(), &too_long).expect_err("no file has that name");
        assert!(error.to_string().contains("check the folder and its disk"), "{error}");
    }

    #[test]
    fn the_debug_output_of_an_identity_is_its_id_alone() {
        let identity = Identity::generate();
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.id()));
    }

    #[test]
    fn threads_that_create_a_key_at_once_get_the_same_key() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let ids: Vec<PeerId> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| Identity::load_or_create(folder.path()).expect("a key").id())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_advice() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        Identity::load_or_create(folder.path()).expect("a new key");
        let path = folder.path().join(KEY_FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("ours");
        let error = Identity::load_or_create(folder.path()).expect_err("readable by the group");
        assert_eq!(error.kind, Kind::LocalFile);
        assert!(error.to_string().contains("640") && error.to_string().contains("chmod 600"));
    }

    #[test]
    fn a_damaged_key_is_an_error_and_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = folder.path().join(KEY_FILE);
        for damage in [&b""[..], b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
        {
            let _ = std::fs::remove_file(&path);
            write_new(&path, damage).expect("a new file");
            let error = Identity::load_or_create(folder.path()).expect_err("no key in it");
            assert!(error.to_string().contains("no Ed25519 key"), "{error}");
            assert_eq!(std::fs::read(&path).expect("still there"), damage);
        }
    }
}
