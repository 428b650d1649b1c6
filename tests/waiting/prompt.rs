//! That whoever waits is woken.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

use redis::Value;
use redlatch::{Client, Error};

use crate::{
    corner::Corner,
    support::{SECOND, SLACK, Worker, millis, wait_until},
    terms::{Kind, MINUTE, PROMPT, Target},
};

/// How often a release is tried at another point of a wait, in steps that cover 3 ms.
const ROUNDS: u32 = 200;
const STEP: Duration = Duration::from_micros(15);

/// Waits for a time too short to sleep.
pub fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        hint::spin_loop();
    }
}

/// Runs `rounds`, in each of which two clients take and release the lock once, until there was some waiting: an acquire
/// that finds the lock taken is a request more. On a busy machine many a release comes before the wait.
fn with_waiting(corner: &Corner, mut rounds: impl FnMut()) {
    let before = corner.server.command_calls("evalsha");
    for needed in (1..=20).map(|times| u64::from(ROUNDS * 4 * times)) {
        rounds();
        let requests = corner.server.command_calls("evalsha") - before;
        if requests > needed + u64::from(ROUNDS) / 4 {
            return;
        }
    }
    panic!("hardly anybody has waited");
}

pub fn a_release_at_any_point_of_a_wait_wakes_the_waiter(corner: &Corner) {
    let (mut worker, holder, terms) = (corner.worker(), corner.client(), corner.terms());
    with_waiting(corner, || {
        for round in 0..ROUNDS {
            let guard = terms.acquire(&holder).unwrap();
            worker.send(format_args!("pass {terms}"));
            spin(STEP * round);
            guard.release().unwrap();
            assert_eq!(worker.receive_within(PROMPT), "passed");
        }
    });
}

pub fn a_release_at_any_point_of_a_wait_wakes_a_thread_of_another_client(corner: &Corner) {
    with_waiting(corner, || {
        release_at_any_point(corner, &corner.client(), &corner.client())
    });
}

pub fn a_release_at_any_point_of_a_wait_wakes_a_thread_of_the_same_client(corner: &Corner) {
    let client = corner.client();
    release_at_any_point(corner, &client, &client);
}

fn release_at_any_point(corner: &Corner, holder: &Client, waiter: &Client) {
    let terms = corner.terms();
    for round in 0..ROUNDS {
        let guard = terms.acquire(holder).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| terms.acquire(waiter).unwrap().release().unwrap());
            spin(STEP * round);
            let released = Instant::now();
            guard.release().unwrap();
            waiter.join().unwrap();
            assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
        });
    }
}

pub fn a_waiter_whose_subscription_ends_before_or_after_the_release_is_woken(corner: &Corner) {
    let mut worker = corner.worker();
    let end_subscription = || corner.server.run("CLIENT KILL TYPE pubsub");
    for round in 0..40 {
        let (guard, pause) = (corner.hold(), millis(1) * (round / 2) / 10);
        start_to_wait(corner, &mut worker);
        // More often than once while it waits.
        for _ in 0..round % 3 {
            assert_eq!(end_subscription(), Value::Int(1));
            corner.wait_for_subscribers(1);
        }
        if round % 2 == 0 {
            assert_eq!(end_subscription(), Value::Int(1));
            spin(pause);
            guard.release().unwrap();
        } else {
            guard.release().unwrap();
            spin(pause);
            end_subscription();
        }
        assert_eq!(worker.receive_within(PROMPT), "passed");
    }
}

pub fn a_waiter_whose_connections_all_end_is_woken(corner: &Corner) {
    let mut worker = corner.worker();
    let end_all = || {
        // Those of the holder, too. The one that tells it is spared.
        corner.server.run("CLIENT KILL TYPE normal");
        corner.server.run("CLIENT KILL TYPE pubsub");
    };
    for round in 0..10 {
        let guard = corner.hold();
        start_to_wait(corner, &mut worker);
        for _ in 0..round % 3 {
            end_all();
            corner.wait_for_subscribers(1);
        }
        if round % 2 == 0 {
            end_all();
            guard.release().unwrap();
        } else {
            guard.release().unwrap();
            end_all();
        }
        assert_eq!(worker.receive_within(PROMPT), "passed");
    }
}

/// Has the worker wait for the lock; returns once it is registered and would hear of a release.
fn start_to_wait(corner: &Corner, worker: &mut Worker) {
    worker.send(format_args!("pass {}", corner.terms()));
    corner.wait_for_registered(1);
    corner.wait_for_subscribers(1);
}

