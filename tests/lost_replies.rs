//! What happens when requests or their replies are lost, late, or run late: a proxy stands before a real server.

mod support;

use std::{
    error::Error as _,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, Error, Lock, LostReason, Wait};
use support::{Fault, Proxy, SECOND, SLACK, Server, is_acquire, is_release, is_renew, lost, millis, wait_until};

/// How long one request may take here.
const COMMAND: Duration = millis(500);

/// "Long before the lease of 30 s ends."
const SOON: Duration = Duration::from_secs(5);

/// A server with a proxy before it, and a client behind that knows the server's scripts.
struct Fixture {
    proxy: Proxy,
    client: Client,
    server: Arc<Server>,
    prefix: String,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let server = support::shared();
        let proxy = Proxy::to(&server);
        let prefix = format!("{name}:");
        let client = Client::builder()
            .url(proxy.url())
            .prefix(&prefix)
            .command_timeout(COMMAND)
            .build()
            .unwrap();
        let warm_up = client.lock("warm-up");
        let guard = warm_up.acquire().unwrap();
        guard.extend(SECOND * 40).unwrap();
        guard.release().unwrap();
        Self {
            proxy,
            client,
            server,
            prefix,
        }
    }

    fn lock(&self) -> Lock {
        self.client.lock("x")
    }

    /// Another process, with a straight line to the server.
    fn rival(&self) -> Lock {
        Client::builder()
            .url(self.server.url())
            .prefix(&self.prefix)
            .build()
            .unwrap()
            .lock("x")
    }

    fn key(&self) -> String {
        format!("{}lock:x", self.prefix)
    }

    fn holder(&self) -> Option<String> {
        self.server.get(&self.key())
    }

    fn ttl(&self) -> Duration {
        self.server.ttl(&self.key()).expect("a key with a TTL")
    }

    fn wait_until_free(&self) {
        wait_until("the key to be cleaned up", SOON, || self.holder().is_none());
    }
}

#[test]
fn an_acquire_whose_reply_is_lost_succeeds_with_its_first_token() {
    for fault in [Fault::CutAfter, Fault::CutBefore, Fault::SwallowReply] {
        let fixture = Fixture::new(&format!("acquire-{fault:?}"));
        let attempts = fixture.proxy.on(is_acquire).watch();
        let _struck = fixture.proxy.on(is_acquire).apply(fault);
        let guard = fixture.lock().acquire_timeout(SECOND * 20).unwrap();
        assert_eq!(fixture.holder().as_deref(), Some(guard.token()));
        assert_eq!(attempts.seen(), 2);
        guard.check().unwrap();
        guard.release().unwrap();
        assert_eq!(fixture.holder(), None);
    }
}

#[test]
fn a_try_whose_reply_is_cut_succeeds_on_a_new_connection() {
    let fixture = Fixture::new("try-cut");
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::CutAfter);
    let guard = fixture.lock().try_acquire().unwrap().expect("free");
    assert_eq!(fixture.holder().as_deref(), Some(guard.token()));
}

#[test]
fn a_try_whose_reply_is_swallowed_is_unconfirmed_and_leaves_nothing() {
    let fixture = Fixture::new("try-swallowed");
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::SwallowReply);
    let start = Instant::now();
    let error = fixture.lock().try_acquire().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert!(start.elapsed() <= COMMAND + SLACK);
    fixture.wait_until_free();
}

