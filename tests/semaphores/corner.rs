//! What a test has to itself.

use std::time::Duration;

use redlatch::{Client, Semaphore};

use crate::support::{Proxy, SECOND, Server, wait_until};

/// Where the semaphore `x` stands.
pub const KEY: &str = "semaphore:x";

/// Where a helper of the semaphore `x` stands.
pub fn helper(kind: &str) -> String {
    format!("{{{KEY}}}:redlatch:{kind}:{KEY}")
}

/// How long one request may take here.
pub const COMMAND: Duration = Duration::from_millis(500);

/// Long before a lease of 30 s ends.
pub const SOON: Duration = Duration::from_secs(10);

pub fn client_at(url: &str) -> Client {
    Client::builder().url(url).command_timeout(COMMAND).build().unwrap()
}

/// A server, with a proxy before it.
pub struct Corner {
    pub proxy: Proxy,
    pub server: Server,
}

impl Corner {
    pub fn new() -> Self {
        let server = Server::start();
        Self {
            proxy: Proxy::to(&server),
            server,
        }
    }

    /// The semaphore of a client with a straight line to the server.
    pub fn semaphore(&self, limit: u32) -> Semaphore {
        client_at(&self.server.url()).semaphore("x", limit)
    }

    /// The semaphore of a client behind the proxy.
    pub fn behind(&self, limit: u32) -> Semaphore {
        client_at(self.proxy.url()).semaphore("x", limit)
    }

    /// All that stands at the semaphore's key, expired or not: a permit each.
    pub fn members(&self) -> Vec<String> {
        let members = redis::cmd("ZRANGE")
            .arg(KEY)
            .arg(0)
            .arg(-1)
            .query(&mut self.server.connection());
        members.unwrap()
    }

    /// The key's TTL.
    #[track_caller]
    pub fn ttl(&self) -> Duration {
        self.server.ttl(KEY).expect("a key with a TTL")
    }

    /// Waits until the key is gone.
    #[track_caller]
    pub fn wait_until_free(&self) {
        wait_until("the permits to be given back", SOON, || self.members().is_empty());
    }

    pub fn dump(&self, key: &str) -> redis::Value {
        self.server.run(&format!("DUMP {key}"))
    }

    /// What is on the server at all.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.server.connection())
            .unwrap();
        keys.sort();
        keys
    }

    /// Takes all of the `limit` permits with short timed leases, and gives them back: there are no more and no fewer.
    #[track_caller]
    pub fn assert_all_are_free(&self, limit: u32) {
        let semaphore = self.semaphore(limit).timed(SECOND * 30);
        assert_eq!(semaphore.available().unwrap(), limit);
        let guards: Vec<_> = (0..limit)
            .map(|_| semaphore.try_acquire().unwrap().expect("free"))
            .collect();
        assert!(semaphore.try_acquire().unwrap().is_none(), "there is one too many");
        guards.into_iter().for_each(|guard| guard.release().unwrap());
    }
}
