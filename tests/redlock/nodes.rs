//! The servers of one test, each behind a proxy, and what happens to them.

use std::time::Duration;

use redlatch::{Client, ClientBuilder};

use crate::support::{Redlock, SECOND, wait_until};

/// The longest lease of these tests: so long a server has no vote after a restart.
pub const MAX_LEASE: Duration = SECOND.saturating_mul(3);

/// How long a server may take to answer where that is not what the test is about.
pub const PATIENT: Duration = SECOND;

/// How long anything may take on a busy machine.
pub const SOON: Duration = SECOND.saturating_mul(30);

/// What may happen to a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blow {
    Killed,
    /// It is reached, and says nothing.
    BlackHoled,
    /// It is restarted, and has lost its memory.
    RestartedEmpty,
}

pub const BLOWS: [Blow; 3] = [Blow::Killed, Blow::BlackHoled, Blow::RestartedEmpty];

/// Five servers that have a vote, each behind a proxy.
pub fn voting() -> Redlock {
    let redlock = Redlock::start_behind_proxies();
    redlock.wait_for_votes(MAX_LEASE);
    redlock
}

pub fn builder(url: String) -> ClientBuilder {
    Client::builder()
        .url(url)
        .max_lease(MAX_LEASE)
        .node_timeout(PATIENT)
        .command_timeout(SECOND * 10)
}

pub fn client(redlock: &Redlock) -> Client {
    builder(redlock.url()).build().unwrap()
}

pub fn strike(redlock: &Redlock, nodes: impl IntoIterator<Item = usize>, blow: Blow) {
    for nth in nodes {
        match blow {
            Blow::Killed => redlock.node(nth).kill(),
            Blow::BlackHoled => redlock.proxy(nth).black_hole(true),
            Blow::RestartedEmpty => redlock.node(nth).restart_empty(),
        }
    }
}

/// On how many servers something stands at the key. Killed ones do not count.
pub fn standing(redlock: &Redlock, alive: &[usize], key: &str) -> usize {
    let stands = |nth: &&usize| redlock.node(**nth).get(key).is_some();
    alive.iter().filter(stands).count()
}

#[track_caller]
pub fn wait_until_gone(redlock: &Redlock, alive: &[usize], key: &str, within: Duration) {
    wait_until(&format!("{key} to be gone everywhere"), within, || {
        standing(redlock, alive, key) == 0
    });
}

pub fn fencing_key(name: &str) -> String {
    format!("{{lock:{name}}}:redlatch:fencing:lock:{name}")
}
