//! What a Redlock does not do is refused before anything is sent: these clients have no servers.

use redlatch::{Client, Error};

use crate::{
    nodes::{MAX_LEASE, builder},
    support::{SECOND, chain, millis},
};

/// Nobody listens there.
const NOWHERE: &str = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";

#[track_caller]
fn assert_unsupported<T>(result: Result<T, Error>, why: &str) {
    match result.err() {
        Some(Error::Unsupported(said)) => assert!(said.contains(why), "{said}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn semaphores_fairness_and_hand_overs_are_refused_with_the_reason() {
    let client = builder(NOWHERE.into()).build().unwrap();
    let lock = || client.lock("x").lease(SECOND);
    assert_unsupported(client.semaphore("x", 2).acquire(), "semaphore");
    assert_unsupported(client.semaphore("x", 2).inspect(), "semaphore");
    assert_unsupported(client.semaphore("x", 2).set_limit(3), "semaphore");
    assert_unsupported(lock().fair(true).acquire(), "fair");
    assert_unsupported(lock().handoffs(1).acquire(), "hand-over");
    // It asks for nothing of the kind by itself.
    let refused = lock().try_acquire().unwrap_err();
    assert!(matches!(refused, Error::Connection(_)), "{refused:?}");
}

#[test]
fn leases_longer_than_the_longest_are_refused() {
    let client = builder(NOWHERE.into()).build().unwrap();
    for lock in [
        client.lock("x").lease(MAX_LEASE + millis(1)),
        client.timed_lock("x", MAX_LEASE * 2),
    ] {
        let refused = lock.try_acquire().unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{refused:?}");
        assert!(refused.to_string().contains("max_lease"), "{refused}");
    }
    // One that sets none has what there is.
    assert!(matches!(client.lock("x").try_acquire(), Err(Error::Connection(_))));
    // The first is cut to what may be had of it.
    let cut = client.lock("x").lease(MAX_LEASE * 2).max_hold(SECOND).try_acquire();
    assert!(matches!(cut, Err(Error::Connection(_))), "{cut:?}");
}

#[test]
fn settings_and_urls_that_cannot_work_are_refused() {
    for url in [
        "redlock://a",
        "redlock://a,b",
        "redlock://a,b,a",
        "redlock://a,b,a:6379",
        "redlock://a,,b",
        "redlock://a,b,c?x=1",
        "redlock://a,b,c/x",
    ] {
        let refused = Client::open(url).unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument(_)), "{url}: {refused:?}");
    }
    Client::open("redlock://user:pass@a,b:7000,[::1]:7001/2").unwrap();
    let refused = [
        Client::builder().max_lease(millis(1)).build(),
        Client::builder().node_timeout(millis(0)).build(),
        Client::builder().node_timeout(SECOND * 7200).build(),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    }
}

#[test]
fn servers_that_are_all_away_are_told_at_once_each_with_its_reason() {
    let client = builder(NOWHERE.into()).build().unwrap();
    let refused = client.lock("x").lease(SECOND).acquire().unwrap_err();
    assert!(matches!(refused, Error::Connection(_)), "{refused:?}");
    let said = chain(&refused);
    for port in 1..=3 {
        assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
    }
    assert!(said.contains("refused"), "{said}");
}
