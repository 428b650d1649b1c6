//! Settings that cannot work are refused before any I/O.

use redlatch::{Client, ClientBuilder, Error};

use super::support::{everything_said, tls::Authority};

/// Nobody listens there.
const URL: &str = "rediss://127.0.0.1:1/";

#[track_caller]
fn assert_refused(builder: ClientBuilder, why: &str) {
    let error = builder.build().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    let said = everything_said(&error);
    assert!(said.contains(why), "{said}");
    assert!(
        !said.contains("PRIVATE KEY-----\n") && !said.contains("SECRET"),
        "{said}"
    );
}

#[test]
fn certificates_that_cannot_be_read_are_refused() {
    let authority = Authority::new("authority");
    let (one, other) = (authority.client(), authority.client());
    let builder = || Client::builder().url(URL).tls_ca(authority.pem());
    builder().build().unwrap();
    let damaged = one.certificate.replacen('M', "!", 1);
    for (pem, why) in [
        ("", "no certificate in it"),
        ("SECRET", "no certificate in it"),
        (&one.key, "no certificate in it"),
        (&damaged, "CA certificates cannot be used"),
        (
            "-----BEGIN CERTIFICATE-----\nSECRET!!\n-----END CERTIFICATE-----\n",
            "CA certificates cannot be used",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nU0VDUkVU\n-----END CERTIFICATE-----\n",
            "CA certificates cannot be used",
        ),
    ] {
        assert_refused(builder().tls_ca(pem), why);
    }
    let with = |certificate: &str, key: &str| builder().tls_client_certificate(certificate, key);
    with(&one.certificate, &one.key).build().unwrap();
    for (certificate, key, why) in [
        ("", &*one.key, "no certificate in it"),
        (&*one.certificate, "", "no private key in it"),
        (&one.certificate, &one.certificate, "no private key in it"),
        (&one.certificate, "-----BEGIN PRIVATE KEY-----\nSECRET!!", "damaged"),
        (
            &one.certificate,
            &other.key,
            "client certificate and its key cannot be used",
        ),
        (
            &one.certificate,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nU0VDUkVU\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "no private key in it",
        ),
    ] {
        assert_refused(with(certificate, key), why);
    }
}

#[test]
fn tls_where_there_can_be_none_is_refused() {
    let ca = Authority::new("authority").pem();
    for url in ["unix:///path/to/socket", "memory://"] {
        assert_refused(Client::builder().url(url).tls(true), "no TLS");
        assert_refused(Client::builder().url(url).tls_ca(&ca), "no TLS");
    }
    // Otherwise a letter that is missing would send a password in the clear.
    assert_refused(
        Client::builder().url("redis://127.0.0.1/").tls_ca(&ca),
        "write `rediss://`",
    );
}

#[test]
fn no_key_is_shown() {
    let authority = Authority::new("authority");
    let identity = authority.client();
    let builder = Client::builder()
        .url(URL)
        .tls_client_certificate(&identity.certificate, &identity.key);
    assert!(!format!("{builder:?}").contains("PRIVATE"));
}
