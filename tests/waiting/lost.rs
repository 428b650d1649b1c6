//! Requests and replies that are lost, late, or run late, while somebody waits. What is said of requests here is true
//! of the client that stands behind the proxy; the others have a straight line to the server.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, ClientBuilder, Error, Guard, Wait};

use crate::{
    corner::Corner,
    support::{
        Fault, Proxy, SECOND, SLACK, SetOnDrop, is_acquire, is_registration, is_release, is_turn, is_withdraw,
        load_scripts, millis, wait_until,
    },
    terms::{LIMIT, MINUTE, PROMPT},
};

/// How long one request may take here.
const COMMAND: Duration = SECOND;

/// How a request or its reply is lost, or late.
const FAULTS: [Fault; 4] = [
    Fault::CutAfter,
    Fault::CutBefore,
    Fault::SwallowReply,
    Fault::DelayReply(millis(250)),
];

/// A proxy before a server that knows all scripts.
fn proxy(corner: &Corner) -> Proxy {
    load_scripts(&corner.server);
    Proxy::to(&corner.server)
}

fn builder(corner: &Corner, proxy: &Proxy) -> ClientBuilder {
    corner.builder().url(proxy.url()).command_timeout(COMMAND)
}

fn behind(corner: &Corner, proxy: &Proxy) -> Client {
    builder(corner, proxy).build().unwrap()
}

/// Releases `guard`; returns what the release said. `waiting` is served soon after it.
#[track_caller]
fn release_to(
    corner: &Corner,
    guard: Guard,
    waiting: thread::ScopedJoinHandle<Result<Guard, Error>>,
    what: &str,
) -> Result<(), Error> {
    let fencing_token = guard.fencing_token();
    let start = Instant::now();
    let released = guard.release();
    let next = waiting
        .join()
        .unwrap()
        .unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert!(start.elapsed() <= PROMPT, "{what}: {:?}", start.elapsed());
    assert!(next.fencing_token() > fencing_token, "{what}");
    assert_eq!(corner.holder().as_deref(), Some(next.token()), "{what}");
    next.release().unwrap();
    released
}

pub fn a_waiter_whose_request_or_reply_is_lost_is_woken_all_the_same(corner: &Corner) {
    let proxy = proxy(corner);
    for fault in FAULTS {
        // The request by which it takes its place, and the one by which it comes for the lock.
        for nth in [1, 2] {
            let (guard, client, terms) = (corner.hold(), behind(corner, &proxy), corner.terms());
            let struck = proxy.on(is_registration).nth(nth).apply(fault);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| terms.acquire(&client));
                corner.wait_for_registered(1);
                if nth == 1 {
                    struck.wait_hit(PROMPT);
                }
                let what = format!("{fault:?} of request {nth}");
                release_to(corner, guard, waiting, &what).unwrap();
            });
            drop(client);
            corner.wait_until_all_is_gone();
        }
    }
}

pub fn a_release_whose_reply_is_lost_wakes_the_waiter_and_has_succeeded(corner: &Corner) {
    let (proxy, waiter) = (proxy(corner), corner.client());
    let (holder, terms) = (behind(corner, &proxy), corner.terms());
    for fault in FAULTS {
        let guard = terms.acquire(&holder).unwrap();
        thread::scope(|scope| {
            let (sender, released) = mpsc::channel::<()>();
            let (terms, waiter) = (&terms, &waiter);
            let waiting = scope.spawn(move || {
                let next = terms.acquire(waiter);
                // Kept until the release is over: it must not cover what that has left.
                let _ = released.recv_timeout(LIMIT);
                next
            });
            corner.wait_for_registered(1);
            let _struck = proxy.on(is_release).apply(fault);
            let start = Instant::now();
            let token = guard.token().to_owned();
            guard.release().unwrap();
            wait_until("the waiter to have the lock", PROMPT, || {
                corner
                    .holder()
                    .is_some_and(|holder| holder != token && !holder.starts_with("redlatch:"))
            });
            assert!(start.elapsed() <= PROMPT, "{fault:?}: {:?}", start.elapsed());
            drop(sender);
            waiting.join().unwrap().unwrap().release().unwrap();
        });
        corner.wait_until_all_is_gone();
    }
}

