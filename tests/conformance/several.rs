//! Several locks that are held as one.

use std::{
    array,
    collections::BTreeSet,
    iter,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, Error, Guard, LostReason, MultiLock, Wait};

use crate::{
    store::{MINUTE, PROMPT, Store},
    support::{SECOND, SetOnDrop, lost, millis, wait_until},
};

/// Waits of this length are to be served; those who are not fail.
const LIMIT: Duration = SECOND.saturating_mul(60);

fn names(locks: &MultiLock) -> Vec<String> {
    locks.names().map(|name| String::from_utf8_lossy(name).into()).collect()
}

/// Whether nobody holds the lock `name`.
fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some()
}

#[track_caller]
fn assert_free<'a>(client: &Client, names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        assert!(is_free(client, name), "{name} is still taken");
    }
}

/// Waits until somebody waits for the lock `name`.
#[track_caller]
fn wait_for_a_waiter(client: &Client, name: &str) {
    wait_until("somebody to wait", PROMPT, || {
        client.lock(name).inspect().unwrap().waiters > 0
    });
}

pub fn names_are_taken_once_and_in_one_order(store: &Store) {
    let client = store.client().client;
    let locks = client.multi_lock(["b", "a", "c", "a", "b"]);
    let other = client.multi_lock(["c", "a", "b"]);
    assert_eq!(names(&locks), names(&other));
    assert_eq!(names(&locks).into_iter().collect::<BTreeSet<_>>().len(), 3);
    let guard = locks.acquire_timeout(LIMIT).unwrap();
    assert!(guard.names().eq(locks.names()));
    assert_eq!(guard.name(), locks.names().next().unwrap());
}

pub fn all_are_taken_or_none(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let locks = client.multi_lock(["a", "b", "c"]);
    let guard = locks.try_acquire().unwrap().expect("free");
    assert!(guard.is_held() && guard.remaining() > SECOND * 25);
    guard.check().unwrap();
    assert!(other.multi_lock(["a", "b", "c"]).try_acquire().unwrap().is_none());
    guard.release().unwrap();
    assert_free(&other, ["a", "b", "c"]);

    for taken in ["a", "b", "c"] {
        let _taken = other.lock(taken).try_acquire().unwrap().expect("free");
        assert!(locks.try_acquire().unwrap().is_none());
        assert_free(&client, ["a", "b", "c"].into_iter().filter(|&name| name != taken));
        let error = locks.acquire_with(Wait::none()).unwrap_err();
        assert!(
            matches!(&error, Error::Timeout { name, .. } if name == taken.as_bytes()),
            "{error:?}"
        );
    }
}

pub fn they_are_the_locks_of_those_names(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let locks = client.multi_lock(["a", "b"]);
    let guard = locks.acquire_timeout(LIMIT).unwrap();
    for name in ["a", "b"] {
        for client in [&client, &other] {
            assert!(!is_free(client, name));
        }
        let seen = other.lock(name).inspect().unwrap();
        let at = guard.names().position(|other| other == name.as_bytes()).unwrap();
        assert_eq!(seen.fencing_token, Some(guard.fencing_tokens()[at]));
        assert_eq!(at == 0, seen.holders[0].token == guard.token().as_bytes());
    }
    assert_free(&other, ["c"]);
    drop(guard);
    assert_free(&other, ["a", "b"]);
}

pub fn each_has_its_own_fencing_token_which_rises(store: &Store) {
    let client = store.client().client;
    let single = |name: &[u8]| client.lock(name).acquire_timeout(LIMIT).unwrap().fencing_token();
    let locks = client.multi_lock(["a", "b", "c"]);
    for _ in 0..3 {
        let before: Vec<u64> = locks.names().map(single).collect();
        let guard = locks.acquire_timeout(LIMIT).unwrap();
        let tokens = guard.fencing_tokens();
        assert_eq!(guard.fencing_token(), tokens[0]);
        guard.release().unwrap();
        let after: Vec<u64> = locks.names().map(single).collect();
        assert_eq!(tokens.len(), 3);
        for at in 0..3 {
            assert!(before[at] < tokens[at] && tokens[at] < after[at]);
        }
    }
    let guard = client.lock("a").acquire().unwrap();
    assert_eq!(guard.fencing_tokens(), [guard.fencing_token()]);
    assert!(guard.names().eq([b"a"]));
}

