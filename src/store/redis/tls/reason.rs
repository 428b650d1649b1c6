//! Why there is no TLS with a server, in words for whoever has to put it right.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// What is wrong between us and the server, or with what one of us showed the other.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct NoTls {
    why: &'static str,
    source: Error,
}

pub(super) fn explained(error: Error) -> io::Error {
    let why = match &error {
        Error::InvalidCertificate(what) => certificate(what),
        Error::AlertReceived(alert) => refusal(*alert),
        Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => {
            "the server's certificates are larger than the 64 kB that are read of them"
        }
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "the server's answer is no TLS: does it speak TLS at this port?"
        }
        Error::PeerIncompatible(_) => {
            "the server and this client have no kind of TLS in common (1.2 and 1.3 are spoken)"
        }
        _ => "TLS with the server failed",
    };
    io::Error::new(io::ErrorKind::InvalidData, NoTls { why, source: error })
}

/// What is wrong with the server's certificate.
fn certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer => "the server's certificate is from an authority that is not trusted here",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another host"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the server's certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet"
        }
        // It has no variant of its own.
        CertificateError::Other(why) if why.0.to_string() == "CaUsedAsEndEntity" => {
            "the server shows the certificate of an authority (CA:TRUE): it needs one of its own, which that has signed"
        }
        _ => "the server's certificate is not accepted",
    }
}

/// What the server objects to.
fn refusal(alert: AlertDescription) -> &'static str {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => "the server wants a client certificate",
        Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => "the server does not accept the client certificate",
        // TLS 1.2 has no word of its own for that.
        Alert::HandshakeFailure => "the server refuses (it may want a client certificate)",
        Alert::ProtocolVersion => "the server does not speak TLS 1.2 or 1.3",
        _ => "the server ended the TLS session",
    }
}
