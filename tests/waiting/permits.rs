//! Waiting for permits of which there are several.

use std::{sync::mpsc, thread, time::Instant};

use redlatch::Guard;

use crate::{
    corner::Corner,
    record::grants,
    support::{SECOND, SLACK, Worker, wait_until},
    terms::{LIMIT, NAME, PROMPT, Target},
};

/// Takes the three permits there are, each with a guard of its own.
fn take_all(corner: &Corner) -> Vec<Guard> {
    let target = corner.terms().target(&corner.client());
    (0..3).map(|_| target.try_acquire().unwrap().expect("free")).collect()
}

/// Has three other processes wait, for a permit each.
fn three_waiters(corner: &Corner) -> Vec<Worker> {
    let waiter = |nth| {
        let mut worker = corner.worker();
        worker.send(format_args!("take {}", corner.terms()));
        corner.wait_for_registered(nth);
        worker
    };
    (1..=3).map(waiter).collect()
}

/// Asserts that all of `waiters` are served soon, and hold their permits at the same time.
#[track_caller]
fn assert_all_are_served(corner: &Corner, waiters: &mut [Worker]) {
    for waiter in waiters.iter_mut() {
        assert_eq!(waiter.receive_within(PROMPT), "took");
    }
    assert_eq!(corner.holders().len(), waiters.len());
    for waiter in waiters {
        assert_eq!(waiter.ask("release"), "released");
    }
    corner.wait_until_all_is_gone();
}

pub fn one_who_wants_three_is_woken_when_the_last_of_them_is_released(corner: &Corner) {
    let guards = take_all(corner);
    let (client, terms) = (corner.client(), corner.terms().permits(3));
    let target = terms.target(&client);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| terms.acquire(&client).unwrap());
        corner.wait_for_registered(1);
        let mut released = Instant::now();
        for (nth, guard) in guards.into_iter().enumerate() {
            let seen = target.inspect().unwrap();
            // They are kept for nobody until there are enough.
            assert_eq!((seen.available(), seen.reserved, seen.waiters), (nth as u32, 0, 1));
            released = Instant::now();
            guard.release().unwrap();
        }
        let guard = waiting.join().unwrap();
        assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
        assert_eq!(corner.holders().len(), 3);
        guard.release().unwrap();
    });
    corner.wait_until_all_is_gone();
}

pub fn a_release_of_three_permits_wakes_three(corner: &Corner) {
    let guard = corner.terms().permits(3).acquire(&corner.client()).unwrap();
    let mut waiters = three_waiters(corner);
    guard.release().unwrap();
    assert_all_are_served(corner, &mut waiters);
}

pub fn a_release_of_three_permits_serves_three_threads_of_one_client(corner: &Corner) {
    let guard = corner.terms().permits(3).acquire(&corner.client()).unwrap();
    let (client, terms) = (corner.client(), corner.terms());
    thread::scope(|scope| {
        let waiting = [(); 3].map(|()| scope.spawn(|| terms.acquire(&client).unwrap()));
        // Without places of their own nobody can see the others.
        wait_until("them to wait", PROMPT, || {
            corner.registered() == if corner.fair { 3 } else { 1 }
        });
        let released = Instant::now();
        guard.release().unwrap();
        let guards = waiting.map(|waiting| waiting.join().unwrap());
        assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
        assert_eq!(corner.holders().len(), 3);
        guards.into_iter().for_each(|guard| guard.release().unwrap());
    });
    corner.wait_until_all_is_gone();
}

pub fn the_permits_of_a_killed_holder_go_to_as_many_waiters(corner: &Corner) {
    let (lease, mut holder) = (SECOND, corner.worker());
    let terms = corner.terms().permits(3).lease(lease);
    assert_eq!(holder.ask(format_args!("take {terms}")), "took");
    let mut waiters = three_waiters(corner);
    holder.kill();
    let killed = Instant::now();
    assert_all_are_served(corner, &mut waiters);
    assert!(killed.elapsed() <= lease + SLACK * 2, "{:?}", killed.elapsed());
}

pub fn what_a_larger_limit_adds_wakes_as_many(corner: &Corner) {
    let Target::Semaphore(semaphore) = corner.terms().target(&corner.client()) else {
        unreachable!("a semaphore");
    };
    semaphore.set_limit(0).unwrap();
    let mut waiters = three_waiters(corner);
    semaphore.set_limit(3).unwrap();
    assert_all_are_served(corner, &mut waiters);
}

