//! The threads of one client, which hand permits on among themselves while others hold theirs.

use std::{
    collections::HashSet,
    sync::{Barrier, Mutex},
    thread,
};

use redlatch::Semaphore;

use crate::{
    exclusive::Client,
    hand_over::{handed_over, holds, long_enough, pass},
    store::{MINUTE, PROMPT, Store, assert_free, sleepy_permits},
    support::millis,
};

/// Permits that go on from one thread to the next as often as it takes.
fn handed_on(client: &Client, limit: u32) -> Semaphore {
    sleepy_permits(client, limit).handoffs(u32::MAX)
}

pub fn a_permit_is_handed_on_with_a_new_fencing_token_while_others_hold_theirs(store: &Store) {
    let semaphore = handed_on(&store.sleepy_client(), 3);
    // Those of another client stay, and so does one of the same.
    let others = [
        store.sleepy_semaphore(3).acquire().unwrap(),
        semaphore.acquire().unwrap(),
    ];
    let passed = handed_over(&semaphore, &semaphore);
    assert!(others.iter().all(|other| other.token() != passed.next.token()));
    assert!(
        others
            .iter()
            .all(|other| other.fencing_token() < passed.next.fencing_token())
    );
    for guard in others.iter().chain([&passed.next]) {
        guard.extend(MINUTE).unwrap();
    }
    assert_eq!(semaphore.holders().unwrap().len(), 3);
    assert_free(&semaphore, 0);
    passed.next.release().unwrap();
    assert_free(&semaphore, 1);
    drop(others);
    assert_free(&semaphore, 3);
}

pub fn a_permit_is_handed_on_within_a_turn_though_another_client_waits(store: &Store) {
    let (clients, holder) = (
        [store.sleepy_client(), store.sleepy_client()],
        store.sleepy_semaphore(1),
    );
    let [ours, theirs] = clients.map(|client| handed_on(&client, 1));
    // On a busy machine a turn of 20 ms may be over too soon; but not each time.
    let handed_on = (0..20).any(|_| {
        let order = Mutex::new(Vec::new());
        let take = |semaphore: &Semaphore, who| {
            let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
            order.lock().unwrap().push(who);
            guard.release().unwrap();
        };
        let held = holder.acquire().unwrap();
        thread::scope(|scope| {
            // The other client comes before the second thread of ours, and may not come before it.
            scope.spawn(|| take(&ours, "first"));
            store.wait_for_waiters(&holder, 1);
            scope.spawn(|| take(&theirs, "other"));
            store.wait_for_waiters(&holder, 2);
            let second = scope.spawn(|| take(&ours, "second"));
            assert!(!held.wait_lost(millis(20)) && !second.is_finished());
            held.release().unwrap();
        });
        order.into_inner().unwrap() == ["first", "second", "other"]
    });
    assert!(handed_on);
}

pub fn several_permits_are_handed_on_as_one(store: &Store) {
    let semaphore = handed_on(&store.sleepy_client(), 3).permits(3);
    let passed = handed_over(&semaphore, &semaphore);
    let [holder] = &semaphore.holders().unwrap()[..] else {
        panic!("{:?}", semaphore.holders());
    };
    assert_eq!(holder.permits, 3);
    assert_eq!(holder.token, passed.next.token().as_bytes());
    passed.next.release().unwrap();
    assert_free(&semaphore, 3);
}

pub fn permits_are_handed_on_to_those_who_want_as_many(store: &Store) {
    let client = store.sleepy_client();
    let semaphore = handed_on(&client, 3);
    let [one, two, three] = [1, 2, 3].map(|permits| semaphore.clone().permits(permits));
    let hold = long_enough(&three);
    // Whoever wants more than there is left has to wait for the release.
    for [first, next] in [[&three, &one], [&three, &two], [&one, &three], [&two, &three]] {
        let passed = pass(first, next, hold, |_| ());
        assert!(!passed.is_handed_over(), "{first:?} to {next:?}");
    }
    let passed = pass(&three, &handed_on(&store.sleepy_client(), 3).permits(3), hold, |_| ());
    assert!(!passed.is_handed_over(), "to another client");
    drop(passed);
    assert_free(&semaphore, 3);
}

pub fn those_who_release_at_once_hand_on_to_different_threads(store: &Store) {
    const LIMIT: u32 = 3;
    let semaphore = handed_on(&store.sleepy_client(), LIMIT);
    let mut handed_over = holds().map(|hold| {
        let held = [(); LIMIT as usize].map(|()| semaphore.acquire_timeout(PROMPT).unwrap());
        let former: HashSet<_> = held.iter().map(|guard| guard.token().to_owned()).collect();
        let (served, at_once) = (Mutex::new(Vec::new()), Barrier::new(LIMIT as usize));
        thread::scope(|scope| {
            for _ in 0..LIMIT {
                scope.spawn(|| {
                    let guard = semaphore.acquire_timeout(PROMPT * 2).unwrap();
                    served.lock().unwrap().push(guard);
                });
            }
            thread::sleep(hold);
            for guard in held {
                scope.spawn(|| {
                    at_once.wait();
                    guard.release().unwrap();
                });
            }
        });
        let served = served.into_inner().unwrap();
        let tokens: HashSet<_> = served.iter().map(|guard| guard.token().to_owned()).collect();
        let fencing_tokens: HashSet<_> = served.iter().map(|guard| guard.fencing_token()).collect();
        assert_eq!((tokens.len(), fencing_tokens.len()), (LIMIT as usize, LIMIT as usize));
        assert_free(&semaphore, 0);
        served.iter().for_each(|guard| guard.extend(MINUTE).unwrap());
        tokens.intersection(&former).count()
    });
    assert!(handed_over.any(|count| count > 0), "nothing was handed on");
    assert_free(&semaphore, LIMIT);
}

pub fn fencing_tokens_differ_over_hand_overs_and_the_grants_of_two_clients(store: &Store) {
    const LIMIT: u32 = 2;
    const THREADS: usize = 4;
    const TURNS: usize = 40;
    let grants = Mutex::new(Vec::new());
    let looks = store.sleepy_semaphore(LIMIT);
    let held = looks.clone().permits(LIMIT).acquire().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            let semaphore = sleepy_permits(&store.sleepy_client(), LIMIT);
            for _ in 0..THREADS {
                let (semaphore, grants) = (semaphore.clone(), &grants);
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        let guard = semaphore.acquire_timeout(MINUTE / 2).unwrap();
                        let grant = (guard.token().to_owned(), guard.fencing_token());
                        grants.lock().unwrap().push(grant);
                        guard.release().unwrap();
                    }
                });
            }
        }
        store.wait_for_waiters(&looks, 2);
        held.release().unwrap();
    });
    let grants = grants.into_inner().unwrap();
    let leases: HashSet<_> = grants.iter().map(|(token, _)| token).collect();
    let fencing_tokens: HashSet<_> = grants.iter().map(|(_, fencing_token)| fencing_token).collect();
    assert_eq!(fencing_tokens.len(), 2 * THREADS * TURNS, "each is that of one grant");
    assert!(leases.len() < grants.len(), "nothing was handed on");
    assert_free(&looks, LIMIT);
}
