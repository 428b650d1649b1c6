//! Whom we trust, who trusts us, and what is said where that is not so.

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    thread,
    time::Instant,
};

use redlatch::{Client, ClientBuilder, Error};

use super::support::{
    MINUTE, PROMPT, SECOND, Server, chain, everything_said,
    tls::{Authority, HOSTS, TlsServer},
};

const SECRET: &str = "correcthorsebatterystaple";

/// Asserts that a client cannot connect, and that it is told why, at once, and without a doubt about what was sent.
#[track_caller]
fn assert_not_connected(builder: ClientBuilder, why: &str) {
    let client = builder.connect_timeout(MINUTE).command_timeout(MINUTE).build().unwrap();
    for _ in 0..2 {
        let start = Instant::now();
        let error = client.lock("x").acquire().unwrap_err();
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
        assert!(chain(&error).contains(why), "{}", chain(&error));
        assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }
    // Nothing was left to be cleaned up.
    let start = Instant::now();
    drop(client);
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
}

fn with_password(server: &TlsServer) -> String {
    server.url().replace("rediss://", &format!("rediss://:{SECRET}@"))
}

#[test]
fn an_unknown_authority_is_not_trusted() {
    let Some(server) = TlsServer::start() else { return };
    let other = Authority::new("other");
    let why = "from an authority that is not trusted";
    assert_not_connected(server.builder().tls_ca(other.pem()), why);
    assert_not_connected(server.builder().tls_ca(other.pem()).url(with_password(&server)), why);
    // It is one of several that counts.
    let both = other.pem() + &server.authority().pem();
    let client = server.builder().tls_ca(both).build().unwrap();
    client.lock("x").with_lock(|| ()).unwrap();
}

#[test]
fn a_certificate_for_another_host_is_not_accepted() {
    let authority = Authority::new("authority");
    let identity = authority.server(&["localhost", "redis.example"]);
    let Some(server) = TlsServer::showing(authority, &identity) else {
        return;
    };
    assert_not_connected(server.builder(), "for another host");
    let client = server.builder().url(server.url_at("localhost", server.port()));
    client.build().unwrap().lock("x").with_lock(|| ()).unwrap();
}

#[test]
fn a_certificate_that_has_expired_is_not_accepted() {
    let authority = Authority::new("authority");
    let identity = authority.expired(&HOSTS);
    let Some(server) = TlsServer::showing(authority, &identity) else {
        return;
    };
    assert_not_connected(server.builder(), "has expired");
}

/// In TLS 1.3 the server refuses only after what the client takes for the end of the handshake.
#[test]
fn a_server_that_refuses_the_client_certificate_or_misses_it_says_so() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let Some(server) = TlsServer::start_with(&["--tls-protocols", version]) else {
            return;
        };
        let without = |url: String| Client::builder().url(url).tls_ca(server.authority().pem());
        let foreign = Authority::new("other").client();
        for url in [server.url(), with_password(&server)] {
            let missing = if version == "TLSv1.3" {
                "wants a client certificate"
            } else {
                "may want a client certificate"
            };
            assert_not_connected(without(url.clone()), missing);
            let refused = without(url).tls_client_certificate(&foreign.certificate, &foreign.key);
            assert_not_connected(refused, "does not accept the client certificate");
        }
        assert_eq!(server.plain().command_calls("auth"), 0);
        assert_eq!(server.plain().command_calls("evalsha"), 0);
    }
}

#[test]
fn a_server_that_wants_no_client_certificate_needs_none() {
    let Some(server) = TlsServer::start_with(&["--tls-auth-clients", "no"]) else {
        return;
    };
    let client = Client::builder().url(server.url()).tls_ca(server.authority().pem());
    client.build().unwrap().lock("x").with_lock(|| ()).unwrap();
}

