//! How long a wait lasts, and what ends it.

use std::{
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Error, Wait};

use crate::{
    store::Store,
    support::{PROMPT, SECOND, millis},
};

pub fn a_wait_ends_when_it_should(store: &Store) {
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
        assert!(said.contains("`x`") && said.ends_with("because it was taken"), "{said}");
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

pub fn a_wait_outlasts_many_command_timeouts(store: &Store) {
    let client = store.client_with(|builder| builder.command_timeout(millis(400)));
    let _held = store.client().lock("x").acquire().unwrap();
    let start = Instant::now();
    let error = client.lock("x").acquire_timeout(SECOND * 2).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(start.elapsed() >= SECOND * 2);
}

pub fn a_wait_longer_than_the_lease_yields_a_whole_lease(store: &Store) {
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

pub fn a_waiter_gets_the_lock_after_its_release(store: &Store) {
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

pub fn a_cancelled_token_ends_the_waits_that_have_it_and_no_others(store: &Store) {
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
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
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

pub fn a_wait_that_is_cancelled_beforehand_asks_for_nothing(store: &Store) {
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
