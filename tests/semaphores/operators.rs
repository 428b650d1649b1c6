//! What operators see of a semaphore, and do to it.

use std::{thread, time::SystemTime};

use redlatch::{Expiry, LostReason};

use crate::{
    corner::{Corner, KEY, SOON},
    support::{Fault, SECOND, is_inspect, is_release, load_scripts, lost},
};

/// Puts permits at the semaphore's key that end so many seconds from now.
fn put(corner: &Corner, members: &[&str], seconds: i64) {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    let mut add = redis::cmd("ZADD");
    add.arg(KEY);
    for member in members {
        add.arg(now + seconds * 1_000).arg(member);
    }
    add.exec(&mut corner.server.connection()).unwrap();
    corner.server.run(&format!("EXPIRE {KEY} 3600"));
}

#[test]
fn a_holder_is_shown_with_all_its_permits_and_thrown_out_with_them() {
    let corner = Corner::new();
    let semaphore = corner.semaphore(5);
    let guards = [3, 1].map(|permits| semaphore.clone().permits(permits).acquire().unwrap());
    let mut holders = semaphore.holders().unwrap();
    holders.sort_unstable_by_key(|holder| holder.permits);
    for (holder, guard) in holders.iter().rev().zip(&guards) {
        assert_eq!(holder.token, guard.token().as_bytes());
        assert!(matches!(holder.expiry, Expiry::In(left) if left > SECOND * 20 && left <= SECOND * 31));
    }
    assert_eq!(holders.iter().map(|holder| holder.permits).collect::<Vec<_>>(), [1, 3]);
    let seen = semaphore.inspect().unwrap();
    assert_eq!(seen.fencing_token, Some(guards[1].fencing_token()));
    assert_eq!((seen.available(), seen.limit, seen.waiters), (1, 5, 0));

    assert!(semaphore.force_release().unwrap());
    assert_eq!(corner.members(), [""; 0]);
    assert!(!semaphore.force_release().unwrap());
    for guard in guards {
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    }
    corner.assert_all_are_free(5);
}

#[test]
fn permits_of_another_library_count_and_are_thrown_out() {
    let corner = Corner::new();
    put(&corner, &["another", "host:7"], 60);
    let semaphore = corner.semaphore(3);
    let guard = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().unwrap().is_none());
    guard.release().unwrap();
    let holders = semaphore.holders().unwrap();
    let tokens: Vec<_> = holders.iter().map(|holder| &holder.token[..]).collect();
    assert_eq!(tokens, [&b"another"[..], b"host:7"]);
    assert!(semaphore.force_release().unwrap());
    assert_eq!(corner.members(), [""; 0]);
    corner.assert_all_are_free(3);
}

#[test]
fn permits_that_were_left_to_a_waiter_are_shown_as_reserved() {
    let corner = Corner::new();
    put(&corner, &["redlatch:claim:somebody", "redlatch:claim:somebody:2"], 60);
    let semaphore = corner.semaphore(3);
    let seen = semaphore.inspect().unwrap();
    assert_eq!((seen.reserved, seen.available(), seen.holders.len()), (2, 1, 0));
    assert!(!seen.is_free());
    assert!(semaphore.clone().permits(2).try_acquire().unwrap().is_none());
    semaphore.acquire().unwrap().release().unwrap();
    // There is nobody to throw out.
    assert!(!semaphore.force_release().unwrap());
    assert_eq!(semaphore.inspect().unwrap().reserved, 2);
}

#[test]
fn what_has_ended_is_neither_shown_nor_counted_nor_thrown_out_and_the_next_grant_clears_it_away() {
    let corner = Corner::new();
    put(&corner, &["ended", "ended:2", "redlatch:claim:lapsed"], -1);
    let semaphore = corner.semaphore(3);
    let seen = semaphore.inspect().unwrap();
    assert!(seen.is_free() && seen.available() == 3, "{seen}");
    assert!(!semaphore.force_release().unwrap());
    assert_eq!(corner.members().len(), 3, "a look changes nothing");
    let guard = semaphore.permits(3).try_acquire().unwrap().expect("free");
    assert_eq!(corner.members().len(), 3);
    guard.release().unwrap();
    assert_eq!(corner.members(), [""; 0]);
}

#[test]
fn only_those_who_were_seen_are_thrown_out() {
    let corner = Corner::new();
    load_scripts(&corner.server);
    let [seen, operators] = [corner.semaphore(3), corner.behind(3)];
    let guard = seen.permits(2).acquire().unwrap();
    let held = corner.proxy.on(is_release).apply(Fault::HoldRequest);
    thread::scope(|scope| {
        let forcing = scope.spawn(|| operators.force_release());
        held.wait_hit(SOON);
        guard.release().unwrap();
        let next = corner.semaphore(3).permits(3).acquire().unwrap();
        corner.proxy.release_held();
        assert!(forcing.join().unwrap().unwrap(), "somebody held permits");
        assert_eq!(corner.members().len(), 3);
        next.release().unwrap();
    });
}

#[test]
fn a_lost_reply_to_an_operator_is_asked_for_again() {
    for fault in [Fault::CutAfter, Fault::CutBefore] {
        let corner = Corner::new();
        load_scripts(&corner.server);
        let guards = [1, 2].map(|permits| corner.semaphore(3).permits(permits).acquire().unwrap());
        let operators = corner.behind(3);
        let looked = corner.proxy.on(is_inspect).apply(fault);
        assert_eq!(operators.available().unwrap(), 0);
        looked.wait_hit(SOON);
        let _struck = corner.proxy.on(is_release).apply(fault);
        assert!(operators.force_release().unwrap(), "{fault:?}");
        assert_eq!(corner.members(), [""; 0]);
        for guard in guards {
            assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
        }
    }
}