pub fn a_lease_whose_turn_gets_no_reply_goes_to_somebody_who_waits(corner: &Corner) {
    let (proxy, other) = (proxy(corner), corner.client());
    let (client, terms) = (behind(corner, &proxy), corner.terms());
    for fault in FAULTS {
        for others_wait in [false, true] {
            // Nobody can see who waits in this process only: it is tried with growing holds whether there is a turn.
            let mut holds = (0..10).map(|power| millis(1 << power));
            let struck = holds.any(|hold| {
                let struck = proxy.on(is_turn).may_miss().apply(fault);
                let guard = terms.acquire(&client).unwrap();
                thread::scope(|scope| {
                    let elsewhere = others_wait.then(|| {
                        let waiting = scope.spawn(|| terms.acquire(&other));
                        corner.wait_for_registered(1);
                        waiting
                    });
                    let here = scope.spawn(|| terms.acquire(&client).unwrap().release());
                    thread::sleep(hold);
                    let start = Instant::now();
                    match guard.release() {
                        Ok(()) => {}
                        // Somebody who has had it since then may have covered what the turn has left. As a rule the
                        // first to have it still has.
                        Err(Error::Unconfirmed(_)) if others_wait => {}
                        Err(error) => panic!("{fault:?}: {error:?}"),
                    }
                    if let Some(elsewhere) = elsewhere {
                        elsewhere.join().unwrap().unwrap().release().unwrap();
                    }
                    here.join().unwrap().unwrap();
                    assert!(start.elapsed() <= PROMPT, "{fault:?}: {:?}", start.elapsed());
                });
                corner.wait_until_all_is_gone();
                struck.end();
                struck.hits() > 0
            });
            assert!(struck, "there was no turn");
        }
    }
}

/// Has somebody wait behind the proxy whose registration is held up there, and give up. The registration can be let go
/// then, with nobody there who wants it.
fn give_up_while_registering(corner: &Corner, proxy: &Proxy, client: &Client) {
    let (held, cancel) = (proxy.on(is_registration).apply(Fault::HoldRequest), CancelToken::new());
    thread::scope(|scope| {
        let wait = Wait::at_most(LIMIT).cancelled_by(&cancel);
        let waiting = scope.spawn(|| corner.terms().target(client).acquire_with(wait).map(drop));
        held.wait_hit(PROMPT);
        cancel.cancel();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error:?}");
    });
    assert_eq!(corner.registered(), 0);
}

pub fn a_place_that_is_taken_after_its_waiter_has_gone_is_given_up(corner: &Corner) {
    let proxy = proxy(corner);
    let (guard, client) = (corner.hold(), behind(corner, &proxy));
    give_up_while_registering(corner, &proxy, &client);
    proxy.release_held();
    wait_until("the place to be given up", PROMPT, || {
        corner.traces_of_waiting().is_empty()
    });
    assert_eq!(corner.holder().as_deref(), Some(guard.token()));
    guard.release().unwrap();
    assert_eq!(corner.holder(), None);
}

pub fn a_place_that_nobody_gives_up_is_passed_on_by_the_client_that_is_knocked_for_it(corner: &Corner) {
    let (proxy, terms, next) = (proxy(corner), corner.terms(), corner.client());
    // Also if what it passes it on with is lost.
    let faults = FAULTS.into_iter().map(Some).chain([None]);
    for fault in faults {
        let (guard, client) = (corner.hold(), behind(corner, &proxy));
        corner.have_listen(&client);
        give_up_while_registering(corner, &proxy, &client);
        // Its cleaning up does not get through, or there would be nothing to pass on.
        let kept = proxy.on(is_release).every().may_miss().apply(Fault::CutBefore);
        proxy.release_held();
        corner.wait_for_registered(1);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| terms.acquire(&next));
            corner.wait_for_registered(2);
            // Both can be called.
            corner.wait_for_subscribers(2);
            let withdrawals = proxy.on(is_withdraw).watch();
            let _struck = fault.map(|fault| proxy.on(is_withdraw).apply(fault));
            release_to(corner, guard, waiting, &format!("{fault:?}")).unwrap();
            withdrawals.wait_seen(1, PROMPT);
        });
        kept.end();
        drop(client);
        corner.wait_until_all_is_gone();
        corner.wait_for_subscribers(1);
    }
}

pub fn a_place_of_a_client_that_has_gone_holds_up_nobody_for_long(corner: &Corner) {
    let (proxy, terms) = (proxy(corner), corner.terms());
    let poll_interval = SECOND;
    let guard = corner.hold();
    let client = builder(corner, &proxy).poll_interval(poll_interval).build().unwrap();
    give_up_while_registering(corner, &proxy, &client);
    drop(client);
    corner.wait_for_subscribers(0);
    proxy.release_held();
    corner.wait_for_registered(1);
    let registered = Instant::now();
    thread::scope(|scope| {
        let next = corner.client();
        let waiting = scope.spawn(move || terms.acquire(&next));
        corner.wait_for_registered(2);
        release_to(corner, guard, waiting, "a place of one that has gone").unwrap();
    });
    // Nobody hears the knock, so others are passed over at once; one that keeps to its turn may just not listen yet.
    let longest = if corner.fair {
        poll_interval * 5 / 2
    } else {
        Duration::ZERO
    };
    assert!(registered.elapsed() <= longest + SLACK, "{:?}", registered.elapsed());
    corner.wait_until_all_is_gone();
}

