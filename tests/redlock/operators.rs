//! Looking at locks, forcing them, auditing.

use redlatch::{Error, Expiry, LostReason};

use crate::{
    nodes::{MAX_LEASE, SOON, client, voting, wait_until_gone},
    support::lost,
};

#[test]
fn a_look_shows_whoever_has_a_majority_with_the_end_of_the_weakest_of_it() {
    let redlock = voting();
    let lock = client(&redlock).timed_lock("x", MAX_LEASE);
    assert!(lock.inspect().unwrap().is_free());
    let guard = lock.acquire().unwrap();
    let seen = lock.inspect().unwrap();
    assert_eq!(seen.holders[0].token, guard.token().as_bytes());
    assert_eq!(seen.fencing_token, Some(guard.fencing_token()));
    assert!(matches!(seen.holders[0].expiry, Expiry::In(left) if left <= MAX_LEASE));
    for (node, millis) in redlock.nodes().iter().zip([100_000, 90_000, 80_000, 70_000, 60_000]) {
        node.run(&format!("PEXPIRE lock:x {millis}"));
    }
    let Expiry::In(left) = lock.inspect().unwrap().holders[0].expiry else {
        panic!("it has an end");
    };
    assert!((70_000..=80_000).contains(&left.as_millis()), "{left:?}");
    // A minority holds nothing.
    for node in &redlock.nodes()[..3] {
        node.run("DEL lock:x");
    }
    assert!(lock.inspect().unwrap().is_free());
    // Unless the others may have it too.
    redlock.proxy(0).go_down();
    assert_eq!(lock.inspect().unwrap().holders.len(), 1);
    redlock.proxy(1).go_down();
    redlock.proxy(2).go_down();
    assert!(matches!(lock.inspect(), Err(Error::NoQuorum(_))));
}

#[test]
fn a_forced_release_is_of_all_servers_and_the_holder_is_told() {
    let redlock = voting();
    let (holder, operator) = (client(&redlock), client(&redlock));
    let guard = holder.lock("x").lease(MAX_LEASE).acquire().unwrap();
    assert!(operator.lock("x").lease(MAX_LEASE).force_release().unwrap());
    wait_until_gone(&redlock, &[0, 1, 2, 3, 4], "lock:x", SOON);
    assert!(guard.wait_lost(SOON));
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    assert!(!operator.lock("x").lease(MAX_LEASE).force_release().unwrap());
}

#[test]
fn an_audit_finds_what_any_server_has_and_tells_it_once() {
    let redlock = voting();
    for node in &redlock.nodes()[1..4] {
        node.run("SET lock:eternal theirs");
    }
    redlock.node(4).run("SET lock:alone theirs");
    let client = client(&redlock);
    let guard = client.lock("held").lease(MAX_LEASE).acquire().unwrap();
    let mut found: Vec<_> = client
        .audit("lock:*")
        .unwrap()
        .map(|found| found.unwrap().key)
        .collect();
    found.sort();
    assert_eq!(found, [&b"lock:alone"[..], b"lock:eternal"]);
    drop(guard);
}
