//! What happens to permits when requests or their replies are lost, late, or run late: whatever it is, none is taken or
//! given back twice.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, Guard, LostReason, Semaphore};

use crate::{
    corner::{COMMAND, Corner, KEY, SOON, client_at},
    support::{
        Fault, SECOND, SLACK, is_acquire, is_release, is_renew, is_set_limit, is_turn, load_scripts, lost, millis,
        wait_until,
    },
};

const LOSSES: [Fault; 3] = [Fault::CutAfter, Fault::CutBefore, Fault::SwallowReply];

/// A server that knows all scripts, or a fault may strike a request that does nothing.
fn corner() -> Corner {
    let corner = Corner::new();
    load_scripts(&corner.server);
    corner
}

/// How many permits stand on the server that have not ended.
fn held(corner: &Corner) -> usize {
    corner
        .semaphore(3)
        .holders()
        .unwrap()
        .iter()
        .map(|holder| holder.permits as usize)
        .sum()
}

/// Has others take and release a permit so many times.
fn come_and_go(corner: &Corner, times: u32) {
    let others = corner.semaphore(3);
    (0..times).for_each(|_| others.try_acquire().unwrap().expect("free").release().unwrap());
}

#[test]
fn an_acquire_whose_reply_is_lost_takes_its_permits_once() {
    for fault in LOSSES {
        let corner = corner();
        let attempts = corner.proxy.on(is_acquire).watch();
        let _struck = corner.proxy.on(is_acquire).apply(fault);
        let guard = corner.behind(3).permits(2).acquire_timeout(SOON).unwrap();
        assert_eq!(attempts.seen(), 2);
        let token = guard.token();
        assert_eq!(corner.members(), [token, &format!("{token}:2")], "{fault:?}");
        assert_eq!(corner.semaphore(3).available().unwrap(), 1);
        guard.check().unwrap();
        guard.release().unwrap();
        corner.assert_all_are_free(3);
    }
}

#[test]
fn a_try_whose_reply_is_swallowed_is_unconfirmed_and_leaves_nothing() {
    let corner = corner();
    let _struck = corner.proxy.on(is_acquire).apply(Fault::SwallowReply);
    // Dropped with the client at the end: what it still tries to clean up is part of the test.
    let semaphore = corner.behind(3).permits(3);
    let error = semaphore.try_acquire().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    corner.wait_until_free();
    corner.assert_all_are_free(3);
}

#[test]
fn an_attempt_that_a_stalled_server_runs_late_is_cleaned_up() {
    for retried in [false, true] {
        let corner = corner();
        let semaphore = corner.behind(3).permits(2);
        let _struck = corner.proxy.on(is_acquire).apply(Fault::HoldRequest);
        if retried {
            semaphore.acquire_timeout(SOON).unwrap().release().unwrap();
        } else {
            assert!(matches!(semaphore.try_acquire(), Err(Error::Unconfirmed(_))));
        }
        let other = corner.semaphore(3).acquire().unwrap();
        corner.proxy.release_held();
        wait_until("the permits to be given back", SOON, || held(&corner) == 1);
        assert_eq!(corner.members(), [other.token()]);
        other.release().unwrap();
    }
}

#[test]
fn a_release_whose_reply_is_lost_succeeds_although_others_have_released_meanwhile() {
    for fault in LOSSES {
        let corner = corner();
        let guard = corner.behind(3).permits(2).acquire().unwrap();
        let _struck = corner.proxy.on(is_release).apply(fault);
        let _held = corner.proxy.on(is_release).nth(2).apply(Fault::HoldRequest);
        thread::scope(|scope| {
            let releasing = scope.spawn(|| guard.release());
            wait_until("the repetition", SOON, || corner.proxy.held() == 1);
            come_and_go(&corner, 20);
            corner.proxy.release_held();
            releasing.join().unwrap().unwrap();
        });
        corner.assert_all_are_free(3);
    }
}

#[test]
fn a_repeated_release_that_a_thousand_others_have_covered_is_unconfirmed() {
    for released in [true, false] {
        let corner = corner();
        // The others take their time.
        let client = Client::builder().url(corner.proxy.url()).command_timeout(SECOND * 10);
        let guard = client.build().unwrap().semaphore("x", 3).acquire().unwrap();
        if !released {
            assert!(corner.semaphore(3).force_release().unwrap());
        }
        let _struck = corner.proxy.on(is_release).apply(Fault::CutAfter);
        let _held = corner.proxy.on(is_release).nth(2).apply(Fault::HoldRequest);
        thread::scope(|scope| {
            let releasing = scope.spawn(|| guard.release());
            wait_until("the repetition", SOON, || corner.proxy.held() == 1);
            come_and_go(&corner, 1_001);
            corner.proxy.release_held();
            let error = releasing.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Unconfirmed(_)), "{released}: {error:?}");
        });
        corner.assert_all_are_free(3);
    }
}

