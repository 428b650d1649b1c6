//! Taking and releasing permits: how many there are at a time, and what a look shows of them.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Error, Expiry, Semaphore, Wait};

use crate::{
    store::{MINUTE, PROMPT, Store, Waiter, assert_free, sleepy_permits},
    support::{SECOND, SetOnDrop, millis, wait_until},
};

pub fn many_threads_and_clients_hold_as_many_permits_as_there_are_and_no_more(store: &Store) {
    const LIMIT: u32 = 3;
    let (taken, most, turns) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for client in 0..4 {
            let permits = 1 + client % 2;
            let semaphore = store.client().semaphore("shared", LIMIT).permits(permits);
            for _ in 0..2 {
                let semaphore = semaphore.clone();
                let (taken, most, turns) = (&taken, &most, &turns);
                scope.spawn(move || {
                    for turn in 0..15 {
                        let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                        let now = taken.fetch_add(permits, Ordering::SeqCst) + permits;
                        assert!(now <= LIMIT, "{now} permits are held");
                        most.fetch_max(now, Ordering::SeqCst);
                        if turn == 0 {
                            // So many wait that all permits must be taken, however slow the machine is.
                            wait_until("all permits to be held", PROMPT, || {
                                most.load(Ordering::SeqCst) == LIMIT
                            });
                        }
                        turns.fetch_add(1, Ordering::SeqCst);
                        taken.fetch_sub(permits, Ordering::SeqCst);
                        guard.release().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(turns.into_inner(), 8 * 15);
    assert_free(&store.client().semaphore("shared", LIMIT), LIMIT);
}

pub fn a_busy_semaphore_refuses_a_try_at_once(store: &Store) {
    let (ours, theirs) = (store.sleepy_semaphore(2), store.sleepy_semaphore(2));
    let first = ours.try_acquire().unwrap().expect("free");
    let second = theirs.try_acquire().unwrap().expect("one is free");
    for semaphore in [&ours, &theirs] {
        let start = Instant::now();
        assert!(semaphore.try_acquire().unwrap().is_none());
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }
    first.release().unwrap();
    let third = theirs.try_acquire().unwrap().expect("released");
    assert!(ours.try_acquire().unwrap().is_none());
    drop((second, third));
    assert_eq!(ours.available().unwrap(), 2);
}

pub fn permits_are_taken_all_or_none(store: &Store) {
    let semaphore = store.semaphore(5);
    let available = || store.semaphore(5).available().unwrap();
    let three = semaphore.clone().permits(3).try_acquire().unwrap().expect("free");
    assert_eq!(available(), 2);
    assert!(semaphore.clone().permits(3).try_acquire().unwrap().is_none());
    assert!(semaphore.clone().permits(5).try_acquire().unwrap().is_none());
    assert_eq!(available(), 2, "nothing is taken by those that got nothing");
    let two = store
        .semaphore(5)
        .permits(2)
        .try_acquire()
        .unwrap()
        .expect("two are free");
    assert_eq!(available(), 0);
    assert!(semaphore.try_acquire().unwrap().is_none());
    three.release().unwrap();
    assert_eq!(available(), 3);
    assert!(semaphore.clone().permits(4).try_acquire().unwrap().is_none());
    drop(two);
    assert_eq!(available(), 5);
    let all = semaphore.permits(5).try_acquire().unwrap().expect("all are free");
    assert_eq!(available(), 0);
    all.release().unwrap();
}

/// Everything that can be asked of a semaphore, and what came of it.
fn asked(semaphore: &Semaphore) -> [Option<Error>; 9] {
    [
        semaphore.acquire().err(),
        semaphore.try_acquire().err(),
        semaphore.acquire_timeout(SECOND).err(),
        semaphore.try_with_permit(|| ()).err(),
        semaphore.with_permit(|| ()).err(),
        semaphore.set_limit(1).err(),
        semaphore.inspect().err(),
        semaphore.available().err(),
        semaphore.force_release().err(),
    ]
}

pub fn numbers_that_cannot_work_are_refused_before_anything_is_sent(store: &Store) {
    // Nothing answers there, as is seen by what is sent.
    let nowhere = redlatch::Client::open("redis://127.0.0.1:1/").unwrap();
    for outcome in asked(&nowhere.semaphore("x", 1)) {
        assert!(matches!(outcome, Some(Error::Connection(_))), "{outcome:?}");
    }
    for client in [&nowhere, &store.client().client] {
        for (semaphore, why) in [
            (client.semaphore("x", 0), "limit of 0"),
            (client.semaphore("x", 0).permits(0), "limit of 0"),
            (client.semaphore("x", 3).permits(0), "0 permits"),
            (client.semaphore("x", 3).permits(4), "the semaphore has 3"),
            (client.semaphore("x", 3).permits(u32::MAX), "the semaphore has 3"),
            (client.semaphore("x", 2_000).permits(1_001), "1000 at most"),
            (client.semaphore("", 3), "name"),
        ] {
            for outcome in asked(&semaphore) {
                let Some(Error::InvalidArgument(said)) = outcome else {
                    panic!("{semaphore:?}: {outcome:?}");
                };
                assert!(said.contains(why), "{said}");
            }
        }
        for semaphore in [
            client.semaphore("x", 3).timed(millis(9)),
            client.semaphore("x", 3).lease(Duration::ZERO),
            client.semaphore("x", 3).timed(Duration::MAX),
            client.semaphore("x", 3).max_hold(millis(9)),
        ] {
            let error = semaphore.acquire().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        }
    }
}

pub fn the_largest_numbers_work(store: &Store) {
    let client = store.client();
    let thousand = client.semaphore("a", 1_000);
    let guard = thousand.clone().permits(1_000).try_acquire().unwrap().expect("free");
    guard.extend(MINUTE).unwrap();
    assert!(thousand.try_acquire().unwrap().is_none());
    let [holder] = &thousand.holders().unwrap()[..] else {
        panic!("{:?}", thousand.holders());
    };
    assert_eq!(holder.permits, 1_000);
    guard.release().unwrap();
    assert_eq!(thousand.available().unwrap(), 1_000);

    let largest = client.semaphore("b", u32::MAX);
    let _held = largest.acquire().unwrap();
    assert_eq!(largest.available().unwrap(), u32::MAX - 1);
    largest.set_limit(1).unwrap();
    assert!(largest.try_acquire().unwrap().is_none());
    largest.set_limit(u32::MAX).unwrap();
    drop(largest.permits(1_000).try_acquire().unwrap().expect("free again"));
}

pub fn fencing_tokens_of_permits_rise_by_grant(store: &Store) {
    const TURNS: usize = 25;
    let (highest, all) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for client in 0..4 {
            let semaphore = store.client().semaphore("x", 3).permits(1 + client / 3).handoffs(0);
            for _ in 0..2 {
                let (semaphore, highest, all) = (semaphore.clone(), &highest, &all);
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        // That of a grant that had come back before this one was even asked for.
                        let before = highest.load(Ordering::SeqCst);
                        let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                        let fencing_token = guard.fencing_token();
                        assert!(fencing_token > before, "{fencing_token} after {before}");
                        highest.fetch_max(fencing_token, Ordering::SeqCst);
                        all.lock().unwrap().push(fencing_token);
                        guard.release().unwrap();
                    }
                });
            }
        }
    });
    let all = all.into_inner().unwrap();
    let different: HashSet<_> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (8 * TURNS, 8 * TURNS));
}

