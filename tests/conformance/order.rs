//! In which order those who wait are served, and what a look tells of them.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use redlatch::{CancelToken, Error, Wait};

use crate::{
    store::{MINUTE, PROMPT, Store, Waiter, crash, sleepy},
    support::{SetOnDrop, millis, wait_until},
};

pub fn fair_waiters_are_served_in_the_order_in_which_they_came_and_newcomers_after_them(store: &Store) {
    // Which client each of them is of: in turn, and several of one client in a row.
    let clients_of_waiters = [0, 1, 0, 1, 1, 0, 0, 0, 1, 1];
    let clients = [store.sleepy_client(), store.sleepy_client()];
    let (holder, served, done) = (store.sleepy_lock(true), Mutex::new(Vec::new()), AtomicBool::new(false));
    let tries = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        let guard = holder.acquire().unwrap();
        for newcomer in [store.sleepy_lock(true), sleepy(&clients[0], true)] {
            let (served, done, tries) = (&served, &done, &tries);
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                while !done.load(Ordering::SeqCst) {
                    if newcomer.try_acquire().unwrap().is_some() {
                        let served: &Vec<_> = &served.lock().unwrap();
                        assert_eq!(served.len(), clients_of_waiters.len(), "it came before {served:?}");
                    }
                    tries.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let waiters: Vec<_> = clients_of_waiters
            .iter()
            .enumerate()
            .map(|(nth, &client)| {
                let (lock, served) = (sleepy(&clients[client], true), &served);
                let waiter = scope.spawn(move || {
                    let guard = lock.acquire_timeout(MINUTE / 2).unwrap();
                    served.lock().unwrap().push(nth);
                    guard.release().unwrap();
                });
                store.wait_for_waiters(&holder, nth + 1);
                waiter
            })
            .collect();
        guard.release().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        let so_far = tries.load(Ordering::SeqCst);
        wait_until("the newcomers to try once more", PROMPT, || {
            tries.load(Ordering::SeqCst) > so_far + 2
        });
    });
    let arrived: Vec<_> = (0..clients_of_waiters.len()).collect();
    assert_eq!(served.into_inner().unwrap(), arrived);
}

pub fn a_newcomer_is_refused_while_somebody_waits_even_if_nobody_holds_it_yet(store: &Store) {
    let (waiting, newcomer) = (store.sleepy_lock(true), store.sleepy_lock(true));
    let mut seen_waiting = 0;
    for _ in 0..5 {
        // Nobody leaves it to the waiter when this ends: the key is free until that has noticed.
        crash(&store.client().timed_lock("x", millis(150)).fair(true));
        let served = AtomicBool::new(false);
        thread::scope(|scope| {
            let _served = SetOnDrop(&served);
            let waiter = scope.spawn(|| {
                let guard = waiting.acquire_timeout(PROMPT).unwrap();
                served.store(true, Ordering::SeqCst);
                guard
            });
            // On a busy machine the lease may end before the wait has begun.
            wait_until("the waiter to wait", PROMPT, || {
                let waits = newcomer.inspect().unwrap().waiters == 1;
                seen_waiting += usize::from(waits);
                waits || served.load(Ordering::SeqCst)
            });
            while !served.load(Ordering::SeqCst) {
                assert!(newcomer.try_acquire().unwrap().is_none());
                let wait = newcomer.acquire_timeout(millis(1));
                assert!(matches!(wait, Err(Error::Timeout { .. })), "{wait:?}");
            }
            let guard = waiter.join().unwrap();
            assert!(newcomer.try_acquire().unwrap().is_none());
            guard.release().unwrap();
        });
        // Nor does its own place, given up a moment ago, stand in its way for long.
        let mut taken = None;
        wait_until("the newcomer to get it", PROMPT, || {
            taken = newcomer.try_acquire().unwrap();
            taken.is_some()
        });
    }
    assert!(seen_waiting > 0, "nobody was seen waiting");
}

pub fn a_place_in_the_order_is_lost_with_the_wait(store: &Store) {
    let (holder, locks) = (store.sleepy_lock(true), [(); 2].map(|()| store.sleepy_lock(true)));
    let guard = holder.acquire().unwrap();
    thread::scope(|scope| {
        let gives_up = Waiter::start(scope, &locks[0]);
        store.wait_for_waiters(&holder, 1);
        let first = Waiter::start(scope, &locks[1]);
        store.wait_for_waiters(&holder, 2);
        gives_up.cancel();
        gives_up.outcome().unwrap_err();
        store.wait_for_waiters(&holder, 1);
        let again = Waiter::start(scope, &locks[0]);
        store.wait_for_waiters(&holder, 2);
        guard.release().unwrap();
        let guard = first.served();
        assert!(!again.has_ended());
        guard.release().unwrap();
        again.served().release().unwrap();
    });
}

pub fn a_look_tells_how_many_wait(store: &Store) {
    for (fair, threads_that_count) in [(false, 1), (true, 3)] {
        let holder = store.sleepy_lock(fair);
        assert_eq!(holder.inspect().unwrap().waiters, 0);
        let (guard, cancel) = (holder.acquire().unwrap(), CancelToken::new());
        thread::scope(|scope| {
            let mut waiting = Vec::new();
            for client in 1..=3 {
                let lock = store.sleepy_lock(fair);
                for _ in 0..3 {
                    let (lock, wait) = (lock.clone(), Wait::at_most(MINUTE / 2).cancelled_by(&cancel));
                    waiting.push(scope.spawn(move || lock.acquire_with(wait).map(drop)));
                }
                store.wait_for_waiters(&holder, client * threads_that_count);
            }
            // A name of its own, and a try, do not count.
            assert!(store.sleepy_lock(fair).try_acquire().unwrap().is_none());
            assert_eq!(store.client().lock("y").inspect().unwrap().waiters, 0);
            let seen = holder.inspect().unwrap();
            assert_eq!((seen.holders.len(), seen.waiters), (1, 3 * threads_that_count));
            cancel.cancel();
            for thread in waiting {
                assert!(matches!(thread.join().unwrap(), Err(Error::Cancelled)));
            }
        });
        store.wait_for_waiters(&holder, 0);
        guard.release().unwrap();
        assert!(holder.inspect().unwrap().is_free());
    }
}
