//! What is to be done when: the keeper's calendar.

use std::collections::{BTreeSet, HashMap};

use crate::clock::Moment;

/// Tasks by the time when they are due, with the deadlines that they must not miss; in lanes, of which each is taken
/// from by itself.
///
/// A task that was taken stays known until it is removed, so that removing works at any time and putting back what
/// was removed meanwhile does nothing.
pub(super) struct Schedule<T> {
    tasks: HashMap<Id, Entry<T>>,
    lanes: HashMap<usize, Lane>,
    next_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

struct Entry<T> {
    task: T,
    slot: Slot,
}

/// Where a task stands.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) lane: usize,
    pub(super) due: Moment,
    pub(super) deadline: Moment,
}

impl Slot {
    /// The slot of a task in a schedule of one lane, and without a deadline.
    pub(super) fn at(due: Moment) -> Self {
        Self {
            lane: ONLY_LANE,
            due,
            deadline: Moment::NEVER,
        }
    }
}

/// The lane of a schedule that has but one.
pub(super) const ONLY_LANE: usize = 0;

#[derive(Default)]
struct Lane {
    by_due: BTreeSet<(Moment, Id)>,
    by_deadline: BTreeSet<(Moment, Id)>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            tasks: HashMap::new(),
            lanes: HashMap::new(),
            next_id: 0,
        }
    }
}

impl<T: Clone> Schedule<T> {
    pub(super) fn insert(&mut self, task: T, slot: Slot) -> Id {
        let id = Id(self.next_id);
        self.next_id += 1;
        self.file(id, Entry { task, slot });
        id
    }

    pub(super) fn remove(&mut self, id: Id) {
        if let Some(Entry { slot, .. }) = self.tasks.remove(&id)
            && let Some(lane) = self.lanes.get_mut(&slot.lane)
        {
            lane.by_due.remove(&(slot.due, id));
            lane.by_deadline.remove(&(slot.deadline, id));
        }
    }

    /// Takes up to `most` tasks of a lane that are due by `now`, the earliest first.
    pub(super) fn take_due(&mut self, lane: usize, now: Moment, most: usize) -> Vec<(Id, T)> {
        let mut taken = Vec::new();
        let Some(lane) = self.lanes.get_mut(&lane) else {
            return taken;
        };
        while taken.len() < most
            && let Some(&(due, id)) = lane.by_due.first()
            && due <= now
        {
            lane.by_due.pop_first();
            taken.push((id, self.tasks[&id].task.clone()));
        }
        taken
    }

    /// Files a taken task again, unless it was removed meanwhile.
    pub(super) fn put_back(&mut self, id: Id, task: T, slot: Slot) {
        if self.tasks.contains_key(&id) {
            self.remove(id);
            self.file(id, Entry { task, slot });
        }
    }

    pub(super) fn next_due(&self, lane: usize) -> Option<Moment> {
        self.lanes.get(&lane)?.by_due.first().map(|&(due, _)| due)
    }

    /// The nearest deadline of all tasks of a lane, taken ones included.
    pub(super) fn nearest_deadline(&self, lane: usize) -> Option<Moment> {
        self.lanes
            .get(&lane)?
            .by_deadline
            .first()
            .map(|&(deadline, _)| deadline)
    }

    /// Whether there are any tasks.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.values().all(|lane| lane.by_due.is_empty())
    }

    fn file(&mut self, id: Id, entry: Entry<T>) {
        let Slot { lane, due, deadline } = entry.slot;
        let lane = self.lanes.entry(lane).or_default();
        lane.by_due.insert((due, id));
        lane.by_deadline.insert((deadline, id));
        self.tasks.insert(id, entry);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn at(seconds: u64) -> Moment {
        ManualClock::default().now() + Duration::from_secs(seconds)
    }

    fn slot(due: u64, deadline: u64) -> Slot {
        Slot {
            lane: 0,
            due: at(due),
            deadline: at(deadline),
        }
    }

    #[test]
    fn tasks_come_in_the_order_of_their_time_and_not_before_it() {
        let mut schedule = Schedule::default();
        schedule.insert("c", slot(3, 9));
        schedule.insert("a", slot(1, 9));
        schedule.insert("b", slot(2, 9));
        let taken = schedule.take_due(0, at(2), 10);
        let taken: Vec<_> = taken.into_iter().map(|(_, task)| task).collect();
        assert_eq!(taken, ["a", "b"]);
        assert_eq!(schedule.next_due(0), Some(at(3)));
    }

    #[test]
    fn a_taken_task_still_counts_for_the_nearest_deadline() {
        let mut schedule = Schedule::default();
        schedule.insert("urgent", slot(1, 5));
        schedule.insert("later", slot(8, 9));
        let taken = schedule.take_due(0, at(1), 10);
        assert_eq!(schedule.nearest_deadline(0), Some(at(5)));
        schedule.put_back(taken[0].0, "urgent", slot(2, 10));
        assert_eq!(schedule.nearest_deadline(0), Some(at(9)));
    }

    #[test]
    fn what_was_removed_while_taken_does_not_come_back() {
        let mut schedule = Schedule::default();
        let id = schedule.insert("gone", slot(1, 5));
        schedule.take_due(0, at(1), 10);
        schedule.remove(id);
        schedule.put_back(id, "gone", slot(2, 6));
        assert_eq!(schedule.next_due(0), None);
        assert_eq!(schedule.nearest_deadline(0), None);
    }

    #[test]
    fn lanes_are_taken_from_one_by_one_and_a_task_may_change_its_lane() {
        let mut schedule = Schedule::default();
        let beside = |slot| Slot { lane: 1, ..slot };
        let id = schedule.insert("here", slot(1, 5));
        schedule.insert("there", beside(slot(1, 3)));
        assert_eq!(schedule.take_due(0, at(2), 10), [(id, "here")]);
        assert_eq!(schedule.nearest_deadline(0), Some(at(5)));
        assert_eq!(schedule.next_due(1), Some(at(1)));

        schedule.put_back(id, "here", beside(slot(4, 6)));
        assert_eq!((schedule.next_due(0), schedule.nearest_deadline(0)), (None, None));
        assert_eq!(schedule.take_due(1, at(4), 10).len(), 2);
        schedule.remove(id);
        assert_eq!(schedule.nearest_deadline(1), Some(at(3)));
    }
}
