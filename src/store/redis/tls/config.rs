//! What all TLS sessions of a client have in common: whom it trusts, and what it shows.

use std::{io, sync::Arc};

use redis::ConnectionAddr;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName,
        pem::{Error as PemError, PemObject},
    },
};

use super::{super::socket::Socket, SecureSocket, TlsSettings};
use crate::Error;

#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the certificates; those of the system if none are given.
    pub(super) fn new(settings: &TlsSettings) -> Result<Self, Error> {
        let trusted = match &settings.authorities {
            Some(pem) => given(pem)?,
            None => systems()?,
        };
        // Whatever else the program uses rustls for, and with which cryptography, is not our business.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::invalid(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(trusted);
        let config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates("the client certificate", chain)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| unusable("the client certificate's key", not_pem(&error, "private key")))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable("the client certificate and its key", error.to_string()))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Makes sure of the server at the other end of `socket`, which is to be the one at `address`, by the socket's
    /// deadline.
    pub(in super::super) fn secure(&self, socket: Socket, address: &ConnectionAddr) -> io::Result<SecureSocket> {
        let ConnectionAddr::Tcp(host, _) = address else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "TLS is spoken over TCP only",
            ));
        };
        let name = ServerName::try_from(host.clone())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no certificate can be for such a host"))?;
        let session = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        SecureSocket::shake_hands(socket, session)
    }
}

/// The authorities that the user gave.
fn given(pem: &[u8]) -> Result<RootCertStore, Error> {
    const WHAT: &str = "the CA certificates";
    let mut store = RootCertStore::empty();
    for certificate in certificates(WHAT, pem)? {
        // The library's words are those for what a server shows.
        store
            .add(certificate)
            .map_err(|_| unusable(WHAT, "one of them is malformed"))?;
    }
    Ok(store)
}

/// The authorities that the system trusts.
fn systems() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Some are of a kind that rustls does not read: they count as missing.
    let (usable, _) = store.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found
            .errors
            .first()
            .map(|error| format!(" ({error})"))
            .unwrap_or_default();
        return Err(Error::invalid(format!(
            "TLS cannot be set up: the system has no CA certificates{why}: install them, or set your own"
        )));
    }
    Ok(store)
}

/// What a PEM text has of certificates, at least one.
fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| unusable(what, not_pem(&error, "certificate")))?;
    if found.is_empty() {
        return Err(unusable(what, not_pem(&PemError::NoItemsFound, "certificate")));
    }
    Ok(found)
}

/// Without the library's details, which repeat a line of the text, and that may be a piece of a key.
fn not_pem(error: &PemError, wanted: &str) -> String {
    match error {
        PemError::NoItemsFound => format!("there is no {wanted} in it (in PEM: `-----BEGIN …-----`)"),
        _ => "it is damaged (no well-formed PEM)".to_owned(),
    }
}

fn unusable(what: &str, why: impl AsRef<str>) -> Error {
    Error::invalid(format!("{what} cannot be used: {}", why.as_ref()))
}
