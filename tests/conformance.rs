//! The behaviour that every store shows alike: each scenario runs on the in-process store and on a real server.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, ClientBuilder, Error, Expiry, Guard, Lock, Lost, LostReason, Wait};
use support::{SECOND, SLACK, Server, lost, millis, wait_until};

/// A store with a corner of its own for one test.
struct Store {
    url: String,
    prefix: String,
    _server: Option<Arc<Server>>,
}

impl Store {
    fn new(url: String, server: Option<Arc<Server>>) -> Self {
        static TESTS: AtomicU32 = AtomicU32::new(0);
        Self {
            url,
            prefix: format!("test-{}:", TESTS.fetch_add(1, Ordering::Relaxed)),
            _server: server,
        }
    }

    fn redis() -> Self {
        let server = support::shared();
        Self::new(server.url(), Some(server))
    }

    fn memory() -> Self {
        Self::new("memory://conformance".into(), None)
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder().url(&self.url).prefix(&self.prefix)
    }

    /// A client as another process would have it.
    fn client(&self) -> Client {
        self.builder().build().unwrap()
    }
}

macro_rules! on_every_store {
    ($($scenario:ident)*) => {
        mod redis {
            $(#[test] fn $scenario() { super::$scenario(&super::Store::redis()) })*
        }
        mod memory {
            $(#[test] fn $scenario() { super::$scenario(&super::Store::memory()) })*
        }
    };
}

on_every_store! {
    at_most_one_of_many_threads_and_clients_holds_the_lock
    a_held_lock_is_refused_to_a_try_and_free_after_the_release
    names_are_apart
    any_bytes_are_a_name
    what_cannot_work_is_refused_before_anything_is_sent
    the_largest_durations_saturate
    a_wait_ends_when_it_should
    a_wait_outlasts_many_command_timeouts
    leases_shorter_than_a_second_are_honoured
    a_held_lock_is_renewed_and_its_waiters_go_on_waiting
    a_wait_longer_than_the_lease_yields_a_whole_lease
    a_waiter_gets_the_lock_after_its_release
    a_crashed_holders_lock_is_free_within_one_lease
    a_late_release_leaves_the_next_holder_alone
    a_fixed_lease_is_not_renewed
    an_extension_sets_the_lease_and_never_shortens_it
    an_extension_outlives_the_renewals
    a_lost_lease_cannot_be_extended
    a_longest_hold_ends_a_renewed_lease
    a_loss_is_told_by_guard_callback_and_release
    waiting_for_a_loss_ends_with_the_limit
    a_callback_that_blocks_or_panics_costs_no_other_lease
    fencing_tokens_rise_with_every_grant
    a_guard_may_be_used_and_dropped_on_any_thread
    uses_of_one_lock_object_share_nothing
    a_clone_with_another_lease_keeps_both_leases_right
    closures_run_under_the_lock_and_return_their_value
    a_closure_that_finds_the_lock_busy_does_not_run
    a_panic_in_a_closure_releases_and_unwinds
    a_closure_that_lost_the_lock_has_run_and_is_told_so
    a_cancelled_token_ends_the_waits_that_have_it_and_no_others
    a_wait_that_is_cancelled_beforehand_asks_for_nothing
    a_look_shows_who_holds_the_lock_and_for_how_long
    a_forced_release_frees_the_lock_and_its_holder_is_told
    no_lock_of_ours_is_found_by_an_audit
    handles_may_go_in_any_order
    the_last_handle_may_go_in_a_callback
}

/// Leaves the lock taken as a crash would: no release, no renewal.
fn crash(lock: &Lock) -> u64 {
    let guard = lock.acquire().unwrap();
    let fencing_token = guard.fencing_token();
    std::mem::forget(guard);
    fencing_token
}

fn at_most_one_of_many_threads_and_clients_holds_the_lock(store: &Store) {
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

fn a_held_lock_is_refused_to_a_try_and_free_after_the_release(store: &Store) {
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

fn names_are_apart(store: &Store) {
    let client = store.client();
    let _a = client.lock("a").try_acquire().unwrap().expect("free");
    let _b = client.lock("b").try_acquire().unwrap().expect("another name");
    let elsewhere = store.builder().prefix(format!("{}elsewhere:", store.prefix));
    let _c = elsewhere
        .build()
        .unwrap()
        .lock("a")
        .try_acquire()
        .unwrap()
        .expect("another prefix");
    let replaced = store.builder().lock_prefix("mutex/").build().unwrap();
    let _d = replaced.lock("a").try_acquire().unwrap().expect("another lock prefix");
}

fn any_bytes_are_a_name(store: &Store) {
    let client = store.client();
    let long = vec![b'n'; 10_000];
    for name in [
        &b"\0"[..],
        b"\xff\xfe\r\n",
        b"{}",
        b"a}b",
        b"{a",
        "\u{1F512}".as_bytes(),
        &long,
    ] {
        let guard = client.lock(name).try_acquire().unwrap().expect("free");
        assert!(client.lock(name).try_acquire().unwrap().is_none());
        guard.release().unwrap();
    }
}

fn what_cannot_work_is_refused_before_anything_is_sent(store: &Store) {
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
    ] {
        assert!(matches!(builder.build(), Err(Error::InvalidArgument(_))));
    }
}

fn the_largest_durations_saturate(store: &Store) {
    let lock = store.client().lock("x").max_hold(Duration::MAX);
    for wait in [
        Wait::forever(),
        Wait::at_most(Duration::MAX),
        Wait::at_most(Duration::from_secs(u64::MAX / 1000)),
    ] {
        let guard = lock.acquire_with(wait).unwrap();
        assert!(!guard.wait_lost(millis(1)));
        let sent = Instant::now();
        guard.extend(SECOND * 3600 * 24 * 365 * 9).unwrap();
        assert!(guard.remaining() > SECOND * 3600 * 24 * 365 * 8);
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

fn a_wait_ends_when_it_should(store: &Store) {
    let client = store.client();
    let _held = client.lock("x").acquire().unwrap();
    let lock = client.lock("x");
    for limit in [1.0, 1.5, 10.5, 300.0, 999.0].map(|millis| Duration::from_secs_f64(millis / 1000.0)) {
        let start = Instant::now();
        let error = lock.acquire_timeout(limit).unwrap_err();
        let took = start.elapsed();
        // Late by one command timeout at most.
        assert!(
            took >= limit && took <= limit + SECOND * 2,
            "{took:?} instead of {limit:?}"
        );
        assert!(
            matches!(&error, Error::Timeout { name, waited, last: None, .. } if name == b"x" && *waited >= limit),
            "{error:?}"
        );
        let said = error.to_string();
        assert!(said.contains("`x`") && said.ends_with("because it was held"), "{said}");
    }
    for wait in [Wait::none(), Wait::at_most(Duration::ZERO), Wait::until(Instant::now())] {
        assert!(matches!(lock.acquire_with(wait), Err(Error::Timeout { .. })));
    }
    let (start, limit) = (Instant::now(), millis(40));
    assert!(matches!(
        lock.acquire_with(Wait::until(start + limit)),
        Err(Error::Timeout { .. })
    ));
    assert!(start.elapsed() >= limit);
}

fn a_wait_outlasts_many_command_timeouts(store: &Store) {
    let client = store.builder().command_timeout(millis(400)).build().unwrap();
    let _held = store.client().lock("x").acquire().unwrap();
    let start = Instant::now();
    let error = client.lock("x").acquire_timeout(SECOND * 2).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(start.elapsed() >= SECOND * 2);
}

fn leases_shorter_than_a_second_are_honoured(store: &Store) {
    let client = store.client();
    for (n, lease) in [10.5, 100.0, 999.0]
        .map(|millis| Duration::from_secs_f64(millis / 1000.0))
        .into_iter()
        .enumerate()
    {
        let lock = client.timed_lock(format!("short-{n}"), lease);
        let give_up = Instant::now() + SECOND * 10;
        let (start, guard) = loop {
            let start = Instant::now();
            match lock.try_acquire() {
                Ok(Some(guard)) => break (start, guard),
                // The shortest may have run out by the time that it is here; then it is no grant, and for a moment it
                // stands in the way of the next.
                Ok(None) | Err(Error::Unconfirmed(_)) => assert!(start < give_up, "no grant arrives in time"),
                Err(error) => panic!("{error:?}"),
            }
        };
        assert!(guard.remaining() <= lease - millis(2));
        assert!(guard.wait_lost(lease));
        // Not released, so that the lease's end at the server is seen too.
        std::mem::forget(guard);
        let next = store.client().lock(format!("short-{n}"));
        drop(next.acquire_timeout(SECOND * 5).unwrap());
        assert!(start.elapsed() >= lease - millis(1));
    }
}

fn a_held_lock_is_renewed_and_its_waiters_go_on_waiting(store: &Store) {
    let lease = SECOND;
    let guard = store.client().lock("x").lease(lease).acquire().unwrap();
    let waiting = store.client().lock("x").lease(lease);
    assert!(matches!(waiting.acquire_timeout(lease * 3), Err(Error::Timeout { .. })));
    guard.check().unwrap();
    guard.release().unwrap();
}

fn a_wait_longer_than_the_lease_yields_a_whole_lease(store: &Store) {
    let lease = SECOND;
    let guard = store.client().lock("x").acquire().unwrap();
    let waiting = store.client().timed_lock("x", lease);
    let waiter = thread::spawn(move || {
        let (start, guard) = (Instant::now(), waiting.acquire().unwrap());
        (start.elapsed(), guard.remaining())
    });
    thread::sleep(lease * 3 / 2);
    guard.release().unwrap();
    let (waited, remaining) = waiter.join().unwrap();
    assert!(waited > lease, "{waited:?}");
    assert!(remaining > lease / 2, "{remaining:?}");
}

fn a_waiter_gets_the_lock_after_its_release(store: &Store) {
    let guard = store.client().lock("x").acquire().unwrap();
    let waiter = store.client().lock("x");
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 20).unwrap().fencing_token());
    // Time to begin to wait, if the machine is not busy. However slow it is, it cannot have got in.
    thread::sleep(millis(30));
    assert!(!waiting.is_finished());
    let before = guard.fencing_token();
    guard.release().unwrap();
    assert!(waiting.join().unwrap() > before);
}

fn a_crashed_holders_lock_is_free_within_one_lease(store: &Store) {
    let lease = millis(700);
    let start = Instant::now();
    let crashed = {
        let client = store.client();
        let fencing_token = crash(&client.timed_lock("x", lease));
        drop(client);
        fencing_token
    };
    let guard = store.client().lock("x").acquire_timeout(SECOND * 10).unwrap();
    let took = start.elapsed();
    assert!(took >= lease - millis(1), "{took:?}");
    assert!(took <= lease + SECOND * 2, "{took:?}");
    assert!(guard.fencing_token() > crashed);
}

fn a_late_release_leaves_the_next_holder_alone(store: &Store) {
    let late = store.client().timed_lock("x", millis(300)).acquire().unwrap();
    let next = store.client().lock("x").acquire_timeout(SECOND * 10).unwrap();
    assert!(!late.is_held());
    assert_eq!(lost(late.release().unwrap_err()), LostReason::Expired);
    next.check().unwrap();
    assert!(
        store.client().lock("x").try_acquire().unwrap().is_none(),
        "still the next holder's"
    );
    next.release().unwrap();
}

fn a_fixed_lease_is_not_renewed(store: &Store) {
    let lease = millis(300);
    let guard = store.client().timed_lock("x", lease).acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    assert_eq!(lost(guard.check().unwrap_err()), LostReason::Expired);
}

fn an_extension_sets_the_lease_and_never_shortens_it(store: &Store) {
    let guard = store.client().timed_lock("x", SECOND * 10).acquire().unwrap();
    guard.extend(SECOND * 60).unwrap();
    let left = guard.remaining();
    assert!(left > SECOND * 50 && left < SECOND * 60, "set, not added: {left:?}");
    guard.extend(SECOND).unwrap();
    assert!(guard.remaining() > SECOND * 45, "not shortened");
    guard.release().unwrap();
}

fn an_extension_outlives_the_renewals(store: &Store) {
    let guard = store.client().lock("x").lease(SECOND).acquire().unwrap();
    guard.extend(SECOND * 30).unwrap();
    // Several renewals later.
    assert!(!guard.wait_lost(SECOND * 2));
    assert!(guard.remaining() > SECOND * 20, "{:?}", guard.remaining());
    guard.release().unwrap();
}

fn a_lost_lease_cannot_be_extended(store: &Store) {
    let guard = store.client().timed_lock("x", millis(200)).acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 5));
    assert_eq!(lost(guard.extend(SECOND).unwrap_err()), LostReason::Expired);
    assert!(!guard.is_held());
}

fn a_longest_hold_ends_a_renewed_lease(store: &Store) {
    let max_hold = millis(2_500);
    let lock = store.client().lock("x").lease(SECOND).max_hold(max_hold);
    let start = Instant::now();
    let guard = lock.acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    let held = start.elapsed();
    assert!(held > SECOND * 3 / 2 && held < max_hold + SLACK, "{held:?}");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::MaxHold);
    drop(store.client().lock("x").acquire_timeout(SECOND * 5).unwrap());
}

