//! Servers that were away get what they lack, and lose what they should not have.

use crate::{
    nodes::{MAX_LEASE, SOON, client, fencing_key, standing, voting, wait_until_gone},
    support::{SECOND, wait_until},
};

#[test]
fn a_lock_is_put_on_the_servers_that_were_away_when_it_was_granted() {
    for fixed in [true, false] {
        let redlock = voting();
        let client = client(&redlock);
        for nth in [1, 4] {
            redlock.proxy(nth).go_down();
        }
        let lock = if fixed {
            client.timed_lock("x", MAX_LEASE)
        } else {
            client.lock("x").lease(MAX_LEASE)
        };
        let guard = lock.acquire().unwrap();
        assert_eq!(standing(&redlock, &[0, 1, 2, 3, 4], "lock:x"), 3);
        for nth in [1, 4] {
            redlock.proxy(nth).go_up();
        }
        wait_until("the lock to be filled in", MAX_LEASE, || {
            standing(&redlock, &[1, 4], "lock:x") == 2
        });
        for nth in [1, 4] {
            let node = redlock.node(nth);
            assert_eq!(node.get("lock:x").as_deref(), Some(guard.token()));
            assert!(node.ttl("lock:x").unwrap() <= MAX_LEASE);
            let counter: u64 = node.get(&fencing_key("x")).unwrap().parse().unwrap();
            assert!(counter >= guard.fencing_token());
        }
        guard.release().unwrap();
        wait_until_gone(&redlock, &[0, 1, 2, 3, 4], "lock:x", SOON);
    }
}

#[test]
fn a_lock_is_put_on_a_server_that_has_lost_it() {
    let redlock = voting();
    let guard = client(&redlock).lock("x").lease(MAX_LEASE).acquire().unwrap();
    redlock.node(2).run("DEL lock:x");
    wait_until("the lock to be filled in", SOON, || {
        redlock.node(2).get("lock:x").is_some()
    });
    assert_eq!(redlock.node(2).get("lock:x").as_deref(), Some(guard.token()));
    guard.release().unwrap();
    wait_until_gone(&redlock, &[0, 1, 2, 3, 4], "lock:x", SOON);
}

#[test]
fn a_lock_without_a_majority_is_put_nowhere() {
    let redlock = voting();
    redlock.proxy(4).go_down();
    let guard = client(&redlock).timed_lock("x", MAX_LEASE).acquire().unwrap();
    for node in &redlock.nodes()[..3] {
        node.run("DEL lock:x");
    }
    redlock.proxy(4).go_up();
    let until = std::time::Instant::now() + SECOND * 2;
    while std::time::Instant::now() < until {
        assert_eq!(redlock.node(4).get("lock:x"), None);
    }
    drop(guard);
    wait_until_gone(&redlock, &[0, 1, 2, 3, 4], "lock:x", SOON);
}
