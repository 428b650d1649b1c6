//! Waiters who are not woken, or for long: what they do by themselves.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, Error, Guard, Lock, Wait};

use crate::{
    corner::Corner,
    record::grants,
    support::{SECOND, SLACK, SetOnDrop, millis, wait_until},
    terms::{LIMIT, MINUTE, NAME, PROMPT, Terms},
};

/// What a user may lack who uses no channels.
const WITHOUT_CHANNELS: [&str; 3] = [
    "resetchannels +@all",
    "resetchannels +@all -@pubsub",
    "allchannels +@all -subscribe -psubscribe -ssubscribe",
];

/// A client of a user who has these permissions only.
fn client(corner: &Corner, permissions: &str, poll_interval: Duration) -> Client {
    corner
        .server
        .run(&format!("ACL SETUSER app reset on >secret ~* {permissions}"));
    let url = corner.server.url().replace("redis://", "redis://app:secret@");
    corner.builder().url(url).poll_interval(poll_interval).build().unwrap()
}

/// Releases the lock once `waiter` waits for it; returns how long after that it was served.
fn time_to_serve(corner: &Corner, guard: Guard, terms: &Terms, waiter: &Client) -> Duration {
    thread::scope(|scope| {
        let before = corner.server.command_calls("evalsha");
        let waiter = scope.spawn(|| terms.acquire(waiter).unwrap().release().unwrap());
        wait_until("the waiter to have asked", PROMPT, || {
            corner.server.command_calls("evalsha") > before
        });
        assert!(!waiter.is_finished());
        let released = Instant::now();
        guard.release().unwrap();
        waiter.join().unwrap();
        released.elapsed()
    })
}

pub fn a_user_without_channels_waits_by_polling(corner: &Corner) {
    let terms = corner.terms();
    for permissions in WITHOUT_CHANNELS {
        let waiter = client(corner, permissions, MINUTE);
        // Whoever releases may be of the same user, or of one who may do more.
        for holder in [client(corner, permissions, MINUTE), corner.client()] {
            for _ in 0..5 {
                let waited = time_to_serve(corner, terms.acquire(&holder).unwrap(), &terms, &waiter);
                assert!(waited <= PROMPT, "with {permissions}: {waited:?}");
            }
        }
    }
    corner.wait_until_all_is_gone();
}

pub fn the_release_of_a_holder_who_may_not_publish_is_noticed(corner: &Corner) {
    let (terms, poll_interval) = (corner.terms(), SECOND);
    let waiter = corner.builder().poll_interval(poll_interval).build().unwrap();
    for permissions in ["resetchannels +@all", "allchannels +@all -publish -spublish"] {
        let holder = client(corner, permissions, MINUTE);
        let guard = terms.acquire(&holder).unwrap();
        let waited = time_to_serve(corner, guard, &terms, &waiter);
        assert!(waited <= poll_interval + SLACK, "with {permissions}: {waited:?}");
    }
    corner.wait_until_all_is_gone();
}

pub fn the_release_of_a_foreign_lock_is_noticed_within_a_poll_interval(corner: &Corner) {
    let (terms, poll_interval) = (corner.terms(), SECOND);
    let mut worker = corner.worker_polling(poll_interval);
    for taken in ["SET lock:x another", "SET lock:x another PX 60000"] {
        corner.server.run(taken);
        worker.send(format_args!("pass {terms}"));
        corner.wait_for_registered(1);
        assert!(!worker.has_answered());
        let released = Instant::now();
        corner.server.run("DEL lock:x");
        assert_eq!(worker.receive_within(LIMIT), "passed");
        let waited = released.elapsed();
        assert!(waited <= poll_interval + SLACK, "after {taken}: {waited:?}");
    }
}

