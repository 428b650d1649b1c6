//! What becomes of a lock that is held while servers fail.

use std::{
    thread,
    time::{Duration, Instant},
};

use redlatch::{Error, LostReason};

use crate::{
    nodes::{BLOWS, Blow, MAX_LEASE, PATIENT, SOON, client, strike, voting},
    support::{Fault, SECOND, SLACK, is_renew, lost, wait_until},
};

#[test]
fn a_lock_outlives_the_failure_of_two_servers_while_it_is_held_and_waited_for() {
    for blow in BLOWS {
        let redlock = voting();
        let (holder, waiter) = (client(&redlock), client(&redlock));
        let guard = holder.lock("x").lease(MAX_LEASE).acquire().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock("x").lease(MAX_LEASE).acquire_timeout(SOON).map(drop));
            strike(&redlock, [1, 3], blow);
            // Renewed by the others, for longer than a lease lasts and than a restarted server is mute.
            let until = Instant::now() + MAX_LEASE * 2;
            while Instant::now() < until {
                guard.check().unwrap_or_else(|error| panic!("{blow:?}: {error:?}"));
                assert!(!waiting.is_finished(), "{blow:?}: two hold it");
                thread::sleep(Duration::from_millis(20));
            }
            guard.extend(MAX_LEASE).unwrap();
            guard.release().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_lock_that_no_majority_renews_is_lost_when_its_lease_ends() {
    for blow in [Blow::Killed, Blow::BlackHoled] {
        let redlock = voting();
        let guard = client(&redlock).lock("x").lease(MAX_LEASE).acquire().unwrap();
        strike(&redlock, 0..3, blow);
        let failed = guard.extend(MAX_LEASE).unwrap_err();
        assert!(matches!(failed, Error::NoQuorum(_)), "{blow:?}: {failed:?}");
        let start = Instant::now();
        assert!(guard.wait_lost(SOON));
        assert!(start.elapsed() <= MAX_LEASE, "{:?}", start.elapsed());
        assert_eq!(lost(guard.check().unwrap_err()), LostReason::Expired);
    }
}

#[test]
fn a_server_that_missed_one_answer_is_asked_again_at_once_by_a_holder_that_needs_it() {
    let redlock = voting();
    // Three have the lock, and all of them are needed.
    for node in &redlock.nodes()[3..] {
        node.run("SET lock:x theirs PX 600000");
    }
    let guard = client(&redlock).timed_lock("x", MAX_LEASE).acquire().unwrap();
    let slow = redlock.proxy(0).on(is_renew).apply(Fault::SwallowReply);
    let start = Instant::now();
    guard.extend(MAX_LEASE).unwrap();
    assert!(start.elapsed() < PATIENT * 2, "{:?}", start.elapsed());
    drop(slow);
    guard.release().unwrap();
}

#[test]
fn a_lock_that_a_majority_forgot_is_lost_at_once_and_granted_to_nobody_before_the_longest_lease_has_passed() {
    let redlock = voting();
    let (holder, other) = (client(&redlock), client(&redlock));
    let guard = holder.lock("x").lease(MAX_LEASE).acquire().unwrap();
    strike(&redlock, 0..3, Blow::RestartedEmpty);
    let restarted = Instant::now();
    let lock = other.lock("x").lease(MAX_LEASE);
    let refused = lock.try_acquire().unwrap_err();
    assert!(matches!(refused, Error::NoQuorum(_)), "{refused:?}");
    assert_eq!(lost(guard.extend(MAX_LEASE).unwrap_err()), LostReason::Deleted);
    drop(lock.acquire_timeout(SOON).unwrap());
    // The servers were up a little before this test knew.
    assert!(restarted.elapsed() + SLACK >= MAX_LEASE, "{:?}", restarted.elapsed());
}

#[test]
fn a_lock_that_a_majority_has_given_to_another_is_taken() {
    let redlock = voting();
    let guard = client(&redlock).lock("x").lease(MAX_LEASE).acquire().unwrap();
    for node in &redlock.nodes()[..3] {
        node.run("SET lock:x theirs PX 60000");
    }
    assert_eq!(lost(guard.extend(MAX_LEASE).unwrap_err()), LostReason::Taken);
    // What is left of it with the others is in the way of nobody.
    wait_until("the rest to be taken away", SOON, || {
        redlock.nodes()[3..].iter().all(|node| node.get("lock:x").is_none())
    });
    drop(guard);
    assert!(
        redlock.nodes()[..3]
            .iter()
            .all(|node| node.get("lock:x").as_deref() == Some("theirs"))
    );
}

#[test]
fn the_lease_of_a_fixed_lock_is_not_renewed_and_ends_on_all_servers() {
    let redlock = voting();
    let guard = client(&redlock).timed_lock("x", SECOND).acquire().unwrap();
    assert!(guard.wait_lost(SOON));
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
    drop(
        client(&redlock)
            .lock("x")
            .lease(MAX_LEASE)
            .acquire_timeout(SOON)
            .unwrap(),
    );
}
