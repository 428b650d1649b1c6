//! The limit: what is declared, and what was set.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Instant,
};

use redlatch::{Error, Semaphore, Wait};

use crate::{
    hand_over::long_enough,
    store::{MINUTE, PROMPT, Store, Waiter, assert_free, serve_in_any_order, sleepy_permits},
    support::{SetOnDrop, millis, wait_until},
};

#[track_caller]
fn assert_mismatch<T: std::fmt::Debug>(outcome: Result<T, Error>, named: (u32, u32)) {
    let Err(error @ Error::LimitMismatch { declared, stored, .. }) = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((*declared, *stored), named);
    let said = error.to_string();
    assert!(
        said.contains(&declared.to_string()) && said.contains(&stored.to_string()),
        "{said}"
    );
}

/// Asks in every way; a wait of for ever on a thread that nobody waits for if it does not end.
#[track_caller]
fn assert_refused(other: &Semaphore, named: (u32, u32)) {
    assert_mismatch(other.try_acquire(), named);
    assert_mismatch(other.acquire_timeout(PROMPT), named);
    assert_mismatch(other.try_with_permit(|| unreachable!("refused")), named);
    assert_mismatch(
        other.with_permit_wait(Wait::at_most(PROMPT), || unreachable!("refused")),
        named,
    );
    assert_mismatch(other.set_limit(100), named);
    for fair in [false, true] {
        let (start, forever) = (Instant::now(), other.clone().fair(fair));
        let waiting = thread::spawn(move || forever.acquire());
        wait_until("a wait of for ever to be told", PROMPT, || waiting.is_finished());
        assert_mismatch(waiting.join().unwrap(), named);
        assert!(start.elapsed() < PROMPT);
    }
}

pub fn another_limit_is_told_at_once_with_both_and_nothing_is_granted(store: &Store) {
    let semaphore = store.sleepy_semaphore(3);
    let others = [store.sleepy_semaphore(4), store.sleepy_semaphore(2)];
    let one = semaphore.acquire().unwrap();
    let refuse_others = |available| {
        for (other, declared) in others.iter().zip([4, 2]) {
            assert_refused(other, (declared, 3));
            let seen = other.inspect().unwrap();
            assert_eq!((seen.limit, seen.declared_limit), (3, 3), "a look is for everybody");
            assert_eq!((seen.available(), seen.reserved), (available, 0));
        }
    };
    refuse_others(2);
    let two = semaphore.clone().permits(2).acquire().unwrap();
    refuse_others(0);
    thread::scope(|scope| {
        // A queue is not joined either.
        let waiter = Waiter::start(scope, &store.sleepy_semaphore(3));
        store.wait_for_waiters(&semaphore, 1);
        refuse_others(0);
        assert_eq!(semaphore.inspect().unwrap().waiters, 1);
        one.release().unwrap();
        waiter.served().release().unwrap();
    });
    two.release().unwrap();
    // Nor once nobody holds it.
    refuse_others(3);
}

pub fn a_first_grant_declares_the_limit_and_a_look_does_not(store: &Store) {
    let (three, four) = (store.semaphore(3), store.semaphore(4));
    assert_eq!((three.available().unwrap(), four.available().unwrap()), (3, 4));
    assert!(!four.force_release().unwrap());
    assert_eq!(three.try_with_permit(|| 1).unwrap(), Some(1));
    assert_refused(&four, (4, 3));
    // What is set beforehand does.
    let (five, six) = (store.client().semaphore("y", 5), store.client().semaphore("y", 6));
    five.set_limit(1).unwrap();
    assert_refused(&six, (6, 5));
    assert_eq!(six.inspect().unwrap().limit, 1);
}