pub fn what_cannot_work_is_refused_before_anything_is_sent(store: &Store) {
    let client = store.client().client;
    let refused = |locks: MultiLock| {
        let error = locks.acquire().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        error.to_string()
    };
    let said = refused(client.multi_lock(iter::empty::<&str>()));
    assert!(said.contains("0 names"), "{said}");
    let said = refused(client.multi_lock((0..1001).map(|nth| format!("name-{nth}"))));
    assert!(said.contains("1001 names"), "{said}");
    refused(client.multi_lock(["a", ""]));
    refused(client.multi_lock(["a"]).lease(Duration::ZERO));
    refused(client.multi_lock(["a"]).lease(Duration::MAX));
    refused(client.multi_lock(["a"]).max_hold(millis(9)));
    assert_free(&client, ["a"]);
    let guard = client.multi_lock(["a", "b"]).max_hold(MINUTE).acquire().unwrap();
    for extension in [Duration::ZERO, MINUTE + SECOND, Duration::MAX] {
        assert!(matches!(guard.extend(extension), Err(Error::InvalidArgument(_))));
    }
}

pub fn a_thousand_are_taken_and_given_back(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let locks = client.multi_lock((0..1000).map(|nth| format!("name-{nth}")));
    let guard = locks.acquire_timeout(LIMIT).unwrap();
    assert_eq!(guard.fencing_tokens().len(), 1000);
    guard.extend(MINUTE).unwrap();
    assert!(!is_free(&other, "name-0") && !is_free(&other, "name-999"));
    guard.release().unwrap();
    let again = other.multi_lock((0..1000).map(|nth| format!("name-{nth}")));
    drop(again.try_acquire().unwrap().expect("all were given back"));
}

pub fn a_wait_ends_with_all_of_them_or_leaves_nothing(store: &Store) {
    let (client, other) = (store.sleepy_client().client, store.client().client);
    let locks = client.multi_lock(["a", "b", "c"]).lease(MINUTE);
    for taken in ["a", "b", "c"] {
        let guard = other.lock(taken).lease(MINUTE).acquire_timeout(LIMIT).unwrap();
        let start = Instant::now();
        let error = locks.acquire_timeout(millis(50)).unwrap_err();
        assert!(start.elapsed() >= millis(50));
        let named = |name: &[u8], waited| name == taken.as_bytes() && waited >= millis(50);
        assert!(
            matches!(&error, Error::Timeout { name, waited, last: None, .. } if named(name, *waited)),
            "{error:?}"
        );
        assert_free(&other, ["a", "b", "c"].into_iter().filter(|&name| name != taken));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| locks.acquire_timeout(LIMIT));
            wait_for_a_waiter(&other, taken);
            guard.release().unwrap();
            let start = Instant::now();
            let guard = waiting.join().unwrap().unwrap();
            assert!(start.elapsed() < PROMPT, "it was not woken: {:?}", start.elapsed());
            assert!(!is_free(&other, "a") && !is_free(&other, "b") && !is_free(&other, "c"));
            guard.release().unwrap();
        });
        assert_free(&other, ["a", "b", "c"]);
    }
}

pub fn a_cancelled_wait_leaves_nothing(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let _taken = other.lock("c").acquire_timeout(LIMIT).unwrap();
    let (locks, cancel) = (client.multi_lock(["a", "b", "c"]), CancelToken::new());
    thread::scope(|scope| {
        let wait = Wait::at_most(LIMIT).cancelled_by(&cancel);
        let waiting = scope.spawn(|| locks.acquire_with(wait).map(drop));
        wait_for_a_waiter(&other, "c");
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
    });
    wait_until("all to be given back", PROMPT, || {
        is_free(&other, "a") && is_free(&other, "b") && other.lock("c").inspect().unwrap().waiters == 0
    });
    let before = locks.acquire_with(Wait::forever().cancelled_by(&cancel));
    assert!(matches!(before, Err(Error::Cancelled)));
    assert_free(&other, ["a", "b"]);
}

pub fn what_is_had_is_kept_while_another_is_waited_for(store: &Store) {
    let (lease, client, other) = (millis(1500), store.client().client, store.client().client);
    let locks = client.multi_lock(["a", "b"]).lease(lease);
    let (first, last) = (names(&locks)[0].clone(), names(&locks)[1].clone());
    let taken = other.lock(&last).acquire_timeout(LIMIT).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.acquire_timeout(LIMIT));
        wait_for_a_waiter(&other, &last);
        let end = Instant::now() + lease * 2;
        while Instant::now() < end {
            assert!(!is_free(&other, &first), "it was lost while another one was waited for");
            thread::sleep(millis(5));
        }
        taken.release().unwrap();
        let guard = waiting.join().unwrap().unwrap();
        guard.check().unwrap();
        guard.release().unwrap();
    });
}