#[test]
fn a_server_without_tls_is_told_apart_at_once() {
    let server = Server::start();
    let authority = Authority::new("authority");
    for login in ["", &format!(":{SECRET}@")] {
        let url = format!("rediss://{login}127.0.0.1:{}/", server.port());
        let client = Client::builder()
            .url(url)
            .tls_ca(authority.pem())
            .connect_timeout(SECOND);
        let start = Instant::now();
        let error = client.build().unwrap().lock("x").acquire().unwrap_err();
        // Whether it says something in its own language, or waits for the rest, depends on the server.
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
        assert!(chain(&error).contains("speak TLS at this port"), "{}", chain(&error));
        assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }
}

#[test]
fn a_server_with_tls_that_is_spoken_to_without_is_told_apart_at_once() {
    let Some(server) = TlsServer::start() else { return };
    // It hangs up, as a server does that has died.
    for login in ["", &format!(":{SECRET}@")] {
        let url = format!("redis://{login}127.0.0.1:{}/", server.port());
        let start = Instant::now();
        let error = Client::open(url).unwrap().lock("x").acquire().unwrap_err();
        assert!(
            matches!(error, Error::Connection(_) | Error::Unconfirmed(_)),
            "{error:?}"
        );
        assert!(chain(&error).contains("write `rediss://`"), "{}", chain(&error));
        assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }
}

/// Others than Redis on OpenSSL 3.0 say what is wrong before they hang up: nothing can have run then.
#[test]
fn a_tls_alert_in_answer_to_plain_text_is_understood() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            let _ = client.read(&mut request);
            let _ = client.write_all(&[21, 3, 1, 0, 2, 2, 70]);
        }
    });
    for login in ["", &format!(":{SECRET}@")] {
        let url = format!("redis://{login}{address}/");
        assert_not_connected(Client::builder().url(url), "the server speaks TLS at this port");
    }
}

/// Not a word of the log-in goes to a server that has not shown who it is.
#[test]
fn the_password_is_not_sent_before_the_server_is_known() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("rediss://user:{SECRET}@{}/", listener.local_addr().unwrap());
    let listening = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        // It ends when the client gives up.
        let _ = client.read_to_end(&mut heard);
        heard
    });
    let client = Client::builder().url(url).tls_ca(Authority::new("authority").pem());
    let client = client.connect_timeout(SECOND).command_timeout(SECOND).build().unwrap();
    assert!(client.lock("x").try_acquire().is_err());
    drop(client);
    let heard = listening.join().unwrap();
    assert!(!heard.is_empty());
    for word in ["AUTH", SECRET] {
        assert!(!heard.windows(word.len()).any(|part| part == word.as_bytes()), "{word}");
    }
}

/// Names the URL to the process that this test starts, in which another authority is the system's.
const CHILD: &str = "REDLATCH_TEST_SYSTEM_CA";

#[test]
fn without_own_authorities_those_of_the_system_are_trusted() {
    if let Ok(url) = env::var(CHILD) {
        Client::open(url).unwrap().lock("x").with_lock(|| ()).unwrap();
        return;
    }
    let Some(server) = TlsServer::start_with(&["--tls-auth-clients", "no"]) else {
        return;
    };
    let run = |authorities: &str| {
        let file = server.file("system.pem", authorities);
        Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "trust::without_own_authorities_those_of_the_system_are_trusted",
                "--nocapture",
            ])
            .env(CHILD, server.url())
            .env("SSL_CERT_FILE", file)
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap()
    };
    let trusting = run(&server.authority().pem());
    assert!(trusting.status.success(), "{trusting:?}");
    for (authorities, why) in [
        (Authority::new("other").pem(), "from an authority that is not trusted"),
        (String::new(), "the system has no CA certificates"),
    ] {
        let refusing = run(&authorities);
        assert!(!refusing.status.success());
        let said = String::from_utf8_lossy(&refusing.stderr).into_owned();
        assert!(said.contains(why), "{said}");
    }
    drop(fs::remove_file(server.file("system.pem", "")));
}
