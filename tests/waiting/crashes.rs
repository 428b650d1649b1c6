//! Waiters and holders that are killed or stopped. Here waiters give a sign of life once in the default poll interval.

use std::{thread, time::Instant};

use crate::{
    corner::Corner,
    support::{SECOND, SLACK, Worker, millis},
    terms::{MINUTE, PROMPT},
};

/// How long a waiter is in the way at most that is dead, or does not run.
const PASSED_OVER: std::time::Duration = SECOND.saturating_mul(3);

/// Has another process wait for the lock, as the `nth`.
fn waiter(corner: &Corner, nth: usize) -> Worker {
    let mut worker = corner.worker_polling(SECOND);
    worker.send(format_args!("take {}", corner.terms()));
    corner.wait_for_registered(nth);
    worker
}

pub fn a_killed_head_of_the_queue_does_not_hold_up_the_next(corner: &Corner) {
    let guard = corner.hold();
    let (head, mut next) = (waiter(corner, 1), waiter(corner, 2));
    head.kill();
    guard.release().unwrap();
    assert_eq!(next.receive_within(PASSED_OVER + SLACK), "took");
    assert_eq!(next.ask("release"), "released");
    corner.wait_until_all_is_gone();
}

pub fn ten_killed_waiters_do_not_hold_up_the_eleventh(corner: &Corner) {
    let guard = corner.hold();
    let killed: Vec<_> = (1..=10).map(|nth| waiter(corner, nth)).collect();
    let mut alive = waiter(corner, 11);
    killed.iter().for_each(Worker::kill);
    guard.release().unwrap();
    assert_eq!(alive.receive_within(PASSED_OVER * 2), "took");
    assert_eq!(alive.ask("release"), "released");
    corner.wait_until_all_is_gone();
}

pub fn a_stopped_waiter_is_passed_over_and_served_later(corner: &Corner) {
    let guard = corner.hold();
    let (mut stopped, mut other) = (waiter(corner, 1), waiter(corner, 2));
    stopped.stop();
    guard.release().unwrap();
    assert_eq!(other.receive_within(PASSED_OVER + SLACK), "took");
    stopped.resume();
    // It has missed its turn and waits on.
    corner.wait_for_registered(1);
    assert!(!stopped.has_answered());
    assert_eq!(other.ask("release"), "released");
    assert_eq!(stopped.receive_within(PROMPT), "took");
    assert_eq!(stopped.ask("release"), "released");
    corner.wait_until_all_is_gone();
}

pub fn the_lock_of_a_killed_holder_goes_to_a_waiter_when_the_lease_ends(corner: &Corner) {
    let (lease, terms) = (SECOND, corner.terms());
    let (mut holder, mut waiter) = (corner.worker(), corner.worker());
    assert_eq!(holder.ask(format_args!("take {}", terms.clone().lease(lease))), "took");
    waiter.send(format_args!("pass {}", terms.lease(MINUTE)));
    corner.wait_for_registered(1);
    // Longer than the lease that the waiter has seen: it is renewed, and it is the last renewal that counts.
    thread::sleep(lease * 3 / 2);
    assert!(!waiter.has_answered());
    holder.kill();
    let killed = Instant::now();
    let left = corner.server.ttl(&corner.key()).expect("a lease");
    assert_eq!(waiter.receive_within(PROMPT), "passed");
    // A TTL is told in whole milliseconds, perhaps rounded up.
    assert!(
        killed.elapsed() + millis(1) >= left,
        "{:?} of {left:?}",
        killed.elapsed()
    );
    assert!(killed.elapsed() <= lease + SLACK, "{:?}", killed.elapsed());
}

pub fn two_stopped_waiters_do_not_hold_up_the_third(corner: &Corner) {
    let (guard, terms) = (corner.hold(), corner.terms());
    // Nobody looks by itself in time.
    let mut workers = [(); 3].map(|()| corner.worker());
    for (nth, worker) in workers.iter_mut().enumerate() {
        worker.send(format_args!("take {terms}"));
        corner.wait_for_registered(nth + 1);
    }
    let [first, second, third] = &mut workers;
    first.stop();
    second.stop();
    guard.release().unwrap();
    assert_eq!(third.receive_within(PROMPT), "took");
}