fn a_loss_is_told_by_guard_callback_and_release(store: &Store) {
    let (sender, losses) = mpsc::channel();
    let lock = store.client().timed_lock("x", millis(200)).on_lost(move |lost: &Lost| {
        sender.send((lost.clone(), Instant::now())).unwrap();
    });
    let start = Instant::now();
    let guard = lock.acquire().unwrap();
    let (told, at) = losses.recv_timeout(SECOND * 10).unwrap();
    assert_eq!((told.reason, told.name()), (LostReason::Expired, &b"x"[..]));
    assert_eq!(told.fencing_token, guard.fencing_token());
    assert!(at - start >= millis(100));
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(guard.wait_lost(Duration::ZERO));
    assert_eq!(lost(guard.check().unwrap_err()), LostReason::Expired);
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
    // One callback for one loss, and none for what was released in time.
    lock.clone().lease(SECOND * 10).acquire().unwrap().release().unwrap();
    drop(lock);
    assert!(losses.recv_timeout(SECOND * 10).is_err());
}

fn waiting_for_a_loss_ends_with_the_limit(store: &Store) {
    let guard = store.client().lock("x").acquire().unwrap();
    let start = Instant::now();
    assert!(!guard.wait_lost(millis(60)));
    assert!(start.elapsed() >= millis(60));
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a user's mistake");
    }
}