#[test]
fn a_permit_that_was_held_for_long_is_released_once_however_many_others_were_meanwhile() {
    let corner = corner();
    let guard = corner.behind(3).acquire().unwrap();
    come_and_go(&corner, 1_001);
    // It is the releases after its own that cover it, not those of later grants.
    let _struck = corner.proxy.on(is_release).apply(Fault::CutAfter);
    guard.release().unwrap();
    corner.assert_all_are_free(3);
}

#[test]
fn a_repeated_release_tells_that_the_permits_were_gone_before() {
    for fault in LOSSES {
        let corner = corner();
        let guard = corner.behind(3).permits(2).acquire().unwrap();
        assert!(corner.semaphore(3).force_release().unwrap());
        // That others hold permits now is nothing that has become of its own.
        let other = corner.semaphore(3).acquire().unwrap();
        let _struck = corner.proxy.on(is_release).apply(fault);
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted, "{fault:?}");
        assert_eq!(corner.members(), [other.token()]);
    }
}

#[test]
fn a_release_that_runs_twice_gives_back_no_more_than_was_held() {
    let corner = corner();
    let guard = corner.behind(3).permits(2).acquire().unwrap();
    let late = corner.proxy.on(is_release).apply(Fault::HoldRequest);
    guard.release().unwrap();
    late.wait_hit(SOON);
    let others = [(); 3].map(|()| corner.semaphore(3).acquire().unwrap());
    // The first request, after the second has done its work, and others hold all there is.
    corner.proxy.release_held();
    assert_eq!(held(&corner), 3);
    assert!(corner.semaphore(3).try_acquire().unwrap().is_none());
    for guard in others {
        guard.check().unwrap();
        guard.release().unwrap();
    }
    corner.assert_all_are_free(3);
}

#[test]
fn a_release_that_stays_unanswered_is_unconfirmed_and_completed_in_the_background() {
    let corner = corner();
    // The client stays: it is what cleans up.
    let semaphore = corner.behind(3).permits(3);
    let guard = semaphore.acquire().unwrap();
    let cut = corner.proxy.on(is_release).every().apply(Fault::CutBefore);
    assert!(matches!(guard.release(), Err(Error::Unconfirmed(_))));
    assert_eq!(held(&corner), 3);
    cut.end();
    corner.wait_until_free();
    corner.assert_all_are_free(3);
}

#[test]
fn one_lost_renewal_reply_costs_no_permit() {
    let lose_one = |fault| {
        let corner = corner();
        let guard = corner.behind(3).permits(2).lease(SECOND * 2).acquire().unwrap();
        let struck = corner.proxy.on(is_renew).apply(fault);
        struck.wait_hit(SOON);
        assert!(!guard.wait_lost(SECOND * 2), "{fault:?}");
        assert_eq!(held(&corner), 2);
        guard.release().unwrap();
        corner.assert_all_are_free(3);
    };
    thread::scope(|scope| {
        for fault in LOSSES {
            scope.spawn(move || lose_one(fault));
        }
    });
}

#[test]
fn a_renewal_that_runs_after_the_release_leaves_nothing() {
    let corner = corner();
    let guard = corner.behind(3).permits(2).lease(SECOND * 2).acquire().unwrap();
    let late = corner.proxy.on(is_renew).apply(Fault::HoldRequest);
    late.wait_hit(SOON);
    guard.release().unwrap();
    let next = corner.semaphore(3).acquire().unwrap();
    corner.proxy.release_held();
    assert_eq!(corner.members(), [next.token()]);
}

#[test]
fn what_runs_after_its_permit_has_ended_brings_nothing_back_and_takes_nothing_away() {
    type Request = fn(&[Vec<u8>]) -> bool;
    let lates: [(Request, fn(Guard)); 2] = [
        (is_renew, |guard| assert!(guard.wait_lost(SOON))),
        (is_release, |guard| _ = guard.release()),
    ];
    for (request, end) in lates {
        let corner = corner();
        // Keeps the key, so that what has ended still stands there.
        let _other = corner.semaphore(3).acquire().unwrap();
        let guard = corner.behind(3).permits(2).lease(SECOND).acquire().unwrap();
        let late = corner.proxy.on(request).every().apply(Fault::HoldRequest);
        end(guard);
        late.end();
        wait_until("the permits to end", SOON, || held(&corner) == 1);
        corner.proxy.release_held();
        assert_eq!(held(&corner), 1);
        let next = corner.semaphore(3).permits(2).try_acquire().unwrap().expect("free");
        assert_eq!(held(&corner), 3);
        next.check().unwrap();
    }
}

