//! The course of a request through a cluster: its time, and how it is spent.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use super::redirect;
use crate::{
    interrupt::Interrupt,
    store::Failure,
    sync::{Condvar, Mutex},
};

/// The pauses before a request that was refused for the time being is made again: each is twice as long as the one
/// before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How many redirections are followed without a pause.
pub(super) const MOST_HOPS: u32 = 4;

/// With less than this share of its time left no request is sent again: it would only look like one to a silent server.
const LAST_SHARE: u32 = 8;

pub(super) struct Course<'a> {
    pub(super) deadline: Instant,
    /// From here on nothing is sent again.
    last_call: Instant,
    pause: Duration,
    /// Redirections since the last pause.
    hops: u32,
    /// What ends the pauses, if anything may.
    interrupt: Option<&'a Interrupt>,
    /// The outcome of an attempt that may have run in part.
    pub(super) begun: Option<Failure>,
}

impl<'a> Course<'a> {
    pub(super) fn new(timeout: Duration, interrupt: Option<&'a Interrupt>) -> Self {
        let deadline = Instant::now() + timeout;
        Self {
            deadline,
            last_call: deadline - timeout / LAST_SHARE,
            pause: FIRST_PAUSE,
            hops: 0,
            interrupt,
            begun: None,
        }
    }

    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// By when half of what is left is over.
    pub(super) fn share(&self) -> Instant {
        Instant::now() + self.left() / 2
    }

    pub(super) fn note(&mut self, outcome: &Result<Value, Failure>) {
        if redirect::may_have_begun(outcome) {
            self.begun = Some(redirect::gave_up(outcome.clone()));
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.interrupt.is_some_and(Interrupt::is_tripped)
    }

    /// Before a redirection is followed: at once, but not for ever. Tells whether there is time for it.
    pub(super) fn hop(&mut self) -> Result<bool, Failure> {
        self.hops += 1;
        if self.hops > MOST_HOPS {
            return self.pause();
        }
        Ok(Instant::now() < self.last_call)
    }

    /// Waits a little, if there is time for another attempt afterwards; tells whether there is. A cancelled wait is a
    /// failure.
    pub(super) fn pause(&mut self) -> Result<bool, Failure> {
        let pause = self.pause.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.hops = 0;
        let until = Instant::now() + pause;
        if until >= self.last_call {
            return Ok(false);
        }
        self.sleep_until(until)?;
        Ok(true)
    }

    fn sleep_until(&self, until: Instant) -> Result<(), Failure> {
        let woken = Arc::new((Mutex::new(false), Condvar::default()));
        let _armed = match self.interrupt {
            Some(interrupt) => {
                let woken = woken.clone();
                let armed = interrupt.arm(move || {
                    *woken.0.lock() = true;
                    woken.1.notify_all();
                });
                Some(armed.ok_or_else(Failure::cancelled)?)
            }
            None => None,
        };
        // Let go of before the interrupt is disarmed, which waits for a hook that is running and wants it.
        let mut is_woken = woken.0.lock();
        while !*is_woken {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            is_woken = woken.1.wait_for(is_woken, left);
        }
        Err(Failure::cancelled())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(400);

    #[test]
    fn redirections_are_followed_at_once_but_a_loop_of_them_slows_down_and_ends() {
        let start = Instant::now();
        let mut course = Course::new(TIMEOUT, None);
        let mut followed = 0;
        while course.hop().unwrap() {
            followed += 1;
        }
        assert!(start.elapsed() < TIMEOUT);
        assert!((MOST_HOPS..60).contains(&followed), "{followed}");
    }

    #[test]
    fn pauses_grow_and_leave_time_for_an_answer() {
        let start = Instant::now();
        let mut course = Course::new(TIMEOUT, None);
        let mut pauses = 0;
        while course.pause().unwrap() {
            pauses += 1;
        }
        assert!(start.elapsed() <= TIMEOUT - TIMEOUT / LAST_SHARE);
        assert!((1..12).contains(&pauses), "{pauses}");
    }

    #[test]
    fn a_cancelled_wait_ends_the_pause_that_it_is_in_and_begins_no_other() {
        let interrupt = Interrupt::default();
        let mut course = Course::new(Duration::from_secs(3600), Some(&interrupt));
        course.pause = Duration::from_secs(1800);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| interrupt.trip());
            assert!(matches!(course.pause(), Err(Failure::NotSent(_))));
        });
        assert!(course.is_cancelled());
        assert!(matches!(course.pause(), Err(Failure::NotSent(_))));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
