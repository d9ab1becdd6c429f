//! Peers that know each other by a secret: each has the one key pair that follows from it (HKDF, RFC 5869; Ed25519), shows its public key in the
//! place of a certificate (RFC 7250), and takes no other.

use super::{TlsError, file_error, tls_error};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the shortest secret. A peer shows a public key that follows from it, so that a short one could be guessed.
pub const SHORTEST: usize = 32;

/// Bytes of a file of which a secret is made, at most.
const LONGEST: u64 = 1 << 16;

/// What stands before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Configurations of both sides by the secret in a file. White space at its end does not count.
pub fn configurations(
    provider: Arc<CryptoProvider>,
    file: &Path,
) -> Result<(ClientConfig, ServerConfig), TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(LONGEST).read_to_end(&mut bytes));
    read.map_err(|error| file_error(file, &error))?;
    let secret = bytes.trim_ascii_end();
    if secret.len() < SHORTEST {
        let length = secret.len();
        return Err(file_error(
            file,
            &format!("it has {length} bytes, and a secret has at least {SHORTEST}"),
        ));
    }
    let key = Arc::new(key_pair(secret)?);
    let verifier = Arc::new(SameKey {
        key: key.cert[0].clone(),
        algorithms: provider.signature_verification_algorithms,
    });
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key.clone())));
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    Ok((client, server))
}

/// The key pair that follows from a secret.
fn key_pair(secret: &[u8]) -> Result<CertifiedKey, TlsError> {
    let unknown = |_| TlsError("no key follows from the secret".to_owned());
    let mut pkcs8 = [0; PKCS8.len() + 32];
    pkcs8[..PKCS8.len()].copy_from_slice(&PKCS8);
    let derived = Salt::new(HKDF_SHA256, b"pagewire tls").extract(secret);
    derived
        .expand(&[b"ed25519"], HKDF_SHA256)
        .and_then(|key| key.fill(&mut pkcs8[PKCS8.len()..]))
        .map_err(unknown)?;
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..])).map_err(tls_error)?;
    let public = key.public_key().ok_or_else(|| TlsError("the key has no public part".to_owned()))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(CertifiedKey::new(vec![public], key))
}

/// Takes a peer that shows this public key, and proves that it has the private one.
#[derive(Debug)]
struct SameKey {
    key: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    fn verify(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        // The key is public: the time of this comparison tells nothing.
        if *shown == self.key { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }
}

/// The methods that both verifiers have with the same signature.
macro_rules! verify_by_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(shown).map(|()| ServerCertVerified::assertion())
    }

    verify_by_key!();
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(shown).map(|()| ClientCertVerified::assertion())
    }

    verify_by_key!();
}
