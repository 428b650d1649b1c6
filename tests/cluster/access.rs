//! Users with few permissions, TLS, and clusters that are just being made.

use std::{thread, time::Instant};

use redlatch::{Client, Error};

use crate::{
    FAILOVER, MINUTE, PROMPT, builder,
    support::{Cluster, ReservedPort, SECOND, Server, chain, wait_until},
};

const SECRET: &str = "correcthorsebatterystaple";

/// What the README says that a user needs: on one server, and in a cluster as well.
fn permissions() -> (String, Vec<&'static str>) {
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("redis-cli ACL SETUSER app reset on ").unwrap();
    let (command, _) = rest.split_once("```").unwrap();
    let words = command.split_whitespace().map(|word| word.trim_matches('\''));
    let words: Vec<&str> = words.filter(|word| word.starts_with(['~', '&', '+'])).collect();
    let (_, rest) = readme.split_once("- With a cluster also ").unwrap();
    let (more, _) = rest.split_once('.').unwrap();
    (
        words.join(" "),
        more.split('`').filter(|word| word.starts_with('+')).collect(),
    )
}

/// A client of a user who has these permissions only, at every node.
fn client_of(cluster: &Cluster, permissions: &str) -> Client {
    for node in cluster.servers() {
        node.run(&format!("ACL SETUSER app reset on >{SECRET} {permissions}"));
    }
    let url = cluster
        .url()
        .replace("redis-cluster://", &format!("redis-cluster://app:{SECRET}@"));
    builder(cluster).url(url).build().unwrap()
}

#[test]
fn the_least_permissions_are_enough_and_a_missing_one_is_named() {
    let cluster = Cluster::start();
    let (least, in_cluster) = permissions();
    assert_eq!(in_cluster, ["+cluster|slots", "+asking"]);
    let with = |more: &[&str]| client_of(&cluster, &format!("{least} {}", more.join(" ")));

    let error = with(&[]).lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(chain(&error).contains("`cluster|slots`"), "{error:?}");

    let client = with(&in_cluster);
    let lock = client.lock("x").lease(MINUTE);
    let guard = lock.acquire().unwrap();
    let other = with(&in_cluster);
    let waiting = thread::spawn(move || other.lock("x").acquire_timeout(FAILOVER).unwrap().release());
    wait_until("a waiter", PROMPT, || lock.inspect().unwrap().waiters == 1);
    let migration = cluster.begin_migration("lock:x", cluster.another_master_than_of("lock:x"));
    migration.move_keys();
    guard.extend(MINUTE * 2).unwrap();
    with(&in_cluster[..1]);
    let error = guard.extend(MINUTE * 3).unwrap_err();
    assert!(chain(&error).contains("`asking`"), "{error:?}");
    with(&in_cluster);
    migration.finish();
    guard.release().unwrap();
    waiting.join().unwrap().unwrap();
    client.semaphore("x", 2).acquire().unwrap().release().unwrap();
}

/// What makes a server the only node of a cluster, once it has the slots. `bus` is a free port.
fn lone_node(bus: &str) -> [&str; 4] {
    ["--cluster-enabled", "yes", "--cluster-port", bus]
}

#[test]
fn a_cluster_that_is_just_being_made_is_waited_for() {
    let bus = ReservedPort::reserve().unwrap();
    let node = Server::start_with(&lone_node(&bus.number().to_string()));
    let client = Client::open(format!("redis-cluster://127.0.0.1:{}", node.port())).unwrap();
    let start = Instant::now();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(start.elapsed() < PROMPT);
    let lock = client.lock("x");
    let waiting = thread::spawn(move || lock.acquire_timeout(FAILOVER).unwrap().release());
    thread::sleep(SECOND);
    assert!(!waiting.is_finished());
    node.run("CLUSTER ADDSLOTSRANGE 0 16383");
    waiting.join().unwrap().unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn nodes_may_be_spoken_to_over_tls_and_need_not_know_their_own_host() {
    let reserved = ReservedPort::reserve().unwrap();
    // Or the nodes tell each other, and everybody, of their ports for plain text.
    let bus = reserved.number().to_string();
    let settings = [&lone_node(&bus)[..], &["--tls-cluster", "yes"]].concat();
    let Some(node) = crate::support::tls::TlsServer::start_with(&settings) else {
        return;
    };
    node.plain().run("CLUSTER ADDSLOTSRANGE 0 16383");
    let builder = node.builder().url(format!("redis-cluster://127.0.0.1:{}", node.port()));
    let client = builder.tls(true).poll_interval(MINUTE).build().unwrap();
    let lock = client.lock("x").lease(MINUTE);
    let guard = lock.acquire_timeout(FAILOVER).unwrap();
    let waiting = thread::spawn({
        let lock = client.lock("x").lease(MINUTE).fair(true);
        move || lock.acquire_timeout(FAILOVER).map(|guard| (guard, Instant::now()))
    });
    wait_until("a waiter", PROMPT, || lock.inspect().unwrap().waiters == 1);
    let released = Instant::now();
    guard.release().unwrap();
    let (next, at) = waiting.join().unwrap().unwrap();
    assert!(at - released < PROMPT);
    next.release().unwrap();
}
