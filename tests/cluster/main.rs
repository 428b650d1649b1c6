//! Locks and semaphores on a Redis Cluster of three masters, each with a replica: slots that move, nodes that die or
//! stop.

mod access;
mod audits;
mod failovers;
mod knocks;
mod migrations;
mod names;
mod reach;
mod several;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use redlatch::{Client, ClientBuilder};
use support::{Cluster, MINUTE, PROMPT, SECOND, Server};

/// How long a failover may take on a busy machine, and what waits for one.
const FAILOVER: Duration = SECOND.saturating_mul(60);

/// A client that is not put off by a machine that is too busy to run servers.
fn builder(cluster: &Cluster) -> ClientBuilder {
    Client::builder()
        .url(cluster.url())
        .connect_timeout(SECOND * 5)
        .command_timeout(SECOND * 10)
}

fn client(cluster: &Cluster) -> Client {
    builder(cluster).build().unwrap()
}

/// A client whose waiters look by themselves once a minute only.
fn sleepy_client(cluster: &Cluster) -> Client {
    builder(cluster).poll_interval(MINUTE).build().unwrap()
}

/// The name of a lock that is on that master now, unlike the others with another `prefix`.
fn lock_on(cluster: &Cluster, master: &Server, prefix: &str) -> String {
    let mut names = (0..).map(|nth| format!("{prefix}{nth}"));
    let is_there = |name: &String| cluster.master_of(format!("lock:{name}")).port() == master.port();
    names.find(is_there).unwrap()
}