pub fn a_limit_that_is_raised_wakes_one_waiter_for_each_new_permit(store: &Store) {
    for fair in [false, true] {
        let semaphore = store.sleepy_semaphore(1).fair(fair);
        let guard = semaphore.acquire().unwrap();
        thread::scope(|scope| {
            let waiters: Vec<_> = (1..=4)
                .map(|nth| {
                    let waiter = Waiter::start(scope, &store.sleepy_semaphore(1).fair(fair));
                    store.wait_for_waiters(&semaphore, nth);
                    waiter
                })
                .collect();
            let raised = Instant::now();
            store.semaphore(1).set_limit(3).unwrap();
            wait_until("two to be served", PROMPT, || semaphore.holders().unwrap().len() == 3);
            assert!(raised.elapsed() <= PROMPT, "{:?}", raised.elapsed());
            // One that came too late for what was left to it takes its place again.
            store.wait_for_waiters(&semaphore, 2);
            let seen = semaphore.inspect().unwrap();
            assert_eq!((seen.reserved, seen.available()), (0, 0), "{seen}");
            assert_eq!((seen.limit, seen.declared_limit), (3, 1));
            wait_until("two waits to end", PROMPT, || {
                waiters.iter().filter(|waiter| waiter.has_ended()).count() == 2
            });
            guard.release().unwrap();
            serve_in_any_order(waiters);
        });
        assert_free(&semaphore, 3);
        store.semaphore(1).set_limit(1).unwrap();
    }
}

pub fn a_limit_that_is_raised_wakes_who_wants_several_once_there_are_enough(store: &Store) {
    for fair in [false, true] {
        let semaphore = store.sleepy_semaphore(3).fair(fair);
        let guard = semaphore.clone().permits(3).acquire().unwrap();
        thread::scope(|scope| {
            let waiter = Waiter::start(scope, &store.sleepy_semaphore(3).permits(2).fair(fair));
            store.wait_for_waiters(&semaphore, 1);
            semaphore.set_limit(4).unwrap();
            let seen = semaphore.inspect().unwrap();
            assert_eq!((seen.waiters, seen.reserved, seen.available()), (1, 0, 1), "{seen}");
            assert!(!waiter.has_ended());
            semaphore.set_limit(5).unwrap();
            let two = waiter.served();
            assert_eq!(semaphore.available().unwrap(), 0);
            drop((two, guard));
        });
        semaphore.set_limit(3).unwrap();
    }
}

pub fn a_lowered_limit_throws_nobody_out_and_lets_nobody_in_until_enough_have_gone(store: &Store) {
    let semaphore = store.sleepy_semaphore(4);
    let one = semaphore.acquire().unwrap();
    let two = store.sleepy_semaphore(4).permits(2).acquire().unwrap();
    let last = semaphore.acquire().unwrap();
    store.semaphore(4).set_limit(2).unwrap();
    let seen = semaphore.inspect().unwrap();
    assert_eq!((seen.limit, seen.declared_limit, seen.available()), (2, 4, 0));
    for guard in [&one, &two, &last] {
        guard.extend(MINUTE * 2).unwrap();
    }
    thread::scope(|scope| {
        let waiter = Waiter::start(scope, &store.sleepy_semaphore(4));
        store.wait_for_waiters(&semaphore, 1);
        for guard in [one, last] {
            guard.release().unwrap();
            assert!(semaphore.try_acquire().unwrap().is_none());
            let seen = semaphore.inspect().unwrap();
            assert_eq!((seen.available(), seen.reserved, seen.waiters), (0, 0, 1), "{seen}");
        }
        assert!(!waiter.has_ended());
        two.release().unwrap();
        let one = waiter.served();
        let other = semaphore.try_acquire().unwrap().expect("two may be held");
        assert!(semaphore.try_acquire().unwrap().is_none());
        drop((one, other));
    });
    assert_free(&semaphore, 2);
}

pub fn a_permit_above_a_lowered_limit_is_not_handed_on(store: &Store) {
    let semaphore = sleepy_permits(&store.sleepy_client(), 2).handoffs(u32::MAX);
    let other = store.sleepy_semaphore(2).acquire().unwrap();
    let hold = long_enough(&semaphore);
    let guard = semaphore.acquire_timeout(PROMPT).unwrap();
    thread::scope(|scope| {
        let waiter = Waiter::start(scope, &semaphore);
        store.wait_for_waiters(&semaphore, 1);
        thread::sleep(hold);
        store.semaphore(2).set_limit(1).unwrap();
        guard.release().unwrap();
        let [holder] = &semaphore.holders().unwrap()[..] else {
            panic!("{}", semaphore.inspect().unwrap());
        };
        assert_eq!(holder.token, other.token().as_bytes());
        assert!(!waiter.has_ended());
        other.release().unwrap();
        waiter.served().release().unwrap();
    });
    assert_free(&semaphore, 1);
}