pub fn guards_of_one_semaphore_may_go_in_any_order_on_any_thread(store: &Store) {
    let semaphore = store.semaphore(4);
    let available = || semaphore.available().unwrap();
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let guards = [1, 2, 1].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
        let tokens: HashSet<_> = guards.iter().map(|guard| guard.token().to_owned()).collect();
        assert_eq!(tokens.len(), 3, "each hold is its own");
        assert_eq!(available(), 0);
        let mut guards = guards.map(Some);
        let mut free = 0;
        for nth in order {
            let guard = guards[nth].take().unwrap();
            free += [1, 2, 1][nth];
            thread::spawn(move || {
                guard.check().unwrap();
                if nth == 0 {
                    guard.release().unwrap()
                } else {
                    drop(guard)
                }
            })
            .join()
            .unwrap();
            assert_eq!(available(), free);
            for guard in guards.iter().flatten() {
                guard.extend(MINUTE).unwrap();
            }
        }
    }
}

pub fn closures_hold_all_their_permits_and_nothing_afterwards(store: &Store) {
    let semaphore = store.semaphore(3).permits(2);
    let probe = store.semaphore(3);
    let available = || probe.available().unwrap();
    assert_eq!(semaphore.with_permit(available).unwrap(), 1);
    assert_eq!(semaphore.try_with_permit(available).unwrap(), Some(1));
    assert_eq!(semaphore.with_permit_wait(Wait::at_most(SECOND), available).unwrap(), 1);
    assert_eq!(available(), 3);

    let panics = || semaphore.with_permit(|| panic!("in the closure")).unwrap();
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(available(), 3, "released by the panic");

    let held = probe.clone().permits(2).acquire().unwrap();
    let never = || unreachable!("two are not free");
    assert_eq!(semaphore.try_with_permit(never).unwrap(), None::<()>);
    let timed_out = semaphore.with_permit_wait(Wait::at_most(millis(20)), never);
    assert!(
        matches!(timed_out, Err::<(), _>(Error::Timeout { .. })),
        "{timed_out:?}"
    );
    assert_eq!(available(), 1);
    held.release().unwrap();

    let mut ran = false;
    let outcome = semaphore.with_permit(|| {
        ran = true;
        assert!(probe.force_release().unwrap());
        // What was thrown out is not noticed at once; that it is gone is what the release finds.
    });
    assert!(ran && matches!(outcome, Err(Error::Lost(_))), "{outcome:?}");
    assert_eq!(available(), 3);
}

