//! Waiting for several locks that are held as one, where those who wait are woken and counted.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use redlatch::{CancelToken, Error, LostReason, Wait};

use crate::{
    exclusive::Client,
    several::{LIMIT, assert_free, is_free, names},
    store::{MINUTE, PROMPT, Store},
    support::{SetOnDrop, lost, millis, wait_until},
};

/// Waits until somebody waits for the lock `name`.
#[track_caller]
fn wait_for_a_waiter(client: &Client, name: &str) {
    wait_until("somebody to wait", PROMPT, || {
        client.lock(name).inspect().unwrap().waiters > 0
    });
}

pub fn a_thousand_are_taken_and_given_back(store: &Store) {
    let (client, other) = (store.client(), store.client());
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
    let (client, other) = (store.sleepy_client(), store.client());
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
    let (client, other) = (store.client(), store.client());
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
    let (lease, client, other) = (millis(1500), store.client(), store.client());
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

pub fn who_takes_them_again_and_again_passes_nobody_for_long(store: &Store) {
    let client = store.client();
    for waiter_of in [client.clone(), store.client()] {
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

pub fn what_is_lost_during_the_wait_is_taken_again(store: &Store) {
    let (client, other) = (store.client(), store.client());
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

pub fn the_longest_hold_is_counted_from_when_all_are_held(store: &Store) {
    let (client, other) = (store.client(), store.client());
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