pub fn a_limit_that_was_lowered_governs_over_hand_overs(store: &Store) {
    const THREADS: usize = 5;
    let semaphore = sleepy_permits(&store.sleepy_client(), 2).handoffs(u32::MAX);
    let (inside, lowered, failed) = (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let both_seen = AtomicBool::new(false);
    thread::scope(|scope| {
        let _failed = SetOnDrop(&failed);
        for _ in 0..THREADS {
            let turn = || {
                let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                let others = inside.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().unwrap();
                others
            };
            let (lowered, both_seen, failed) = (&lowered, &both_seen, &failed);
            scope.spawn(move || {
                while !lowered.load(Ordering::SeqCst) && !failed.load(Ordering::SeqCst) {
                    both_seen.fetch_or(turn() == 1, Ordering::SeqCst);
                }
                for _ in 0..50 {
                    assert_eq!(turn(), 0, "granted though another had the only permit");
                }
            });
        }
        wait_until("both permits to be used", PROMPT, || both_seen.load(Ordering::SeqCst));
        store.semaphore(2).set_limit(1).unwrap();
        lowered.store(true, Ordering::SeqCst);
    });
    assert_free(&semaphore, 1);
}

pub fn a_limit_of_nothing_lets_nobody_in(store: &Store) {
    let semaphore = store.sleepy_semaphore(2);
    let guard = semaphore.acquire().unwrap();
    semaphore.set_limit(0).unwrap();
    let let_nobody_in = || {
        assert!(semaphore.try_acquire().unwrap().is_none());
        let wait = semaphore.acquire_timeout(millis(30));
        assert!(matches!(wait, Err(Error::Timeout { .. })), "{wait:?}");
        assert_eq!(store.semaphore(2).available().unwrap(), 0);
    };
    let_nobody_in();
    guard.extend(MINUTE * 2).unwrap();
    guard.release().unwrap();
    let_nobody_in();
    store.wait_for_waiters(&semaphore, 0);
    let seen = semaphore.inspect().unwrap();
    assert!(
        seen.is_free() && seen.limit == 0 && seen.declared_limit == 2,
        "{seen:?}"
    );
    assert_eq!(seen.to_string(), "held by nobody; 0 of 0 permits free; 2 declared");
    thread::scope(|scope| {
        let waiters = [(); 2].map(|()| Waiter::start(scope, &store.sleepy_semaphore(2)));
        store.wait_for_waiters(&semaphore, 2);
        semaphore.set_limit(2).unwrap();
        drop(waiters.map(Waiter::served));
    });
}

pub fn more_permits_than_a_lowered_limit_has_are_waited_for(store: &Store) {
    for fair in [false, true] {
        let semaphore = store.sleepy_semaphore(3).fair(fair);
        let three = store.sleepy_semaphore(3).permits(3).fair(fair);
        semaphore.set_limit(2).unwrap();
        assert!(three.try_acquire().unwrap().is_none());
        thread::scope(|scope| {
            let waiter = Waiter::start(scope, &three);
            store.wait_for_waiters(&semaphore, 1);
            assert_eq!(semaphore.available().unwrap(), 2);
            semaphore.set_limit(3).unwrap();
            waiter.served().release().unwrap();
        });
    }
}

pub fn what_was_set_and_what_was_declared_outlive_the_holders(store: &Store) {
    let semaphore = store.semaphore(2);
    let guard = semaphore.acquire().unwrap();
    semaphore.set_limit(4).unwrap();
    guard.release().unwrap();
    drop(semaphore);
    let seen = store.semaphore(2).inspect().unwrap();
    assert!(seen.is_free());
    assert_eq!((seen.limit, seen.declared_limit, seen.available()), (4, 2, 4));
    let held: Vec<_> = (0..4)
        .map(|_| store.semaphore(2).try_acquire().unwrap().expect("four are free"))
        .collect();
    assert!(store.semaphore(2).try_acquire().unwrap().is_none());
    drop(held);
    // Whoever declares what was set is refused all the same.
    assert_refused(&store.sleepy_semaphore(4), (4, 2));
    assert_eq!(store.semaphore(2).available().unwrap(), 4);
}
