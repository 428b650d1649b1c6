use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use redlatch::{Client, ClientBuilder};
use tempfile::TempDir;

use super::port::ReservedPort;
use super::server::Server;
use super::time::wait_until;

/// One that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key: PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, key()).expect("a certificate"))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its own certificate, as a server would show it that has no other.
    pub fn own(&self) -> Identity {
        Identity {
            certificate: self.pem(),
            key: self.0.key().serialize_pem(),
        }
    }

    /// A certificate for a server at these hosts: names or IP addresses.
    pub fn server(&self, hosts: &[&str]) -> Identity {
        self.sign(params("server", hosts))
    }

    /// One for a server that was replaced long ago, or should have been.
    pub fn expired(&self, hosts: &[&str]) -> Identity {
        let mut params = params("server", hosts);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    pub fn client(&self) -> Identity {
        let mut params = params("client", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = key();
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("host names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// The hosts that [`TlsServer::start`]'s certificate is for.
pub const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// A server of its own that speaks TLS at one port and, to whom only looks on, plain text at another.
pub struct TlsServer {
    plain: Server,
    port: ReservedPort,
    authority: Arc<Authority>,
    files: TempDir,
    _bus: Option<ReservedPort>,
}

impl TlsServer {
    /// Starts one that shows a certificate for [`HOSTS`] and wants one of the same authority from its clients. `None`,
    /// and a line that says so, if the server was built without TLS.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with more configuration, such as `&["--tls-auth-clients", "no"]`.
    pub fn start_with(extra: &[&str]) -> Option<Self> {
        Self::of(&Arc::new(Authority::new("authority")), "", extra)
    }

    /// As [`start_with`](Self::start_with), beside others of the same authority, and with a configuration file that it
    /// may rewrite.
    pub fn of(authority: &Arc<Authority>, config: &str, extra: &[&str]) -> Option<Self> {
        Self::launch(authority.clone(), &authority.server(&HOSTS), config, extra)
    }

    /// Starts one that is a cluster by itself.
    pub fn cluster() -> Option<Self> {
        // By default that is the port + 10000, which may be too high.
        let bus = ReservedPort::reserve().expect("a free TCP port");
        let bus_port = bus.number().to_string();
        #[rustfmt::skip]
        let mut node = Self::start_with(&[
            "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus_port,
            "--cluster-announce-ip", "127.0.0.1",
        ])?;
        node._bus = Some(bus);
        node.plain.run("CLUSTER ADDSLOTSRANGE 0 16383");
        wait_until("the cluster to be up", Duration::from_secs(30), || {
            let info: String = redis::from_redis_value(node.plain.run("CLUSTER INFO")).expect("a text");
            info.contains("cluster_state:ok")
        });
        Some(node)
    }

    /// Starts one that shows `identity` and lets in whom `authority` signs.
    pub fn showing(authority: Authority, identity: &Identity) -> Option<Self> {
        Self::launch(Arc::new(authority), identity, "", &[])
    }

    fn launch(authority: Arc<Authority>, identity: &Identity, config: &str, extra: &[&str]) -> Option<Self> {
        let files = tempfile::tempdir().expect("a temporary directory");
        let port = ReservedPort::reserve().expect("a free TCP port");
        let write = |name: &str, text: &str| {
            let path = files.path().join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (certificate, key, ca) = (
            write("server.crt", &identity.certificate),
            write("server.key", &identity.key),
            write("ca.crt", &authority.pem()),
        );
        let port_text = port.number().to_string();
        #[rustfmt::skip]
        let own = [
            "--tls-port", &port_text, "--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca,
        ];
        match Server::try_start_with_config(config, &[&own[..], extra].concat()) {
            Ok(plain) => Some(Self {
                plain,
                port,
                authority,
                files,
                _bus: None,
            }),
            Err(log) if lacks_tls(&log) => {
                eprintln!("not run: the server was built without TLS");
                None
            }
            Err(log) => panic!("the server did not start: {log}"),
        }
    }

    /// The server itself, to look and meddle with.
    pub fn plain(&self) -> &Server {
        &self.plain
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn url(&self) -> String {
        self.url_at("127.0.0.1", self.port())
    }

    /// The URL of whatever stands in for this server at another host or port.
    pub fn url_at(&self, host: &str, port: u16) -> String {
        format!("rediss://{host}:{port}/")
    }

    /// What makes clients that the server lets in.
    pub fn builder(&self) -> ClientBuilder {
        let identity = self.authority.client();
        Client::builder()
            .url(self.url())
            .tls_ca(self.authority.pem())
            .tls_client_certificate(identity.certificate, identity.key)
    }

    pub fn client(&self) -> Client {
        self.builder().build().expect("a client")
    }

    /// A file of this server's, with such a text in it.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

/// Whether a server does not start, as its log says, for want of TLS.
fn lacks_tls(log: &str) -> bool {
    [
        "Failed finding TLS support",
        "Missing implement of connection type tls",
        "Bad directive",
    ]
    .iter()
    .any(|said| log.contains(said))
}
