//! Several locks that are held as one.

use std::{
    array,
    collections::BTreeSet,
    iter,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use redlatch::{Error, Expiry, Guard, LostReason, MultiLock, Wait};

use crate::{
    exclusive::Client,
    store::{PROMPT, Store},
    support::{SECOND, lost, millis},
};

/// Waits of this length are to be served; those who are not fail.
pub const LIMIT: Duration = SECOND.saturating_mul(60);

pub fn names(locks: &MultiLock) -> Vec<String> {
    locks.names().map(|name| String::from_utf8_lossy(name).into()).collect()
}

/// Whether nobody holds the lock `name`.
pub fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some()
}

#[track_caller]
pub fn assert_free<'a>(client: &Client, names: impl IntoIterator<Item = &'a str>) {
    for name in names {
        assert!(is_free(client, name), "{name} is still taken");
    }
}

pub fn names_are_taken_once_and_in_one_order(store: &Store) {
    let client = store.client();
    let locks = client.multi_lock(["b", "a", "c", "a", "b"]);
    let other = client.multi_lock(["c", "a", "b"]);
    assert_eq!(names(&locks), names(&other));
    assert_eq!(names(&locks).into_iter().collect::<BTreeSet<_>>().len(), 3);
    let guard = locks.acquire_timeout(LIMIT).unwrap();
    assert!(guard.names().eq(locks.names()));
    assert_eq!(guard.name(), locks.names().next().unwrap());
}

pub fn all_are_taken_or_none(store: &Store) {
    let (client, other) = (store.client(), store.client());
    let locks = client.multi_lock(["a", "b", "c"]);
    let guard = locks.try_acquire().unwrap().expect("free");
    assert!(guard.is_held() && guard.remaining() > store.lease() * 4 / 5);
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
    let (client, other) = (store.client(), store.client());
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
    let client = store.client();
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
    let client = store.client();
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
    let guard = client.multi_lock(["a", "b"]).max_hold(store.lease()).acquire().unwrap();
    for extension in [Duration::ZERO, store.lease() + SECOND, Duration::MAX] {
        assert!(matches!(guard.extend(extension), Err(Error::InvalidArgument(_))));
    }
}

pub fn threads_that_take_them_in_any_order_never_deadlock(store: &Store) {
    let sets = [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "d"], ["d", "c", "a"]];
    thread::scope(|scope| {
        for set in sets {
            for client in [store.client(), store.client()] {
                let locks = client.multi_lock(set);
                scope.spawn(move || {
                    for _ in 0..15 {
                        locks.with_lock_wait(Wait::at_most(LIMIT), thread::yield_now).unwrap();
                    }
                });
            }
        }
    });
    assert_free(&store.client(), ["a", "b", "c", "d"]);
}

pub fn at_most_one_of_many_threads_and_clients_holds_each(store: &Store) {
    let inside: [AtomicU32; 6] = Default::default();
    let newest: [Mutex<u64>; 6] = array::from_fn(|_| Mutex::default());
    thread::scope(|scope| {
        for nth in 0..6_usize {
            let client = store.client();
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

pub fn the_loss_of_one_is_told_and_the_others_are_given_back(store: &Store) {
    let (client, other) = (store.client(), store.client());
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
        let taken = other.lock(victim).try_acquire().unwrap();
        assert!(taken.is_some());
        assert!(guard.wait_lost(PROMPT), "nobody tells of it");
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let (name, reason, fencing_token) = losses.recv_timeout(PROMPT).unwrap();
        assert_eq!((&name[..], reason), (victim.as_bytes(), LostReason::Taken));
        let at = guard.names().position(|name| name == victim.as_bytes()).unwrap();
        assert_eq!(fencing_token, guard.fencing_tokens()[at]);
        assert_eq!(lost(guard.check().unwrap_err()), LostReason::Taken);
        assert_eq!(lost(guard.extend(store.lease()).unwrap_err()), LostReason::Taken);
        // The others are kept until it is released.
        assert!(["a", "b", "c"].iter().all(|name| !is_free(&other, name)));
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken);
        assert_free(&other, ["a", "b", "c"].into_iter().filter(|&name| name != victim));
        assert!(taken.is_some_and(|taken| taken.is_held()));
        assert!(losses.try_recv().is_err(), "each loss is told once");
    }
}

pub fn an_extension_is_of_all(store: &Store) {
    let (client, other) = (store.client(), store.client());
    let (short, long) = (store.lease() / 2, store.lease());
    let guard = client
        .multi_lock(["a", "b"])
        .lease(short)
        .acquire_timeout(LIMIT)
        .unwrap();
    guard.extend(long).unwrap();
    assert!(guard.remaining() > short);
    for name in ["a", "b"] {
        let holder = other.lock(name).inspect().unwrap().holders.remove(0);
        assert!(matches!(holder.expiry, Expiry::In(left) if left > short), "{holder:?}");
    }
    guard.extend(millis(10)).unwrap();
    assert!(guard.remaining() > short, "never shortened");
}

pub fn closures_run_under_all_of_them(store: &Store) {
    let (client, other) = (store.client(), store.client());
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
    let other = store.client();
    let guard: Guard = store.client().multi_lock(["a", "b"]).acquire_timeout(LIMIT).unwrap();
    assert!(guard.is_held() && !is_free(&other, "b"));
    thread::spawn(move || drop(guard)).join().unwrap();
    assert_free(&other, ["a", "b"]);
}
