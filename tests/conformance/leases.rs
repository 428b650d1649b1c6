//! How long a lease lasts, and who is told when it is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use redlatch::{Error, Lost, LostReason};

use crate::{
    store::{Store, crash},
    support::{PROMPT, SECOND, lost, millis, wait_until},
};

pub fn leases_shorter_than_a_second_are_honoured(store: &Store) {
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

pub fn a_held_lock_is_renewed_and_its_waiters_go_on_waiting(store: &Store) {
    let lease = SECOND;
    let guard = store.client().lock("x").lease(lease).acquire().unwrap();
    let waiting = store.client().lock("x").lease(lease);
    assert!(matches!(waiting.acquire_timeout(lease * 3), Err(Error::Timeout { .. })));
    guard.check().unwrap();
    guard.release().unwrap();
}

pub fn a_crashed_holders_lock_is_free_within_one_lease(store: &Store) {
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

pub fn a_late_release_leaves_the_next_holder_alone(store: &Store) {
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

pub fn a_fixed_lease_is_not_renewed(store: &Store) {
    let lease = millis(300);
    let guard = store.client().timed_lock("x", lease).acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    assert_eq!(lost(guard.check().unwrap_err()), LostReason::Expired);
}

pub fn an_extension_sets_the_lease_and_never_shortens_it(store: &Store) {
    let long = store.lease();
    let guard = store.client().timed_lock("x", long / 2).acquire().unwrap();
    guard.extend(long).unwrap();
    let left = guard.remaining();
    assert!(left > long / 2 && left < long, "set, not added: {left:?}");
    guard.extend(SECOND).unwrap();
    assert!(guard.remaining() > SECOND, "not shortened");
    guard.release().unwrap();
}

pub fn an_extension_outlives_the_renewals(store: &Store) {
    let guard = store.client().lock("x").lease(SECOND).acquire().unwrap();
    guard.extend(store.lease()).unwrap();
    // Several renewals later, of which each leaves less than this.
    assert!(!guard.wait_lost(SECOND * 2));
    assert!(guard.remaining() > SECOND, "{:?}", guard.remaining());
    guard.release().unwrap();
}

pub fn a_lost_lease_cannot_be_extended(store: &Store) {
    let guard = store.client().timed_lock("x", millis(200)).acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 5));
    assert_eq!(lost(guard.extend(SECOND).unwrap_err()), LostReason::Expired);
    assert!(!guard.is_held());
}

pub fn a_longest_hold_ends_a_renewed_lease(store: &Store) {
    let max_hold = millis(2_500);
    let lock = store.client().lock("x").lease(SECOND).max_hold(max_hold);
    let start = Instant::now();
    let guard = lock.acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    let held = start.elapsed();
    assert!(held > SECOND * 3 / 2 && held < max_hold + PROMPT, "{held:?}");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::MaxHold);
    drop(store.client().lock("x").acquire_timeout(SECOND * 5).unwrap());
}

pub fn a_loss_is_told_by_guard_callback_and_release(store: &Store) {
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
    lock.clone().lease(store.lease()).acquire().unwrap().release().unwrap();
    drop(lock);
    assert!(losses.recv_timeout(SECOND * 10).is_err());
}

pub fn waiting_for_a_loss_ends_with_the_limit(store: &Store) {
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

pub fn a_callback_that_blocks_or_panics_costs_no_other_lease(store: &Store) {
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
