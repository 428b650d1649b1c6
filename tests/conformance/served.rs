//! Who is served when permits are released: one that wants several, several that want one, and in which order.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::Error;

use crate::{
    store::{MINUTE, PROMPT, Store, Waiter, assert_free, crash, serve_in_any_order, sleepy_permits},
    support::{SECOND, SetOnDrop, millis, wait_until},
};

pub fn who_wants_several_is_woken_when_enough_were_released_one_by_one(store: &Store) {
    for fair in [false, true] {
        for wanted in [2, 3] {
            let semaphore = store.sleepy_semaphore(3).fair(fair);
            let guards = [(); 3].map(|()| store.sleepy_semaphore(3).fair(fair).acquire().unwrap());
            thread::scope(|scope| {
                let waiter = Waiter::start(scope, &store.sleepy_semaphore(3).permits(wanted).fair(fair));
                store.wait_for_waiters(&semaphore, 1);
                let (enough, later) = (wanted as usize - 1, guards);
                let mut later = later.into_iter();
                for released in 1..=enough {
                    later.next().unwrap().release().unwrap();
                    let seen = semaphore.inspect().unwrap();
                    assert_eq!((seen.available(), seen.reserved), (released as u32, 0), "{seen}");
                    assert!(!waiter.has_ended());
                }
                let released = Instant::now();
                later.next().unwrap().release().unwrap();
                let guard = waiter.served();
                assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
                assert_eq!(semaphore.available().unwrap(), 0);
                guard.release().unwrap();
            });
            assert_free(&semaphore, 3);
        }
    }
}

pub fn several_releases_at_once_wake_as_many_waiters(store: &Store) {
    for fair in [false, true] {
        let semaphore = store.sleepy_semaphore(3).fair(fair);
        let guards = [(); 3].map(|()| store.sleepy_semaphore(3).fair(fair).acquire().unwrap());
        thread::scope(|scope| {
            let mut waiters: Vec<_> = (1..=6)
                .map(|nth| {
                    let waiter = Waiter::start(scope, &store.sleepy_semaphore(3).fair(fair));
                    store.wait_for_waiters(&semaphore, nth);
                    waiter
                })
                .collect();
            let mut held = guards.into_iter().collect::<Vec<_>>();
            while !waiters.is_empty() {
                let released = Instant::now();
                thread::scope(|scope| {
                    for guard in held.drain(..) {
                        scope.spawn(move || guard.release().unwrap());
                    }
                });
                wait_until("three to be served", PROMPT, || {
                    waiters.iter().filter(|waiter| waiter.has_ended()).count() == 3
                });
                assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
                let (served, waiting): (Vec<_>, _) = waiters.into_iter().partition(Waiter::has_ended);
                waiters = waiting;
                held.extend(served.into_iter().map(Waiter::served));
                let seen = semaphore.inspect().unwrap();
                let left = (seen.available(), seen.reserved, seen.waiters);
                assert_eq!(left, (0, 0, waiters.len()), "{seen}");
            }
            drop(held);
        });
        assert_free(&semaphore, 3);
    }
}

pub fn several_permits_that_come_free_together_serve_several_waiters(store: &Store) {
    let lease = millis(700);
    for fair in [false, true] {
        for crashes in [false, true] {
            let semaphore = store.sleepy_semaphore(3).fair(fair);
            thread::scope(|scope| {
                let three = store.semaphore(3).permits(3).fair(fair);
                let start = Instant::now();
                let guard = if crashes {
                    crash(&three.timed(lease));
                    None
                } else {
                    Some(three.acquire().unwrap())
                };
                let waiters: Vec<_> = (1..=3)
                    .map(|nth| {
                        let waiter = Waiter::start(scope, &store.sleepy_semaphore(3).fair(fair));
                        if !crashes {
                            store.wait_for_waiters(&semaphore, nth);
                        }
                        waiter
                    })
                    .collect();
                drop(guard);
                // All three at a time.
                let guards: Vec<_> = waiters.into_iter().map(Waiter::served).collect();
                let took = start.elapsed();
                assert!(took <= PROMPT && (!crashes || took >= lease - millis(1)), "{took:?}");
                guards.iter().for_each(|guard| guard.check().unwrap());
            });
            assert_free(&semaphore, 3);
        }
    }
}