#[test]
fn a_wait_that_times_out_over_swallowed_replies_leaves_nothing() {
    let fixture = Fixture::new("wait-swallowed");
    let swallowed = fixture.proxy.on(is_acquire).every().apply(Fault::SwallowReply);
    let (start, limit) = (Instant::now(), COMMAND * 3);
    let error = fixture.lock().acquire_timeout(limit).unwrap_err();
    assert!(matches!(error, Error::Timeout { last: Some(_), .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with("because every attempt failed or found it taken"),
        "{error}"
    );
    assert!(error.source().is_some());
    assert!(
        start.elapsed() >= limit && start.elapsed() <= limit + COMMAND + SLACK,
        "{:?}",
        start.elapsed()
    );
    swallowed.end();
    fixture.wait_until_free();
}

#[test]
fn an_attempt_that_a_stalled_server_runs_after_its_client_gave_up_is_cleaned_up() {
    let fixture = Fixture::new("stalled-try");
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::HoldRequest);
    assert!(matches!(fixture.lock().try_acquire(), Err(Error::Unconfirmed(_))));
    assert_eq!(fixture.holder(), None);
    fixture.proxy.release_held();
    fixture.wait_until_free();
    // It is not the lease of 30 s that has freed it.
    let guard = fixture.rival().acquire_timeout(SOON).unwrap();
    guard.check().unwrap();
}

#[test]
fn an_attempt_that_a_stalled_server_runs_after_the_retrys_release_is_cleaned_up() {
    let fixture = Fixture::new("stalled-retry");
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::HoldRequest);
    let guard = fixture.lock().acquire_timeout(SECOND * 20).unwrap();
    let fencing_token = guard.fencing_token();
    guard.release().unwrap();
    assert_eq!(fixture.holder(), None);

    fixture.proxy.release_held();
    fixture.wait_until_free();
    let next = fixture.rival().acquire_timeout(SOON).unwrap();
    assert!(next.fencing_token() > fencing_token);
    // The clean-up that is still going on concerns the old token only.
    assert!(!next.wait_lost(SECOND));
    assert_eq!(fixture.holder().as_deref(), Some(next.token()));
}

/// The key was deleted meanwhile, so that there is nothing to release.
#[test]
fn an_attempt_that_runs_after_a_loss_is_cleaned_up() {
    let fixture = Fixture::new("late-attempt-after-a-loss");
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::HoldRequest);
    let guard = fixture.lock().acquire_timeout(SECOND * 20).unwrap();
    fixture.server.run(&format!("DEL {}", fixture.key()));
    assert_eq!(lost(guard.extend(SECOND * 60).unwrap_err()), LostReason::Deleted);
    drop(guard);
    fixture.proxy.release_held();
    fixture.wait_until_free();
}

#[test]
fn an_attempt_that_runs_late_does_not_shorten_the_lease_that_the_retry_was_given() {
    let fixture = Fixture::new("stalled-short");
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::HoldRequest);
    let guard = fixture
        .client
        .timed_lock("x", SECOND * 5)
        .acquire_timeout(SECOND * 20)
        .unwrap();
    guard.extend(SECOND * 300).unwrap();
    fixture.proxy.release_held();
    assert!(fixture.ttl() > SECOND * 290);
    guard.check().unwrap();
    guard.release().unwrap();
}

#[test]
fn a_wait_that_is_cancelled_while_its_grant_is_on_its_way_leaves_nothing() {
    for fault in [Fault::DelayReply(COMMAND / 2), Fault::SwallowReply] {
        let fixture = Fixture::new(&format!("cancel-{fault:?}"));
        let struck = fixture.proxy.on(is_acquire).apply(fault);
        let token = CancelToken::new();
        let (lock, wait) = (fixture.lock(), Wait::forever().cancelled_by(&token));
        let waiting = thread::spawn(move || lock.acquire_with(wait).map(drop));
        struck.wait_hit(SECOND * 10);
        let start = Instant::now();
        token.cancel();
        let outcome = waiting.join().unwrap();
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
        assert!(start.elapsed() <= COMMAND + SLACK, "{:?}", start.elapsed());
        fixture.wait_until_free();
    }
}

#[test]
fn a_wait_that_is_cancelled_in_a_silence_ends_at_once() {
    for fault in [Fault::SwallowReply, Fault::HoldRequest] {
        let fixture = Fixture::new(&format!("cancel-silence-{fault:?}"));
        let client = Client::builder()
            .url(fixture.proxy.url())
            .prefix(&fixture.prefix)
            .command_timeout(SECOND * 60)
            .build()
            .unwrap();
        let struck = fixture.proxy.on(is_acquire).apply(fault);
        let token = CancelToken::new();
        let (lock, wait) = (client.lock("x"), Wait::forever().cancelled_by(&token));
        let waiting = thread::spawn(move || lock.acquire_with(wait).map(drop));
        struck.wait_hit(SECOND * 10);
        let start = Instant::now();
        token.cancel();
        let outcome = waiting.join().unwrap();
        assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        // It runs when nobody wants it any more.
        fixture.proxy.release_held();
        fixture.wait_until_free();
    }
}

