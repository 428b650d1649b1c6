//! A server that may have lost its memory has no vote until the longest lease has passed.

use std::time::{Duration, Instant};

use redlatch::Error;

use crate::{
    nodes::{Blow, MAX_LEASE, SOON, builder, client, strike, voting, wait_until_gone},
    support::{Redlock, SLACK, chain, wait_until},
};

#[test]
fn a_fresh_deployment_grants_nothing_before_the_longest_lease_has_passed_and_says_so() {
    let redlock = Redlock::start_behind_proxies();
    let started = Instant::now();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    let refused = lock.try_acquire().unwrap_err();
    assert!(matches!(refused, Error::NoQuorum(_)), "{refused:?}");
    let said = chain(&refused);
    assert!(said.contains("lost its memory") && said.contains("counts in"), "{said}");
    drop(lock.acquire_timeout(SOON).unwrap());
    assert!(started.elapsed() + SLACK >= MAX_LEASE, "{:?}", started.elapsed());
}

#[test]
fn a_server_that_was_restarted_empty_does_not_help_a_second_holder() {
    let redlock = voting();
    for nth in [3, 4] {
        redlock.proxy(nth).go_down();
    }
    let guard = client(&redlock).timed_lock("x", MAX_LEASE).acquire().unwrap();
    // What would be a majority without the lock, if the restarted one had a vote.
    strike(&redlock, [2], Blow::RestartedEmpty);
    for nth in [3, 4] {
        redlock.proxy(nth).go_up();
    }
    let other = builder(redlock.url()).build().unwrap().lock("x").lease(MAX_LEASE);
    for nth in [0, 1] {
        redlock.proxy(nth).go_down();
    }
    while guard.is_held() {
        let attempt = other.try_acquire();
        assert!(!matches!(attempt, Ok(Some(_))) || !guard.is_held(), "two hold it");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(other.acquire_timeout(SOON).unwrap());
}

#[test]
fn the_least_permissions_are_enough() {
    let redlock = voting();
    for node in redlock.nodes() {
        node.run(
            "ACL SETUSER app on >secret1 ~lock:* ~{lock:*}:redlatch:* +evalsha +eval +time +get +set +pttl +pexpire +del \
             +zcard +info",
        );
    }
    redlock.proxy(4).go_down();
    let url = redlock.url().replace("redlock://", "redlock://app:secret1@");
    let lock = builder(url).build().unwrap().lock("x").lease(MAX_LEASE);
    let guard = lock.acquire().unwrap();
    guard.extend(MAX_LEASE).unwrap();
    redlock.proxy(4).go_up();
    wait_until("the lock to be filled in", SOON, || {
        redlock.node(4).get("lock:x").is_some()
    });
    guard.release().unwrap();
    lock.acquire().unwrap().release().unwrap();
    wait_until_gone(&redlock, &[0, 1, 2, 3, 4], "lock:x", SOON);
}

#[test]
fn who_may_not_ask_for_the_uptime_is_told() {
    let redlock = voting();
    for node in redlock.nodes() {
        node.run("ACL SETUSER app on >secret1 ~* &* +@all -info");
    }
    let url = redlock.url().replace("redlock://", "redlock://app:secret1@");
    let refused = builder(url)
        .build()
        .unwrap()
        .lock("x")
        .lease(MAX_LEASE)
        .acquire()
        .unwrap_err();
    assert!(matches!(refused, Error::Server(_)), "{refused:?}");
    assert!(
        chain(&refused).contains("permission to run the command `info`"),
        "{refused:?}"
    );
}