pub fn those_behind_one_that_does_not_fit_are_served_unless_it_keeps_to_its_turn(store: &Store) {
    for fair in [false, true] {
        let semaphore = || store.sleepy_semaphore(3).fair(fair);
        let looks = semaphore();
        let (two, one) = (
            semaphore().permits(2).acquire().unwrap(),
            semaphore().acquire().unwrap(),
        );
        thread::scope(|scope| {
            let big = Waiter::start(scope, &semaphore().permits(3));
            store.wait_for_waiters(&looks, 1);
            let small = Waiter::start(scope, &semaphore());
            store.wait_for_waiters(&looks, 2);
            one.release().unwrap();
            if fair {
                assert!(
                    semaphore().try_acquire().unwrap().is_none(),
                    "a newcomer is behind both"
                );
                let seen = looks.inspect().unwrap();
                assert_eq!((seen.available(), seen.reserved, seen.waiters), (1, 0, 2), "{seen}");
                two.release().unwrap();
                let guard = big.served();
                assert!(!small.has_ended());
                guard.release().unwrap();
                small.served().release().unwrap();
            } else {
                let guard = small.served();
                assert!(!big.has_ended());
                two.release().unwrap();
                assert_eq!(looks.inspect().unwrap().waiters, 1);
                guard.release().unwrap();
                big.served().release().unwrap();
            }
        });
        assert_free(&looks, 3);
    }
}

pub fn one_that_does_not_fit_and_gives_up_lets_those_behind_it_go(store: &Store) {
    let semaphore = || store.sleepy_semaphore(2).fair(true);
    let (looks, one) = (semaphore(), semaphore().acquire().unwrap());
    thread::scope(|scope| {
        let big = Waiter::start(scope, &semaphore().permits(2));
        store.wait_for_waiters(&looks, 1);
        let small = Waiter::start(scope, &semaphore());
        store.wait_for_waiters(&looks, 2);
        assert_eq!(looks.available().unwrap(), 1);
        let cancelled = Instant::now();
        big.cancel();
        assert!(matches!(big.outcome(), Err(Error::Cancelled)));
        small.served().release().unwrap();
        assert!(cancelled.elapsed() <= PROMPT, "{:?}", cancelled.elapsed());
    });
    one.release().unwrap();
    assert_free(&looks, 2);
}

