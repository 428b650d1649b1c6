//! What stands at the server is taken away under those who hold permits or wait for them.

use std::{thread, time::Instant};

use redlatch::{Error, LostReason};

use crate::{
    holders::{assert_told, three_of_four},
    store::{PROMPT, Store, Waiter, assert_free, sleepy_permits},
    support::{SECOND, lost, millis},
};

pub fn deleted_holders_are_told_and_the_count_is_right_again(store: &Store) {
    let (guards, losses) = three_of_four(store);
    store.delete_holders();
    assert_eq!(store.semaphore(4).available().unwrap(), 4);
    assert_told(store, 4, guards, &losses);
}

pub fn holders_of_what_was_flushed_are_told_and_the_count_is_right_again(store: &Store) {
    let (guards, losses) = three_of_four(store);
    store.semaphore(4).set_limit(9).unwrap();
    store.wipe();
    // With the limit that was set.
    assert_eq!(store.semaphore(4).available().unwrap(), 4);
    assert_told(store, 4, guards, &losses);
}

pub fn late_releases_after_a_flush_leave_the_others_alone(store: &Store) {
    let semaphore = store.sleepy_semaphore(2);
    let guards = [(); 2].map(|()| semaphore.acquire().unwrap());
    store.wipe();
    let two = store
        .sleepy_semaphore(2)
        .permits(2)
        .try_acquire()
        .unwrap()
        .expect("all gone");
    for guard in guards {
        assert!(guard.fencing_token() < two.fencing_token());
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
        assert_eq!(semaphore.available().unwrap(), 0);
    }
    two.release().unwrap();
}

pub fn waiters_of_what_was_flushed_are_served_at_their_next_look(store: &Store) {
    let client = store.client_with(|builder| builder.poll_interval(millis(300)));
    for fair in [false, true] {
        let semaphore = sleepy_permits(&client, 2).fair(fair);
        let guard = store.sleepy_semaphore(2).permits(2).acquire().unwrap();
        thread::scope(|scope| {
            let waiters = [(); 2].map(|()| Waiter::start(scope, &semaphore));
            store.wait_for_waiters(&semaphore, if fair { 2 } else { 1 });
            store.wipe();
            let wiped = Instant::now();
            let served = waiters.map(Waiter::served);
            assert!(wiped.elapsed() <= PROMPT, "{:?}", wiped.elapsed());
            assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
            drop(served);
        });
        assert_free(&semaphore, 2);
    }
}

pub fn a_waiter_is_told_when_others_have_declared_another_limit_meanwhile(store: &Store) {
    let client = store.client_with(|builder| builder.poll_interval(millis(100)));
    let semaphore = client.semaphore("x", 2);
    let _held = store.sleepy_semaphore(2).permits(2).acquire().unwrap();
    thread::scope(|scope| {
        let waiter = Waiter::start(scope, &semaphore);
        store.wait_for_waiters(&semaphore, 1);
        store.wipe();
        // Whichever comes first declares it.
        match store.semaphore(1).try_acquire() {
            Ok(Some(_held)) => {
                let error = waiter.outcome().unwrap_err();
                assert!(
                    matches!(
                        error,
                        Error::LimitMismatch {
                            declared: 2,
                            stored: 1,
                            ..
                        }
                    ),
                    "{error:?}"
                );
            }
            other => {
                assert!(matches!(
                    other,
                    Err(Error::LimitMismatch {
                        declared: 1,
                        stored: 2,
                        ..
                    })
                ));
                waiter.served().release().unwrap();
            }
        }
    });
}

pub fn the_limit_is_declared_anew_by_a_grant_after_a_flush(store: &Store) {
    let semaphore = store.semaphore(3);
    let guard = semaphore.clone().lease(SECOND).acquire().unwrap();
    store.wipe();
    let one = store.semaphore(1).try_acquire().unwrap().expect("all gone");
    assert!(guard.wait_lost(PROMPT));
    let mismatch = semaphore.try_acquire().unwrap_err();
    assert!(
        matches!(
            mismatch,
            Error::LimitMismatch {
                declared: 3,
                stored: 1,
                ..
            }
        ),
        "{mismatch:?}"
    );
    drop(guard);
    one.release().unwrap();
}
