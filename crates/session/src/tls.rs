//! TLS 1.3 as we use it: raw Ed25519 keys on both sides (RFC 7250), no certificates, no tickets,
//! no early data.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, PeerIncompatible,
    ServerConfig, SignatureScheme,
};

use super::id::PeerId;
use super::identity::Identity;

/// What both sides name as the protocol inside TLS.
const ALPN: &[u8] = b"longhaul/1";

/// The same, of sides that have AES in hardware: chosen where both have. It costs no round trip to
/// know, and both know it when the handshake is done.
const ALPN_FAST_AES: &[u8] = b"longhaul/1+aes";

/// What a side names, the best first.
fn protocols(fast_aes: bool) -> Vec<Vec<u8>> {
    let all = [ALPN_FAST_AES, ALPN];
    all[usize::from(!fast_aes)..].iter().map(|name| name.to_vec()).collect()
}

/// Whether both sides have AES in hardware, by the protocol that was chosen; nothing if that is not
/// ours.
pub(super) fn both_fast_aes(chosen: Option<&[u8]>) -> Option<bool> {
    match chosen {
        Some(ALPN_FAST_AES) => Some(true),
        Some(ALPN) => Some(false),
        _ => None,
    }
}

/// TLS wants a server name; keys are what we know each other by, and it is never sent.
pub(super) const SERVER_NAME: &str = "longhaul";

/// Label under which each session's secret leaves TLS.
pub(super) const EXPORTER_LABEL: &[u8] = b"EXPORTER-longhaul-session";

/// The id in what the other side presented, if that is one Ed25519 key.
pub(super) fn peer_id(presented: &[CertificateDer<'_>]) -> Option<PeerId> {
    let [only] = presented else { return None };
    PeerId::from_der(only)
}

/// Whom a side accepts. It is decided inside the handshake: a client has sent nothing of its own
/// by then, not even its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// This one.
    Only(PeerId),
    /// Whoever answers.
    Anyone,
    /// Nobody: only look who answers.
    Nobody,
}

/// Who answered, also when it was not accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<OnceLock<PeerId>>);

impl Seen {
    pub(super) fn id(&self) -> Option<PeerId> {
        self.0.get().copied()
    }
}

/// Looks at the key that the other side shows, and that it signs with it.
#[derive(Debug)]
struct Verifier {
    expect: Expect,
    seen: Seen,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A client's side of TLS, and where the id that answered is found.
pub(super) fn client(identity: &Identity, expect: Expect, fast_aes: bool) -> (ClientConfig, Seen) {
    let provider = provider();
    let seen = Seen::default();
    let verifier = Verifier::new(expect, seen.clone(), &provider);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has suites of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
            identity.key.clone(),
        )));
    config.alpn_protocols = protocols(fast_aes);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    (config, seen)
}

/// A server's side of TLS. Any client that proves to have a key is let through; what it may do is
/// decided by its id afterwards.
pub(super) fn server(identity: &Identity, fast_aes: bool) -> ServerConfig {
    let provider = provider();
    let verifier = Verifier::new(Expect::Anyone, Seen::default(), &provider);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has suites of TLS 1.3")
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.key.clone())));
    config.alpn_protocols = protocols(fast_aes);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

impl Verifier {
    fn new(expect: Expect, seen: Seen, provider: &CryptoProvider) -> Verifier {
        Verifier { expect, seen, algorithms: provider.signature_verification_algorithms }
    }

    /// Whether exactly one key is shown, and one that is expected.
    fn look(
        &self,
        end_entity: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
    ) -> Result<(), rustls::Error> {
        let id = match peer_id(std::slice::from_ref(end_entity)) {
            Some(id) if more.is_empty() => id,
            _ => return Err(CertificateError::BadEncoding.into()),
        };
        // One handshake shows one id; the first stays.
        let _ = self.seen.0.set(id);
        match self.expect {
            Expect::Anyone => Ok(()),
            Expect::Only(expected) if expected == id => Ok(()),
            Expect::Only(_) | Expect::Nobody => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }
}

/// What rustls asks of the verifier of either side in the same words.
macro_rules! raw_ed25519_keys_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::Tls13RequiredForQuic.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.look(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    raw_ed25519_keys_of_tls13!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.look(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    raw_ed25519_keys_of_tls13!();
}
