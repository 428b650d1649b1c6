//! Several holders side by side: each with a lease of its own, and what becomes of it.

use std::{
    collections::HashSet,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Expiry, Guard, LostReason, Semaphore};

use crate::{
    store::{MINUTE, PROMPT, Store, Waiter, crash},
    support::{SECOND, lost, millis, wait_until},
};

/// How much longer the server lets `guard` have its permits: up to 1 ms longer than it was asked, in whole ones.
#[track_caller]
fn left_at_the_server(semaphore: &Semaphore, guard: &Guard) -> Duration {
    let holders = semaphore.holders().unwrap();
    let holder = holders
        .iter()
        .find(|holder| holder.token == guard.token().as_bytes())
        .unwrap_or_else(|| panic!("{guard:?} is not among {holders:?}"));
    match holder.expiry {
        Expiry::In(left) => left,
        Expiry::Never => panic!("{holder:?}"),
    }
}

pub fn a_crashed_holders_permits_are_free_within_its_own_lease_whatever_those_of_others(store: &Store) {
    let short = millis(700);
    for short_first in [true, false] {
        let looks = store.sleepy_semaphore(3);
        let start = Instant::now();
        let crash_short = || crash(&store.semaphore(3).permits(2).timed(short));
        let crashed = short_first.then(crash_short);
        let long = store.semaphore(3).timed(MINUTE).acquire().unwrap();
        let crashed = crashed.unwrap_or_else(crash_short);
        thread::scope(|scope| {
            let waiter = Waiter::start(scope, &store.sleepy_semaphore(3).permits(2));
            let guard = waiter.served();
            let took = start.elapsed();
            assert!(took >= short - millis(1) && took <= PROMPT, "{took:?}");
            assert!(guard.fencing_token() > crashed);
            assert_eq!(looks.available().unwrap(), 0, "the long one is still held");
            assert!(left_at_the_server(&looks, &long) > MINUTE / 2);
            guard.release().unwrap();
        });
        assert_eq!(looks.available().unwrap(), 2);
        long.release().unwrap();
    }
}

pub fn all_permits_of_crashed_holders_come_back_within_their_leases(store: &Store) {
    let (lease, limit) = (millis(500), 4);
    let semaphore = store.semaphore(limit);
    for _ in 0..limit {
        crash(&store.semaphore(limit).timed(lease));
    }
    let start = Instant::now();
    assert!(semaphore.try_acquire().unwrap().is_none());
    let all = store
        .sleepy_semaphore(limit)
        .permits(limit)
        .acquire_timeout(PROMPT)
        .unwrap();
    assert!(start.elapsed() <= lease + PROMPT, "{:?}", start.elapsed());
    all.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), limit);
}

pub fn handles_with_other_settings_share_the_permits_and_keep_their_leases(store: &Store) {
    let client = store.client();
    let short = client.semaphore("x", 3).lease(SECOND * 5);
    let others = [
        short.clone().lease(SECOND * 100),
        short.clone().timed(SECOND * 20),
        short.clone().max_hold(SECOND * 3),
    ];
    let leases = [SECOND * 100, SECOND * 20, SECOND * 3];
    let guards = others
        .each_ref()
        .map(|semaphore| semaphore.try_acquire().unwrap().expect("free"));
    assert!(short.try_acquire().unwrap().is_none());
    for (guard, lease) in guards.iter().zip(leases) {
        let at_the_server = left_at_the_server(&short, guard);
        assert!(
            at_the_server > lease / 2 && at_the_server <= lease + millis(1),
            "{at_the_server:?} of {lease:?}"
        );
        assert!(guard.remaining() <= lease);
    }
    drop(guards);
    let own = short.acquire().unwrap();
    assert!(left_at_the_server(&short, &own) <= SECOND * 5 + millis(1));
}

