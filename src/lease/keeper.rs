//! The threads that keep a client's leases alive (refresher) and clean up after unknown outcomes (janitor): one for
//! each server.

mod reporter;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, io, mem, sync::Arc, time::Duration};

use self::reporter::Reporter;
use super::{
    Due, Lease, LostReason, Terms,
    cleanup::{Cleanup, Doubt},
    schedule::{Id, Schedule, Slot},
};
use crate::{
    Error,
    background::Background,
    clock::{Clock, Moment},
    mistakes::{Mistake, makes},
    store::{Chore, Failure, Found, Hold, Resource, Store, Upkeep},
    sync::{Condvar, Mutex},
};

/// How many chores go out at once.
const BATCH: usize = 512;

/// The least time that a batch gets. It doubles with each batch that stays unanswered and falls back with the first
/// that is answered, so that leases shorter than the way to the server cannot starve the others.
const PATIENCE: Duration = Duration::from_millis(50);

/// The pause after a failed renewal, at most.
const LONGEST_RETRY: Duration = Duration::from_millis(250);

/// Keeps leases alive until they are released, and cleans up what may have been left behind.
///
/// There is a lane for each server, so that one which does not answer costs no lease at another, and a thread for each
/// lane. The first starts with the first acquire, the others when there is something to do in their lanes; they end
/// with the client. They share no handle of the client, so they never keep one alive. No mutex is held while they speak
/// to the server or while a user's callback runs.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    sweeper: Sweeper,
}

struct Shared {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    command_timeout: Duration,
    /// Where this client's renewals lie in time, so that the clients of one machine do not all renew at once.
    grid_offset: Duration,
    agenda: Mutex<Agenda>,
    changed: Condvar,
    reporter: Reporter,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    /// By lane.
    running: HashMap<usize, Background>,
    /// Whether no more are to be started.
    closed: bool,
}

#[derive(Default)]
struct Agenda {
    schedule: Schedule<Task>,
    /// Those that have a thread.
    lanes: HashMap<usize, Lane>,
    /// Set when the client has gone: by then the last round must be over.
    closing: Option<Moment>,
}

/// How it stands in a lane.
#[derive(Default)]
struct Lane {
    /// Until when its thread sleeps, if it does.
    asleep_until: Option<Moment>,
    patience: Patience,
}

/// The lane whose thread runs from the first acquire on. It takes the place of one that can have no thread.
const FIRST_LANE: usize = 0;

#[derive(Clone)]
enum Task {
    Keep(Arc<Lease>),
    CleanUp(Cleanup),
}

impl Task {
    fn resource(&self) -> &Resource {
        match self {
            Task::Keep(lease) => &lease.hold.resource,
            Task::CleanUp(cleanup) => &cleanup.hold().resource,
        }
    }
}

/// What a batch does about a task.
enum Work {
    /// Renews the lease to this length.
    Renew(Arc<Lease>, Duration),
    CleanUp(Cleanup),
}

impl Work {
    fn chore(&self) -> Chore {
        match self {
            Work::Renew(lease, length) => Chore::Renew(lease.hold.clone(), *length, lease.terms.replicas),
            Work::CleanUp(cleanup) => cleanup.chore(),
        }
    }
}

/// A callback's place on the reporter's schedule.
pub(crate) struct Report(Id);

/// Gives tokens to be cleaned up to a keeper that belongs to somebody else.
#[derive(Clone)]
pub(crate) struct Sweeper(Arc<Shared>);

impl Sweeper {
    /// Deletes, in the background, what a hold of unknown outcome may have left on the server. `length` is the longest
    /// lease that was asked for with it.
    pub(crate) fn clean_up(&self, hold: &Hold, doubt: Doubt, length: Duration) {
        let now = self.0.clock.now();
        self.0.clean_up(Cleanup::new(hold.clone(), doubt, length, now), now);
    }