#[test]
fn nothing_is_renewed_once_it_was_released_in_whatever_order() {
    let corner = corner();
    let semaphore = corner.behind(3).lease(SECOND);
    let [first, second, third] = [(); 3].map(|()| semaphore.acquire().unwrap());
    let mut gone = Vec::new();
    for (guard, left) in [(second, 2), (third, 1), (first, 0)] {
        gone.push(guard.token().as_bytes().to_vec());
        guard.release().unwrap();
        let tokens = gone.clone();
        let of_one = move |args: &[Vec<u8>]| is_renew(args) && tokens.iter().any(|token| args.contains(token));
        let (in_vain, all) = (corner.proxy.on(of_one).watch(), corner.proxy.on(is_renew).watch());
        // Those that are left are renewed.
        all.wait_seen(left, SOON);
        if left == 0 {
            thread::sleep(SECOND);
            assert_eq!(all.seen(), 0);
        }
        assert_eq!(in_vain.seen(), 0);
    }
}

#[test]
fn nothing_is_renewed_after_the_release_even_if_its_reply_was_lost() {
    let corner = corner();
    let semaphore = corner.behind(3).lease(SECOND);
    let guard = semaphore.acquire().unwrap();
    let silent = corner.proxy.on(is_release).every().apply(Fault::CutBefore);
    assert!(matches!(guard.release(), Err(Error::Unconfirmed(_))));
    let renewals = corner.proxy.on(is_renew).watch();
    wait_until("the lease to end by itself", SOON, || held(&corner) == 0);
    assert_eq!(renewals.seen(), 0);
    silent.end();
}

/// Releases `guard` to another thread of its client that waits, with the request for that struck by `fault`; tells
/// whether there was one. What the release said must be a success.
fn turn_struck(corner: &Corner, semaphore: &Semaphore, guard: Guard, hold: Duration, fault: Fault) -> bool {
    let struck = corner.proxy.on(is_turn).may_miss().apply(fault);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| semaphore.acquire_timeout(SECOND * 30).unwrap());
        // Nobody can see who waits in this process only.
        thread::sleep(hold);
        let start = Instant::now();
        guard.release().unwrap();
        let next = waiting.join().unwrap();
        assert!(start.elapsed() <= SOON, "{fault:?}: {:?}", start.elapsed());
        assert_eq!(held(corner), 3, "{fault:?}");
        next.check().unwrap();
        next.release().unwrap();
    });
    struck.end();
    struck.hits() > 0
}

#[test]
fn a_permit_whose_turn_gets_no_reply_goes_to_a_thread_that_waits_and_stays_one() {
    for fault in LOSSES {
        let corner = corner();
        let semaphore = client_at(corner.proxy.url()).semaphore("x", 3);
        let _others = corner.semaphore(3).permits(2).acquire().unwrap();
        let mut holds = (0..10).map(|power| millis(1 << power));
        let struck = holds.any(|hold| {
            let guard = semaphore.acquire().unwrap();
            turn_struck(&corner, &semaphore, guard, hold, fault)
        });
        assert!(struck, "there was no turn");
        wait_until("what was unclear to be settled", SOON, || held(&corner) == 2);
    }
}

#[test]
fn a_limit_whose_reply_is_lost_is_set() {
    for fault in LOSSES {
        let corner = corner();
        let _struck = corner.proxy.on(is_set_limit).apply(fault);
        let start = Instant::now();
        corner.behind(3).set_limit(5).unwrap();
        assert!(start.elapsed() <= COMMAND * 2 + SLACK);
        let seen = corner.semaphore(3).inspect().unwrap();
        assert_eq!((seen.limit, seen.declared_limit), (5, 3), "{fault:?}");
    }
}

#[test]
fn a_limit_that_stays_unanswered_is_unconfirmed_and_serves_those_who_wait_once() {
    let corner = corner();
    let guard = corner.semaphore(1).acquire().unwrap();
    let (sender, served) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..3 {
            let (sender, semaphore) = (sender.clone(), corner.semaphore(1));
            scope.spawn(move || {
                let guard = semaphore.acquire_timeout(SECOND * 30).unwrap();
                sender.send(()).unwrap();
                guard
            });
        }
        wait_until("all to wait", SOON, || {
            corner.semaphore(1).inspect().unwrap().waiters == 3
        });
        let _struck = corner.proxy.on(is_set_limit).every().apply(Fault::SwallowReply);
        let error = corner.behind(1).set_limit(3).unwrap_err();
        assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
        // It ran, twice.
        for _ in 0..3 {
            served.recv_timeout(SOON).unwrap();
            let permits = corner.members().len();
            assert!(permits <= 3, "{permits}");
        }
    });
    guard.release().unwrap();
    assert_eq!(corner.server.run(&format!("ZCARD {KEY}")), redis::Value::Int(0));
}
