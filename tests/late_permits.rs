//! Permits when requests or their answers are late: a proxy stands before a real server.

mod support;

use std::{sync::Arc, thread, time::Instant};

use redlatch::{Client, ClientBuilder, Semaphore};
use support::{Fault, MINUTE, PROMPT, Proxy, SECOND, Server, is_acquire, is_turn, millis, wait_until};

struct Fixture {
    server: Arc<Server>,
    prefix: &'static str,
}

impl Fixture {
    fn new(prefix: &'static str) -> Self {
        let server = support::shared();
        Self { server, prefix }
    }

    /// Its waiters are woken, or wait for a minute.
    fn builder(&self) -> ClientBuilder {
        let builder = Client::builder().url(self.server.url()).prefix(self.prefix);
        builder.poll_interval(MINUTE).command_timeout(SECOND * 20)
    }

    fn semaphore(&self) -> Semaphore {
        semaphore(&self.builder().build().unwrap())
    }
}

/// Of two permits, which are handed on as often as it takes.
fn semaphore(client: &Client) -> Semaphore {
    client.semaphore("x", 2).lease(MINUTE).handoffs(u32::MAX)
}

fn wait_for_waiters(semaphore: &Semaphore, count: usize) {
    wait_until("waiters", PROMPT, || semaphore.inspect().unwrap().waiters == count);
}

#[test]
fn a_thread_that_was_served_meanwhile_is_not_handed_an_older_fencing_token() {
    let fixture = Fixture::new("late-turn:");
    let proxy = Proxy::to(&fixture.server);
    let ours = semaphore(&fixture.builder().url(proxy.url()).build().unwrap());
    let theirs = fixture.semaphore();
    let (guard, other) = (ours.acquire().unwrap(), theirs.acquire().unwrap());
    let last = other.fencing_token();
    let late = proxy.on(is_turn).apply(Fault::DelayReply(SECOND * 2));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = ours.acquire_timeout(PROMPT).unwrap();
            let served = guard.fencing_token();
            guard.release().unwrap();
            let _taken = theirs.try_acquire().unwrap().expect("just released");
            (served, ours.acquire_timeout(PROMPT).unwrap().fencing_token())
        });
        wait_for_waiters(&theirs, 1);
        // Longer than a turn: however late the answer is, it begins another.
        assert!(!guard.wait_lost(millis(100)));
        let releasing = scope.spawn(|| guard.release().unwrap());
        wait_until("a fencing token to be drawn for the hand-over", PROMPT, || {
            theirs
                .inspect()
                .unwrap()
                .fencing_token
                .is_some_and(|drawn| drawn > last)
        });
        // While the answer is on its way the waiter is served by this one.
        other.release().unwrap();
        let (earlier, later) = waiting.join().unwrap();
        assert!(later > earlier, "{later} after {earlier}");
        releasing.join().unwrap();
    });
    late.wait_hit(PROMPT);
}

#[test]
fn permits_that_were_handed_on_are_free_when_they_are_released() {
    let fixture = Fixture::new("place:");
    let semaphore = fixture.semaphore().permits(2);
    let mut handed_over = 0;
    for _ in 0..50 {
        let guard = semaphore.acquire_timeout(PROMPT).unwrap();
        let token = guard.token().to_owned();
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = semaphore.acquire_timeout(PROMPT).unwrap();
                let handed_over = guard.token() == token;
                guard.release().unwrap();
                let seen = semaphore.inspect().unwrap();
                (handed_over, seen)
            });
            wait_for_waiters(&semaphore, 1);
            // Time to hear the answer to its look; nothing is handed to it before.
            thread::sleep(millis(5));
            guard.release().unwrap();
            let (is_handed_over, seen) = next.join().unwrap();
            handed_over += u32::from(is_handed_over);
            assert!(seen.available() == 2 && seen.waiters == 0, "{seen}");
        });
    }
    assert!(handed_over > 0);
}

#[test]
fn permits_are_handed_on_however_far_away_the_server_is() {
    let fixture = Fixture::new("far:");
    let proxy = Proxy::to(&fixture.server);
    let semaphore = semaphore(&fixture.builder().url(proxy.url()).build().unwrap()).permits(2);
    // Longer than a turn.
    let _far = proxy.on(is_turn).every().apply(Fault::DelayReply(millis(50)));
    let mut rounds = (0..50).map(|_| {
        let (start, guard) = (Instant::now(), semaphore.acquire_timeout(PROMPT).unwrap());
        let token = guard.token().to_owned();
        let (held_for, next) = thread::scope(|scope| {
            let next = scope.spawn(|| semaphore.acquire_timeout(PROMPT).unwrap());
            wait_for_waiters(&semaphore, 1);
            thread::sleep(millis(2));
            let held_for = start.elapsed();
            guard.release().unwrap();
            (held_for, next.join().unwrap())
        });
        // The turn was still going on when the release was sent.
        held_for < millis(15) && next.token() == token
    });
    assert!(rounds.any(|handed_on| handed_on), "nothing was handed on within a turn");
}

#[test]
fn a_waiter_that_came_under_a_lowered_limit_is_woken_when_it_is_raised() {
    let fixture = Fixture::new("lowered:");
    for fair in [false, true] {
        let proxy = Proxy::to(&fixture.server);
        let ours = semaphore(&fixture.builder().url(proxy.url()).build().unwrap()).fair(fair);
        let theirs = fixture.semaphore();
        let guard = theirs.clone().permits(2).acquire().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ours.acquire_timeout(PROMPT * 3).map(drop));
            wait_for_waiters(&theirs, 1);
            // It is on its way to what was left to it when the limit is lowered.
            let coming = proxy.on(is_acquire).apply(Fault::HoldRequest);
            guard.release().unwrap();
            coming.wait_hit(PROMPT);
            theirs.set_limit(0).unwrap();
            assert_eq!(proxy.release_held().len(), 1, "it is answered: that nothing is free");
            theirs.set_limit(2).unwrap();
            let raised = Instant::now();
            waiting.join().unwrap().unwrap();
            assert!(raised.elapsed() < PROMPT, "fair: {fair}: {:?}", raised.elapsed());
        });
    }
}