#[test]
fn a_release_whose_reply_is_lost_is_made_again_and_succeeds() {
    for fault in [Fault::CutAfter, Fault::CutBefore, Fault::SwallowReply] {
        let fixture = Fixture::new(&format!("release-{fault:?}"));
        let guard = fixture.lock().acquire().unwrap();
        let _struck = fixture.proxy.on(is_release).apply(fault);
        let start = Instant::now();
        guard.release().unwrap();
        assert!(start.elapsed() <= COMMAND * 2 + SLACK);
        assert_eq!(fixture.holder(), None);
    }
}

#[test]
fn a_release_that_lost_its_reply_while_another_took_the_lock_has_succeeded() {
    let fixture = Fixture::new("release-retaken");
    let guard = fixture.lock().acquire().unwrap();
    let swallowed = fixture.proxy.on(is_release).apply(Fault::SwallowReply);
    let rival = fixture.rival();
    let taking = std::thread::spawn(move || rival.acquire_timeout(SECOND * 20).unwrap());
    guard.release().unwrap();
    assert_eq!(swallowed.hits(), 1);
    let next = taking.join().unwrap();
    next.check().unwrap();
    assert_eq!(fixture.holder().as_deref(), Some(next.token()));
}

#[test]
fn a_repeated_release_tells_that_the_lock_was_gone_before() {
    for fault in [Fault::CutAfter, Fault::CutBefore, Fault::SwallowReply] {
        for (taken, reason) in [(false, LostReason::Deleted), (true, LostReason::Taken)] {
            let fixture = Fixture::new(&format!("release-gone-{fault:?}-{taken}"));
            let (sender, losses) = mpsc::channel();
            let lock = fixture.lock().on_lost(move |lost| sender.send(lost.reason).unwrap());
            let guard = lock.acquire().unwrap();
            assert!(fixture.rival().force_release().unwrap());
            let next = taken.then(|| fixture.rival().acquire().unwrap());
            let struck = fixture.proxy.on(is_release).apply(fault);
            assert_eq!(lost(guard.release().unwrap_err()), reason, "{fault:?}");
            assert_eq!(losses.recv_timeout(SECOND * 10).unwrap(), reason);
            assert_eq!(fixture.holder().as_deref(), next.as_ref().map(|next| next.token()));
            drop((struck, next));

            let _struck = fixture.proxy.on(is_release).apply(fault);
            let outcome = lock.with_lock(|| fixture.rival().force_release().unwrap());
            assert_eq!(lost(outcome.unwrap_err()), LostReason::Deleted, "{fault:?}");
        }
    }
}

#[test]
fn a_repeated_release_that_others_have_covered_is_unconfirmed() {
    for fault in [Fault::CutAfter, Fault::CutBefore] {
        for released in [true, false] {
            let fixture = Fixture::new(&format!("release-covered-{fault:?}-{released}"));
            let guard = fixture.lock().acquire().unwrap();
            if !released {
                assert!(fixture.rival().force_release().unwrap());
            }
            // The repetition has to wait until another one has taken and released the lock.
            let _struck = fixture.proxy.on(is_release).apply(fault);
            let _held = fixture.proxy.on(is_release).nth(2).apply(Fault::HoldRequest);
            let releasing = thread::spawn(move || guard.release());
            wait_until("the repetition", SECOND * 10, || fixture.proxy.held() == 1);
            if fixture.holder().is_some() {
                // The first request did not get there: the lock is still ours.
                fixture.proxy.release_held();
                releasing.join().unwrap().unwrap();
                continue;
            }
            fixture.rival().acquire().unwrap().release().unwrap();
            fixture.proxy.release_held();
            let error = releasing.join().unwrap().unwrap_err();
            assert!(
                matches!(error, Error::Unconfirmed(_)),
                "{fault:?} {released}: {error:?}"
            );
        }
    }
}

#[test]
fn a_release_that_stays_unanswered_is_unconfirmed_and_completed_in_the_background() {
    let fixture = Fixture::new("release-silent");
    let guard = fixture.lock().acquire().unwrap();
    let held = fixture.proxy.on(is_release).every().apply(Fault::SwallowReply);
    let start = Instant::now();
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert!(start.elapsed() <= COMMAND * 2 + SLACK);
    held.end();
    fixture.wait_until_free();
}