fn a_callback_that_blocks_or_panics_costs_no_other_lease(store: &Store) {
    let client = store.client();
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let called = Arc::new(AtomicU32::new(0));
    let kept = client.lock("kept").lease(SECOND).acquire().unwrap();
    let panics = client
        .timed_lock("panics", millis(200))
        .on_lost(|_| panic!("a user's mistake"));
    let blocks = client.timed_lock("blocks", millis(200)).on_lost({
        let called = called.clone();
        move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            let _ = blocked.lock().unwrap().recv();
        }
    });
    // A panic may bring one that panics again when it is dropped, and so may the end of what a callback owns.
    let panics_twice = client
        .timed_lock("panics twice", millis(200))
        .on_lost(|_| std::panic::panic_any(PanicsWhenDropped));
    let panics_late = PanicsWhenDropped;
    let panics_at_its_end = client.lock("panics at its end").on_lost(move |_| _ = &panics_late);
    let guard = panics_at_its_end.acquire().unwrap();
    let (_a, _b) = (panics.acquire().unwrap(), panics_twice.acquire().unwrap());
    let _ = std::panic::catch_unwind(|| drop(panics_at_its_end));
    drop(guard);
    let _c = blocks.acquire().unwrap();
    wait_until("the blocking callback", SECOND * 10, || {
        called.load(Ordering::SeqCst) == 1
    });
    assert!(!kept.wait_lost(SECOND * 3 / 2));
    kept.release().unwrap();
    drop(unblock);
}

