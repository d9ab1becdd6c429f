//! Encrypted streams: TLS 1.3 (RFC 8446), both ends verified, by certificates or by a secret that a job shares.

mod shared_secret;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// What both ends speak inside TLS (RFC 7301).
const PROTOCOL: &[u8] = b"pagewire/1";

/// By what the ends of encrypted streams know each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsChoice {
    /// By certificates of an authority.
    Certificates {
        /// The certificate of this process, and those between it and the authority (PEM).
        certificate: PathBuf,
        /// Its private key (PEM).
        key: PathBuf,
        /// The authorities that peers must have their certificates from (PEM).
        authority: PathBuf,
        /// A DNS name that all certificates have. Without it each is for the address of its GID.
        name: Option<String>,
    },
    /// By a secret of at least [`shared_secret::SHORTEST`] bytes in this file.
    Secret(PathBuf),
}

impl TlsChoice {
    /// The choice with absolute paths, which hold when the process changes its folder.
    ///
    /// # Errors
    /// The kernel's: the current folder is not known.
    pub fn with_absolute_files(&self) -> io::Result<Self> {
        let absolute = std::path::absolute::<&Path>;
        Ok(match self {
            TlsChoice::Secret(file) => TlsChoice::Secret(absolute(file)?),
            TlsChoice::Certificates { certificate, key, authority, name } => TlsChoice::Certificates {
                certificate: absolute(certificate)?,
                key: absolute(key)?,
                authority: absolute(authority)?,
                name: name.clone(),
            },
        })
    }
}

/// Why there is no encryption.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// `cert=FILE,key=FILE,ca=FILE`, with `,name=NAME` or not; or `secret=FILE`.
impl FromStr for TlsChoice {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        let invalid = |what: &str| {
            TlsError(format!("'{text}': {what}; it must be secret=FILE, or cert=FILE,key=FILE,ca=FILE"))
        };
        let (mut files, mut name) = ([const { None }; 4], None);
        for word in text.split(',') {
            let (key, value) = word.split_once('=').ok_or_else(|| invalid("a word has no '='"))?;
            if value.is_empty() {
                return Err(invalid(&format!("'{key}' has no value")));
            }
            let place = match key {
                "cert" => &mut files[0],
                "key" => &mut files[1],
                "ca" => &mut files[2],
                "secret" => &mut files[3],
                "name" => &mut name,
                _ => return Err(invalid(&format!("'{key}' is no setting"))),
            };
            if place.replace(value).is_some() {
                return Err(invalid(&format!("'{key}' is given twice")));
            }
        }
        match (files, name) {
            ([None, None, None, Some(secret)], None) => Ok(TlsChoice::Secret(secret.into())),
            ([Some(certificate), Some(key), Some(authority), None], name) => {
                if let Some(name) = name {
                    DnsName::try_from(name).map_err(|_| invalid("the name is no DNS name"))?;
                }
                Ok(TlsChoice::Certificates {
                    certificate: certificate.into(),
                    key: key.into(),
                    authority: authority.into(),
                    name: name.map(str::to_owned),
                })
            }
            _ => Err(invalid("a setting is missing, or does not belong to the others")),
        }
    }
}

impl fmt::Display for TlsChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsChoice::Secret(secret) => write!(formatter, "secret={}", secret.display()),
            TlsChoice::Certificates { certificate, key, authority, name } => {
                let [certificate, key, authority] = [certificate, key, authority].map(|file| file.display());
                write!(formatter, "cert={certificate},key={key},ca={authority}")?;
                name.as_ref().map_or(Ok(()), |name| write!(formatter, ",name={name}"))
            }
        }
    }
}

/// What the certificate of a peer must be for.
#[derive(Debug, Clone)]
enum PeerName {
    /// The address of its GID.
    Address,
    /// One name, whoever it is.
    One(DnsName<'static>),
    /// Nothing: whoever has the secret is a peer.
    Secret,
}

/// The credentials of a process, and how it knows those of its peers.
#[derive(Debug, Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    peer_name: PeerName,
}