pub fn threads_that_take_them_in_any_order_never_deadlock(store: &Store) {
    let sets = [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "d"], ["d", "c", "a"]];
    thread::scope(|scope| {
        for set in sets {
            for client in [store.client().client, store.client().client] {
                let locks = client.multi_lock(set);
                scope.spawn(move || {
                    for _ in 0..15 {
                        locks.with_lock_wait(Wait::at_most(LIMIT), thread::yield_now).unwrap();
                    }
                });
            }
        }
    });
    assert_free(&store.client().client, ["a", "b", "c", "d"]);
}

pub fn at_most_one_of_many_threads_and_clients_holds_each(store: &Store) {
    let inside: [AtomicU32; 6] = Default::default();
    let newest: [Mutex<u64>; 6] = array::from_fn(|_| Mutex::default());
    thread::scope(|scope| {
        for nth in 0..6_usize {
            let client = store.client().client;
            let (inside, newest) = (&inside, &newest);
            scope.spawn(move || {
                for round in 0..25 {
                    let at = |step: usize| (nth + round * step) % 6;
                    // Each third time one lock alone.
                    let guard = match round % 3 {
                        0 => client.lock(at(1).to_string()).acquire_timeout(LIMIT),
                        _ => client
                            .multi_lock([at(1), at(2), at(3)].map(|name| name.to_string()))
                            .acquire_timeout(LIMIT),
                    };
                    let guard = guard.unwrap();
                    let held: Vec<usize> = guard.names().map(|name| usize::from(name[0] - b'0')).collect();
                    for (&name, fencing_token) in held.iter().zip(guard.fencing_tokens()) {
                        assert_eq!(inside[name].fetch_add(1, Ordering::SeqCst), 0, "{name} is held twice");
                        let mut newest = newest[name].lock().unwrap();
                        assert!(*newest < fencing_token, "a token came again");
                        *newest = fencing_token;
                    }
                    thread::yield_now();
                    for &name in &held {
                        inside[name].fetch_sub(1, Ordering::SeqCst);
                    }
                    guard.release().unwrap();
                }
            });
        }
    });
}

pub fn who_takes_them_again_and_again_passes_nobody_for_long(store: &Store) {
    let client = store.client().client;
    for waiter_of in [client.clone(), store.client().client] {
        let (stopped, turns) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            let _stopped = SetOnDrop(&stopped);
            let hot = client.multi_lock(["a", "b"]);
            let (stopped, turns) = (&stopped, &turns);
            scope.spawn(move || {
                while !stopped.load(Ordering::SeqCst) {
                    let guard = hot.acquire_timeout(LIMIT).unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
            wait_until("it to take them", PROMPT, || turns.load(Ordering::SeqCst) > 10);
            for name in ["a", "b"] {
                for _ in 0..10 {
                    let guard = waiter_of.lock(name).acquire_timeout(PROMPT).unwrap();
                    guard.release().unwrap();
                }
            }
        });
    }
}

pub fn the_loss_of_one_is_told_and_the_others_are_given_back(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let (told, losses) = mpsc::channel();
    let locks = client
        .multi_lock(["a", "b", "c"])
        .lease(SECOND * 3)
        .on_lost(move |lost| {
            told.send((lost.name().to_vec(), lost.reason, lost.fencing_token))
                .unwrap()
        });
    for victim in ["a", "b", "c"] {
        let guard = locks.acquire_timeout(LIMIT).unwrap();
        assert!(!guard.wait_lost(millis(5)));
        assert!(other.lock(victim).force_release().unwrap());
        let taken = other.lock(victim).lease(MINUTE).try_acquire().unwrap();
        assert!(taken.is_some());
        assert!(guard.wait_lost(PROMPT), "nobody tells of it");
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let (name, reason, fencing_token) = losses.recv_timeout(PROMPT).unwrap();
        assert_eq!((&name[..], reason), (victim.as_bytes(), LostReason::Taken));
        let at = guard.names().position(|name| name == victim.as_bytes()).unwrap();
        assert_eq!(fencing_token, guard.fencing_tokens()[at]);
        assert_eq!(lost(guard.check().unwrap_err()), LostReason::Taken);
        assert_eq!(lost(guard.extend(MINUTE).unwrap_err()), LostReason::Taken);
        // The others are kept until it is released.
        assert!(["a", "b", "c"].iter().all(|name| !is_free(&other, name)));
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken);
        assert_free(&other, ["a", "b", "c"].into_iter().filter(|&name| name != victim));
        assert!(taken.is_some_and(|taken| taken.is_held()));
        assert!(losses.try_recv().is_err(), "each loss is told once");
    }
}

