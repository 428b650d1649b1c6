//! Grants that replicas have to confirm: on a master with one replica, which is stopped when it is not to confirm.

mod support;

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, Error, LostReason, Wait};
use support::{SECOND, Server, chain, millis, wait_until};

/// How long replicas may take where they do confirm it, or where a test waits for that they do not.
const PATIENCE: Duration = SECOND.saturating_mul(10);
const IMPATIENCE: Duration = SECOND.saturating_mul(2);

struct Pair {
    master: Server,
    replica: Server,
}

impl Pair {
    /// A master and a replica that follows it.
    fn start() -> Self {
        let master = Server::start();
        let replica = master.start_replica();
        Self { master, replica }
    }

    fn client(&self) -> Client {
        let builder = Client::builder().url(self.master.url()).command_timeout(SECOND * 5);
        builder.build().unwrap()
    }

    /// Waits until the lock `x` is free at the master.
    fn wait_until_free(&self) {
        wait_until("the key to be gone", SECOND * 10, || {
            self.master.get("lock:x").is_none()
        });
    }
}

fn not_replicated(error: &Error, wanted: u32, acknowledged: u32) -> bool {
    matches!(error, Error::NotReplicated { wanted: w, acknowledged: a, .. } if (*w, *a) == (wanted, acknowledged))
}

#[test]
fn what_was_granted_stands_at_the_replica_already() {
    let pair = Pair::start();
    let lock = pair.client().lock("x").replicas(1, PATIENCE);
    for _ in 0..50 {
        let guard = lock.acquire().unwrap();
        assert_eq!(pair.replica.get("lock:x").as_deref(), Some(guard.token()));
        guard.release().unwrap();
    }
    let semaphore = pair.client().semaphore("x", 2).replicas(1, PATIENCE);
    let _permit = semaphore.acquire().unwrap();
    assert_eq!(pair.replica.run("ZCARD semaphore:x"), redis::Value::Int(1));
}

#[test]
fn a_grant_that_too_few_confirm_is_given_back_and_told_at_once() {
    let pair = Pair::start();
    let client = pair.client();
    let lock = client.lock("x").replicas(2, IMPATIENCE);
    for wait in [Wait::none(), Wait::at_most(SECOND * 60), Wait::forever()] {
        let start = Instant::now();
        let error = lock.acquire_with(wait).unwrap_err();
        assert!(not_replicated(&error, 2, 1), "{error:?}");
        assert!(start.elapsed() < IMPATIENCE + SECOND * 5);
        // It had been given back before that was told.
        assert_eq!(pair.master.get("lock:x"), None);
    }
    let semaphore = client.semaphore("x", 2).replicas(2, IMPATIENCE);
    let error = semaphore.acquire().unwrap_err();
    assert!(not_replicated(&error, 2, 1), "{error:?}");
    assert_eq!(semaphore.available().unwrap(), 2);
    // Those who want fewer get it.
    lock.replicas(1, PATIENCE).acquire().unwrap().release().unwrap();
}

#[test]
fn a_stopped_replica_confirms_nothing_and_does_again_when_it_goes_on() {
    let pair = Pair::start();
    let lock = pair.client().lock("x").replicas(1, IMPATIENCE);
    pair.replica.stop_process();
    let error = lock.try_acquire().unwrap_err();
    assert!(not_replicated(&error, 1, 0), "{error:?}");
    pair.replica.continue_process();
    lock.replicas(1, PATIENCE)
        .try_acquire()
        .unwrap()
        .unwrap()
        .release()
        .unwrap();
}

#[test]
fn a_lock_that_is_taken_costs_no_time_for_replicas() {
    let pair = Pair::start();
    let _guard = pair.client().lock("x").acquire().unwrap();
    pair.replica.stop_process();
    let start = Instant::now();
    let lock = pair.client().lock("x").replicas(1, SECOND * 60);
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(start.elapsed() < SECOND * 30);
    pair.replica.continue_process();
}

