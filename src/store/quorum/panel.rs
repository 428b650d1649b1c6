//! Asking several servers at once.

use std::{
    panic::resume_unwind,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use redis::Value;

use super::{
    members::{Member, Nodes, to_be_asked},
    tally::Outcome,
};
use crate::{
    Error,
    clock::Clock,
    signals,
    store::{
        Failure,
        redis::{
            parts::{Call, Connection, Lent, Scripts, Sighting, Urgency, run_on_all},
            process,
        },
    },
};

/// The servers of a Redlock, and how they are spoken to.
pub(super) struct Panel {
    pub(super) members: Vec<Member>,
    pub(super) scripts: Scripts,
    pub(super) clock: Arc<dyn Clock>,
    /// How long an answer may take.
    pub(super) node_timeout: Duration,
}

/// What one server is asked, and on which connection.
pub(super) struct Errand<'a> {
    pub(super) at: usize,
    pub(super) connection: &'a mut Connection,
    pub(super) calls: &'a [Call<'a>],
}

/// What one server answered.
pub(super) struct Answer {
    /// Who answered.
    pub(super) process: Option<Arc<Sighting>>,
    /// To each of the calls.
    pub(super) replies: Vec<Result<Value, Failure>>,
}

/// By server: what came of it, if it was asked.
pub(super) type Answers = Vec<Option<Result<Answer, Failure>>>;

impl Panel {
    pub(super) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.name).collect()
    }

    pub(super) fn all(&self) -> Nodes {
        Nodes::all(self.members.len())
    }

    /// Whom to ask now.
    pub(super) fn to_be_asked(&self) -> Nodes {
        to_be_asked(&self.members, self.clock.now())
    }

    /// A connection to each server, apart from those that are shared, not opened yet.
    pub(super) fn lines(&self) -> Vec<Connection> {
        self.members.iter().map(|member| member.node.line()).collect()
    }

    /// Makes the calls at `nodes` on pooled connections, within the time that a server has for an answer; all of it,
    /// waiting for connections included, by `end`. The servers' time begins when there are connections.
    pub(super) fn ask(&self, nodes: Nodes, urgency: Urgency, calls: &[Call], end: Instant) -> Result<Answers, Failure> {
        let now = Instant::now();
        let half = now + end.saturating_duration_since(now) / 2;
        // Always in the same order: of two requests that need the same connections, one gets them all.
        let lent = nodes.iter().map(|at| self.members[at].node.check_out(urgency, half));
        let mut lent: Vec<Lent> = lent.collect::<Result<_, _>>()?;
        let errands = nodes
            .iter()
            .zip(&mut lent)
            .map(|(at, connection)| Errand { at, connection, calls });
        Ok(self.run(errands.collect(), end))
    }

    /// Makes the calls at `nodes`, on [lines](Self::lines) to them, as [`run`](Self::run) does.
    pub(super) fn ask_on(&self, lines: &mut [Connection], nodes: Nodes, calls: &[Call], end: Instant) -> Answers {
        let lines = lines.iter_mut().enumerate().filter(|(at, _)| nodes.contains(*at));
        let errands = lines.map(|(at, connection)| Errand { at, connection, calls });
        self.run(errands.collect(), end)
    }

    /// Makes the calls of all errands at once, within the time that a server has for an answer, and by `end`. Where a
    /// connection has to be opened, a thread does that, so that no server waits for another.
    pub(super) fn run(&self, errands: Vec<Errand>, end: Instant) -> Answers {
        let deadline = end.min(Instant::now() + self.node_timeout);
        let (mut open, mut closed) = (Vec::with_capacity(errands.len()), Vec::new());
        for errand in errands {
            if errand.connection.is_fit() {
                open.push(errand);
            } else {
                closed.push(errand);
            }
        }
        let answers = if closed.is_empty() {
            run_open(open, deadline)
        } else {
            self.run_with_closed(open, closed, deadline)
        };
        let mut by_server: Answers = self.members.iter().map(|_| None).collect();
        let now = self.clock.now();
        for (at, answer) in answers {
            match &answer {
                Err(Failure::Unreachable(_) | Failure::Silent(_) | Failure::NotSent(_)) => {
                    self.members[at].note_answer(false, now);
                }
                // It may only have died while it was idle.
                Err(Failure::Cut(_)) => {}
                _ => self.members[at].note_answer(true, now),
            }
            by_server[at] = Some(answer);
        }
        by_server
    }

    fn run_with_closed(
        &self,
        open: Vec<Errand>,
        closed: Vec<Errand>,
        deadline: Instant,
    ) -> Vec<(usize, Result<Answer, Failure>)> {
        thread::scope(|scope| {
            let mut opening = Vec::with_capacity(closed.len());
            for errand in closed {
                let thread = thread::Builder::new().name("redlatch-connect".into());
                let (at, run) = (errand.at, move || self.open_and_run(errand, deadline));
                opening.push((at, signals::blocked(|| thread.spawn_scoped(scope, run))));
            }
            let mut answers = run_open(open, deadline);
            let ended = |thread: ScopedJoinHandle<_>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            answers.extend(opening.into_iter().map(|(at, thread)| {
                let no_thread = |error| Err(Failure::Unreachable(Arc::new(Error::Thread(error))));
                (at, thread.map_or_else(no_thread, ended))
            }));
            answers
        })
    }

    /// Opens the connection, asks who is there, and makes the calls.
    fn open_and_run(&self, errand: Errand, deadline: Instant) -> Result<Answer, Failure> {
        let Errand { at, connection, calls } = errand;
        connection.open(deadline)?;
        let identity = process::ask(connection, deadline)?;
        let at_time = self.clock.now();
        let process = self.members[at].recognise(Sighting { identity, at: at_time });
        connection.note_process(process.clone());
        let replies = run_on_all(&mut [(connection, calls)], deadline).remove(0)?;
        let process = Some(process);
        Ok(Answer { process, replies })
    }
}

