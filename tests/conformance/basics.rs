//! Taking and releasing: what a lock is, whoever uses it, and what its handles may do.

use std::{
    sync::{
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Error, Guard, LostReason, Wait};

use crate::{
    exclusive::Lock,
    store::Store,
    support::{SECOND, lost, millis},
};

pub fn at_most_one_of_many_threads_and_clients_holds_the_lock(store: &Store) {
    let (inside, entered) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            let lock = store.client().lock("shared");
            for _ in 0..2 {
                let lock = lock.clone();
                let (inside, entered) = (&inside, &entered);
                scope.spawn(move || {
                    for _ in 0..15 {
                        let guard = lock.acquire().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        entered.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        guard.release().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(entered.into_inner(), 8 * 15);
}

pub fn a_held_lock_is_refused_to_a_try_and_free_after_the_release(store: &Store) {
    let (ours, theirs) = (store.client().lock("x"), store.client().lock("x"));
    let guard = ours.try_acquire().unwrap().expect("free");
    assert!(guard.is_held());
    assert_eq!(guard.name(), b"x");
    assert!(theirs.try_acquire().unwrap().is_none());
    assert!(ours.try_acquire().unwrap().is_none(), "not reentrant");
    guard.release().unwrap();
    drop(theirs.try_acquire().unwrap().expect("released"));
    assert!(ours.try_acquire().unwrap().is_some(), "dropped");
}

pub fn names_are_apart(store: &Store) {
    let client = store.client();
    let _a = client.lock("a").try_acquire().unwrap().expect("free");
    let _b = client.lock("b").try_acquire().unwrap().expect("another name");
    let elsewhere = store.client_with(|builder| builder.prefix(format!("{}elsewhere:", store.prefix)));
    let _c = elsewhere.lock("a").try_acquire().unwrap().expect("another prefix");
}

pub fn any_bytes_are_a_name(store: &Store) {
    let client = store.client();
    let long = vec![b'n'; 10_000];
    for name in [
        &b"\0"[..],
        b"\xff\xfe\r\n",
        b"{a",
        b"{a}b",
        "\u{1F512}".as_bytes(),
        &long,
    ] {
        let guard = client.lock(name).try_acquire().unwrap().expect("free");
        assert!(client.lock(name).try_acquire().unwrap().is_none());
        guard.release().unwrap();
    }
}

pub fn what_cannot_work_is_refused_before_anything_is_sent(store: &Store) {
    let client = store.client();
    let refused = |lock: Lock| {
        let error = lock.acquire().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
    };
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(9_999),
        Duration::MAX,
    ] {
        refused(client.lock("x").lease(lease));
        refused(client.timed_lock("x", lease));
    }
    let error = client.lock("x").lease(Duration::MAX).acquire().unwrap_err();
    assert!(error.to_string().ends_with("from 10ms to 10 years"), "{error}");
    refused(client.lock("x").max_hold(Duration::ZERO));
    refused(client.lock("x").max_hold(millis(9)));
    refused(client.lock(""));

    let guard = client.lock("x").max_hold(SECOND * 60).acquire().unwrap();
    let left = guard.remaining();
    for extension in [Duration::ZERO, millis(9), SECOND * 61, Duration::MAX] {
        assert!(matches!(guard.extend(extension), Err(Error::InvalidArgument(_))));
    }
    assert!(guard.remaining() <= left);

    for builder in [
        store.builder().pool_size(0),
        store.builder().command_timeout(Duration::ZERO),
        store.builder().connect_timeout(Duration::ZERO),
        store.builder().command_timeout(Duration::MAX),
        store.builder().poll_interval(Duration::ZERO),
        store.builder().poll_interval(millis(9)),
        store.builder().poll_interval(SECOND * 3600 + millis(1)),
        store.builder().poll_interval(Duration::MAX),
    ] {
        assert!(matches!(builder.build(), Err(Error::InvalidArgument(_))));
    }
    for poll_interval in [millis(10), SECOND * 3600] {
        store.builder().poll_interval(poll_interval).build().unwrap();
    }
}

pub fn the_largest_durations_saturate(store: &Store) {
    let lock = store.client().lock("x").max_hold(Duration::MAX);
    let longest = store.longest_lease.unwrap_or(SECOND * 3600 * 24 * 365 * 9);
    for wait in [
        Wait::forever(),
        Wait::at_most(Duration::MAX),
        Wait::at_most(Duration::from_secs(u64::MAX / 1000)),
    ] {
        let guard = lock.acquire_with(wait).unwrap();
        assert!(!guard.wait_lost(millis(1)));
        let sent = Instant::now();
        guard.extend(longest).unwrap();
        assert!(guard.remaining() > longest / 2);
        assert!(sent.elapsed() < SECOND * 5);
        guard.release().unwrap();
    }
    let guard = lock.acquire().unwrap();
    let waiter = lock.clone();
    let waiting = thread::spawn(move || waiter.acquire_timeout(Duration::MAX).map(drop));
    // Only a look at the present: that it never ends by itself cannot be seen. A slow thread passes too.
    thread::sleep(millis(50));
    assert!(!waiting.is_finished(), "a huge wait ended at once");
    drop(guard);
    waiting.join().unwrap().unwrap();
}

pub fn fencing_tokens_rise_with_every_grant(store: &Store) {
    let highest = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (lock, highest) = (store.client().lock("x"), &highest);
            scope.spawn(move || {
                for _ in 0..25 {
                    let guard = lock.acquire().unwrap();
                    let before = highest.swap(guard.fencing_token(), Ordering::SeqCst);
                    assert!(guard.fencing_token() > before);
                    guard.release().unwrap();
                }
            });
        }
    });
}

pub fn a_guard_may_be_used_and_dropped_on_any_thread(store: &Store) {
    fn assert_free_to_move<T: Send + Sync + 'static>() {}
    assert_free_to_move::<Guard>();
    assert_free_to_move::<redlatch::Lock>();
    assert_free_to_move::<redlatch::Semaphore>();
    assert_free_to_move::<redlatch::Client>();

    let lock = store.client().lock("x");
    let guard = lock.acquire().unwrap();
    thread::spawn(move || {
        guard.check().unwrap();
        drop(guard);
    })
    .join()
    .unwrap();
    let guard = lock.try_acquire().unwrap().expect("dropped on the other thread");
    thread::spawn(move || guard.release().unwrap()).join().unwrap();
    assert!(lock.try_acquire().unwrap().is_some());
}

pub fn uses_of_one_lock_object_share_nothing(store: &Store) {
    let lock = store.client().timed_lock("x", millis(150));
    let stale = lock.acquire().unwrap();
    assert!(stale.wait_lost(SECOND * 5));
    let current = lock.clone().lease(store.lease()).acquire_timeout(SECOND * 5).unwrap();
    assert_ne!(stale.token(), current.token());
    assert!(current.fencing_token() > stale.fencing_token());
    assert!(stale.extend(SECOND).is_err());
    drop(stale);
    current.check().unwrap();
    assert!(
        lock.try_acquire().unwrap().is_none(),
        "the stale guard released another's hold"
    );
}

pub fn a_clone_with_another_lease_keeps_both_leases_right(store: &Store) {
    let short = store.client().timed_lock("a", SECOND);
    let long = short.clone().lease(store.longest_lease.unwrap_or(SECOND * 100));
    let guard = short.acquire().unwrap();
    assert!(guard.remaining() <= SECOND);
    guard.release().unwrap();
    let guard = long.acquire().unwrap();
    assert!(guard.remaining() > SECOND * 2);
    guard.release().unwrap();
    assert!(short.acquire().unwrap().remaining() <= SECOND);
}

pub fn closures_run_under_the_lock_and_return_their_value(store: &Store) {
    let lock = store.client().lock("x");
    let probe = store.client().lock("x");
    let busy = || probe.try_acquire().unwrap().is_none();
    assert!(lock.with_lock(busy).unwrap());
    assert_eq!(lock.try_with_lock(busy).unwrap(), Some(true));
    assert!(lock.with_lock_wait(Wait::at_most(SECOND), busy).unwrap());
    assert!(!busy());
}

pub fn a_closure_that_finds_the_lock_busy_does_not_run(store: &Store) {
    let lock = store.client().lock("x");
    let _held = lock.acquire().unwrap();
    let other = store.client().lock("x");
    assert_eq!(
        other.try_with_lock(|| unreachable!("the lock is taken")).unwrap(),
        None::<()>
    );
    let timed_out = other.with_lock_wait(Wait::at_most(millis(20)), || unreachable!("the lock is taken"));
    assert!(matches!(timed_out, Err::<(), _>(Error::Timeout { .. })));
}

pub fn a_panic_in_a_closure_releases_and_unwinds(store: &Store) {
    let lock = store.client().lock("x");
    let panicked = std::panic::catch_unwind(|| lock.with_lock(|| panic!("in the closure")).unwrap());
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in the closure"));
    assert!(lock.try_acquire().unwrap().is_some());
}

pub fn a_closure_that_lost_the_lock_has_run_and_is_told_so(store: &Store) {
    let (sender, losses) = mpsc::channel();
    let lock = store.client().timed_lock("x", millis(200));
    let lock = lock.on_lost(move |lost| sender.send(lost.reason).unwrap());
    let mut ran = false;
    let outcome = lock.with_lock(|| {
        assert_eq!(losses.recv_timeout(SECOND * 10), Ok(LostReason::Expired));
        ran = true;
    });
    assert_eq!(lost(outcome.unwrap_err()), LostReason::Expired);
    assert!(ran);
}

pub fn handles_may_go_in_any_order(store: &Store) {
    let client = store.client();
    let lock = client.lock("x").lease(SECOND);
    let guard = lock.acquire().unwrap();
    drop(client);
    drop(lock);
    assert!(!guard.wait_lost(SECOND * 3 / 2), "renewed without its client and lock");
    guard.release().unwrap();

    let client = store.client();
    let guard = client.lock("x").acquire().unwrap();
    drop(guard);
    drop(client);
    assert!(store.client().lock("x").try_acquire().unwrap().is_some());
}

pub fn the_last_handle_may_go_in_a_callback(store: &Store) {
    let (sender, dropped) = mpsc::channel();
    let client = store.client();
    let last = std::sync::Mutex::new(Some(client.clone()));
    let guard = client
        .timed_lock("x", millis(200))
        .on_lost(move |_| {
            drop(last.lock().unwrap().take());
            sender.send(()).unwrap();
        })
        .acquire()
        .unwrap();
    drop(client);
    assert!(guard.wait_lost(SECOND * 5));
    drop(guard);
    dropped
        .recv_timeout(SECOND * 10)
        .expect("the callback hangs on its own client");
}
