//! Tells of lost leases: calls the users' callbacks, on a thread of their own.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crate::{
    Error,
    background::Background,
    clock::{Clock, Moment},
    lease::{
        Lease, Lost, OnLost,
        schedule::{Id, ONLY_LANE, Schedule, Slot},
    },
    sync::{Condvar, Mutex},
};

type Report = (Lost, OnLost);

/// Runs `on_lost` callbacks one after the other, apart from the renewals: neither a request that takes its time nor a
/// callback that blocks or panics costs another lease. It watches the ends of leases by the clock alone, so that
/// they are told in time whatever the server does. The thread starts with the first lease that has a callback.
pub(super) struct Reporter {
    shared: Arc<Shared>,
    thread: Mutex<Option<Background>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The leases that have a callback, by their ends.
    ends: Schedule<Arc<Lease>>,
    /// Losses that were learnt from the server.
    reports: VecDeque<Report>,
    closing: bool,
}

impl Reporter {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                state: Mutex::default(),
                changed: Condvar::default(),
            }),
            thread: Mutex::new(None),
        }
    }

    /// Starts the thread unless it runs already.
    pub(super) fn start(&self) -> Result<(), Error> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            *thread = Some(Background::spawn("redlatch-on-lost", move || shared.run()).map_err(Error::Thread)?);
        }
        Ok(())
    }

    /// Tells of the lease's end when it comes.
    pub(super) fn watch(&self, lease: &Arc<Lease>) -> Id {
        let id = self
            .shared
            .state
            .lock()
            .ends
            .insert(lease.clone(), Slot::at(lease.valid_until()));
        self.shared.changed.notify_one();
        id
    }

    pub(super) fn unwatch(&self, id: Id) {
        self.shared.state.lock().ends.remove(id);
    }

    /// Tells of a loss that was learnt from the server, unless it was told already.
    pub(super) fn report(&self, lease: &Lease) {
        if let Some(report) = lease.unreported_loss() {
            self.shared.state.lock().reports.push_back(report);
            self.shared.changed.notify_one();
        }
    }

    /// Lets the thread finish what was reported, and waits for it for at most `bound`.
    pub(super) fn close(&self, bound: Duration) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join_within(bound);
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some((lost, on_lost)) = self.next_report() {
            // The callback is dropped in here as well: what it owns may panic too. The panic hook has told of it.
            let called = catch_unwind(AssertUnwindSafe(move || on_lost(&lost)));
            // And so may the payload, if it is dropped.
            called.unwrap_or_else(mem::forget);
        }
    }

    /// Waits for the next loss; `None` when all were told and the client has gone. The callback that comes with it runs
    /// after the mutex was let go.
    fn next_report(&self) -> Option<Report> {
        let mut state = self.state.lock();
        loop {
            if let Some(report) = state.reports.pop_front() {
                return Some(report);
            }
            let now = self.clock.now();
            if let Some((id, lease)) = state.ends.take_due(ONLY_LANE, now, 1).pop() {
                if let Some(report) = lease.unreported_loss() {
                    state.ends.remove(id);
                    return Some(report);
                }
                // Renewed or extended meanwhile, or about to be taken out.
                let end = lease.valid_until();
                if end > now {
                    state.ends.put_back(id, lease, Slot::at(end));
                }
                continue;
            }
            if state.closing {
                return None;
            }
            let next = state.ends.next_due(ONLY_LANE).unwrap_or(Moment::NEVER);
            state = self.changed.wait_for(state, now.until(next));
        }
    }
}
