//! What wakes a thread that waits for the lock.

use std::mem;

use crate::{
    clock::{Clock, Moment},
    mistakes::{Mistake, makes},
    sync::{Condvar, Mutex},
};

/// Rung from other threads, heard by the one that waits: once for each time that it was rung, or several together.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rung: Option<Ring>,
    alarm: Option<Moment>,
}

/// What a waiting thread was woken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ring {
    /// Another thread had something for it.
    Outcome,
    /// Something may have changed.
    News,
    /// The key was left to it.
    Knock,
}

impl Bell {
    pub(crate) fn ring(&self, ring: Ring) {
        let mut state = self.state.lock();
        state.rung = state.rung.max(Some(ring));
        drop(state);
        self.changed.notify_one();
    }

    /// Rings at `alarm`, if it has not rung before.
    pub(crate) fn ring_at(&self, alarm: Moment) {
        let mut state = self.state.lock();
        if state.alarm.is_none_or(|earlier| alarm < earlier) {
            state.alarm = Some(alarm);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Has `other` ring in its place: for what was not heard yet.
    pub(super) fn pass_to(&self, other: &Self) {
        let State { rung, alarm } = mem::take(&mut *self.state.lock());
        if let Some(ring) = rung {
            other.ring(ring);
        }
        if let Some(alarm) = alarm {
            other.ring_at(alarm);
        }
    }

    /// Waits until it rings, by `end` on `clock` at the latest; tells what rang, if anything did. Only one thread may
    /// wait.
    pub(crate) fn wait(&self, clock: &dyn Clock, end: Moment) -> Option<Ring> {
        let mut state = self.state.lock();
        loop {
            if let Some(ring) = state.rung.take() {
                // Whoever takes over from one that is served has it still before it.
                if ring != Ring::Outcome {
                    state.alarm = None;
                }
                return Some(ring);
            }
            let now = clock.now();
            if state.alarm.is_some_and(|alarm| alarm <= now) {
                state.rung = Some(Ring::News);
            } else if end <= now {
                return None;
            } else {
                let wake = state.alarm.map_or(end, |alarm| alarm.min(end));
                if makes(Mistake::SleepsAfterALook) {
                    drop(state);
                    state = self.state.lock();
                }
                state = self.changed.wait_for(state, clock.block_for(now.until(wake)));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_rung(&self) -> bool {
        self.state.lock().rung.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rings_that_were_not_heard_yet_are_one_and_the_weightiest_is_told() {
        let (clock, bell) = (ManualClock::default(), Bell::default());
        bell.ring(Ring::Knock);
        bell.ring(Ring::News);
        assert_eq!(bell.wait(&clock, Moment::NEVER), Some(Ring::Knock));
        assert_eq!(bell.wait(&clock, clock.now() + SECOND), None);
    }

    #[test]
    fn an_alarm_rings_at_its_time_the_earliest_of_several() {
        let (clock, bell) = (ManualClock::default(), Bell::default());
        let start = clock.now();
        bell.ring_at(start + SECOND);
        bell.ring_at(start + 5 * SECOND);
        assert_eq!(bell.wait(&clock, start + 9 * SECOND), Some(Ring::News));
        assert_eq!(clock.now(), start + SECOND);
        assert_eq!(bell.wait(&clock, start + 9 * SECOND), None);
    }

    #[test]
    fn one_that_is_served_leaves_its_alarm_to_whoever_takes_over() {
        let (clock, bell, next) = (ManualClock::default(), Bell::default(), Bell::default());
        let start = clock.now();
        bell.ring_at(start + SECOND);
        bell.ring(Ring::Outcome);
        assert_eq!(bell.wait(&clock, Moment::NEVER), Some(Ring::Outcome));
        bell.pass_to(&next);
        assert_eq!(next.wait(&clock, start + 9 * SECOND), Some(Ring::News));
        assert_eq!(clock.now(), start + SECOND);
    }

    #[test]
    fn a_wait_ends_at_its_end() {
        let (clock, bell) = (ManualClock::default(), Bell::default());
        let start = clock.now();
        bell.ring_at(start + 2 * SECOND);
        assert_eq!(bell.wait(&clock, start + SECOND), None);
        assert_eq!(clock.now(), start + SECOND);
    }
}
