//! TLS through the C API, and so in C++ and Python.

use std::path::PathBuf;

use libtest_mimic::Trial;

use crate::{
    python,
    support::tls::TlsServer,
    toolchain::{compile, succeed, trial, with_library, workshop},
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_c_program_speaks_tls", &["gcc", "pkg-config"], || {
            a_program_speaks_tls("gcc", "-std=c99", "tls.c");
        }),
        trial("cpp::a_program_speaks_tls", &["g++", "pkg-config"], || {
            a_program_speaks_tls("g++", "-std=c++17", "tls.cpp");
        }),
        trial("python::a_program_speaks_tls", &["python3"], python_speaks_tls),
    ]
}

/// A server with TLS at the port of its URL, and the files that a client needs.
struct Fixture {
    server: TlsServer,
    /// The authority's certificate, the client's, and its key.
    files: [PathBuf; 3],
}

impl Fixture {
    fn start() -> Option<Self> {
        let server = TlsServer::start()?;
        let identity = server.authority().client();
        let files = [
            server.file("authority.pem", &server.authority().pem()),
            server.file("client.pem", &identity.certificate),
            server.file("client.key", &identity.key),
        ];
        Some(Self { server, files })
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.server.port())
    }
}

fn a_program_speaks_tls(compiler: &str, standard: &str, source: &str) {
    let Some(fixture) = Fixture::start() else { return };
    let program = workshop(&format!("program-{source}")).join("tls");
    compile(
        compiler,
        &[standard],
        &[&format!("tests/capi/programs/{source}")],
        &program,
    );
    succeed(with_library(program).arg(fixture.url()).args(&fixture.files));
}

fn python_speaks_tls() {
    let Some(fixture) = Fixture::start() else { return };
    let [ca, certificate, key] = &fixture.files;
    let mut suite = python::suite_at(&fixture.url(), "tls");
    suite
        .env("REDLATCH_TEST_CA", ca)
        .env("REDLATCH_TEST_CERTIFICATE", certificate)
        .env("REDLATCH_TEST_KEY", key);
    succeed(&mut suite);
}