pub fn what_is_lost_during_the_wait_is_taken_again(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let (told, losses) = mpsc::channel();
    let locks = client
        .multi_lock(["a", "b", "c"])
        .lease(MINUTE)
        .on_lost(move |lost| told.send(lost.clone()).unwrap());
    let in_order = names(&locks);
    let last = other.lock(&in_order[2]).acquire_timeout(LIMIT).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.acquire_timeout(LIMIT));
        wait_for_a_waiter(&other, &in_order[2]);
        // Deleted and still free, and deleted and taken by somebody else.
        for lost in &in_order[..2] {
            assert!(other.lock(lost).force_release().unwrap());
        }
        let taken = other.lock(&in_order[1]).acquire_timeout(PROMPT).unwrap();
        last.release().unwrap();
        wait_for_a_waiter(&other, &in_order[1]);
        assert!(!waiting.is_finished());
        taken.release().unwrap();
        let guard = waiting.join().unwrap().unwrap();
        for name in &in_order {
            assert!(!is_free(&other, name), "{name} is not held");
        }
        for (name, fencing_token) in in_order.iter().zip(guard.fencing_tokens()) {
            let seen = other.lock(name).inspect().unwrap();
            assert_eq!(seen.fencing_token, Some(fencing_token));
        }
        guard.release().unwrap();
    });
    assert!(losses.try_recv().is_err(), "nobody held them yet");
}

pub fn an_extension_is_of_all(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let guard = client.multi_lock(["a", "b"]).acquire_timeout(LIMIT).unwrap();
    guard.extend(MINUTE * 5).unwrap();
    assert!(guard.remaining() > MINUTE * 4);
    for name in ["a", "b"] {
        let holder = other.lock(name).inspect().unwrap().holders.remove(0);
        assert!(
            matches!(holder.expiry, redlatch::Expiry::In(left) if left > MINUTE * 4),
            "{holder:?}"
        );
    }
    guard.extend(SECOND).unwrap();
    assert!(guard.remaining() > MINUTE * 4, "never shortened");
}

pub fn the_longest_hold_is_counted_from_when_all_are_held(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let max_hold = millis(800);
    let (told, losses) = mpsc::channel();
    let locks = client
        .multi_lock(["a", "b"])
        .max_hold(max_hold)
        .on_lost(move |lost| told.send(lost.reason).unwrap());
    let last = names(&locks)[1].clone();
    let taken = other.lock(&last).acquire_timeout(LIMIT).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = locks.acquire_timeout(LIMIT);
            (guard, Instant::now())
        });
        wait_for_a_waiter(&other, &last);
        thread::sleep(max_hold * 2);
        taken.release().unwrap();
        let (guard, begun) = waiting.join().unwrap();
        let guard = guard.unwrap();
        assert!(guard.wait_lost(PROMPT));
        assert!(begun.elapsed() <= max_hold + PROMPT / 2);
        for _ in 0..2 {
            assert_eq!(losses.recv_timeout(PROMPT), Ok(LostReason::MaxHold));
        }
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::MaxHold);
    });
}

pub fn closures_run_under_all_of_them(store: &Store) {
    let (client, other) = (store.client().client, store.client().client);
    let locks = client.multi_lock(["a", "b"]);
    let taken = || !is_free(&other, "a") && !is_free(&other, "b");
    assert!(locks.with_lock(taken).unwrap());
    assert_eq!(locks.try_with_lock(taken).unwrap(), Some(true));
    assert!(locks.with_lock_wait(Wait::at_most(LIMIT), taken).unwrap());
    assert_eq!(locks.with_guard(|guard| guard.names().count()).unwrap(), 2);
    assert_free(&other, ["a", "b"]);

    let panicked = std::panic::catch_unwind(|| locks.with_lock(|| panic!("on purpose")));
    assert!(panicked.is_err());
    assert_free(&other, ["a", "b"]);

    let _taken = other.lock("b").acquire_timeout(LIMIT).unwrap();
    assert_eq!(locks.try_with_lock(|| unreachable!("b is taken")).unwrap(), None::<()>);
}

pub fn their_handles_may_go_in_any_order(store: &Store) {
    let other = store.client().client;
    let guard: Guard = store
        .client()
        .client
        .multi_lock(["a", "b"])
        .acquire_timeout(LIMIT)
        .unwrap();
    assert!(guard.is_held() && !is_free(&other, "b"));
    thread::spawn(move || drop(guard)).join().unwrap();
    assert_free(&other, ["a", "b"]);
}
