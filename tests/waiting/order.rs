//! In which order those who wait are served.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    corner::Corner,
    record::{assert_first_come_first_served, grants, turns_meanwhile, watch},
    support::{SECOND, SetOnDrop, Worker, millis, wait_until},
    terms::{NAME, PROMPT},
    worker::hammer,
};

/// How long a crowd may take for the turns that it is given here.
const LONG: Duration = SECOND.saturating_mul(25);

pub fn sixteen_processes_that_start_at_once_all_get_their_turns(corner: &Corner) {
    const TURNS: usize = 25;
    let (guard, terms) = (corner.hold(), corner.terms());
    let mut workers: Vec<Worker> = (0..16).map(|_| corner.worker()).collect();
    for (nth, worker) in workers.iter_mut().enumerate() {
        worker.send(format_args!("hammer {nth} 1 {TURNS} {terms}"));
    }
    corner.wait_for_registered(16);
    guard.release().unwrap();
    for worker in &mut workers {
        assert_eq!(worker.receive_within(LONG), "hammered");
    }
    let grants = grants(&corner.server, NAME);
    assert_eq!(grants.len(), 16 * TURNS);
    // The first to be done did not have the others wait for their first turn until then.
    let turns = |who: &str, until: usize| grants[..until].iter().filter(|grant| grant.who == who).count();
    let first_done = (1..=grants.len())
        .find(|&until| turns(&grants[until - 1].who, until) == TURNS)
        .unwrap();
    for nth in 0..16 {
        assert!(
            turns(&nth.to_string(), first_done) > 0,
            "{nth} had no turn among the first {first_done}"
        );
    }
    corner.wait_until_all_is_gone();
}

pub fn a_thread_that_takes_it_again_and_again_passes_nobody_for_long(corner: &Corner) {
    let (mut hot, terms) = (corner.worker(), corner.terms());
    let mut waiters: Vec<Worker> = (0..5).map(|_| corner.worker()).collect();
    let samples = watch(corner, || {
        // It holds the lock nearly all the time, so whoever comes by chance finds it taken.
        let hot_terms = terms.clone().work(millis(3));
        hot.send(format_args!("hammer hot 1 {} {hot_terms}", usize::MAX));
        wait_until("the hot thread to have its turns", PROMPT, || {
            grants(&corner.server, NAME).len() > 10
        });
        for worker in &mut waiters {
            worker.send(format_args!("hammer waiter 1 20 {terms}"));
        }
        for worker in &mut waiters {
            assert_eq!(worker.receive_within(LONG), "hammered");
        }
        hot.send("stop");
        assert_eq!(hot.receive_within(PROMPT), "hammered");
    });
    let grants = grants(&corner.server, NAME);
    let passed = turns_meanwhile(&samples, &grants, "waiter", "hot");
    assert!(passed.len() > 20, "hardly anybody was seen waiting: {passed:?}");
    // A turn or two in most cases. A busy machine may keep a waiter from coming for what was left to it; until it does,
    // the others go on.
    assert!(passed.iter().all(|turns| *turns <= 500), "{passed:?}");
    let at_once = passed.iter().filter(|turns| **turns <= 2).count();
    assert!(at_once * 2 > passed.len(), "{passed:?}");
}

pub fn waiters_are_served_in_the_order_of_their_arrival(corner: &Corner) {
    let (guard, terms) = (corner.hold(), corner.terms());
    let mut workers: Vec<Worker> = (0..3).map(|_| corner.worker()).collect();
    for nth in 0..12 {
        workers[nth % 3].send(format_args!("hammer {nth} 1 1 {terms}"));
        corner.wait_for_registered(nth + 1);
    }
    guard.release().unwrap();
    for nth in 0..12 {
        assert_eq!(workers[nth % 3].receive_within(PROMPT), "hammered");
    }
    let served: Vec<String> = grants(&corner.server, NAME)
        .into_iter()
        .map(|grant| grant.who)
        .collect();
    let arrived: Vec<String> = (0..12).map(|nth| nth.to_string()).collect();
    assert_eq!(served, arrived);
}

pub fn no_grant_passes_an_older_place(corner: &Corner) {
    let terms = corner.terms();
    let mut workers = [corner.worker(), corner.worker()];
    let samples = watch(corner, || {
        for (nth, worker) in workers.iter_mut().enumerate() {
            worker.send(format_args!("hammer {nth} 8 {} {terms}", usize::MAX));
        }
        // Long enough for many turns of each.
        thread::sleep(SECOND * 2);
        workers.iter_mut().for_each(|worker| worker.send("stop"));
        for worker in &mut workers {
            assert_eq!(worker.receive_within(PROMPT), "hammered");
        }
    });
    assert_first_come_first_served(&samples, &grants(&corner.server, NAME));
}

pub fn a_guard_in_hand_means_that_its_token_stands_at_the_key(corner: &Corner) {
    let (client, mut worker) = (corner.client(), corner.worker());
    for handoffs in [0, 3, 1000] {
        let (terms, stopped) = (corner.terms().handoffs(handoffs), AtomicBool::new(false));
        let before = grants(&corner.server, NAME).len();
        thread::scope(|scope| {
            let _stopped = SetOnDrop(&stopped);
            scope.spawn(|| {
                // A look at the key belongs to noting a grant.
                hammer(
                    &client,
                    &corner.server.url(),
                    &terms,
                    "threads",
                    4,
                    usize::MAX,
                    &stopped,
                );
            });
            worker.send(format_args!("hammer process 4 100 {terms}"));
            assert_eq!(worker.receive_within(LONG), "hammered");
            stopped.store(true, Ordering::SeqCst);
        });
        assert!(grants(&corner.server, NAME).len() > before + 400);
        corner.wait_until_all_is_gone();
    }
}

pub fn a_long_line_keeps_its_places_however_fast_it_moves(corner: &Corner) {
    // All in all it takes several times as long as a place lasts of which nothing is heard.
    const THREADS: usize = 300;
    let poll_interval = millis(50);
    let client = corner.builder().poll_interval(poll_interval).build().unwrap();
    let (guard, terms) = (corner.hold(), corner.terms());
    let longest = thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let guard = terms.acquire(&client).unwrap();
                    let granted = Instant::now();
                    thread::sleep(millis(1));
                    guard.release().unwrap();
                    granted
                })
            })
            .collect();
        corner.wait_for_registered(THREADS);
        guard.release().unwrap();
        let mut grants: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        grants.sort();
        grants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
    });
    // Nobody is served by a look of its own only.
    assert!(longest < SECOND * 2, "{longest:?}");
}
