//! What only locks have: a prefix of their own, and a closure that sees its guard.

use redlatch::LostReason;

use crate::{
    exclusive::Lock,
    store::Store,
    support::{SECOND, lost, millis},
};

pub fn the_lock_prefix_sets_locks_apart(store: &Store) {
    let _held = store.client().lock("a").try_acquire().unwrap().expect("free");
    let replaced = || store.client_with(|builder| builder.lock_prefix("mutex/"));
    let _also_held = replaced()
        .lock("a")
        .try_acquire()
        .unwrap()
        .expect("another lock prefix");
    assert!(replaced().lock("a").try_acquire().unwrap().is_none());
}

pub fn a_closure_may_see_its_guard(store: &Store) {
    let Lock::Lock(lock) = store.client().lock("x") else {
        unreachable!("its locks are locks");
    };
    let fencing_token = lock.with_guard(|guard| guard.fencing_token()).unwrap();
    assert!(fencing_token > 0);
    let short = store.client().client.timed_lock("x", millis(200));
    let outcome = short.with_guard(|guard| assert!(guard.wait_lost(SECOND * 5)));
    assert_eq!(lost(outcome.unwrap_err()), LostReason::Expired);
}
