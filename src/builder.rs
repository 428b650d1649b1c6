//! The client's settings.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Client, Error,
    client::Core,
    clock::{BootClock, Clock},
    keys::Keyspace,
    lease::check_length,
    store::{
        Store,
        memory::MemoryStore,
        quorum::{QuorumSettings, QuorumStore},
        redis::{RedisStore, Settings, TlsSettings},
    },
};

/// Settings for a [`Client`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    url: String,
    keyspace: Keyspace,
    settings: Settings,
    tls: TlsSettings,
    quorum: QuorumSettings,
    poll_interval: Duration,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1/".to_owned(),
            keyspace: Keyspace::default(),
            settings: Settings {
                pool_size: 10,
                connect_timeout: Duration::from_secs(1),
                command_timeout: Duration::from_secs(2),
                sentinel_login: None,
                tls: None,
            },
            tls: TlsSettings::default(),
            quorum: QuorumSettings {
                max_lease: Duration::from_secs(60),
                node_timeout: Duration::from_millis(100),
            },
            poll_interval: Duration::from_secs(1),
        }
    }
}

impl ClientBuilder {
    /// Sets the server, as [`Client::open`] takes it. Defaults to `redis://127.0.0.1/`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// Sets what stands before every key, so that programs can share a server. Defaults to nothing.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.keyspace.prefix = prefix.as_ref().to_vec();
        self
    }

    /// Sets what stands between the prefix and a lock's name; may be empty. Defaults to `lock:`.
    pub fn lock_prefix(mut self, lock_prefix: impl AsRef<[u8]>) -> Self {
        self.keyspace.lock_prefix = lock_prefix.as_ref().to_vec();
        self
    }

    /// Sets how many requests may be under way at once, each on a connection of its own; the background work has one
    /// more. Connections are opened when needed. At least 1; defaults to 10.
    pub fn pool_size(mut self, pool_size: u32) -> Self {
        self.settings.pool_size = pool_size;
        self
    }

    /// Sets how long opening a connection may take, at most; it counts into the command timeout.
    /// From 1 ms to 1 hour; defaults to 1 s.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.settings.connect_timeout = connect_timeout;
        self
    }

    /// Sets how long one request may take, at most: waiting for a free connection, opening one and the answer included.
    /// From 1 ms to 1 hour; defaults to 2 s.
    ///
    /// It does not limit how long an acquire waits for the lock; it is by how much an acquire can be late when the
    /// server does not answer. A drop then takes one, a release two.
    pub fn command_timeout(mut self, command_timeout: Duration) -> Self {
        self.settings.command_timeout = command_timeout;
        self
    }

    /// Sets the longest pause between two looks of a waiter that nobody wakes. From 10 ms to 1 hour; defaults to 1 s.
    ///
    /// Waiters are woken by the release, and when the holder's lease ends. This is for what tells nobody, such as a
    /// release by another library. It is also how a waiter shows that it is alive: one that has not been heard of for
    /// two and a half times as long is passed over.
    pub fn poll_interval(mut self, poll_interval: Duration) -> Self {
        self.poll_interval = poll_interval;
        self
    }

    /// Sets how the sentinels of a `redis-sentinel://` URL are logged in to, if they want that; the URL's own log-in is
    /// for the master. An empty `user` is the default one. Defaults to none.
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.settings.sentinel_login = Some((user.into(), password.into()));
        self
    }

    /// Sets whether there is TLS on the connections although the URL does not say so, as `rediss://` does: for
    /// `redis-sentinel://` (the sentinels and the master both) and other URLs of several servers. Not for `unix://` and
    /// `memory://`. Defaults to `false`.
    ///
    /// TLS 1.2 and 1.3 are spoken, and a server has to prove that it is the host in the URL, be that a name or an IP
    /// address (with Sentinel and Cluster: the one that they name), before anything else is sent to it; nothing turns
    /// that off. TLS needs redlatch's feature `tls`, without which [`build`](Self::build) gives [`Error::Unsupported`].
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls.wanted = tls;
        self
    }

    /// Sets who may have signed the server's certificate: one or more certificates as the text of a PEM file. Nobody
    /// else is trusted then. Defaults to those whom the system trusts, which [`build`](Self::build) reads (from where
    /// `SSL_CERT_FILE` and `SSL_CERT_DIR` say, if they are set).
    pub fn tls_ca(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.tls.authorities = Some(pem.as_ref().to_vec());
        self
    }

    /// Sets what the server is shown when it wants a client certificate: that (followed by those between it and the
    /// authority, if there are any) and its private key, each as the text of a PEM file; the key not encrypted.
    /// Defaults to none.
    pub fn tls_client_certificate(mut self, certificate_pem: impl AsRef<[u8]>, key_pem: impl AsRef<[u8]>) -> Self {
        self.tls.identity = Some((certificate_pem.as_ref().to_vec(), key_pem.as_ref().to_vec()));
        self
    }

    /// Sets the longest lease on a Redlock (`redlock://`); other servers have no such limit. From 10 ms to 10 years;
    /// defaults to 60 s.
    ///
    /// A server that may have lost its memory in a restart votes on no grant until it has been up for so long, or was
    /// seen by this client so long ago: by then all that it may have forgotten has ended. So all clients have to set
    /// the same, longer leases are refused, and a fresh deployment grants nothing for so long. Locks that set no lease
    /// have this one if it is shorter than the default of 30 s.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.quorum.max_lease = max_lease;
        self
    }

    /// Sets how long the answer of one server of a Redlock (`redlock://`) may take, opening a connection to it
    /// included; for other servers only the [command timeout](Self::command_timeout) counts. From 1 ms to 1 hour;
    /// defaults to 100 ms. It counts as a third of the command timeout at most, since a grant may take three answers
    /// one after the other.
    ///
    /// It is what a server that is silent costs those who ask, until it is left out; and again, for one of them, once
    /// in a second. It should be many round trips: one that is merely slow is left out as well.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.quorum.node_timeout = node_timeout;
        self
    }

    /// Makes the client. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a setting that cannot work, [`Error::Unsupported`] for a kind of server that this
    /// version does not speak to, or for TLS in a build without it.
    pub fn build(self) -> Result<Client, Error> {
        if self.settings.pool_size == 0 {
            return Err(Error::invalid("a pool of no connections cannot work"));
        }
        for (what, timeout) in [
            ("connect", self.settings.connect_timeout),
            ("command", self.settings.command_timeout),
            ("node", self.quorum.node_timeout),
        ] {
            if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout) {
                return Err(Error::invalid(format!(
                    "a {what} timeout of {timeout:?} cannot work: it must be from {SHORTEST_TIMEOUT:?} to {LONGEST_TIMEOUT:?}"
                )));
            }
        }
        if !(SHORTEST_POLL_INTERVAL..=LONGEST_TIMEOUT).contains(&self.poll_interval) {
            return Err(Error::invalid(format!(
                "a poll interval of {:?} cannot work: it must be from {SHORTEST_POLL_INTERVAL:?} to {LONGEST_TIMEOUT:?}",
                self.poll_interval
            )));
        }
        check_length(self.quorum.max_lease)?;
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let store = self.open_store(&clock)?;
        let core = Core::new(
            store,
            clock,
            self.keyspace,
            self.settings.command_timeout,
            self.poll_interval,
        );
        Ok(Client::new(core))
    }

    fn open_store(&self, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Store>, Error> {
        let Some((scheme, _)) = self.url.split_once("://") else {
            return Err(Error::invalid(
                "the URL cannot be used: it has no scheme, as in `redis://host/`, `unix:///path/to/socket` or `memory://`",
            ));
        };
        let settings = &Settings {
            tls: self.tls.for_scheme(scheme)?,
            ..self.settings.clone()
        };
        match scheme {
            "memory" => Ok(Arc::new(MemoryStore::shared(&self.url, clock.clone()))),
            "redis" | "valkey" | "rediss" | "valkeys" | "unix" => Ok(Arc::new(RedisStore::new(&self.url, settings)?)),
            "redis-sentinel" => Ok(Arc::new(RedisStore::by_sentinels(&self.url, settings)?)),
            "redis-cluster" => Ok(Arc::new(RedisStore::in_cluster(&self.url, settings)?)),
            "redlock" => {
                let store = QuorumStore::new(&self.url, settings, self.quorum, clock.clone())?;
                Ok(Arc::new(store))
            }
            _ => Err(Error::invalid(
                "the URL cannot be used: its scheme is none of `redis`, `rediss`, `valkey`, `valkeys`, `unix`, \
                 `redis-sentinel`, `redis-cluster`, `redlock` and `memory`",
            )),
        }
    }
}

const SHORTEST_POLL_INTERVAL: Duration = Duration::from_millis(10);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it may hold a password.
        f.debug_struct("ClientBuilder")
            .field("pool_size", &self.settings.pool_size)
            .field("connect_timeout", &self.settings.connect_timeout)
            .field("command_timeout", &self.settings.command_timeout)
            .finish_non_exhaustive()
    }
}