pub fn an_extension_is_of_all_permits_of_one_holder_and_of_no_other(store: &Store) {
    let semaphore = store.semaphore(4);
    let other = semaphore.clone().timed(SECOND).acquire().unwrap();
    let guard = semaphore.clone().permits(3).timed(SECOND).acquire().unwrap();
    guard.extend(MINUTE).unwrap();
    guard.extend(SECOND).unwrap();
    assert!(guard.remaining() > MINUTE / 2, "not shortened");
    assert!(left_at_the_server(&semaphore, &other) <= SECOND + millis(1));
    assert!(left_at_the_server(&semaphore, &guard) > MINUTE / 2);
    assert!(other.wait_lost(PROMPT));
    wait_until("the other's permit to be free", PROMPT, || {
        semaphore.available().unwrap() == 1
    });
    let [holder] = &semaphore.holders().unwrap()[..] else {
        panic!("{:?}", semaphore.holders());
    };
    assert_eq!(holder.permits, 3);
    assert_eq!(lost(other.extend(MINUTE).unwrap_err()), LostReason::Expired);
    assert_eq!(
        semaphore.available().unwrap(),
        1,
        "nothing comes back to one that is over"
    );
    guard.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), 4);
}

pub fn each_lease_is_renewed_or_ends_by_its_own_settings_and_only_its_own_callback_is_told(store: &Store) {
    let (sender, losses) = mpsc::channel();
    let semaphore = store.semaphore(6);
    let told = |semaphore: Semaphore, which: &'static str| {
        let sender = sender.clone();
        semaphore.on_lost(move |lost| sender.send((which, lost.reason, lost.fencing_token)).unwrap())
    };
    let max_hold = millis(1_500);
    let guards = [
        told(semaphore.clone().permits(2).timed(millis(400)), "timed"),
        told(semaphore.clone().permits(2).lease(SECOND).max_hold(max_hold), "to end"),
        told(semaphore.clone().permits(2).lease(SECOND * 2), "renewed"),
    ]
    .map(|semaphore| semaphore.acquire().unwrap());
    assert_eq!(semaphore.available().unwrap(), 0);
    let [timed, to_end, renewed] = &guards;
    let expected = [
        ("timed", LostReason::Expired, timed.fencing_token()),
        ("to end", LostReason::MaxHold, to_end.fencing_token()),
    ];
    for loss in expected {
        assert_eq!(losses.recv_timeout(PROMPT), Ok(loss));
    }
    assert!(!renewed.wait_lost(SECOND * 2));
    wait_until("four permits to be free", PROMPT, || {
        semaphore.available().unwrap() == 4
    });
    let [timed, to_end, renewed] = guards;
    assert_eq!(lost(timed.release().unwrap_err()), LostReason::Expired);
    assert_eq!(lost(to_end.release().unwrap_err()), LostReason::MaxHold);
    assert_eq!(semaphore.available().unwrap(), 4, "they had nothing left to give back");
    renewed.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), 6);
    assert!(losses.try_recv().is_err());
}

pub fn a_late_release_gives_back_nothing_of_others(store: &Store) {
    let semaphore = store.semaphore(2);
    let late: Vec<_> = (0..2)
        .map(|_| semaphore.clone().timed(millis(200)).acquire().unwrap())
        .collect();
    late.iter().for_each(|guard| assert!(guard.wait_lost(PROMPT)));
    let two = store.semaphore(2).permits(2).acquire_timeout(PROMPT).unwrap();
    for (nth, guard) in late.into_iter().enumerate() {
        if nth == 0 {
            assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
        } else {
            drop(guard);
        }
        assert_eq!(semaphore.available().unwrap(), 0);
        assert!(semaphore.try_acquire().unwrap().is_none());
    }
    two.extend(MINUTE).unwrap();
    two.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), 2);
}

