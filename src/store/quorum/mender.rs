//! The thread that mends what single servers lack or have left over.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    ledger::{Job, Ledger},
    panel::{Answers, Errand, Panel, outcomes},
    tally::renewed,
};
use crate::{
    background::Background,
    clock::Moment,
    store::{
        Found, Hold,
        redis::{
            parts::{Call, Connection},
            reply,
        },
    },
    sync::{Condvar, Mutex},
};

/// Puts locks where they are missing and takes leftovers away, at the servers that were away meanwhile. Its thread
/// starts when there is something to do for the first time, and shares no handle of the store.
pub(super) struct Mender {
    shared: Arc<Shared>,
    thread: Mutex<Option<Background>>,
}

struct Shared {
    panel: Arc<Panel>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ledger: Ledger,
    /// Until when the thread sleeps, if it does.
    asleep_until: Option<Moment>,
    closing: bool,
}

impl Mender {
    pub(super) fn new(panel: Arc<Panel>) -> Self {
        let state = State {
            ledger: Ledger::new(panel.members.len()),
            asleep_until: None,
            closing: false,
        };
        Self {
            shared: Arc::new(Shared {
                panel,
                state: Mutex::new(state),
                changed: Condvar::default(),
            }),
            thread: Mutex::default(),
        }
    }

    /// Changes what is to be done.
    pub(super) fn note<T>(&self, change: impl FnOnce(&mut Ledger, Moment) -> T) -> T {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let now = shared.panel.clock.now();
        let result = change(&mut state.ledger, now);
        let news = state.ledger.take_news();
        let asked_from = |at: usize| shared.panel.members[at].asked_from().unwrap_or(now);
        let due = news.iter().map(asked_from).min();
        let wakes = due.is_some_and(|due| state.asleep_until.is_some_and(|until| due < until));
        drop(state);
        if wakes {
            shared.changed.notify_one();
        }
        if due.is_some() {
            self.start();
        }
        result
    }

    fn start(&self) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            // Without a thread for it, what is missing stays so, and leftovers end with their leases.
            *thread = Background::spawn("redlatch-mender", move || shared.run()).ok();
        }
    }

    /// Ends the thread, which gives what is to be taken away one more try; within `bound`, or leaves it to end by
    /// itself.
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
        let mut lines = self.panel.lines();
        while let Some(jobs) = self.next_jobs() {
            let jobs = self.without_the_unconfirmed(&mut lines, jobs);
            self.perform(&mut lines, jobs);
        }
        let state = self.state.lock();
        let leftovers = (0..lines.len()).map(|at| state.ledger.all_leftovers(at)).collect();
        drop(state);
        self.perform(&mut lines, leftovers);
    }

    /// When there is something to do at a server that is worth asking.
    fn next_due(&self, ledger: &Ledger) -> Option<Moment> {
        let due = |at: usize| {
            let due = ledger.next_due(at)?;
            Some(self.panel.members[at].asked_from().map_or(due, |from| from.max(due)))
        };
        (0..self.panel.members.len()).filter_map(due).min()
    }

    /// Sleeps until something is due; by server, what. `None` when the store has gone.
    fn next_jobs(&self) -> Option<Vec<Vec<Job>>> {
        let mut state = self.state.lock();
        while !state.closing {
            let now = self.panel.clock.now();
            let next = self.next_due(&state.ledger).unwrap_or(Moment::NEVER);
            if next <= now {
                let members = self.panel.members.iter().enumerate();
                let jobs = members.map(|(at, member)| {
                    let due = state.ledger.next_due(at).is_some_and(|due| due <= now);
                    if due && member.admits(now) {
                        state.ledger.jobs(at, now)
                    } else {
                        Vec::new()
                    }
                });
                return Some(jobs.collect());
            }
            state.asleep_until = Some(next);
            state = self.changed.wait_for(state, now.until(next));
            state.asleep_until = None;
        }
        None
    }

    /// Leaves out the locks of which it is not certain that a majority has them still: those are put nowhere.
    fn without_the_unconfirmed(&self, lines: &mut [Connection], mut jobs: Vec<Vec<Job>>) -> Vec<Vec<Job>> {
        let mut wanted: HashMap<_, (Hold, u64)> = HashMap::new();
        for job in jobs.iter().flatten() {
            if let Job::FillIn(hold, fencing_token, _) = job {
                wanted.insert(hold.token.clone(), (hold.clone(), *fencing_token));
            }
        }
        if wanted.is_empty() {
            return jobs;
        }
        let wanted: Vec<(Hold, u64)> = wanted.into_values().collect();
        let looks = wanted
            .iter()
            .map(|(hold, token)| self.panel.scripts.raising(hold, *token));
        let looks: Vec<Call> = looks.collect();
        let answers = self.panel.ask_on(lines, self.panel.to_be_asked(), &looks, self.end());
        let now = self.panel.clock.now();
        let mut state = self.state.lock();
        for (nth, (hold, _)) in wanted.iter().enumerate() {
            let found = renewed(&outcomes(&answers, nth, reply::found));
            if found != Some(Found::Ours) {
                state.ledger.put_off(hold, found.is_some(), now);
                for jobs in &mut jobs {
                    jobs.retain(|job| !matches!(job, Job::FillIn(other, ..) if other.token == hold.token));
                }
            }
        }
        // Whatever was released meanwhile is not to be put anywhere.
        for jobs in &mut jobs {
            jobs.retain(|job| !matches!(job, Job::FillIn(hold, ..) if !state.ledger.is_held(hold)));
        }
        jobs
    }

    fn perform(&self, lines: &mut [Connection], jobs: Vec<Vec<Job>>) {
        let scripts = &self.panel.scripts;
        let calls = jobs
            .iter()
            .map(|jobs| jobs.iter().map(|job| job.call(scripts)).collect());
        let calls: Vec<Vec<Call>> = calls.collect();
        let errands = lines.iter_mut().zip(&calls).enumerate();
        let errands = errands.filter(|(_, (_, calls))| !calls.is_empty());
        let errands = errands.map(|(at, (connection, calls))| Errand { at, connection, calls });
        let mut answers: Answers = self.panel.run(errands.collect(), self.end());
        let now = self.panel.clock.now();
        let mut state = self.state.lock();
        for (at, jobs) in jobs.iter().enumerate() {
            let Some(answer) = answers[at].take() else { continue };
            for (nth, job) in jobs.iter().enumerate() {
                let found = match &answer {
                    Ok(answer) => answer.replies[nth].clone().and_then(reply::found),
                    Err(failure) => Err(failure.clone()),
                };
                state.ledger.done(at, job, &found, now);
            }
        }
    }

    /// By when a round has to be over.
    fn end(&self) -> Instant {
        Instant::now() + self.panel.node_timeout
    }
}