pub fn semaphores_and_locks_of_other_names_are_apart(store: &Store) {
    const MANY: usize = 200;
    let client = store.client();
    let names = || (0..MANY).map(|nth| format!("many-{nth}"));
    let kept: Vec<_> = names()
        .map(|name| client.semaphore(name, 2).lease(SECOND * 2).acquire().unwrap())
        .collect();
    let _lock = client.client.lock("many-0").try_acquire().unwrap().expect("a lock");
    assert!(!kept[0].wait_lost(SECOND * 3), "renewed");
    for (guard, name) in kept.iter().zip(names()) {
        guard.check().unwrap();
        assert_eq!(guard.name(), name.as_bytes());
        assert_eq!(client.semaphore(name, 2).available().unwrap(), 1);
    }
    drop(kept);
    for name in names() {
        assert_eq!(client.semaphore(name, 2).available().unwrap(), 2);
    }
}

pub fn a_lock_is_nothing_to_a_semaphore_of_its_name(store: &Store) {
    let client = store.client().client;
    let _lock = client.lock("a").try_acquire().unwrap().expect("free");
    let _permit = client.semaphore("a", 1).try_acquire().unwrap().expect("free");
    let replaced = store.builder().lock_prefix("mutex/").build().unwrap();
    let _another_lock = replaced.lock("a").try_acquire().unwrap().expect("another lock prefix");
    assert!(replaced.semaphore("a", 1).try_acquire().unwrap().is_none());
}

pub fn what_is_a_lock_is_no_semaphore_and_the_other_way_round(store: &Store) {
    fn assert_conflict<T: std::fmt::Debug>(outcome: Result<T, Error>) {
        assert!(matches!(outcome, Err(Error::KeyConflict { .. })), "{outcome:?}");
    }
    // Its locks and its semaphores stand at the same keys.
    let client = store.client_with(|builder| builder.lock_prefix("semaphore:")).client;
    let (lock, semaphore) = (client.lock("x"), client.semaphore("x", 3));
    let guard = lock.acquire().unwrap();
    assert_conflict(semaphore.try_acquire());
    assert_conflict(semaphore.acquire_timeout(PROMPT));
    assert_conflict(semaphore.inspect());
    assert_conflict(semaphore.force_release());
    guard.extend(MINUTE).unwrap();
    guard.release().unwrap();

    let guard = semaphore.acquire().unwrap();
    assert_conflict(lock.acquire_timeout(PROMPT));
    assert_conflict(lock.inspect());
    assert_conflict(lock.force_release());
    guard.extend(MINUTE).unwrap();
    guard.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), 3);
}