    /// Takes back, in the background, the place of a waiter that was knocked for and does not wait any more, so that
    /// the next one gets what was left to it. It may have been granted the key meanwhile; that it keeps. A place lasts
    /// for `lasts`.
    pub(crate) fn pass_on(&self, hold: &Hold, lasts: Duration) {
        let now = self.0.clock.now();
        self.0.clean_up(Cleanup::of_place(hold.clone(), lasts, now), now);
    }
}

impl Keeper {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, command_timeout: Duration) -> Self {
        let reporter = Reporter::new(clock.clone());
        let shared = Arc::new(Shared {
            store,
            clock,
            command_timeout,
            grid_offset: Duration::from_secs(1).mul_f64(fastrand::f64()),
            agenda: Mutex::default(),
            changed: Condvar::default(),
            reporter,
            threads: Mutex::default(),
        });
        Self {
            sweeper: Sweeper(shared.clone()),
            shared,
        }
    }

    /// Starts the threads that a lease on `terms` needs, unless they run already. Called before it is asked for: one
    /// that could not be kept must not be granted.
    pub(crate) fn start(&self, terms: &Terms) -> Result<(), Error> {
        self.shared.start(FIRST_LANE).map_err(Error::Thread)?;
        match terms.on_lost {
            Some(_) => self.shared.reporter.start(),
            None => Ok(()),
        }
    }

    /// Renews the lease from now on, if it is to be renewed. Done once for each.
    pub(crate) fn keep(&self, lease: &Arc<Lease>) {
        if lease.terms.renewed {
            let (due, deadline) = lease.next_look(self.shared.grid_offset);
            let id = self.shared.insert(Task::Keep(lease.clone()), due, deadline);
            lease.state.lock().renewal = Some(id);
        }
    }

    /// Stops renewing the lease.
    pub(crate) fn let_go(&self, lease: &Lease) {
        let renewal = lease.state.lock().renewal.take();
        let renewal = renewal.filter(|_| !makes(Mistake::RenewsAfterRelease));
        if let Some(id) = renewal {
            self.shared.agenda.lock().schedule.remove(id);
        }
    }

    /// Tells the callback of the lease's present grant when it ends, if there is one. A fixed lease that nobody wants
    /// to be told of ends by the clock alone.
    pub(crate) fn watch(&self, lease: &Arc<Lease>) -> Option<Report> {
        lease.has_callback().then(|| Report(self.shared.reporter.watch(lease)))
    }

    pub(crate) fn unwatch(&self, report: Option<&Report>) {
        if let Some(&Report(id)) = report {
            self.shared.reporter.unwatch(id);
        }
    }

    pub(crate) fn sweeper(&self) -> &Sweeper {
        &self.sweeper
    }

    /// Whether there is anything to do, now or later.
    #[cfg(test)]
    pub(crate) fn has_work(&self) -> bool {
        !self.shared.agenda.lock().schedule.is_empty()
    }

    /// Whether all threads sleep, so that no batch is on its way.
    #[cfg(all(test, shuttle))]
    pub(crate) fn sleeps(&self) -> bool {
        let agenda = self.shared.agenda.lock();
        agenda.lanes.values().all(|lane| lane.asleep_until.is_some()) && !agenda.lanes.is_empty()
    }

    /// Tells the lease's callback of its loss, if it was lost and nobody told it yet.
    pub(crate) fn report(&self, lease: &Lease) {
        self.shared.reporter.report(lease);
    }

    /// Ends the threads by `end`, or leaves them to end by themselves.
    pub(crate) fn close(&self, end: Moment) {
        let clock = &self.shared.clock;
        self.shared.agenda.lock().closing = Some(end);
        self.shared.changed.notify_all();
        let threads = {
            let mut threads = self.shared.threads.lock();
            threads.closed = true;
            mem::take(&mut threads.running)
        };
        for thread in threads.into_values() {
            thread.join_within(clock.now().until(end));
        }
        self.shared.reporter.close(clock.now().until(end));
    }
}

