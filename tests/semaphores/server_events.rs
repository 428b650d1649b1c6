//! What happens to permits when something happens to their server.

use std::{sync::mpsc, thread, time::Duration};

use redlatch::{Error, Guard, LostReason, Semaphore};

use crate::{
    corner::{Corner, KEY, SOON, helper},
    support::{Proxy, SECOND, Server, is_acquire, lost, wait_until},
};

/// Takes all of three permits, to be renewed.
fn take_all(semaphore: &Semaphore) -> Vec<Guard> {
    (0..3)
        .map(|_| semaphore.try_acquire().unwrap().expect("free"))
        .collect()
}

#[test]
fn what_was_deleted_is_told_to_all_holders_within_a_lease_and_the_limit_holds_again() {
    type Event = fn(&Server);
    let events: [(&str, Event); 3] = [
        ("a flush", |server| _ = server.run("FLUSHALL")),
        ("a deleted key", |server| _ = server.run(&format!("DEL {KEY}"))),
        ("an empty restart", |server| server.restart_empty()),
    ];
    for (what, event) in events {
        let corner = Corner::new();
        let (sender, losses) = mpsc::channel();
        let lease = SECOND * 3;
        let semaphore = corner
            .semaphore(3)
            .lease(lease)
            .on_lost(move |lost| sender.send(lost.reason).unwrap());
        let guards = take_all(&semaphore);
        let last = guards.iter().map(Guard::fencing_token).max().unwrap();
        event(&corner.server);
        for _ in &guards {
            assert_eq!(losses.recv_timeout(SOON).unwrap(), LostReason::Deleted, "{what}");
        }
        assert_eq!(corner.members(), [""; 0], "{what}: a renewal re-created a permit");
        let next = take_all(&corner.semaphore(3));
        assert!(next.iter().all(|guard| guard.fencing_token() > last), "{what}");
        for guard in guards {
            assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted, "{what}");
        }
        // The releases of what was lost gave nothing back.
        assert!(corner.semaphore(3).try_acquire().unwrap().is_none(), "{what}");
        assert!(next.iter().all(|guard| guard.check().is_ok()), "{what}");
    }
}

#[test]
fn a_release_after_a_flush_tells_the_loss_and_gives_nothing_back() {
    let corner = Corner::new();
    let guard = corner.semaphore(3).permits(2).acquire().unwrap();
    corner.server.run("FLUSHALL");
    let others = take_all(&corner.semaphore(3));
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    assert_eq!(corner.semaphore(3).available().unwrap(), 0);
    drop(others);
    corner.assert_all_are_free(3);
}

#[test]
fn a_limit_that_was_deleted_is_declared_again_by_the_next_grant_and_costs_no_permit() {
    let corner = Corner::new();
    let semaphore = corner.semaphore(3).lease(SECOND * 3 / 2);
    semaphore.set_limit(2).unwrap();
    let guards = [(); 2].map(|()| semaphore.acquire().unwrap());
    corner.server.run(&format!("DEL {}", helper("limit")));
    // Whoever holds permits goes on, and is counted.
    assert!(!guards[0].wait_lost(SECOND * 2));
    assert!(guards[1].is_held());
    // What was set is lost; what is declared governs.
    let third = corner.semaphore(3).acquire().unwrap();
    assert!(corner.semaphore(3).try_acquire().unwrap().is_none());
    assert_eq!(corner.server.get(&helper("limit")).as_deref(), Some("3 3"));
    assert!(matches!(
        corner.semaphore(4).try_acquire(),
        Err(Error::LimitMismatch {
            declared: 4,
            stored: 3,
            ..
        })
    ));
    third.release().unwrap();
    guards.into_iter().for_each(|guard| guard.release().unwrap());
}

#[test]
fn a_restart_with_the_data_costs_no_permit() {
    let corner = Corner::new();
    let semaphore = corner.semaphore(3).lease(SECOND * 10);
    let guards = [1, 2].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
    corner.server.run("SAVE");
    corner.server.restart();
    assert!(corner.semaphore(3).try_acquire().unwrap().is_none());
    for guard in guards {
        guard.extend(SECOND * 20).unwrap();
        guard.release().unwrap();
    }
    corner.assert_all_are_free(3);
}

#[test]
fn a_snapshot_may_bring_back_permits_but_not_for_longer_than_their_leases() {
    let corner = Corner::new();
    let lease = SECOND * 3;
    let guards = [(); 2].map(|()| corner.semaphore(2).timed(lease).acquire().unwrap());
    let last = guards[1].fencing_token();
    corner.server.save_snapshot();
    guards.into_iter().for_each(|guard| guard.release().unwrap());
    corner.server.restart_from_snapshot();
    let next = corner.semaphore(2).permits(2).acquire_timeout(lease * 5).unwrap();
    assert!(next.fencing_token() > last);
}

