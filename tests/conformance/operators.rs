//! Looking at a lock, and throwing out its holder.

use redlatch::{Error, Expiry, LostReason};

use crate::{
    exclusive::Lock,
    store::{Store, crash},
    support::{SECOND, lost},
};

pub fn a_look_shows_who_holds_the_lock_and_for_how_long(store: &Store) {
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
    assert!(left > store.lease() / 2 && left <= store.lease(), "{left:?}");
    assert!(seen.to_string().contains(guard.token()));
    assert!(!seen.to_string().contains("no expiry"));

    guard.release().unwrap();
    assert_eq!(lock.inspect().unwrap(), seen_free);
    assert!(matches!(
        store.client().lock("").inspect(),
        Err(Error::InvalidArgument(_))
    ));
}

pub fn a_forced_release_frees_the_lock_and_its_holder_is_told(store: &Store) {
    let lock = store.client().lock("x").lease(SECOND * 2);
    assert!(!lock.force_release().unwrap(), "nobody holds it");

    let guard = lock.acquire().unwrap();
    assert!(store.client().lock("x").force_release().unwrap());
    let next = store.client().lock("x").acquire().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.wait_lost(SECOND * 10));
    let reason = lost(guard.release().unwrap_err());
    match lock {
        // Which of the two depends on when the renewal looked.
        Lock::Lock(_) => assert!(matches!(reason, LostReason::Deleted | LostReason::Taken), "{reason:?}"),
        // Those who hold a semaphore stand side by side: nobody takes another's place.
        Lock::Semaphore(_) => assert_eq!(reason, LostReason::Deleted),
    }
    next.check().unwrap();
    next.release().unwrap();
}

pub fn no_lock_of_ours_is_found_by_an_audit(store: &Store) {
    let lock = store.client().lock("x");
    let _guard = lock.acquire().unwrap();
    lock.clone().try_acquire().unwrap();
    crash(&store.client().timed_lock("y", store.lease()));
    let pattern = format!("*{}*", store.prefix);
    assert_eq!(store.client().audit(pattern).unwrap().count(), 0);
}