impl Shared {
    /// Starts the thread of a lane, unless it runs already.
    fn start(self: &Arc<Self>, lane: usize) -> io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.closed || threads.running.contains_key(&lane) {
            return Ok(());
        }
        let shared = self.clone();
        let thread = Background::spawn("redlatch-keeper", move || shared.run(lane))?;
        threads.running.insert(lane, thread);
        self.agenda.lock().lanes.entry(lane).or_default();
        Ok(())
    }

    fn run(self: &Arc<Self>, lane: usize) {
        let mut line = self.store.upkeep();
        while self.sleep_until_due(lane) {
            self.round(lane, &mut *line);
        }
        self.last_round(lane, &mut *line);
    }

    /// Sleeps until something in the lane is due; false when the client has gone.
    fn sleep_until_due(&self, lane: usize) -> bool {
        let mut agenda = self.agenda.lock();
        while agenda.closing.is_none() {
            let next = agenda.schedule.next_due(lane).unwrap_or(Moment::NEVER);
            let now = self.clock.now();
            if next <= now {
                return true;
            }
            agenda.lane(lane).asleep_until = Some(next);
            agenda = self.changed.wait_for(agenda, now.until(next));
            agenda.lane(lane).asleep_until = None;
        }
        false
    }

    fn clean_up(self: &Arc<Self>, cleanup: Cleanup, now: Moment) {
        self.insert(Task::CleanUp(cleanup), now, Moment::NEVER);
    }

    fn insert(self: &Arc<Self>, task: Task, due: Moment, deadline: Moment) -> Id {
        let lane = self.lane_of(&task);
        let mut agenda = self.agenda.lock();
        self.wake_for(&mut agenda, lane, due);
        agenda.schedule.insert(task, Slot { lane, due, deadline })
    }

    /// The lane that a task belongs in now. It has a thread.
    fn lane_of(self: &Arc<Self>, task: &Task) -> usize {
        let lane = self.store.lane(task.resource());
        if lane == FIRST_LANE || self.agenda.lock().lanes.contains_key(&lane) || self.start(lane).is_ok() {
            lane
        } else {
            FIRST_LANE
        }
    }

    /// Sees to it that the lane's thread is awake when something is due.
    fn wake_for(&self, agenda: &mut Agenda, lane: usize, due: Moment) {
        if agenda.lane(lane).asleep_until.is_some_and(|until| due < until) {
            // All lanes wait on it.
            self.changed.notify_all();
        }
    }

    /// Does what is due in the lane: all of it in one batch.
    fn round(self: &Arc<Self>, lane: usize, line: &mut dyn Upkeep) {
        let now = self.clock.now();
        let (taken, timeout) = {
            let mut agenda = self.agenda.lock();
            let taken = agenda.schedule.take_due(lane, now, BATCH);
            // At most half the way to the nearest end of a lease: a swallowed reply leaves time for another try.
            let nearest = agenda.schedule.nearest_deadline(lane).unwrap_or(Moment::NEVER);
            let timeout = (now.until(nearest) / 2).max(agenda.lane(lane).patience.0);
            (taken, timeout.min(self.command_timeout))
        };
        let mut batch = Vec::new();
        for (id, task) in taken {
            match task {
                Task::CleanUp(cleanup) => batch.push((id, Work::CleanUp(cleanup))),
                Task::Keep(lease) => match lease.due() {
                    Due::Renew(length) => batch.push((id, Work::Renew(lease, length))),
                    Due::Nothing => self.look_again(id, &lease),
                    Due::Over => self.over(id, &lease),
                },
            }
        }
        if !batch.is_empty() {
            self.perform(lane, line, batch, timeout);
        }
    }

    fn perform(self: &Arc<Self>, lane: usize, line: &mut dyn Upkeep, batch: Vec<(Id, Work)>, timeout: Duration) {
        let chores: Vec<Chore> = batch.iter().map(|(_, work)| work.chore()).collect();
        let sent = self.clock.now();
        let answers = line.perform(&chores, timeout);
        self.agenda.lock().lane(lane).patience.learn(&answers);
        for ((id, work), answer) in batch.into_iter().zip(answers) {
            match work {
                Work::Renew(lease, length) => self.after_renewal(id, &lease, answer, sent, length),
                Work::CleanUp(cleanup) => self.after_cleanup(id, cleanup, &answer),
            }
        }
    }

    /// Draws the consequences of a renewal to `length` that was sent at `sent`.
    fn after_renewal(
        self: &Arc<Self>,
        id: Id,
        lease: &Arc<Lease>,
        answer: Result<Found, Failure>,
        sent: Moment,
        length: Duration,
    ) {
        match answer {
            Ok(found) => match LostReason::from_found(found) {
                None => {
                    lease.prolong(sent, length);
                    self.look_again(id, lease);
                }
                Some(reason) => {
                    lease.lose(reason);
                    self.over(id, lease);
                }
            },
            // Never the end by itself: only `valid_until` is.
            Err(failure) => {
                lease.fail(failure);
                let (now, end) = (self.clock.now(), lease.valid_until());
                let pause = (now.until(end) / 8).clamp(Duration::from_millis(1), LONGEST_RETRY);
                self.put_back(id, Task::Keep(lease.clone()), (now + pause).min(end), end);
            }
        }
    }

    fn after_cleanup(self: &Arc<Self>, id: Id, cleanup: Cleanup, answer: &Result<Found, Failure>) {
        match cleanup.next(answer.is_ok(), self.clock.now()) {
            Some((cleanup, due)) => self.put_back(id, Task::CleanUp(cleanup), due, Moment::NEVER),
            None => self.agenda.lock().schedule.remove(id),
        }
    }

    fn look_again(self: &Arc<Self>, id: Id, lease: &Arc<Lease>) {
        let (due, deadline) = lease.next_look(self.grid_offset);
        self.put_back(id, Task::Keep(lease.clone()), due, deadline);
    }

    /// Puts a task back into the lane that it belongs in by now.
    fn put_back(self: &Arc<Self>, id: Id, task: Task, due: Moment, deadline: Moment) {
        let lane = self.lane_of(&task);
        let mut agenda = self.agenda.lock();
        self.wake_for(&mut agenda, lane, due);
        agenda.schedule.put_back(id, task, Slot { lane, due, deadline });
    }

    fn over(&self, id: Id, lease: &Lease) {
        self.agenda.lock().schedule.remove(id);
        self.reporter.report(lease);
    }

    /// Gives what is still to be cleaned up in the lane one more try, now that nobody will be here to do it later.
    fn last_round(&self, lane: usize, line: &mut dyn Upkeep) {
        let (tasks, end) = {
            let mut agenda = self.agenda.lock();
            let tasks = agenda.schedule.take_due(lane, Moment::NEVER, usize::MAX);
            (tasks, agenda.closing.unwrap_or(Moment::NEVER))
        };
        let chores: Vec<Chore> = tasks
            .into_iter()
            .filter_map(|(_, task)| match task {
                Task::CleanUp(cleanup) => Some(cleanup.chore()),
                Task::Keep(_) => None,
            })
            .collect();
        if !chores.is_empty() {
            // Whatever the answers are: the leases' own ends do the rest.
            line.perform(&chores, self.clock.now().until(end).min(self.command_timeout));
        }
    }
}

impl Agenda {
    fn lane(&mut self, lane: usize) -> &mut Lane {
        self.lanes.entry(lane).or_default()
    }
}

/// How long a batch may take at least.
struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(PATIENCE)
    }
}

impl Patience {
    /// Takes in the answers of a batch, which is answered, or not, as a whole.
    fn learn(&mut self, answers: &[Result<Found, Failure>]) {
        match answers.first() {
            Some(Err(Failure::Silent(_))) => self.0 = self.0.saturating_mul(2),
            // A refused or broken connection says nothing about how long an answer takes.
            Some(Err(Failure::Unreachable(_) | Failure::Cut(_))) => {}
            _ => self.0 = PATIENCE,
        }
    }
}