impl Tls {
    /// Reads the files of a choice.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    pub fn load(choice: &TlsChoice) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (mut client, mut server, peer_name) = match choice {
            TlsChoice::Secret(file) => {
                let (client, server) = shared_secret::configurations(provider, file)?;
                (client, server, PeerName::Secret)
            }
            TlsChoice::Certificates { certificate, key, authority, name } => {
                let (client, server) = of_certificates(provider, certificate, key, authority)?;
                let name = name.clone().map(DnsName::try_from).transpose();
                let name = name.map_err(|_| TlsError("the name is no DNS name".to_owned()))?;
                (client, server, name.map_or(PeerName::Address, PeerName::One))
            }
        };
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Each connection is verified by itself, and names nobody in the clear.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        server.send_tls13_tickets = 0;
        Ok(Tls { client: Arc::new(client), server: Arc::new(server), peer_name })
    }

    fn name_of(&self, peer: IpAddr) -> ServerName<'static> {
        match &self.peer_name {
            PeerName::Address | PeerName::Secret => ServerName::IpAddress(peer.into()),
            PeerName::One(name) => ServerName::DnsName(name.clone()),
        }
    }

    /// The opening side of a stream to the peer with this address.
    ///
    /// # Errors
    /// rustls', of which none is known here.
    pub fn opening(&self, peer: IpAddr) -> Result<ClientConnection, TlsError> {
        let mut connection =
            ClientConnection::new(self.client.clone(), self.name_of(peer)).map_err(tls_error)?;
        connection.set_buffer_limit(None);
        Ok(connection)
    }

    /// The other side of a stream.
    ///
    /// # Errors
    /// As [`opening`](Self::opening).
    pub fn accepting(&self) -> Result<ServerConnection, TlsError> {
        ServerConnection::new(self.server.clone()).map_err(tls_error)
    }

    /// Whether the opening side of a stream that has proved who it is may have the address that it names itself by.
    pub fn certificate_is_for(&self, connection: &ServerConnection, address: IpAddr) -> bool {
        let Some([certificate, ..]) = connection.peer_certificates() else { return false };
        if matches!(self.peer_name, PeerName::Secret) {
            return true;
        }
        webpki::EndEntityCert::try_from(certificate).is_ok_and(|certificate| {
            certificate.verify_is_valid_for_subject_name(&self.name_of(address)).is_ok()
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where a function is taken")]
fn tls_error(error: rustls::Error) -> TlsError {
    TlsError(error.to_string())
}

/// Configurations of both sides by certificates.
fn of_certificates(
    provider: Arc<CryptoProvider>,
    certificate: &Path,
    key: &Path,
    authority: &Path,
) -> Result<(ClientConfig, ServerConfig), TlsError> {
    let chain = certificates(certificate)?;
    let mut roots = RootCertStore::empty();
    for root in certificates(authority)? {
        roots.add(root).map_err(|error| file_error(authority, &error))?;
    }
    let roots = Arc::new(roots);
    let key_of = || {
        PrivateKeyDer::from_pem_file(key)
            .map_err(|error| file_error(key, &format!("no private key that is not encrypted (PEM): {error}")))
    };
    let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let servers = servers.build().map_err(|error| file_error(authority, &error))?;
    let clients = clients.build().map_err(|error| file_error(authority, &error))?;
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain.clone(), key_of()?)
        .map_err(|error| pair_error(certificate, key, &error))?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls_error)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key_of()?)
        .map_err(|error| pair_error(certificate, key, &error))?;
    Ok((client, server))
}

fn pair_error(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    TlsError(format!("the key {} does not belong to {}: {error}", key.display(), certificate.display()))
}

/// All certificates in a file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| file_error(file, &error))?;
    match all.is_empty() {
        true => Err(file_error(file, &"it has no certificate (PEM)")),
        false => Ok(all),
    }
}

fn file_error(file: &Path, error: &dyn fmt::Display) -> TlsError {
    TlsError(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_words() {
        let secret: TlsChoice = "secret=/run/secret".parse().unwrap();
        assert_eq!(secret, TlsChoice::Secret("/run/secret".into()));
        for text in ["secret=/run/secret", "cert=c,key=k,ca=a", "cert=c,key=k,ca=a,name=job.example"] {
            assert_eq!(text.parse::<TlsChoice>().unwrap().to_string(), text);
        }
        for (text, what) in [
            ("", "a word has no '='"),
            ("secret", "a word has no '='"),
            ("secret=", "'secret' has no value"),
            ("cert=c,key=k", "is missing"),
            ("cert=c,key=k,ca=a,secret=s", "does not belong"),
            ("secret=s,name=n", "does not belong"),
            ("secret=s,secret=s", "twice"),
            ("cipher=null", "'cipher' is no setting"),
            ("cert=c,key=k,ca=a,name=-", "no DNS name"),
        ] {
            let error = text.parse::<TlsChoice>().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("secret=FILE, or cert=FILE"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (empty, short) = (file("empty.pem", b""), file("short", b"hunter2"));
        let of = |certificate: &Path| TlsChoice::Certificates {
            certificate: certificate.to_owned(),
            key: empty.clone(),
            authority: empty.clone(),
            name: None,
        };
        for (choice, what) in [
            (of(&empty), "empty.pem: it has no certificate"),
            (of(Path::new("/nowhere/cert.pem")), "/nowhere/cert.pem: "),
            (TlsChoice::Secret(short), "short: it has 7 bytes"),
            (TlsChoice::Secret("/nowhere/secret".into()), "/nowhere/secret: "),
        ] {
            let error = Tls::load(&choice).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