fn run_open(errands: Vec<Errand>, deadline: Instant) -> Vec<(usize, Result<Answer, Failure>)> {
    let who: Vec<_> = errands
        .iter()
        .map(|errand| (errand.at, errand.connection.process().cloned()))
        .collect();
    let mut batches: Vec<_> = errands
        .into_iter()
        .map(|errand| (errand.connection, errand.calls))
        .collect();
    let answers = who.into_iter().zip(run_on_all(&mut batches, deadline));
    answers
        .map(|((at, process), replies)| (at, replies.map(|replies| Answer { process, replies })))
        .collect()
}

/// Adds what others have answered, who were asked because the answers so far do not decide it: a server that did not
/// answer a moment ago may be one of the majority that has the lock.
pub(super) fn complete(answers: &mut Answers, others: Answers) {
    for (answer, other) in answers.iter_mut().zip(others) {
        if answer.is_none() {
            *answer = other;
        }
    }
}

/// What the servers said to their call number `nth`, as `read` understands it. Every word counts.
pub(super) fn outcomes<T>(
    answers: &Answers,
    nth: usize,
    read: impl Fn(Value) -> Result<T, Failure>,
) -> Vec<Outcome<T>> {
    let outcome = |answer: &Option<Result<Answer, Failure>>| match answer {
        None => Outcome::LeftOut,
        Some(Err(failure)) => Outcome::Failed(failure.clone()),
        Some(Ok(answer)) => match answer.replies[nth].clone().and_then(&read) {
            Ok(said) => Outcome::Said(said),
            Err(failure) => Outcome::Failed(failure),
        },
    };
    answers.iter().map(outcome).collect()
}

/// The servers of which `is_it` is true.
pub(super) fn where_it_is<T>(outcomes: &[Outcome<T>], is_it: impl Fn(&Outcome<T>) -> bool) -> Nodes {
    (0..outcomes.len()).filter(|&at| is_it(&outcomes[at])).collect()
}