#[test]
fn a_release_that_never_reached_the_server_is_completed_in_the_background() {
    let fixture = Fixture::new("release-unreached");
    let guard = fixture.lock().acquire().unwrap();
    fixture.proxy.go_down();
    assert!(matches!(guard.release(), Err(Error::Unconfirmed(_))));
    assert!(fixture.holder().is_some());
    fixture.proxy.go_up();
    fixture.wait_until_free();
}

#[test]
fn a_drop_into_a_black_hole_is_bounded_and_completed_in_the_background() {
    let fixture = Fixture::new("drop-black-hole");
    let guard = fixture.lock().acquire().unwrap();
    fixture.proxy.black_hole(true);
    let start = Instant::now();
    drop(guard);
    assert!(start.elapsed() <= COMMAND + SLACK, "{:?}", start.elapsed());
    fixture.proxy.black_hole(false);
    fixture.wait_until_free();
}

#[test]
fn a_closure_is_not_bothered_by_an_unconfirmed_release() {
    let fixture = Fixture::new("closure-silent");
    let silent = fixture.proxy.on(is_release).every().apply(Fault::SwallowReply);
    assert_eq!(fixture.lock().with_lock(|| 42).unwrap(), 42);
    silent.end();
    fixture.wait_until_free();
}

#[test]
fn the_release_of_an_expired_lock_is_bounded_however_long_it_was_waited_for() {
    let fixture = Fixture::new("release-expired");
    let lock = fixture.client.timed_lock("x", millis(300));
    let guard = lock.acquire().unwrap();
    fixture.proxy.black_hole(true);
    assert!(guard.wait_lost(SECOND * 10));
    // On a thread of its own, so that one that goes on for ever is told here.
    let (sender, released) = mpsc::channel();
    thread::spawn(move || sender.send(guard.release()).unwrap());
    let outcome = released.recv_timeout(COMMAND * 2 + SLACK).expect("the release to end");
    assert_eq!(lost(outcome.unwrap_err()), LostReason::Expired);
    fixture.proxy.black_hole(false);
    // With a server that answers it is one request.
    let guard = lock.acquire().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    let releases = fixture.proxy.on(is_release).watch();
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
    assert_eq!(releases.seen(), 1);
}

#[test]
fn nothing_is_renewed_after_the_release_even_if_its_reply_was_lost() {
    let fixture = Fixture::new("release-renewal");
    let guard = fixture.lock().lease(SECOND).acquire().unwrap();
    let silent = fixture.proxy.on(is_release).every().apply(Fault::CutBefore);
    assert!(matches!(guard.release(), Err(Error::Unconfirmed(_))));
    let renewals = fixture.proxy.on(is_renew).watch();
    // Not even though the key still stands there.
    wait_until("the lease to end by itself", SOON, || fixture.holder().is_none());
    assert_eq!(renewals.seen(), 0);
    silent.end();
}

#[test]
fn a_delayed_grant_counts_from_before_it_was_asked_for() {
    let fixture = Fixture::new("delayed");
    let delay = COMMAND / 2;
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::DelayReply(delay));
    let lease = SECOND * 10;
    let guard = fixture.client.timed_lock("x", lease).acquire().unwrap();
    // The key first: what is left here only shrinks until it is asked for.
    let at_the_server = fixture.ttl();
    let here = guard.remaining();
    assert!(here <= at_the_server, "{here:?} here, {at_the_server:?} at the server");
    assert!(here <= lease - delay - lease / 100 - millis(2));
}

#[test]
fn a_grant_that_arrives_after_its_lease_is_not_given_out() {
    let fixture = Fixture::new("too-late");
    let delayed = fixture.proxy.on(is_acquire).apply(Fault::DelayReply(COMMAND / 2));
    let lock = fixture.client.timed_lock("x", COMMAND / 4);
    assert!(matches!(lock.try_acquire(), Err(Error::Unconfirmed(_))));
    assert_eq!(delayed.hits(), 1);
    // The next to arrive in time is. It may be over soon, so there is nothing more to ask of it.
    drop(lock.acquire_timeout(SECOND * 20).unwrap());
}