#[test]
fn renewals_that_nobody_confirms_end_the_lease_and_say_why() {
    let pair = Pair::start();
    let (sender, losses) = mpsc::channel();
    let lock = pair.client().lock("x").lease(SECOND * 8).replicas(1, IMPATIENCE);
    let lock = lock.on_lost(move |lost| sender.send(lost.clone()).unwrap());
    let guard = lock.acquire().unwrap();
    // Confirmed renewals keep it.
    thread::sleep(SECOND * 10);
    guard.check().unwrap();
    pair.replica.stop_process();
    let loss = losses.recv_timeout(SECOND * 30).unwrap();
    assert_eq!(loss.reason, LostReason::Expired);
    assert!(!guard.is_held());
    let said = chain(&Error::Lost(loss));
    assert!(said.contains("replicas"), "{said}");
    pair.replica.continue_process();
}

#[test]
fn renewals_that_one_lock_wants_confirmed_cost_another_nothing() {
    let pair = Pair::start();
    let client = pair.client();
    let plain = client.lock("y").lease(SECOND * 2).acquire().unwrap();
    let wants = client
        .lock("x")
        .lease(SECOND * 2)
        .replicas(1, SECOND * 60)
        .acquire()
        .unwrap();
    pair.replica.stop_process();
    assert!(wants.wait_lost(SECOND * 30));
    thread::sleep(SECOND * 3);
    plain.check().unwrap();
    plain.release().unwrap();
    pair.replica.continue_process();
}

#[test]
fn an_extension_that_nobody_confirms_is_told_and_the_lease_holds_as_before() {
    let pair = Pair::start();
    let lock = pair.client().timed_lock("x", SECOND * 60).replicas(1, IMPATIENCE);
    let guard = lock.replicas(1, PATIENCE).acquire().unwrap();
    guard.extend(SECOND * 120).unwrap();
    assert!(guard.remaining() > SECOND * 100);
    drop(guard);
    let lock = pair.client().timed_lock("x", SECOND * 60).replicas(1, IMPATIENCE);
    let guard = lock.acquire().unwrap();
    pair.replica.stop_process();
    let error = guard.extend(SECOND * 120).unwrap_err();
    assert!(not_replicated(&error, 1, 0), "{error:?}");
    assert!(guard.is_held() && guard.remaining() < SECOND * 60);
    pair.replica.continue_process();
    guard.release().unwrap();
}

#[test]
fn renewals_that_lengthen_nothing_are_no_more_confirmed_than_the_extension_before_them() {
    let pair = Pair::start();
    let lock = pair.client().lock("x").lease(SECOND * 8).replicas(1, IMPATIENCE);
    let guard = lock.acquire().unwrap();
    pair.replica.stop_process();
    // The master has it for so long, and the replica does not.
    let error = guard.extend(SECOND * 60).unwrap_err();
    assert!(not_replicated(&error, 1, 0), "{error:?}");
    assert!(guard.wait_lost(SECOND * 30));
    pair.replica.continue_process();
}

#[test]
fn permits_that_are_renewed_without_being_lengthened_are_confirmed_too() {
    let pair = Pair::start();
    let semaphore = pair
        .client()
        .semaphore("x", 2)
        .lease(SECOND * 8)
        .replicas(1, IMPATIENCE);
    let permit = semaphore.acquire().unwrap();
    pair.replica.stop_process();
    let error = permit.extend(SECOND * 60).unwrap_err();
    assert!(not_replicated(&error, 1, 0), "{error:?}");
    assert!(permit.wait_lost(SECOND * 30));
    pair.replica.continue_process();
}

#[test]
fn a_cancelled_wait_does_not_wait_for_replicas() {
    let pair = Pair::start();
    let lock = pair.client().lock("x").replicas(1, SECOND * 60);
    pair.replica.stop_process();
    let token = CancelToken::new();
    let wait = Wait::forever().cancelled_by(&token);
    let waiter = thread::spawn(move || lock.acquire_with(wait).unwrap_err());
    wait_until("the grant to be made", SECOND * 10, || {
        pair.master.get("lock:x").is_some()
    });
    let start = Instant::now();
    token.cancel();
    let error = waiter.join().unwrap();
    assert!(matches!(error, Error::Cancelled), "{error:?}");
    assert!(start.elapsed() < SECOND * 5);
    pair.wait_until_free();
    pair.replica.continue_process();
}