#[test]
fn scripts_may_be_flushed_between_any_two_operations() {
    let corner = Corner::new();
    let flush = || corner.server.run("SCRIPT FLUSH");
    let semaphore = corner.semaphore(3).permits(2).lease(SECOND * 3 / 2);
    flush();
    let guard = semaphore.acquire().unwrap();
    flush();
    assert!(!guard.wait_lost(SECOND * 2), "a renewal met an unknown script");
    flush();
    guard.extend(SECOND * 3).unwrap();
    flush();
    semaphore.set_limit(4).unwrap();
    flush();
    assert_eq!(semaphore.available().unwrap(), 2);
    flush();
    semaphore.set_limit(3).unwrap();
    flush();
    guard.release().unwrap();
    flush();
    assert!(!semaphore.force_release().unwrap());
    corner.assert_all_are_free(3);
}

#[test]
fn without_memory_permits_are_renewed_extended_and_released_and_grants_wait() {
    let corner = Corner::new();
    let semaphore = corner.semaphore(3).lease(SECOND * 3 / 2);
    let [renewed, kept, released] = <[Guard; 3]>::try_from(take_all(&semaphore)).unwrap();
    // One with a lease so long that the key needs no longer TTL because of the others.
    kept.extend(SECOND * 60).unwrap();
    let proxy = Proxy::to(&corner.server);
    let attempts = proxy.on(is_acquire).watch();
    corner.server.run("CONFIG SET maxmemory 1");
    assert!(!renewed.wait_lost(SECOND * 3), "{:?}", renewed.check());
    renewed.extend(SECOND * 5).unwrap();
    released.release().unwrap();
    assert_eq!(corner.members().len(), 2);
    assert!(matches!(semaphore.try_acquire(), Err(Error::Server(_))));
    thread::scope(|scope| {
        let waiter = crate::corner::client_at(proxy.url()).semaphore("x", 3);
        let waiting = scope.spawn(move || waiter.acquire_timeout(SECOND * 30).unwrap().release());
        // There is no third before the second has its answer.
        attempts.wait_seen(3, SOON);
        assert_eq!(corner.members().len(), 2);
        corner.server.run("CONFIG SET maxmemory 0");
        waiting.join().unwrap().unwrap();
    });
    renewed.release().unwrap();
    kept.release().unwrap();
    corner.assert_all_are_free(3);
}

#[test]
fn a_release_without_memory_serves_those_who_wait() {
    let corner = Corner::new();
    let guards = take_all(&corner.semaphore(3));
    let waiter = corner.semaphore(3);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.acquire_timeout(SECOND * 30).map(drop));
        wait_until("it to wait", SOON, || waiter.inspect().unwrap().waiters == 1);
        corner.server.run("CONFIG SET maxmemory 1");
        guards.into_iter().for_each(|guard| guard.release().unwrap());
        // It is left a permit; to take it needs memory, as every grant does.
        assert_eq!(waiter.inspect().unwrap().reserved, 1);
        corner.server.run("CONFIG SET maxmemory 0");
        waiting.join().unwrap().unwrap();
    });
    corner.assert_all_are_free(3);
}

#[test]
fn renewal_resumes_after_an_outage_longer_than_a_lease() {
    type Meddle = fn(&Server, &Proxy);
    let partitions: [(&str, Meddle, Meddle); 3] = [
        (
            "stopped",
            |server, _| server.stop_process(),
            |server, _| server.continue_process(),
        ),
        ("cut off", |_, proxy| proxy.go_down(), |_, proxy| proxy.go_up()),
        (
            "swallowed",
            |_, proxy| proxy.black_hole(true),
            |_, proxy| proxy.black_hole(false),
        ),
    ];
    thread::scope(|scope| {
        for (what, begin, end) in partitions {
            scope.spawn(move || outlast(what, begin, end));
        }
    });
}

/// Holds permits through an outage that is longer than their lease, and others afterwards.
fn outlast(what: &str, begin: impl FnOnce(&Server, &Proxy), end: impl FnOnce(&Server, &Proxy)) {
    let corner = Corner::new();
    let semaphore = corner.behind(3).permits(2).lease(SECOND);
    let guard = semaphore.acquire().unwrap();
    begin(&corner.server, &corner.proxy);
    assert!(guard.wait_lost(SOON), "{what}");
    end(&corner.server, &corner.proxy);
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired, "{what}");
    let guard = semaphore.acquire_timeout(SOON).unwrap();
    assert!(!guard.wait_lost(SECOND * 3), "{what}");
    guard.release().unwrap();
    corner.assert_all_are_free(3);
}

#[test]
fn a_lease_counts_from_the_grant_however_long_the_wait_was() {
    let corner = Corner::new();
    let lease = SECOND;
    let held = corner.semaphore(1).acquire().unwrap();
    let semaphore = corner.semaphore(1).timed(lease);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(SECOND * 30).unwrap().remaining());
        assert!(!held.wait_lost(lease * 3 / 2));
        held.release().unwrap();
        assert!(waiting.join().unwrap() > Duration::ZERO);
    });
}