pub fn a_look_shows_every_holder_and_what_is_left(store: &Store) {
    let semaphore = store.sleepy_semaphore(5);
    let free = semaphore.inspect().unwrap();
    assert!(free.is_free());
    assert_eq!(free.to_string(), "free; 5 of 5 permits free");
    assert_eq!((free.limit, free.declared_limit, free.available()), (5, 5, 5));
    assert_eq!((free.reserved, free.waiters, free.fencing_token), (0, 0, None));

    let three = semaphore.clone().permits(3).acquire().unwrap();
    let one = store.semaphore(5).timed(SECOND * 10).acquire().unwrap();
    let seen = store.semaphore(5).inspect().unwrap();
    assert_eq!((seen.limit, seen.available(), seen.reserved), (5, 1, 0));
    assert_eq!(seen.fencing_token, Some(one.fencing_token()));
    assert_eq!(seen.holders.len(), 2);
    for (guard, permits, at_most) in [(&three, 3, MINUTE), (&one, 1, SECOND * 10)] {
        let mut holders = seen.holders.iter();
        let holder = holders.find(|holder| holder.token == guard.token().as_bytes());
        let holder = holder.unwrap_or_else(|| panic!("{guard:?} is not in {seen:?}"));
        assert_eq!(holder.permits, permits);
        let Expiry::In(left) = holder.expiry else {
            panic!("{holder:?}");
        };
        assert!(left > at_most / 2 && left <= at_most + millis(1), "{left:?}");
    }
    let said = seen.to_string();
    assert!(
        said.starts_with("held by `") && said.contains("` (3 permits, expires in "),
        "{said}"
    );
    assert!(
        said.contains(" and `") && said.contains("; 1 of 5 permits free"),
        "{said}"
    );
    assert!(!said.contains("reserved") && !said.contains("waiting"), "{said}");

    thread::scope(|scope| {
        let waiter = Waiter::start(scope, &store.sleepy_semaphore(5).permits(2));
        store.wait_for_waiters(&semaphore, 1);
        let seen = semaphore.inspect().unwrap();
        assert_eq!(
            (seen.available(), seen.holders.len()),
            (1, 2),
            "nothing is kept for it yet"
        );
        assert!(seen.to_string().ends_with("; 1 waiting"), "{seen}");
        one.release().unwrap();
        let two = waiter.served();
        assert_eq!(semaphore.holders().unwrap().len(), 2);
        drop((two, three));
    });
    assert_eq!(semaphore.inspect().unwrap(), free);
}

pub fn whatever_is_held_or_reserved_is_never_more_than_there_is(store: &Store) {
    const LIMIT: u32 = 3;
    let (watcher, done) = (store.semaphore(LIMIT), AtomicBool::new(false));
    let clients = [store.sleepy_client(), store.sleepy_client()];
    let mut reserved = None;
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for (nth, client) in clients.iter().enumerate() {
            for permits in 1..=2 {
                let semaphore = sleepy_permits(client, LIMIT).permits(permits).fair(nth == 0);
                let done = &done;
                scope.spawn(move || {
                    let _done = SetOnDrop(done);
                    while !done.load(Ordering::SeqCst) {
                        semaphore.acquire_timeout(MINUTE / 2).unwrap().release().unwrap();
                    }
                });
            }
        }
        wait_until("permits to be seen reserved", PROMPT * 2, || {
            let seen = watcher.inspect().unwrap();
            let held: u32 = seen.holders.iter().map(|holder| holder.permits).sum();
            assert_eq!(held + seen.reserved + seen.available(), LIMIT, "{seen:?}");
            reserved = (seen.reserved > 0).then_some(seen);
            reserved.is_some() || done.load(Ordering::SeqCst)
        });
    });
    let seen = reserved.expect("somebody has ended early");
    let said = match seen.reserved {
        1 => "reserved for a waiter; ".to_owned(),
        reserved => format!("{reserved} reserved for waiters; "),
    };
    assert!(!seen.is_free() && seen.to_string().contains(&said), "{seen}");
    assert_free(&watcher, LIMIT);
}
