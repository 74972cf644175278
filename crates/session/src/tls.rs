//! TLS 1.3 with raw Ed25519 keys on both sides (RFC 7250), without tickets or early data.

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

/// The protocol name inside TLS.
const ALPN: &[u8] = b"longhaul/1";

/// The protocol name if both sides have AES in hardware.
const ALPN_FAST_AES: &[u8] = b"longhaul/1+aes";

fn protocols(fast_aes: bool) -> Vec<Vec<u8>> {
    let all = [ALPN_FAST_AES, ALPN];
    all[usize::from(!fast_aes)..].iter().map(|name| name.to_vec()).collect()
}

/// Returns whether both sides have AES in hardware; `None` if the protocol name is not longhaul's.
pub(super) fn both_fast_aes(chosen: Option<&[u8]>) -> Option<bool> {
    match chosen {
        Some(ALPN_FAST_AES) => Some(true),
        Some(ALPN) => Some(false),
        _ => None,
    }
}

/// rustls requires a server name; it is never sent.
pub(super) const SERVER_NAME: &str = "longhaul";

pub(super) const EXPORTER_LABEL: &[u8] = b"EXPORTER-longhaul-session";

/// Returns the id in the other side's certificate message, if valid.
pub(super) fn peer_id(presented: &[CertificateDer<'_>]) -> Option<PeerId> {
    let [only] = presented else { return None };
    PeerId::from_der(only)
}

/// The ids that a side accepts. A client sends its own id, and data, only after it has accepted the
/// server's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// Only this id.
    Only(PeerId),
    /// Any id.
    Anyone,
    /// No id: only find out who answers.
    Nobody,
}

impl Expect {
    pub(super) fn accepts(self, id: PeerId) -> bool {
        match self {
            Expect::Only(expected) => expected == id,
            Expect::Anyone => true,
            Expect::Nobody => false,
        }
    }
}

/// The id that answered, accepted or not.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<OnceLock<PeerId>>);

impl Seen {
    pub(super) fn stranger(&self, expect: Expect) -> Option<PeerId> {
        self.0.get().copied().filter(|id| !expect.accepts(*id))
    }
}

#[derive(Debug)]
struct Verifier {
    expect: Expect,
    seen: Seen,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Returns a client's configuration, and the place that will hold the id that answered.
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

/// Returns a server's configuration, for any client with a key.
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

    fn check_id(
        &self,
        end_entity: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
    ) -> Result<(), rustls::Error> {
        let id = match peer_id(std::slice::from_ref(end_entity)) {
            Some(id) if more.is_empty() => id,
            _ => return Err(CertificateError::BadEncoding.into()),
        };
        // A handshake shows only one id.
        let _ = self.seen.0.set(id);
        match self.expect.accepts(id) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

/// The methods that rustls' traits for verifiers of servers and of clients have in common.
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
        self.check_id(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
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
        self.check_id(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    raw_ed25519_keys_of_tls13!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_accepts_one_id_any_id_or_none() {
        let [one, other] = [Identity::generate().id(), Identity::generate().id()];
        assert!(Expect::Only(one).accepts(one) && !Expect::Only(one).accepts(other));
        assert!(Expect::Anyone.accepts(one) && Expect::Anyone.accepts(other));
        assert!(!Expect::Nobody.accepts(one));
    }

    #[test]
    fn a_peer_shows_exactly_one_key_and_the_client_learns_the_id_of_a_refused_peer() {
        let identity = Identity::generate();
        let key = &identity.key.cert[0];
        for expect in [Expect::Anyone, Expect::Only(identity.id())] {
            let verifier = Verifier::new(expect, Seen::default(), &provider());
            assert!(verifier.check_id(key, &[]).is_ok());
            assert!(verifier.check_id(key, std::slice::from_ref(key)).is_err());
        }
        let verifier = Verifier::new(Expect::Nobody, Seen::default(), &provider());
        assert!(verifier.check_id(key, &[]).is_err());
        let seen = verifier.seen;
        let stranger = Some(identity.id());
        assert_eq!(seen.stranger(Expect::Nobody), stranger, "the caller learns who answered");
        assert_eq!(
            (seen.stranger(Expect::Anyone), Seen::default().stranger(Expect::Nobody)),
            (None, None)
        );
    }
}