pub fn fair_waiters_for_few_and_many_permits_are_served_as_they_came(store: &Store) {
    const LIMIT: u32 = 3;
    // Of which client each is, and how many it wants. The last takes all: nobody can come along with it.
    let arrivals = [
        (0, 1),
        (1, 3),
        (0, 1),
        (0, 2),
        (1, 2),
        (1, 1),
        (1, 1),
        (0, 3),
        (0, 1),
        (1, 2),
        (1, 1),
        (0, 3),
    ];
    let clients = [store.sleepy_client(), store.sleepy_client()];
    let fair = |client: usize, permits| sleepy_permits(&clients[client], LIMIT).permits(permits).fair(true);
    let (looks, served, done) = (
        store.sleepy_semaphore(LIMIT),
        Mutex::new(Vec::new()),
        AtomicBool::new(false),
    );
    let tries = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        let guard = fair(0, LIMIT).acquire().unwrap();
        for newcomer in [store.sleepy_semaphore(LIMIT).fair(true), fair(0, 1)] {
            let (served, done, tries) = (&served, &done, &tries);
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                while !done.load(Ordering::SeqCst) {
                    if newcomer.try_acquire().unwrap().is_some() {
                        let served: &Vec<_> = &served.lock().unwrap();
                        assert_eq!(served.len(), arrivals.len(), "it came before {served:?}");
                    }
                    tries.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let waiters: Vec<_> = arrivals
            .iter()
            .enumerate()
            .map(|(nth, &(client, permits))| {
                let (semaphore, served) = (fair(client, permits), &served);
                let waiter = scope.spawn(move || {
                    let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                    served.lock().unwrap().push((guard.fencing_token(), nth));
                    guard.release().unwrap();
                });
                store.wait_for_waiters(&looks, nth + 1);
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
    let mut served = served.into_inner().unwrap();
    served.sort_unstable();
    // Those to whom permits are left at the same time come for them as the machine runs them. Nobody else is overtaken.
    let mut before: Vec<usize> = (0..arrivals.len()).collect();
    for (_, nth) in &served {
        before.retain(|other| other != nth);
        let overtaken = before.iter().take_while(|other| *other < nth);
        let theirs: u32 = overtaken.map(|&other| arrivals[other].1).sum();
        assert!(theirs == 0 || theirs + arrivals[*nth].1 <= LIMIT, "{nth} in {served:?}");
    }
    assert!(before.is_empty(), "{before:?} were not served");
}

pub fn a_fair_waiter_for_all_permits_does_not_starve_among_single_takers(store: &Store) {
    let done = AtomicBool::new(false);
    let turns = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for client in [store.sleepy_client(), store.sleepy_client()] {
            for _ in 0..2 {
                let single = sleepy_permits(&client, 2).fair(true);
                let (done, turns) = (&done, &turns);
                scope.spawn(move || {
                    let _done = SetOnDrop(done);
                    while !done.load(Ordering::SeqCst) {
                        let guard = single.acquire_timeout(MINUTE / 2).unwrap();
                        turns.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(millis(1));
                        guard.release().unwrap();
                    }
                });
            }
        }
        let all = store.sleepy_semaphore(2).permits(2).fair(true);
        for _ in 0..10 {
            let before = turns.load(Ordering::SeqCst);
            wait_until("the others to be at it", PROMPT, || {
                turns.load(Ordering::SeqCst) > before + 2
            });
            all.acquire_timeout(PROMPT).unwrap().release().unwrap();
        }
    });
}

pub fn a_fair_waiter_for_several_keeps_its_turn_for_longer_than_a_place_lasts(store: &Store) {
    // Its place lasts for 1.25 s: longer than a busy machine keeps it from looking.
    let client = store.client_with(|builder| builder.poll_interval(millis(500)));
    let held = store.sleepy_semaphore(2).acquire().unwrap();
    thread::scope(|scope| {
        let waiter = Waiter::start(scope, &sleepy_permits(&client, 2).permits(2).fair(true));
        let newcomers = [
            store.sleepy_semaphore(2).fair(true),
            sleepy_permits(&client, 2).fair(true),
        ];
        store.wait_for_waiters(&newcomers[0], 1);
        // Several times as long as it lasts without a sign of life.
        let start = Instant::now();
        while start.elapsed() < SECOND * 4 {
            for newcomer in &newcomers {
                assert!(newcomer.try_acquire().unwrap().is_none());
            }
            assert_eq!(newcomers[0].available().unwrap(), 1);
            thread::sleep(millis(5));
        }
        held.release().unwrap();
        waiter.served().release().unwrap();
    });
}

pub fn threads_that_hand_permits_on_let_a_waiter_of_another_client_have_its_turn(store: &Store) {
    const ROUNDS: usize = 12;
    const LIMIT: u32 = 2;
    // By count, and by the 20 ms after which others come first however many are left.
    for (handoffs, few) in [(4, 30), (u32::MAX, 150)] {
        let hot = sleepy_permits(&store.sleepy_client(), LIMIT).handoffs(handoffs);
        let semaphore = store.sleepy_semaphore(LIMIT);
        let (turns, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let turns_so_far = || turns.load(Ordering::SeqCst);
        let mut passed = Vec::new();
        thread::scope(|scope| {
            let _done = SetOnDrop(&done);
            for _ in 0..5 {
                scope.spawn(|| {
                    let _done = SetOnDrop(&done);
                    while !done.load(Ordering::SeqCst) {
                        let guard = hot.acquire_timeout(MINUTE / 2).unwrap();
                        turns.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(millis(1));
                        guard.release().unwrap();
                    }
                });
            }
            for _ in 0..ROUNDS {
                let before = turns_so_far();
                wait_until("the hot threads to have turns", PROMPT, || turns_so_far() > before + 3);
                let waiter = scope.spawn(|| {
                    let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                    let served_at = turns_so_far();
                    guard.release().unwrap();
                    served_at
                });
                // One of each client.
                wait_until("both to wait", PROMPT, || {
                    waiter.is_finished() || semaphore.inspect().unwrap().waiters == 2
                });
                let waiting_at = turns_so_far();
                passed.push(waiter.join().unwrap().saturating_sub(waiting_at));
            }
        });
        // As many turns as fit into the time for which a busy machine does not run the waiter.
        assert!(passed.iter().all(|turns| *turns <= 1_000), "{handoffs}: {passed:?}");
        let soon = passed.iter().filter(|turns| **turns <= few).count();
        assert!(soon * 2 > ROUNDS, "{handoffs}: {passed:?}");
    }
}

pub fn a_permit_that_ends_by_itself_goes_past_those_for_whom_it_is_too_little(store: &Store) {
    // On a busy machine the first in line may come too late for what was left to it; but not each time.
    assert!((0..20).any(|_| a_permit_ends_by_itself(store)));
}

/// False if the last in line was served before the first.
fn a_permit_ends_by_itself(store: &Store) -> bool {
    let held = [(); 3].map(|()| store.sleepy_semaphore(3).acquire().unwrap());
    thread::scope(|scope| {
        let short = store.sleepy_semaphore(3).timed(millis(400));
        let ending = Waiter::start(scope, &short);
        store.wait_for_waiters(&short, 1);
        let mut others = Vec::new();
        for permits in [2, 2, 1] {
            let semaphore = store.sleepy_semaphore(3).permits(permits);
            others.push(Waiter::start(scope, &semaphore));
            store.wait_for_waiters(&semaphore, others.len() + 1);
        }
        let one = others.pop().unwrap();
        let [first, second, third] = held;
        first.release().unwrap();
        wait_until("one of those who want one to be served", PROMPT, || {
            ending.has_ended() || one.has_ended()
        });
        let came_first = ending.has_ended();
        if came_first {
            // Its lease ends, and nobody tells.
            std::mem::forget(ending.served());
            wait_until("the last to be served", PROMPT, || one.has_ended());
            drop(one.served());
        } else {
            drop(one.served());
            drop(ending.served());
        }
        drop((second, third));
        serve_in_any_order(others);
        came_first
    })
}

pub fn threads_that_take_permits_again_and_again_never_need_to_look_by_themselves(store: &Store) {
    const LIMIT: u32 = 5;
    let clients = [store.sleepy_client(), store.sleepy_client()];
    // Turns of two hand-overs: permits change clients, and places in line threads, as often as can be.
    let semaphores = clients.map(|client| sleepy_permits(&client, LIMIT).handoffs(2));
    thread::scope(|scope| {
        for semaphore in &semaphores {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                        thread::sleep(millis(1));
                        drop(guard);
                    }
                });
            }
        }
    });
    wait_until("all permits to be free", PROMPT, || {
        semaphores[0].available().unwrap() == LIMIT
    });
}

