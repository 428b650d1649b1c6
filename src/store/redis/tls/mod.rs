//! TLS, by rustls: behind the feature `tls`, and without it in name only.

#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "tls")]
mod reason;
#[cfg(feature = "tls")]
mod secure;
#[cfg(not(feature = "tls"))]
mod without;

#[cfg(not(feature = "tls"))]
pub(crate) use self::without::{SecureSocket, Tls};
#[cfg(feature = "tls")]
pub(crate) use self::{config::Tls, secure::SecureSocket};
use crate::Error;

/// What the user wants of TLS, as it was given.
#[derive(Clone, Default)]
pub(crate) struct TlsSettings {
    /// Whether there is to be TLS although the URL does not say so.
    pub(crate) wanted: bool,
    /// Who may sign the server's certificate: PEM.
    pub(crate) authorities: Option<Vec<u8>>,
    /// What the server is shown: a chain of certificates and the key, both PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsSettings {
    /// What servers of a URL with this scheme are spoken to with, if not in the clear.
    pub(crate) fn for_scheme(&self, scheme: &str) -> Result<Option<Tls>, Error> {
        let implied = matches!(scheme, "rediss" | "valkeys");
        let has_certificates = self.authorities.is_some() || self.identity.is_some();
        if matches!(scheme, "unix" | "memory") && (self.wanted || has_certificates) {
            return Err(Error::invalid(format!("there is no TLS with a `{scheme}://` URL")));
        }
        if self.wanted || implied {
            Tls::new(self).map(Some)
        } else if has_certificates {
            Err(Error::invalid(
                "certificates are of no use without TLS: write `rediss://` in the URL, or set `tls`",
            ))
        } else {
            Ok(None)
        }
    }
}
