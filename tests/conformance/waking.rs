//! That whoever waits is woken, and that whoever gives up is in nobody's way.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use redlatch::{Error, Guard};

use crate::{
    exclusive::Lock,
    store::{MINUTE, PROMPT, Store, Waiter, crash, sleepy},
    support::{SECOND, SetOnDrop, lost, millis, wait_until},
};

pub fn however_a_hold_ends_a_waiter_of_another_client_is_woken(store: &Store) {
    type End = fn(&Lock, &dyn Fn());
    let ends: [(&str, End); 5] = [
        ("a release", |lock, wait_for_waiter| {
            let guard = lock.acquire().unwrap();
            wait_for_waiter();
            guard.release().unwrap();
        }),
        ("a drop", |lock, wait_for_waiter| {
            let _guard = lock.acquire().unwrap();
            wait_for_waiter();
        }),
        ("the end of a closure", |lock, wait_for_waiter| {
            lock.with_lock(wait_for_waiter).unwrap();
        }),
        ("a panic", |lock, wait_for_waiter| {
            let panics = || {
                wait_for_waiter();
                panic!("in the closure");
            };
            catch_unwind(AssertUnwindSafe(|| lock.with_lock(panics))).unwrap_err();
        }),
        ("a forced release", |lock, wait_for_waiter| {
            let guard = lock.acquire().unwrap();
            wait_for_waiter();
            assert!(lock.force_release().unwrap());
            lost(guard.release().unwrap_err());
        }),
    ];
    for fair in [false, true] {
        let (ours, theirs) = (store.sleepy_lock(fair), store.sleepy_lock(fair));
        for (what, end) in ends {
            thread::scope(|scope| {
                let waiter = std::cell::OnceCell::new();
                end(&ours, &|| {
                    let waiter = waiter.get_or_init(|| Waiter::start(scope, &theirs));
                    store.wait_for_waiters(&ours, 1);
                    assert!(!waiter.has_ended(), "before {what}");
                });
                let ended = Instant::now();
                let guard = waiter.into_inner().unwrap().served();
                assert!(ended.elapsed() <= PROMPT, "after {what}: {:?}", ended.elapsed());
                guard.check().unwrap();
                assert_eq!(ours.inspect().unwrap().waiters, 0);
                guard.release().unwrap();
            });
        }
    }
}

pub fn waiters_of_several_clients_are_all_served(store: &Store) {
    for fair in [false, true] {
        let guard = store.sleepy_lock(fair).acquire().unwrap();
        let last = AtomicUsize::new(guard.fencing_token() as usize);
        let released = thread::scope(|scope| {
            for client in 0..4 {
                let lock = store.sleepy_lock(fair);
                for _ in 0..3 {
                    let (lock, last) = (lock.clone(), &last);
                    scope.spawn(move || {
                        let guard = lock.acquire_timeout(MINUTE / 2).unwrap();
                        let token = guard.fencing_token() as usize;
                        assert!(last.swap(token, Ordering::SeqCst) < token);
                        guard.release().unwrap();
                    });
                }
                let waiting = (client + 1) * if fair { 3 } else { 1 };
                store.wait_for_waiters(&lock, waiting);
            }
            let released = Instant::now();
            guard.release().unwrap();
            released
        });
        assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
        let seen = store.sleepy_lock(fair).inspect().unwrap();
        assert!(seen.is_free() && seen.waiters == 0, "{seen:?}");
    }
}

pub fn a_lease_that_ends_unreleased_wakes_the_waiter_when_it_ends(store: &Store) {
    for fair in [false, true] {
        let (lease, lock) = (millis(700), store.sleepy_lock(fair));
        thread::scope(|scope| {
            let start = Instant::now();
            crash(&store.client().timed_lock("x", lease).fair(fair));
            let waiter = Waiter::start(scope, &lock);
            let guard = waiter.served();
            let waited = start.elapsed();
            assert!(waited >= lease - millis(1) && waited <= lease + PROMPT, "{waited:?}");
            guard.release().unwrap();
        });
    }
}

/// How somebody who waits gives up.
enum GivingUp {
    Cancelled,
    TimedOut,
    /// Along with its client, on which nobody knocks in vain.
    Gone,
}

pub fn the_second_in_line_is_woken_though_the_first_has_just_given_up(store: &Store) {
    for fair in [false, true] {
        let (holder, second) = (store.sleepy_lock(fair), store.sleepy_lock(fair));
        for how in [GivingUp::Cancelled, GivingUp::TimedOut, GivingUp::Gone] {
            let (guard, first) = (holder.acquire().unwrap(), store.sleepy_client());
            thread::scope(|scope| {
                let limit = if matches!(how, GivingUp::TimedOut) {
                    SECOND
                } else {
                    MINUTE
                };
                let gives_up = Waiter::start_for(scope, &sleepy(&first, fair), limit);
                store.wait_for_waiters(&holder, 1);
                let served = Waiter::start(scope, &second);
                store.wait_for_waiters(&holder, 2);
                match how {
                    GivingUp::TimedOut => {
                        let error = gives_up.outcome().unwrap_err();
                        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                    }
                    GivingUp::Cancelled | GivingUp::Gone => {
                        gives_up.cancel();
                        let error = gives_up.outcome().unwrap_err();
                        assert!(matches!(error, Error::Cancelled), "{error:?}");
                    }
                }
                if matches!(how, GivingUp::Gone) {
                    drop(first);
                }
                let released = Instant::now();
                guard.release().unwrap();
                served.served().release().unwrap();
                assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
            });
            assert_eq!(holder.inspect().unwrap().waiters, 0);
        }
    }
}