pub fn waits_that_end_in_vain_leave_nothing_reserved(store: &Store) {
    for fair in [false, true] {
        let semaphore = store.sleepy_semaphore(3).fair(fair);
        let guards = [1, 2].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
        thread::scope(|scope| {
            let clients = [store.sleepy_client(), store.sleepy_client()];
            let wanted = [(0, 1), (0, 2), (1, 3), (1, 2), (0, 1)];
            let limits = [PROMPT * 3, millis(50)];
            let waiters: Vec<_> = wanted
                .iter()
                .flat_map(|wanted| limits.map(|limit| (wanted, limit)))
                .map(|(&(client, permits), limit)| {
                    let semaphore = sleepy_permits(&clients[client], 3).permits(permits).fair(fair);
                    (limit, Waiter::start_for(scope, &semaphore, limit))
                })
                .collect();
            for (limit, waiter) in waiters {
                if limit == limits[0] {
                    waiter.cancel();
                    assert!(matches!(waiter.outcome(), Err(Error::Cancelled)));
                } else {
                    assert!(matches!(waiter.outcome(), Err(Error::Timeout { .. })));
                }
            }
            let [one, two] = guards;
            one.release().unwrap();
            // What is left to those who have just gone is passed on, not kept until their claims are over.
            assert_free(&semaphore, 1);
            two.release().unwrap();
        });
        assert_free(&semaphore, 3);
    }
}

pub fn permits_whose_waiter_gives_up_when_its_turn_has_come_go_to_the_next(store: &Store) {
    for fair in [false, true] {
        let [holder, big, small] = [3, 2, 1].map(|permits| store.sleepy_semaphore(3).permits(permits).fair(fair));
        let mut given_up = 0;
        for round in 0..40 {
            let guard = holder.acquire_timeout(PROMPT).unwrap();
            thread::scope(|scope| {
                let first = Waiter::start(scope, &big);
                store.wait_for_waiters(&holder, 1);
                let next = Waiter::start(scope, &holder);
                store.wait_for_waiters(&holder, 2);
                let last = Waiter::start(scope, &small);
                store.wait_for_waiters(&holder, 3);
                guard.release().unwrap();
                let released = Instant::now();
                while released.elapsed() < Duration::from_micros(20) * (round % 10) {
                    std::hint::spin_loop();
                }
                first.cancel();
                match first.outcome() {
                    Ok(guard) => guard.release().unwrap(),
                    Err(Error::Cancelled) => given_up += 1,
                    Err(error) => panic!("{error:?}"),
                }
                // In either order if nobody keeps to its turn.
                let (last, next) = (scope.spawn(|| last.served().release()), next.served().release());
                assert!(next.is_ok() && last.join().unwrap().is_ok());
                assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
            });
        }
        assert!(given_up > 0, "nobody gave up in time");
        assert_free(&holder, 3);
    }
}

pub fn a_renewed_permit_is_held_for_longer_than_its_lease(store: &Store) {
    let lease = SECOND * 3 / 2;
    let semaphore = store.semaphore(3).lease(lease);
    let guards = [1, 2].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
    let waited = store.sleepy_semaphore(3).acquire_timeout(lease * 2);
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    let [one, two] = guards;
    one.check().unwrap();
    two.check().unwrap();
    thread::scope(|scope| {
        let waiter = Waiter::start(scope, &store.sleepy_semaphore(3).permits(2));
        store.wait_for_waiters(&semaphore, 1);
        let released = Instant::now();
        two.release().unwrap();
        waiter.served().release().unwrap();
        assert!(released.elapsed() < lease + PROMPT);
    });
    one.release().unwrap();
}