#[test]
fn the_lease_counts_from_before_the_replicas_were_waited_for() {
    let pair = Pair::start();
    let lock = pair.client().timed_lock("x", SECOND * 60).replicas(1, SECOND * 30);
    pair.replica.stop_process();
    let start = Instant::now();
    let waiter = thread::spawn(move || lock.acquire().unwrap());
    wait_until("the grant to be made", SECOND * 10, || {
        pair.master.get("lock:x").is_some()
    });
    thread::sleep(SECOND);
    pair.replica.continue_process();
    let guard = waiter.join().unwrap();
    assert!(start + SECOND * 60 > Instant::now() + guard.remaining());
    assert!(guard.remaining() < SECOND * 59);
}

#[test]
fn a_lock_that_replicas_confirm_is_not_handed_on_without_them() {
    let pair = Pair::start();
    let lock = pair.client().lock("x").replicas(1, PATIENCE);
    let first = lock.acquire().unwrap();
    let token = first.token().to_owned();
    let waiter = thread::spawn({
        let lock = lock.clone();
        move || lock.acquire().unwrap()
    });
    // By then it most likely waits; what is shown holds in any case.
    thread::sleep(millis(200));
    first.release().unwrap();
    let second = waiter.join().unwrap();
    assert_ne!(second.token(), token);
    assert_eq!(pair.replica.get("lock:x").as_deref(), Some(second.token()));
}

#[test]
fn a_promoted_replica_has_what_it_confirmed() {
    let pair = Pair::start();
    let guard = pair.client().lock("x").replicas(1, PATIENCE).acquire().unwrap();
    pair.master.kill();
    pair.replica.run("REPLICAOF NO ONE");
    assert_eq!(pair.replica.get("lock:x").as_deref(), Some(guard.token()));
    let other = Client::open(pair.replica.url()).unwrap();
    assert!(other.lock("x").try_acquire().unwrap().is_none());
    assert!(matches!(guard.release(), Err(Error::Unconfirmed(_))));
}

/// Row 42 of the reported faults: a failover that loses the lock.
#[test]
fn a_promoted_replica_that_lost_the_lock_still_grants_larger_fencing_tokens() {
    let pair = Pair::start();
    let client = pair.client();
    // The replica knows an old counter.
    client
        .lock("x")
        .replicas(1, PATIENCE)
        .acquire()
        .unwrap()
        .release()
        .unwrap();
    pair.replica.run("REPLICAOF 127.0.0.1 1");
    let guard = client.lock("x").acquire().unwrap();
    pair.master.kill();
    pair.replica.run("REPLICAOF NO ONE");
    let other = Client::open(pair.replica.url()).unwrap();
    let usurper = other.lock("x").acquire_timeout(SECOND * 10).unwrap();
    assert!(usurper.fencing_token() > guard.fencing_token());
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_sent() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    for (count, timeout) in [(0, SECOND), (1, Duration::ZERO), (1, millis(1) / 2), (1, SECOND * 3601)] {
        let lock = client.lock("x").replicas(count, timeout);
        assert!(
            matches!(lock.try_acquire(), Err(Error::InvalidArgument(_))),
            "{count} {timeout:?}"
        );
    }
    assert_eq!(server.command_calls("evalsha"), 0);
    let memory = Client::open("memory://replicas").unwrap();
    let error = memory.lock("x").replicas(1, SECOND).try_acquire().unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    let error = memory.semaphore("x", 1).replicas(1, SECOND).try_acquire().unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
}

#[test]
fn a_user_without_the_right_to_wait_is_told_and_leaves_nothing() {
    let server = Server::start();
    server.run("ACL SETUSER app on >secret ~* &* +@all -wait");
    let url = server.url().replace("redis://", "redis://app:secret@");
    let lock = Client::open(url).unwrap().lock("x").replicas(1, IMPATIENCE);
    let error = lock.try_acquire().unwrap_err();
    assert!(
        matches!(error, Error::Server(_)) && chain(&error).contains("wait"),
        "{error:?}"
    );
    assert_eq!(server.get("lock:x"), None);
}