pub fn a_permit_that_is_left_to_one_who_does_not_come_goes_to_the_next(corner: &Corner) {
    let mut guards = take_all(corner);
    let mut waiters = three_waiters(corner);
    waiters[0].stop();
    guards.pop().unwrap().release().unwrap();
    // Nobody looks by itself so soon.
    assert_eq!(waiters[1].receive_within(PROMPT), "took");
    waiters[0].resume();
    drop(guards);
    for nth in [0, 2] {
        assert_eq!(waiters[nth].receive_within(PROMPT), "took");
    }
    assert_eq!(corner.holders().len(), 3);
}

pub fn what_one_does_not_come_for_goes_past_those_for_whom_it_is_too_little(corner: &Corner) {
    let mut guards = take_all(corner);
    let waiter = |nth, permits| {
        let mut worker = corner.worker();
        worker.send(format_args!("take {}", corner.terms().permits(permits)));
        corner.wait_for_registered(nth);
        worker
    };
    let (stopped, _for_two) = (waiter(1, 1), [waiter(2, 2), waiter(3, 2)]);
    let mut last = waiter(4, 1);
    stopped.stop();
    guards.pop().unwrap().release().unwrap();
    // Nobody looks by itself so soon.
    assert_eq!(last.receive_within(PROMPT), "took");
    stopped.resume();
}

pub fn a_lower_limit_takes_back_what_was_left_to_the_last_in_order(corner: &Corner) {
    let guards = take_all(corner);
    let mut workers = [corner.worker(), corner.worker()];
    for (nth, permits) in [2, 1].into_iter().enumerate() {
        workers[nth].send(format_args!("take {}", corner.terms().permits(permits)));
        corner.wait_for_registered(nth + 1);
    }
    workers.iter().for_each(Worker::stop);
    drop(guards);
    let semaphore = corner.client().semaphore(NAME, 3);
    assert_eq!(semaphore.inspect().unwrap().reserved, 3);
    semaphore.set_limit(2).unwrap();
    assert_eq!(semaphore.inspect().unwrap().reserved, 2);
    let [first, second] = &mut workers;
    second.resume();
    first.resume();
    assert_eq!(first.receive_within(PROMPT), "took");
    assert!(!second.has_answered());
    assert_eq!(first.ask("release"), "released");
    assert_eq!(second.receive_within(PROMPT), "took");
}

pub fn one_who_wants_several_is_waited_for_by_those_who_keep_to_their_turns_only(corner: &Corner) {
    let (holder, terms) = (corner.client(), corner.terms());
    let [two, one] = [2, 1].map(|permits| terms.clone().permits(permits).acquire(&holder).unwrap());
    let mut workers = [corner.worker(), corner.worker()];
    for (nth, permits) in [3, 1].into_iter().enumerate() {
        let terms = terms.clone().permits(permits);
        workers[nth].send(format_args!("hammer {permits} 1 1 {terms}"));
        corner.wait_for_registered(nth + 1);
    }
    let [wants_three, wants_one] = &mut workers;
    one.release().unwrap();
    if corner.fair {
        // Not even a newcomer gets it.
        assert!(terms.target(&holder).try_acquire().unwrap().is_none());
        assert_eq!(corner.registered(), 2);
    } else {
        assert_eq!(wants_one.receive_within(PROMPT), "hammered");
    }
    two.release().unwrap();
    assert_eq!(wants_three.receive_within(PROMPT), "hammered");
    if corner.fair {
        assert_eq!(wants_one.receive_within(PROMPT), "hammered");
    }
    let served: Vec<String> = grants(&corner.server, NAME)
        .into_iter()
        .map(|grant| grant.who)
        .collect();
    assert_eq!(served, if corner.fair { ["3", "1"] } else { ["1", "3"] });
    corner.wait_until_all_is_gone();
}

pub fn threads_of_one_client_that_want_different_numbers_are_all_woken(corner: &Corner) {
    let (guards, client) = (take_all(corner), corner.client());
    let (sender, served) = mpsc::channel();
    thread::scope(|scope| {
        for permits in [1, 1, 2, 2, 3, 3] {
            let (terms, client, sender) = (corner.terms().permits(permits), &client, sender.clone());
            scope.spawn(move || {
                terms.acquire(client).unwrap().release().unwrap();
                sender.send(permits).unwrap();
            });
        }
        // Those who want the same stand behind each other, unless each has a place of its own.
        wait_until("all to wait", PROMPT, || {
            corner.registered() == if corner.fair { 6 } else { 3 }
        });
        let released = Instant::now();
        drop(guards);
        for _ in 0..6 {
            served.recv_timeout(LIMIT).unwrap();
        }
        assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
    });
    corner.wait_until_all_is_gone();
}
