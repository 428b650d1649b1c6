use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use super::proxy::Proxy;
use super::server::Server;
use super::time::{SECOND, wait_patiently_until};

/// How many nodes there are.
const NODES: usize = 5;

/// Five masters that know nothing of one another, as Redlock wants them; if wanted, with a proxy before each.
pub struct Redlock {
    /// Empty, or one for each node.
    proxies: Vec<Proxy>,
    nodes: Vec<Server>,
}

impl Redlock {
    /// The longest lease of tests that use the shared nodes: what they are to set as `max_lease`.
    pub const MAX_LEASE: Duration = SECOND.saturating_mul(5);

    /// The nodes that the tests of this binary share: for tests that need nothing but names of their own. They have
    /// been up for longer than [`MAX_LEASE`](Self::MAX_LEASE).
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Redlock> = LazyLock::new(|| {
            let nodes = Redlock::start();
            nodes.wait_for_votes(Redlock::MAX_LEASE);
            nodes
        });
        &SHARED
    }

    /// Starts five empty nodes.
    pub fn start() -> Self {
        let nodes = thread::scope(|scope| {
            let nodes = [(); NODES].map(|()| scope.spawn(Server::start));
            nodes.map(|node| node.join().expect("a node")).into()
        });
        Self {
            proxies: Vec::new(),
            nodes,
        }
    }

    /// Starts five empty nodes behind proxies, by which each can be cut off or black-holed.
    pub fn start_behind_proxies() -> Self {
        let mut redlock = Self::start();
        redlock.proxies = redlock.nodes.iter().map(Proxy::to).collect();
        redlock
    }

    /// Waits until each node has been up for longer than `max_lease`, so that it has a vote. The clock of its uptime
    /// goes in whole seconds, so this takes up to 2 s more than that.
    pub fn wait_for_votes(&self, max_lease: Duration) {
        wait_patiently_until("all nodes to be old enough", max_lease + SECOND * 20, || {
            self.nodes.iter().all(|node| node.uptime() > max_lease + SECOND)
        });
    }

    /// `redlock://` with all nodes, by way of their proxies if they have any.
    pub fn url(&self) -> String {
        let all: Vec<_> = (0..NODES).collect();
        self.url_of(&all)
    }

    /// `redlock://` with these nodes in this order, by way of their proxies if they have any.
    pub fn url_of(&self, nodes: &[usize]) -> String {
        let addresses: Vec<_> = nodes
            .iter()
            .map(|&nth| {
                let proxy = self.proxies.get(nth).map(Proxy::port);
                format!("127.0.0.1:{}", proxy.unwrap_or_else(|| self.nodes[nth].port()))
            })
            .collect();
        format!("redlock://{}", addresses.join(","))
    }

    pub fn node(&self, nth: usize) -> &Server {
        &self.nodes[nth]
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// What stands before a node, by [`start_behind_proxies`](Self::start_behind_proxies).
    pub fn proxy(&self, nth: usize) -> &Proxy {
        &self.proxies[nth]
    }

    /// Deletes the keys that match a pattern on every node, and returns how many there were.
    pub fn delete(&self, pattern: &str) -> usize {
        self.nodes.iter().map(|node| node.delete(pattern)).sum()
    }
}