#[test]
fn an_overdue_reply_is_never_taken_for_another_requests_answer() {
    let fixture = Fixture::new("overdue");
    let held = fixture.rival().acquire().unwrap();
    // "Busy", but so late that its connection must be gone by then.
    let _struck = fixture.proxy.on(is_acquire).apply(Fault::DelayReply(COMMAND * 2));
    assert!(matches!(fixture.lock().try_acquire(), Err(Error::Unconfirmed(_))));
    held.release().unwrap();
    let until = Instant::now() + COMMAND * 3;
    let mut last = 0;
    while Instant::now() < until {
        let guard = fixture.lock().acquire_timeout(SECOND * 20).unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.release().unwrap();
    }
}

#[test]
fn one_lost_renewal_reply_costs_no_lease() {
    for fault in [Fault::SwallowReply, Fault::CutAfter, Fault::CutBefore] {
        let fixture = Fixture::new(&format!("renewal-{fault:?}"));
        let guard = fixture.lock().lease(SECOND * 2).acquire().unwrap();
        for _ in 0..3 {
            let struck = fixture.proxy.on(is_renew).apply(fault);
            struck.wait_hit(SECOND * 10);
            assert!(!guard.wait_lost(SECOND * 2 / 3), "{fault:?}");
        }
        guard.release().unwrap();
    }
}

#[test]
fn a_poisoned_renewal_reply_costs_no_other_lease() {
    thread::scope(|scope| {
        for poison in ["-ERR poison\r\n", "+OK\r\n", ":7\r\n", "$-1\r\n", "*1\r\n:1\r\n"] {
            scope.spawn(move || {
                let fixture = Fixture::new(&format!("poison-{}", poison.escape_default()));
                let lease = SECOND;
                let take = |name: &str| fixture.client.lock(name).lease(lease).acquire().unwrap();
                let (before, poisoned, after) = (take("before"), take("poisoned"), take("after"));
                let token = poisoned.token().as_bytes().to_vec();
                let is_poisoned = move |args: &[Vec<u8>]| is_renew(args) && args.contains(&token);
                let _struck = fixture.proxy.on(is_poisoned).every().apply(Fault::Answer(poison));
                assert!(poisoned.wait_lost(lease), "{poison:?}");
                assert_eq!(lost(poisoned.check().unwrap_err()), LostReason::Expired);
                assert!(!before.wait_lost(lease * 3), "{poison:?}");
                assert!(after.is_held(), "{poison:?}");
            });
        }
    });
}

#[test]
fn a_renewal_reply_that_is_no_redis_protocol_costs_no_lease() {
    let fixture = Fixture::new("nonsense");
    let lease = SECOND;
    let guards = ["a", "b", "c"].map(|name| fixture.client.lock(name).lease(lease).acquire().unwrap());
    for _ in 0..3 {
        let struck = fixture
            .proxy
            .on(is_renew)
            .apply(Fault::Answer("HTTP/1.1 400 Bad Request\r\n\r\n"));
        struck.wait_hit(SECOND * 10);
    }
    assert!(!guards[0].wait_lost(lease));
    assert!(guards.iter().all(|guard| guard.is_held()));
}

#[test]
fn renewals_that_stay_unanswered_end_the_lease_in_time() {
    let fixture = Fixture::new("renewal-silent");
    let lease = SECOND;
    let guard = fixture.lock().lease(lease).acquire().unwrap();
    // The server renews, but nobody here can know.
    let silent = fixture.proxy.on(is_renew).every().apply(Fault::SwallowReply);
    assert!(guard.wait_lost(lease));
    assert!(fixture.holder().is_some());
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
    assert_eq!(fixture.holder(), None, "ours, so released");
    silent.end();
}