fn fencing_tokens_rise_with_every_grant(store: &Store) {
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

fn a_guard_may_be_used_and_dropped_on_any_thread(store: &Store) {
    fn assert_free_to_move<T: Send + Sync + 'static>() {}
    assert_free_to_move::<Guard>();
    assert_free_to_move::<Lock>();
    assert_free_to_move::<Client>();

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

fn uses_of_one_lock_object_share_nothing(store: &Store) {
    let lock = store.client().timed_lock("x", millis(150));
    let stale = lock.acquire().unwrap();
    assert!(stale.wait_lost(SECOND * 5));
    let current = lock.clone().lease(SECOND * 30).acquire_timeout(SECOND * 5).unwrap();
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

fn a_clone_with_another_lease_keeps_both_leases_right(store: &Store) {
    let short = store.client().timed_lock("a", SECOND);
    let long = short.clone().lease(SECOND * 100);
    let guard = short.acquire().unwrap();
    assert!(guard.remaining() <= SECOND);
    guard.release().unwrap();
    let guard = long.acquire().unwrap();
    assert!(guard.remaining() > SECOND * 90);
    guard.release().unwrap();
    assert!(short.acquire().unwrap().remaining() <= SECOND);
}

fn closures_run_under_the_lock_and_return_their_value(store: &Store) {
    let lock = store.client().lock("x");
    let probe = store.client().lock("x");
    let busy = || probe.try_acquire().unwrap().is_none();
    assert!(lock.with_lock(busy).unwrap());
    assert_eq!(lock.try_with_lock(busy).unwrap(), Some(true));
    assert!(lock.with_lock_wait(Wait::at_most(SECOND), busy).unwrap());
    let fencing_token = lock.with_guard(|guard| guard.fencing_token()).unwrap();
    assert!(fencing_token > 0);
    assert!(!busy());
}

fn a_closure_that_finds_the_lock_busy_does_not_run(store: &Store) {
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

fn a_panic_in_a_closure_releases_and_unwinds(store: &Store) {
    let lock = store.client().lock("x");
    let panicked = std::panic::catch_unwind(|| lock.with_lock(|| panic!("in the closure")).unwrap());
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in the closure"));
    assert!(lock.try_acquire().unwrap().is_some());
}

fn a_closure_that_lost_the_lock_has_run_and_is_told_so(store: &Store) {
    let lock = store.client().timed_lock("x", millis(200));
    let mut ran = false;
    let outcome = lock.with_guard(|guard| {
        assert!(guard.wait_lost(SECOND * 5));
        ran = true;
    });
    assert_eq!(lost(outcome.unwrap_err()), LostReason::Expired);
    assert!(ran);
}

fn a_cancelled_token_ends_the_waits_that_have_it_and_no_others(store: &Store) {
    let guard = store.client().lock("x").acquire().unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let wait = |wait: Wait| {
            let lock = store.client().lock("x");
            scope.spawn(move || lock.acquire_with(wait).map(|guard| guard.fencing_token()))
        };
        let cancelled = [
            wait(Wait::forever().cancelled_by(&token)),
            wait(Wait::at_most(Duration::MAX).cancelled_by(&token.clone())),
            wait(Wait::until(Instant::now() + SECOND * 3600).cancelled_by(&token)),
        ];
        let patient = wait(Wait::forever().cancelled_by(&CancelToken::new()));
        // Time to begin to wait, if the machine is not busy. However slow it is, they end.
        thread::sleep(millis(50));
        assert!(!cancelled.iter().any(|wait| wait.is_finished()));
        let start = Instant::now();
        token.cancel();
        for wait in cancelled {
            assert!(matches!(wait.join().unwrap(), Err(Error::Cancelled)));
        }
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
        assert!(token.is_cancelled() && !patient.is_finished());
        let before = guard.fencing_token();
        guard.release().unwrap();
        assert!(patient.join().unwrap().unwrap() > before);
    });
    // Nothing of those that were cancelled is left.
    let token = CancelToken::new();
    let guard = store
        .client()
        .lock("x")
        .acquire_with(Wait::none().cancelled_by(&token))
        .unwrap();
    token.cancel();
    guard.check().unwrap();
}

fn a_wait_that_is_cancelled_beforehand_asks_for_nothing(store: &Store) {
    let token = CancelToken::new();
    token.cancel();
    let lock = store.client().lock("x");
    for wait in [Wait::forever(), Wait::none(), Wait::at_most(SECOND)] {
        let outcome = lock.acquire_with(wait.cancelled_by(&token));
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
    }
    let ran = lock.with_lock_wait(Wait::forever().cancelled_by(&token), || unreachable!());
    assert!(matches!(ran, Err::<(), _>(Error::Cancelled)));
    assert!(lock.inspect().unwrap().is_free());
}

fn a_look_shows_who_holds_the_lock_and_for_how_long(store: &Store) {
    let lock = store.client().lock("x");
    let seen_free = lock.inspect().unwrap();
    assert!(seen_free.is_free());
    assert_eq!(
        (seen_free.to_string().as_str(), seen_free.fencing_token),
        ("free", None)
    );

    let guard = lock.acquire().unwrap();
    let seen = store.client().lock("x").inspect().unwrap();
    assert_eq!(seen.fencing_token, Some(guard.fencing_token()));
    let [holder] = &seen.holders[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(holder.token, guard.token().as_bytes());
    let Expiry::In(left) = holder.expiry else {
        panic!("{holder:?}");
    };
    assert!(left > SECOND * 20 && left <= SECOND * 30, "{left:?}");
    assert!(seen.to_string().contains(guard.token()));
    assert!(!seen.to_string().contains("no expiry"));

    guard.release().unwrap();
    assert_eq!(lock.inspect().unwrap(), seen_free);
    assert!(matches!(
        store.client().lock("").inspect(),
        Err(Error::InvalidArgument(_))
    ));
}

fn a_forced_release_frees_the_lock_and_its_holder_is_told(store: &Store) {
    let lock = store.client().lock("x").lease(SECOND * 2);
    assert!(!lock.force_release().unwrap(), "nobody holds it");

    let guard = lock.acquire().unwrap();
    assert!(store.client().lock("x").force_release().unwrap());
    let next = store.client().lock("x").acquire().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.wait_lost(SECOND * 10));
    // Which of the two depends on when the renewal looked.
    let reason = lost(guard.release().unwrap_err());
    assert!(matches!(reason, LostReason::Deleted | LostReason::Taken), "{reason:?}");
    next.check().unwrap();
    next.release().unwrap();
}

fn no_lock_of_ours_is_found_by_an_audit(store: &Store) {
    let lock = store.client().lock("x");
    let _guard = lock.acquire().unwrap();
    lock.clone().try_acquire().unwrap();
    crash(&store.client().timed_lock("y", SECOND * 60));
    let pattern = format!("*{}*", store.prefix);
    assert_eq!(store.client().audit(pattern).unwrap().count(), 0);
}

fn handles_may_go_in_any_order(store: &Store) {
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

fn the_last_handle_may_go_in_a_callback(store: &Store) {
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
