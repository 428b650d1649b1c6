//! What is to be done when: the keeper's calendar.

use std::collections::{BTreeSet, HashMap};

use crate::clock::Moment;

/// Tasks by the time when they are due, with the deadlines that they must not miss.
///
/// A task that was taken stays known until it is removed, so that removing works at any time and putting back what
/// was removed meanwhile does nothing.
pub(super) struct Schedule<T> {
    tasks: HashMap<Id, Entry<T>>,
    by_due: BTreeSet<(Moment, Id)>,
    by_deadline: BTreeSet<(Moment, Id)>,
    next_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

struct Entry<T> {
    task: T,
    due: Moment,
    deadline: Moment,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            tasks: HashMap::new(),
            by_due: BTreeSet::new(),
            by_deadline: BTreeSet::new(),
            next_id: 0,
        }
    }
}

impl<T: Clone> Schedule<T> {
    pub(super) fn insert(&mut self, task: T, due: Moment, deadline: Moment) -> Id {
        let id = Id(self.next_id);
        self.next_id += 1;
        self.file(id, Entry { task, due, deadline });
        id
    }

    pub(super) fn remove(&mut self, id: Id) {
        if let Some(entry) = self.tasks.remove(&id) {
            self.by_due.remove(&(entry.due, id));
            self.by_deadline.remove(&(entry.deadline, id));
        }
    }

    /// Takes up to `most` tasks that are due by `now`, the earliest first.
    pub(super) fn take_due(&mut self, now: Moment, most: usize) -> Vec<(Id, T)> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(&(due, id)) = self.by_due.first()
            && due <= now
        {
            self.by_due.pop_first();
            taken.push((id, self.tasks[&id].task.clone()));
        }
        taken
    }

    /// Files a taken task again, unless it was removed meanwhile.
    pub(super) fn put_back(&mut self, id: Id, task: T, due: Moment, deadline: Moment) {
        if self.tasks.contains_key(&id) {
            self.remove(id);
            self.file(id, Entry { task, due, deadline });
        }
    }

    pub(super) fn next_due(&self) -> Option<Moment> {
        self.by_due.first().map(|&(due, _)| due)
    }

    /// The nearest deadline of all tasks, taken ones included.
    pub(super) fn nearest_deadline(&self) -> Option<Moment> {
        self.by_deadline.first().map(|&(deadline, _)| deadline)
    }

    fn file(&mut self, id: Id, entry: Entry<T>) {
        self.by_due.insert((entry.due, id));
        self.by_deadline.insert((entry.deadline, id));
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

    #[test]
    fn tasks_come_in_the_order_of_their_time_and_not_before_it() {
        let mut schedule = Schedule::default();
        schedule.insert("c", at(3), at(9));
        schedule.insert("a", at(1), at(9));
        schedule.insert("b", at(2), at(9));
        let taken: Vec<_> = schedule.take_due(at(2), 10).into_iter().map(|(_, task)| task).collect();
        assert_eq!(taken, ["a", "b"]);
        assert_eq!(schedule.next_due(), Some(at(3)));
    }

    #[test]
    fn a_taken_task_still_counts_for_the_nearest_deadline() {
        let mut schedule = Schedule::default();
        schedule.insert("urgent", at(1), at(5));
        schedule.insert("later", at(8), at(9));
        let taken = schedule.take_due(at(1), 10);
        assert_eq!(schedule.nearest_deadline(), Some(at(5)));
        schedule.put_back(taken[0].0, "urgent", at(2), at(10));
        assert_eq!(schedule.nearest_deadline(), Some(at(9)));
    }

    #[test]
    fn what_was_removed_while_taken_does_not_come_back() {
        let mut schedule = Schedule::default();
        let id = schedule.insert("gone", at(1), at(5));
        schedule.take_due(at(1), 10);
        schedule.remove(id);
        schedule.put_back(id, "gone", at(2), at(6));
        assert_eq!(schedule.next_due(), None);
        assert_eq!(schedule.nearest_deadline(), None);
    }
}