/// Checks that `guards`, whose permits have been taken from them, are told so in every way, and can give nothing back:
/// others have all of `limit` by now.
pub fn assert_told(store: &Store, limit: u32, guards: Vec<Guard>, losses: &mpsc::Receiver<(u64, LostReason)>) {
    let all = store.semaphore(limit).permits(limit).acquire_timeout(PROMPT).unwrap();
    let robbed: HashSet<_> = guards
        .iter()
        .map(|guard| (guard.fencing_token(), LostReason::Deleted))
        .collect();
    assert!(
        robbed
            .iter()
            .all(|(fencing_token, _)| *fencing_token < all.fencing_token())
    );
    let told: HashSet<_> = guards.iter().map(|_| losses.recv_timeout(PROMPT).unwrap()).collect();
    assert_eq!(told, robbed);
    for (nth, guard) in guards.into_iter().enumerate() {
        assert!(guard.wait_lost(PROMPT));
        assert_eq!(lost(guard.check().unwrap_err()), LostReason::Deleted);
        assert_eq!(lost(guard.extend(MINUTE).unwrap_err()), LostReason::Deleted);
        if nth % 2 == 0 {
            assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
        } else {
            drop(guard);
        }
        assert_eq!(store.semaphore(limit).available().unwrap(), 0);
    }
    all.extend(MINUTE).unwrap();
    all.release().unwrap();
    assert_eq!(store.semaphore(limit).available().unwrap(), limit);
}

/// Holders of three permits of four, of which one is soon renewed, and what is told to their callbacks.
pub fn three_of_four(store: &Store) -> (Vec<Guard>, mpsc::Receiver<(u64, LostReason)>) {
    let (sender, losses) = mpsc::channel();
    let semaphore = store.semaphore(4).lease(SECOND * 2);
    let semaphore = semaphore.on_lost(move |lost| sender.send((lost.fencing_token, lost.reason)).unwrap());
    let guards = [1, 2].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
    (guards.into(), losses)
}

pub fn a_forced_release_throws_out_all_and_each_is_told(store: &Store) {
    let operator = store.semaphore(4);
    assert!(!operator.force_release().unwrap(), "nobody holds any");
    let (guards, losses) = three_of_four(store);
    // Whatever an operator declares.
    assert!(store.semaphore(7).force_release().unwrap());
    assert_eq!(operator.available().unwrap(), 4);
    assert!(!operator.force_release().unwrap());
    assert_told(store, 4, guards, &losses);
}

pub fn a_forced_release_wakes_those_who_wait(store: &Store) {
    let semaphore = store.sleepy_semaphore(3);
    let guards = [1, 2].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
    thread::scope(|scope| {
        let waiters = [1, 2].map(|permits| Waiter::start(scope, &store.sleepy_semaphore(3).permits(permits)));
        store.wait_for_waiters(&semaphore, 2);
        assert!(store.semaphore(3).force_release().unwrap());
        let thrown_out = Instant::now();
        let served = waiters.map(Waiter::served);
        assert!(thrown_out.elapsed() <= PROMPT, "{:?}", thrown_out.elapsed());
        assert_eq!(semaphore.available().unwrap(), 0);
        // They learn of it when they ask.
        for guard in guards {
            assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
        }
        assert_eq!(semaphore.available().unwrap(), 0);
        drop(served);
    });
    assert_eq!(semaphore.available().unwrap(), 3);
}

pub fn permits_released_in_any_order_leave_no_lease_behind(store: &Store) {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let (sender, losses) = mpsc::channel();
        let semaphore = store.semaphore(3).lease(millis(600));
        let semaphore = semaphore.on_lost(move |lost| sender.send(lost.clone()).unwrap());
        let mut guards = [(); 3].map(|()| Some(semaphore.acquire().unwrap()));
        for nth in order {
            guards[nth].take().unwrap().release().unwrap();
        }
        // A renewal that went on would find nothing, and tell.
        assert!(losses.recv_timeout(millis(600)).is_err());
        assert_eq!(semaphore.available().unwrap(), 3);
    }
}