pub fn a_wait_much_longer_than_a_sign_of_life_keeps_its_place(corner: &Corner) {
    let (terms, mut connection) = (corner.terms(), corner.server.connection());
    let guard = terms.clone().lease(SECOND).acquire(&corner.client()).unwrap();
    // A sign of life lasts for 1.25 s: long enough for one to be late on a busy machine.
    let mut workers = [millis(500); 2].map(|poll_interval| corner.worker_polling(poll_interval));
    for (nth, worker) in workers.iter_mut().enumerate() {
        worker.send(format_args!("hammer {nth} 1 1 {terms}"));
        corner.wait_for_registered(nth + 1);
    }
    let mut waiting = || -> Vec<String> {
        let queue = redis::cmd("ZRANGE")
            .arg(corner.kind.queue_key(NAME))
            .arg(0)
            .arg(-1)
            .query(&mut connection);
        queue.unwrap()
    };
    let (start, arrived) = (Instant::now(), waiting());
    while start.elapsed() < SECOND * 4 {
        let waiting = waiting();
        assert_eq!(waiting.len(), 2, "{waiting:?} after {:?}", start.elapsed());
        assert!(
            waiting == arrived || !corner.fair,
            "{waiting:?} where {arrived:?} had arrived"
        );
        thread::sleep(millis(10));
    }
    guard.release().unwrap();
    for worker in &mut workers {
        assert_eq!(worker.receive_within(PROMPT), "hammered");
    }
    let served: Vec<String> = grants(&corner.server, NAME)
        .into_iter()
        .map(|grant| grant.who)
        .collect();
    assert_eq!(served.len(), 2);
    assert!(served == ["0", "1"] || !corner.fair, "{served:?}");
}

/// Has a thread for each of the `hot` locks, which are of one name, take it again and again, until `waiter` has had it.
fn served_among(hot: &[Lock], hold: Duration, waiter: &Lock) -> Result<(), Error> {
    let (stop, grants) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for lock in hot {
            let (stop, grants) = (&stop, &grants);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let guard = lock.acquire().unwrap();
                    grants.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(hold);
                    guard.release().unwrap();
                }
            });
        }
        let _stop = SetOnDrop(&stop);
        wait_until("all to be at it", PROMPT, || {
            grants.load(Ordering::SeqCst) > hot.len() * 3
        });
        waiter.acquire_timeout(PROMPT).map(drop)
    })
}

pub fn a_client_that_hears_nothing_is_served_among_those_who_do(corner: &Corner) {
    let hot: Vec<_> = (0..3).map(|_| corner.terms().lock(&corner.client())).collect();
    // It may knock for others.
    let deaf = client(corner, WITHOUT_CHANNELS[2], MINUTE);
    for fair in [false, true] {
        served_among(&hot, millis(1), &deaf.lock(NAME).fair(fair)).unwrap();
    }
}

pub fn a_waiter_is_served_among_fair_threads_of_its_client_that_hold_the_lock_for_long(corner: &Corner) {
    // Longer than a place lasts of which nothing is heard.
    let (poll_interval, hold) = (millis(50), millis(200));
    let client = corner.builder().poll_interval(poll_interval).build().unwrap();
    let hot = vec![client.lock(NAME).fair(true); 3];
    served_among(&hot, hold, &client.lock(NAME)).unwrap();
}

pub fn waiters_of_one_client_are_served_at_once_after_the_data_were_lost(corner: &Corner) {
    // Far longer than it takes to serve all, and far less than if each waits for its next look.
    let client = corner.builder().poll_interval(SECOND).build().unwrap();
    let (guard, terms) = (corner.hold(), corner.terms());
    let served = thread::scope(|scope| {
        let waiters: Vec<_> = (0..10)
            .map(|_| scope.spawn(|| terms.acquire(&client).map(|guard| drop(guard.release()))))
            .collect();
        corner.wait_for_registered(if corner.fair { 10 } else { 1 });
        corner.server.run("FLUSHALL");
        let start = Instant::now();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap().unwrap());
        start.elapsed()
    });
    assert!(served < SECOND * 5, "{served:?}");
    drop(guard);
}

pub fn the_first_of_a_client_keeps_the_places_of_the_others(corner: &Corner) {
    let (guard, terms) = (corner.hold(), corner.terms());
    // A sign of life lasts for 1.25 s, and they wait for longer than that.
    let client = corner.builder().poll_interval(millis(500)).build().unwrap();
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        for nth in 1..=4 {
            let (terms, client, cancel) = (&terms, &client, &cancel);
            scope.spawn(move || {
                let wait = Wait::at_most(LIMIT).cancelled_by(cancel);
                terms.target(client).acquire_with(wait).map(drop).unwrap_err()
            });
            corner.wait_for_registered(nth);
        }
        let (start, target) = (Instant::now(), terms.target(&client));
        while start.elapsed() < SECOND * 3 {
            // Those that live.
            assert_eq!(target.inspect().unwrap().waiters, 4, "after {:?}", start.elapsed());
            thread::sleep(millis(20));
        }
        cancel.cancel();
    });
    guard.release().unwrap();
    corner.wait_until_all_is_gone();
}