pub fn two_thousand_names_are_waited_for_over_one_subscription(corner: &Corner) {
    const NAMES: usize = 2_000;
    let (mut worker, holder) = (corner.worker(), corner.client());
    let take = |nth| {
        let terms = corner.terms().named(format!("x-{nth}"));
        terms.target(&holder).try_acquire().unwrap().expect("free")
    };
    let guards: Vec<_> = (0..NAMES).map(take).collect();
    worker.send(format_args!("crowd {NAMES} {}", corner.terms().limit(MINUTE * 5 / 6)));
    wait_until("all names to be waited for", PROMPT * 2, || {
        corner.queues().len() == NAMES
    });
    assert_eq!(corner.subscribers(), 1);
    for guard in guards {
        guard.release().unwrap();
    }
    assert_eq!(worker.receive_within(PROMPT * 2), "passed");
    corner.wait_until_all_is_gone();
}

pub fn a_short_wait_ends_in_time_beside_a_long_one(corner: &Corner) {
    let (one, another) = (corner.client(), corner.client());
    for short_first in [true, false] {
        short_beside_long(corner, [&one, &one], short_first);
        short_beside_long(corner, [&one, &another], short_first);
    }
}

fn short_beside_long(corner: &Corner, [short, long]: [&Client; 2], short_first: bool) {
    let (terms, limit) = (corner.terms(), SECOND);
    let guard = corner.hold();
    thread::scope(|scope| {
        let start_short = || {
            scope.spawn(|| {
                let start = Instant::now();
                let error = terms.clone().limit(limit).acquire(short).unwrap_err();
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
                start.elapsed()
            })
        };
        let start_long = || scope.spawn(|| terms.acquire(long).unwrap().release().unwrap());
        let (short, long) = if short_first {
            let short = start_short();
            corner.wait_for_registered(1);
            (short, start_long())
        } else {
            let long = start_long();
            corner.wait_for_registered(1);
            (start_short(), long)
        };
        let waited = short.join().unwrap();
        assert!(waited >= limit && waited <= limit + SLACK, "{waited:?}");
        corner.wait_for_registered(1);
        assert!(!long.is_finished());
        let released = Instant::now();
        guard.release().unwrap();
        long.join().unwrap();
        assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
    });
}

pub fn nobody_who_is_woken_in_vain_gives_up_early(corner: &Corner) {
    let (limit, terms) = (SECOND * 3, corner.terms());
    let mut workers: Vec<_> = (0..5).map(|_| corner.worker()).collect();
    let lock = terms.lock(&corner.client());
    corner.hold_as_another();
    let start = Instant::now();
    for worker in &mut workers {
        for _ in 0..2 {
            worker.send(format_args!("pass {}", terms.clone().limit(limit)));
        }
    }
    corner.wait_for_registered(if corner.fair { 10 } else { 5 });
    while start.elapsed() < limit + SLACK {
        // Whoever is woken is to find the lock taken again, so none may run until it is.
        workers.iter().for_each(Worker::stop);
        lock.force_release().unwrap();
        corner.hold_as_another();
        workers.iter().for_each(Worker::resume);
        thread::sleep(millis(2));
    }
    let calls = corner.server.command_calls("publish");
    assert!(calls > 50, "hardly anybody was woken: {calls}");
    let mut in_vain = 0;
    for worker in &mut workers {
        for _ in 0..2 {
            match worker.receive_within(PROMPT).split_once(' ') {
                None => {}
                Some((_, waited)) => {
                    let waited = Duration::from_micros(waited.parse().unwrap());
                    assert!(waited >= limit && waited <= limit + SLACK, "{waited:?}");
                    in_vain += 1;
                }
            }
        }
    }
    assert!(in_vain >= 5, "only {in_vain} of 10 waited in vain");
}

pub fn waiters_for_names_of_any_bytes_are_woken(corner: &Corner) {
    for (prefix, name) in [
        (&b"a\0b:"[..], &b"x"[..]),
        (b"", b"x\0y"),
        (b"{}", b"\n %s {a}b"),
        (b"% ", b"\xff\x00"),
    ] {
        let client = || corner.builder().prefix(prefix).build().unwrap();
        let target = |client: &Client| match corner.kind {
            Kind::Lock => Target::Lock(client.lock(name).fair(corner.fair)),
            Kind::Semaphore { limit, permits } => {
                Target::Semaphore(client.semaphore(name, limit).permits(permits).fair(corner.fair))
            }
        };
        let (holder, waiter) = (target(&client()), target(&client()));
        for _ in 0..2 {
            let guard = holder.acquire_timeout(PROMPT).unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| waiter.acquire_timeout(PROMPT).map(drop));
                wait_until("it to wait", PROMPT, || holder.inspect().unwrap().waiters == 1);
                guard.release().unwrap();
                waiting.join().unwrap().unwrap();
            });
        }
    }
}