#[test]
fn a_callback_comes_in_time_even_while_a_renewal_waits_for_its_answer() {
    // Renewals of a long lease may take as long as a command; here that is longer than the short leases have left.
    let server = support::shared();
    let proxy = Proxy::to(&server);
    let command = SECOND * 5;
    let client = Client::builder()
        .url(proxy.url())
        .prefix("callback-in-time:")
        .command_timeout(command)
        .build()
        .unwrap();
    let long = client.lock("long").lease(SECOND * 12).acquire().unwrap();
    let silent = proxy.on(is_renew).every().apply(Fault::SwallowReply);
    silent.wait_hit(SECOND * 20);
    let (sender, losses) = std::sync::mpsc::channel();
    let timed = client
        .timed_lock("timed", SECOND)
        .on_lost(move |_| sender.send(Instant::now()).unwrap());
    let end = Instant::now() + SECOND;
    let guard = timed.acquire().unwrap();
    let told = losses.recv_timeout(SECOND * 30).unwrap();
    // With the renewal's timeout it would be seconds.
    assert!(told <= end + SECOND, "late by {:?}", told - end);
    drop((guard, long));
}

#[test]
fn an_extension_whose_reply_is_lost_is_made_again() {
    for fault in [Fault::CutAfter, Fault::CutBefore] {
        let fixture = Fixture::new(&format!("extension-{fault:?}"));
        let guard = fixture.client.timed_lock("x", SECOND * 20).acquire().unwrap();
        let _struck = fixture.proxy.on(is_renew).apply(fault);
        guard.extend(SECOND * 60).unwrap();
        assert!(guard.remaining() > SECOND * 50);
        guard.release().unwrap();
    }
}

#[test]
fn an_extension_that_stays_unanswered_promises_nothing_more() {
    let fixture = Fixture::new("extension-silent");
    let guard = fixture.client.timed_lock("x", SECOND * 20).acquire().unwrap();
    let _struck = fixture.proxy.on(is_renew).every().apply(Fault::SwallowReply);
    let start = Instant::now();
    assert!(matches!(guard.extend(SECOND * 60), Err(Error::Unconfirmed(_))));
    assert!(start.elapsed() <= COMMAND + SLACK);
    assert!(guard.remaining() <= SECOND * 20);
    guard.check().unwrap();
    guard.release().unwrap();
}

#[test]
fn a_renewal_that_runs_late_does_not_undo_an_extension() {
    let fixture = Fixture::new("extension-race");
    let guard = fixture.lock().lease(SECOND * 2).acquire().unwrap();
    let held = fixture.proxy.on(is_renew).apply(Fault::HoldRequest);
    held.wait_hit(SECOND * 10);
    guard.extend(SECOND * 300).unwrap();
    fixture.proxy.release_held();
    assert!(fixture.ttl() > SECOND * 290, "{:?}", fixture.ttl());
    assert!(guard.remaining() > SECOND * 280);
    // Nor do the renewals that follow.
    assert!(!guard.wait_lost(SECOND * 2));
    assert!(fixture.ttl() > SECOND * 280);
    assert!(guard.remaining() > SECOND * 280);
    guard.release().unwrap();
}

#[test]
fn a_renewal_that_runs_after_the_release_leaves_nothing() {
    let fixture = Fixture::new("renewal-late");
    let guard = fixture.lock().lease(SECOND * 2).acquire().unwrap();
    let held = fixture.proxy.on(is_renew).apply(Fault::HoldRequest);
    held.wait_hit(SECOND * 10);
    guard.release().unwrap();
    let next = fixture.rival().acquire().unwrap();
    fixture.proxy.release_held();
    assert_eq!(fixture.holder().as_deref(), Some(next.token()));
    next.release().unwrap();
    assert_eq!(fixture.holder(), None);
}

#[test]
fn fencing_tokens_rise_through_every_fault() {
    let fixture = Fixture::new("fencing");
    let mut last = 0;
    for fault in [
        Fault::CutAfter,
        Fault::CutBefore,
        Fault::SwallowReply,
        Fault::HoldRequest,
        Fault::DelayReply(COMMAND / 3),
    ] {
        for strike in [is_acquire, is_release] {
            let _struck = fixture.proxy.on(strike).apply(fault);
            for _ in 0..3 {
                let guard = fixture.lock().acquire_timeout(SECOND * 20).unwrap();
                assert!(guard.fencing_token() > last);
                last = guard.fencing_token();
                // With two attempts left, or by the janitor.
                drop(guard);
            }
            if matches!(fault, Fault::HoldRequest) {
                fixture.proxy.release_held();
            }
        }
    }
}