pub fn scripts_may_be_flushed_at_any_point_of_a_wait(corner: &Corner) {
    let (clients, done) = ([corner.client(), corner.client()], AtomicBool::new(false));
    let terms = corner.terms();
    // One that waits while nothing else happens.
    let guard = corner.hold();
    thread::scope(|scope| {
        let cancel = CancelToken::new();
        let wait = Wait::at_most(MINUTE).cancelled_by(&cancel);
        let target = terms.target(&clients[1]);
        let cancelled = scope.spawn(move || target.acquire_with(wait));
        corner.wait_for_registered(1);
        let waiting = scope.spawn(|| terms.acquire(&clients[0]));
        corner.wait_for_registered(2);
        corner.server.run("SCRIPT FLUSH");
        cancel.cancel();
        cancelled.join().unwrap().unwrap_err();
        corner.wait_for_registered(1);
        corner.server.run("SCRIPT FLUSH");
        release_to(corner, guard, waiting, "a flush").unwrap();
    });
    // And at whatever point it comes.
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        let flushing = scope.spawn(|| {
            let (mut connection, mut flushes) = (corner.server.connection(), 0);
            while !done.load(Ordering::SeqCst) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
                flushes += 1;
                thread::sleep(millis(1) / 2);
            }
            flushes
        });
        let threads: Vec<_> = (0..6)
            .map(|nth| {
                let (client, terms) = (&clients[nth % 2], &terms);
                scope.spawn(move || {
                    for _ in 0..40 {
                        terms.acquire(client).unwrap().release().unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::SeqCst);
        let flushes = flushing.join().unwrap();
        assert!(flushes > 20, "{flushes}");
    });
    corner.wait_until_all_is_gone();
}

pub fn a_turn_that_finds_nobody_waiting_any_more_frees_the_lock(corner: &Corner) {
    let proxy = proxy(corner);
    let client = corner
        .builder()
        .url(proxy.url())
        .command_timeout(SECOND * 20)
        .build()
        .unwrap();
    let target = corner.terms().target(&client);
    let guard = target.acquire_with(Wait::forever()).unwrap();
    let late = proxy.on(is_turn).apply(Fault::DelayReply(millis(600)));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| target.acquire_timeout(millis(300)).map(drop));
        // The server is asked once the lease has been had for some time.
        assert!(!guard.wait_lost(millis(100)));
        guard.release().unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Timeout { .. })));
    });
    late.wait_hit(PROMPT);
    assert_eq!(corner.holder(), None);
}

pub fn a_lock_is_handed_on_however_far_away_the_server_is(corner: &Corner) {
    let proxy = proxy(corner);
    let client = corner.builder().url(proxy.url()).build().unwrap();
    let target = corner.terms().target(&client);
    let guard = target.acquire_with(Wait::forever()).unwrap();
    // Longer than a turn.
    let _far = proxy.on(is_turn).every().apply(Fault::DelayReply(millis(50)));
    let token = guard.token().to_owned();
    let next = thread::scope(|scope| {
        let waiting = scope.spawn(|| target.acquire_timeout(PROMPT).unwrap());
        assert!(!guard.wait_lost(millis(100)));
        guard.release().unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(next.token(), token);
}

pub fn a_cancelled_wait_leaves_the_others_of_its_client_alone(corner: &Corner) {
    let proxy = proxy(corner);
    let client = corner
        .builder()
        .url(proxy.url())
        .command_timeout(MINUTE)
        .build()
        .unwrap();
    let target = corner.terms().target(&client);
    let stop = CancelToken::new();
    let _cut = proxy.on(is_acquire).apply(Fault::CutBefore);
    let silent = proxy.on(is_acquire).nth(2).apply(Fault::SwallowReply);
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| target.acquire_with(Wait::forever().cancelled_by(&stop)).map(drop));
        silent.wait_hit(PROMPT);
        let other = scope.spawn(|| target.acquire_timeout(PROMPT).map(drop));
        stop.cancel();
        assert!(matches!(cancelled.join().unwrap(), Err(Error::Cancelled)));
        other.join().unwrap().unwrap();
    });
}