pub fn a_waiter_that_gives_up_when_its_turn_has_come_leaves_it_to_the_next(store: &Store) {
    for fair in [false, true] {
        let locks = [(); 3].map(|()| store.sleepy_lock(fair));
        let mut given_up = 0;
        for round in 0..40 {
            let guard = locks[0].acquire().unwrap();
            thread::scope(|scope| {
                let first = Waiter::start(scope, &locks[1]);
                store.wait_for_waiters(&locks[0], 1);
                let second = Waiter::start(scope, &locks[2]);
                store.wait_for_waiters(&locks[0], 2);
                guard.release().unwrap();
                let released = Instant::now();
                // The lock is the first one's to take now. Often it has not even heard of it.
                while released.elapsed() < Duration::from_micros(20) * (round % 10) {
                    std::hint::spin_loop();
                }
                first.cancel();
                match first.outcome() {
                    Ok(guard) => guard.release().unwrap(),
                    Err(Error::Cancelled) => given_up += 1,
                    Err(error) => panic!("{error:?}"),
                }
                second.served().release().unwrap();
                assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
            });
        }
        assert!(given_up > 0, "nobody gave up in time");
    }
}

/// Calls `check` with a guard that others wait for, of a client of its own or of the client that is given.
fn for_holders_elsewhere_and_here(store: &Store, lock: &Lock, fair: bool, check: impl Fn(Guard)) {
    for holder in [&store.sleepy_lock(fair), lock] {
        check(holder.acquire().unwrap());
    }
}

pub fn those_behind_others_of_their_client_time_out_in_time(store: &Store) {
    let limit = millis(400);
    for fair in [false, true] {
        let lock = store.sleepy_lock(fair);
        for_holders_elsewhere_and_here(store, &lock, fair, |guard| {
            thread::scope(|scope| {
                let first = Waiter::start(scope, &lock);
                let behind = [(); 3].map(|()| {
                    scope.spawn(|| {
                        let start = Instant::now();
                        (lock.acquire_timeout(limit).unwrap_err(), start.elapsed())
                    })
                });
                for thread in behind {
                    let (error, took) = thread.join().unwrap();
                    let Error::Timeout { waited, last: None, .. } = error else {
                        panic!("{error:?}");
                    };
                    assert!(waited >= limit && waited <= took, "{waited:?} in {took:?}");
                    assert!(took <= limit + PROMPT, "{took:?}");
                }
                assert!(!first.has_ended());
                guard.release().unwrap();
                first.served().release().unwrap();
            });
        });
    }
}

pub fn the_second_thread_of_a_client_goes_on_where_the_first_gave_up(store: &Store) {
    for fair in [false, true] {
        let lock = store.sleepy_lock(fair);
        for_holders_elsewhere_and_here(store, &lock, fair, |guard| {
            thread::scope(|scope| {
                let waiters = [(); 3].map(|()| Waiter::start(scope, &lock));
                if fair {
                    store.wait_for_waiters(&lock, 3);
                }
                // Whichever of them came first.
                let [first, second, last] = waiters;
                for waiter in [first, second] {
                    waiter.cancel();
                    let error = waiter.outcome().unwrap_err();
                    assert!(matches!(error, Error::Cancelled), "{error:?}");
                }
                assert!(!last.has_ended());
                let released = Instant::now();
                guard.release().unwrap();
                last.served().release().unwrap();
                assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
            });
        });
        wait_until("nobody to be left", PROMPT, || lock.inspect().unwrap().waiters == 0);
    }
}

pub fn a_thread_that_takes_it_again_and_again_passes_a_waiter_a_few_times_at_most(store: &Store) {
    const ROUNDS: usize = 20;
    for fair in [false, true] {
        let (hot, lock) = (store.sleepy_lock(fair), store.sleepy_lock(fair));
        let (turns, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let turns_so_far = || turns.load(Ordering::SeqCst);
        let mut passed = Vec::new();
        thread::scope(|scope| {
            let _done = SetOnDrop(&done);
            scope.spawn(|| {
                let _done = SetOnDrop(&done);
                while !done.load(Ordering::SeqCst) {
                    let guard = hot.acquire_timeout(MINUTE / 2).unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    // It holds the lock nearly all the time, so whoever comes by chance finds it taken.
                    thread::sleep(millis(1));
                    guard.release().unwrap();
                }
            });
            for _ in 0..ROUNDS {
                let before = turns_so_far();
                wait_until("the hot thread to have a turn", PROMPT, || turns_so_far() > before);
                let waiter = scope.spawn(|| {
                    let guard = lock.acquire_timeout(MINUTE / 2).unwrap();
                    let served_at = turns_so_far();
                    guard.release().unwrap();
                    served_at
                });
                // The hot one waits only for a lock that the other has, or is to have next.
                wait_until("somebody to wait", PROMPT, || {
                    waiter.is_finished() || hot.inspect().unwrap().waiters > 0
                });
                let waiting_at = turns_so_far();
                passed.push(waiter.join().unwrap().saturating_sub(waiting_at));
            }
        });
        // A busy machine may make a waiter miss what was kept for it, and as many turns as fit into the time that it
        // does not run. One that keeps to its turn misses nothing: the turn that is under way may be counted late.
        let most = if fair { 1 } else { 500 };
        assert!(passed.iter().all(|turns| *turns <= most), "fair: {fair}: {passed:?}");
        let at_once = passed.iter().filter(|turns| **turns <= 2).count();
        assert!(at_once * 2 > ROUNDS, "fair: {fair}: {passed:?}");
    }
}
