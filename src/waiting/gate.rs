//! The queues of this process: for each name the threads that want it, of which one speaks to the server.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{
    bell::{Bell, Ring},
    registration::Registration,
};
use crate::{
    clock::Moment,
    lease::{Lease, OnLost, Succession, Terms},
    mistakes::{Mistake, makes},
    store::{Failure, Hold, Resource, Token},
    sync::Mutex,
};

/// How many fencing tokens are drawn at once, at most. The counter must not outrun the clock, and does not as long as
/// the tokens are used: so no more are drawn than were used lately, doubling.
const MOST_FENCING_TOKENS: u32 = 256;

/// The lines of one client's threads, by what they want: those who want another number of permits stand in another
/// line. There is one as long as it is waited for here, or is a lock that is held here.
#[derive(Default)]
pub(crate) struct Gate {
    lines: Mutex<HashMap<Resource, Line>>,
    /// How many threads have ever entered one.
    entered: AtomicU64,
}

#[derive(Default)]
struct Line {
    /// What a guard of this process has, if that leaves nothing for anybody else.
    lease: Option<Arc<Lease>>,
    waiters: VecDeque<Arc<Waiter>>,
    /// What one had at the server that was handed a permit: for the first waiter, if that has nothing there yet.
    vacated: Option<Registration>,
    /// Whether the first waiter is speaking to the server: then it is served by the server only, and what is handed on
    /// goes to the second.
    speaking: bool,
    /// Whether the server has answered anybody who stood here.
    answered: bool,
    /// How often a lease was handed on lately.
    handed_on: u32,
}

/// A thread in a line.
struct Waiter {
    /// How many had entered a line before.
    number: u64,
    /// What it is known by at the server.
    token: Mutex<Token>,
    terms: Terms,
    bell: Arc<Bell>,
    /// Set when it is taken out of the line by another thread.
    outcome: Mutex<Option<Outcome>>,
    /// Whether it has spoken to the server, or taken a place over, since it was last named as heir.
    has_spoken: AtomicBool,
    /// Whether it is the heir of one that has its place at the server given up. Nobody else hands anything on to it
    /// then: what becomes of the place would be unknown.
    promised: AtomicBool,
}

/// What another thread had for a waiter.
pub(super) enum Outcome {
    /// The lease, which it holds with this fencing token.
    HandedOn(HandedOn),
    /// Why the server is of no use to anybody in the line.
    Hopeless(Failure),
}

pub(super) struct HandedOn {
    pub(super) lease: Arc<Lease>,
    pub(super) fencing_token: u64,
    /// Whether it stood before all others, and was to speak to the server.
    pub(super) was_first: bool,
    pub(super) place: PlaceLeft,
}

/// What has become of the place at the server of one that was handed a permit.
///
/// A place is taken by the first in a line. When that one is handed a permit, the place is *bequeathed* to the next,
/// who inherits it. It is *given up* instead, in the script that keeps the permit, when nobody stands in line to
/// inherit it, or when it was used: the turn of the client was over, and it was its place's turn at the server. The one
/// that gives it up is *promised* the permit until the answer is there: nothing else is handed on to it meanwhile,
/// since it could bequeath a place that is about to be given up. Others are asked to look, should that have come too
/// late for them.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum PlaceLeft {
    /// If it had one, that is there.
    Kept,
    /// It was given up.
    GivenUp,
    /// It was given up, and may have been taken again before or after that.
    Doubtful,
}

/// What a waiter may do now.
pub(super) enum Standing {
    /// It is out of the line.
    Out(Outcome),
    /// Others come first.
    Behind,
    /// It comes first, and a guard of this process has the lease: until then, unless it is renewed. It is rung before
    /// if the lease is lost, and when it was given back.
    HeldHere { until: Moment },
    /// It comes first, and speaks to the server. Tells whether that has answered anybody who stood here.
    First { answered: bool },
}

/// What becomes of a lease that its guard has no more use for.
pub(crate) enum Pass {
    /// The next waiter has it; with the callback of the grant that has ended.
    On(Option<OnLost>),
    /// The server has to be asked whether this one may have it.
    Ask(Heir),
    /// It has to be released.
    No,
}

/// The waiter that is next.
pub(crate) struct Heir {
    waiter: Arc<Waiter>,
    pub(crate) token: Token,
    /// Whether it is to have it although others wait.
    pub(crate) insists: bool,
    /// Whether it is to give up its place at the server: it is its turn there, or nobody stands in line who would take
    /// the place over. Whoever takes it over has the turn of a client that others have waited for.
    pub(crate) leaves_place: bool,
    /// By the time of the answer it may have gone. Another one may have what was kept if it entered its line before
    /// this number: one that came later may have had a grant with a higher fencing token meanwhile.
    before: u64,
}

impl Drop for Heir {
    fn drop(&mut self) {
        if self.leaves_place {
            self.waiter.promised.store(false, Ordering::Relaxed);
        }
    }
}

impl Gate {
    /// Whether a guard of this process has `resource`, or threads wait for it here.
    pub(crate) fn is_wanted(&self, resource: &Resource) -> bool {
        self.lines.lock().contains_key(resource)
    }

    /// Puts the calling thread, which is going to ask for `hold`, at the end of its line.
    pub(super) fn enter(&self, hold: &Hold, terms: &Terms, bell: &Arc<Bell>) -> InLine<'_> {
        let mut lines = self.lines.lock();
        let waiter = Arc::new(Waiter {
            number: self.entered.fetch_add(1, Ordering::Relaxed),
            token: Mutex::new(hold.token.clone()),
            terms: terms.clone(),
            bell: bell.clone(),
            outcome: Mutex::default(),
            has_spoken: AtomicBool::default(),
            promised: AtomicBool::default(),
        });
        let line = lines.entry(hold.resource.clone()).or_default();
        line.waiters.push_back(waiter.clone());
        line.name_heir();
        InLine {
            gate: self,
            resource: hold.resource.clone(),
            waiter,
        }
    }

    /// Notes that a guard of this process has `lease` now.
    pub(crate) fn hold(&self, lease: &Arc<Lease>) {
        if !lease.hold.resource.is_exclusive() {
            return;
        }
        let mut lines = self.lines.lock();
        let line = lines.entry(lease.hold.resource.clone()).or_default();
        let bell = line.take_up(lease);
        drop(lines);
        ring(bell);
    }

    /// Hands `lease` on to the first waiter, if that may have it.
    pub(crate) fn pass(&self, lease: &Arc<Lease>) -> Pass {
        self.hand_over(lease, lease, None)
    }

    /// Puts `next` in the place of `lease`, which has ended and whose `heir` had been asked for, and hands it on.
    pub(crate) fn replace(&self, lease: &Arc<Lease>, next: &Arc<Lease>, heir: &Heir) -> Pass {
        let pass = self.hand_over(lease, next, Some(heir));
        if heir.leaves_place {
            // The place that was given up may be that of one who stands there now.
            self.wake_first(&lease.hold.resource);
        }
        pass
    }

    fn hand_over(&self, lease: &Arc<Lease>, next: &Arc<Lease>, heir: Option<&Heir>) -> Pass {
        let mut lines = self.lines.lock();
        let entered = self.entered.load(Ordering::Relaxed);
        let Some(line) = lines.get_mut(&lease.hold.resource) else {
            return Pass::No;
        };
        if lease.hold.resource.is_exclusive() {
            if !line.has(lease) {
                return Pass::No;
            }
            line.lease = Some(next.clone());
        }
        let (pass, bell) = line.pass(next, entered, heir);
        line.name_heir();
        // Nobody is woken under the mutex, only to wait for it.
        drop(lines);
        if let Some(bell) = bell {
            bell.ring(Ring::Outcome);
        }
        pass
    }

    /// Has the first waiter ask the server, which may not know any more that it waits.
    pub(crate) fn wake_first(&self, resource: &Resource) {
        let bell = self.lines.lock().get(resource).and_then(Line::first_bell);
        ring(bell);
    }

    /// Notes that `lease` is no longer held, nor the server's to give to others: the first waiter may speak to it.
    pub(crate) fn leave(&self, lease: &Arc<Lease>) {
        let mut lines = self.lines.lock();
        let resource = &lease.hold.resource;
        let Some(line) = lines.get_mut(resource).filter(|line| line.has(lease)) else {
            return;
        };
        line.lease = None;
        let bell = line.first_bell();
        if line.is_empty() {
            lines.remove(resource);
        }
        drop(lines);
        ring(bell);
    }

    /// Whether nothing is held or waited for.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.lock().is_empty()
    }

    /// How many fencing tokens to draw for a lease of `resource`: one, and some for those to whom it may be handed on
    /// without asking the server.
    pub(crate) fn fencing_tokens(&self, resource: &Resource, terms: &Terms) -> u32 {
        if !resource.is_exclusive() {
            return 1;
        }
        let lines = self.lines.lock();
        lines.get(resource).map_or(1, |line| line.fencing_tokens(terms))
    }
}

impl Line {
    fn has(&self, lease: &Arc<Lease>) -> bool {
        self.lease.as_ref().is_some_and(|held| Arc::ptr_eq(held, lease))
    }

    fn is_empty(&self) -> bool {
        self.lease.is_none() && self.waiters.is_empty()
    }

    /// Takes in that a guard of this process has `lease` now. The first waiter is to be rung, to see what is left.
    fn take_up(&mut self, lease: &Arc<Lease>) -> Option<Arc<Bell>> {
        if lease.hold.resource.is_exclusive() {
            self.lease = Some(lease.clone());
        }
        self.answered = true;
        self.name_heir();
        self.first_bell()
    }

    /// Has the first waiter rung if the lease is lost. It may not know that it is the first: after a hand-over it is
    /// not rung, since that happens far more often.
    fn name_heir(&self) {
        if let Some(lease) = &self.lease {
            lease.name_heir(self.first_bell());
        }
    }

    fn first_bell(&self) -> Option<Arc<Bell>> {
        self.waiters.front().map(|first| first.bell.clone())
    }

    /// Hands `lease` on to the first waiter that does not speak to the server, if that may have it, and takes it out of
    /// the line; or says that this one is to be asked for, of `entered` that have ever entered a line. Once one was
    /// asked for, it may be another one that has it. Its bell is to be rung.
    fn pass(&mut self, lease: &Arc<Lease>, entered: u64, asked_for: Option<&Heir>) -> (Pass, Option<Arc<Bell>>) {
        let Some(at) = self.next(asked_for) else {
            return (Pass::No, None);
        };
        let before = asked_for.map_or(entered, |heir| heir.before);
        let Some(first) = self.waiters.get(at).filter(|first| first.number < before).cloned() else {
            return (Pass::No, None);
        };
        match lease.hand_on(&first.terms) {
            Succession::HandedOn(fencing_token, callback) => {
                // Nobody else's place was.
                let was_given_up = asked_for.is_some_and(|heir| heir.leaves_place && Arc::ptr_eq(&heir.waiter, &first));
                let has_spoken = first.has_spoken.load(Ordering::Relaxed);
                *first.outcome.lock() = Some(Outcome::HandedOn(HandedOn {
                    lease: lease.clone(),
                    fencing_token,
                    was_first: at == 0,
                    place: match (was_given_up, has_spoken) {
                        (false, _) => PlaceLeft::Kept,
                        (true, false) => PlaceLeft::GivenUp,
                        (true, true) => PlaceLeft::Doubtful,
                    },
                }));
                self.waiters.remove(at);
                self.handed_on = self.handed_on.saturating_add(1);
                (Pass::On(callback), Some(first.bell.clone()))
            }
            Succession::Asks { insists } => {
                let leaves_place = !insists || self.waiters.len() == 1;
                first.has_spoken.store(false, Ordering::Relaxed);
                first.promised.store(leaves_place, Ordering::Relaxed);
                let token = first.token.lock().clone();
                let heir = Heir {
                    waiter: first,
                    token,
                    insists,
                    leaves_place,
                    before,
                };
                (Pass::Ask(heir), None)
            }
            Succession::None => (Pass::No, None),
        }
    }

    /// Where the first stands to whom something may be handed on: one that does not speak to the server, and was not
    /// promised something else.
    fn next(&self, asked_for: Option<&Heir>) -> Option<usize> {
        let mut waiters = self.waiters.iter().enumerate().skip(usize::from(self.speaking));
        let (at, _) = waiters.find(|(_, waiter)| {
            let by_this = asked_for.is_some_and(|heir| heir.leaves_place && Arc::ptr_eq(&heir.waiter, waiter));
            by_this || !waiter.promised.load(Ordering::Relaxed)
        })?;
        Some(at)
    }

    fn remove(&mut self, waiter: &Arc<Waiter>) {
        if let Some(at) = self.waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            self.waiters.remove(at);
            self.speaking &= at != 0;
        }
    }

    fn fencing_tokens(&self, terms: &Terms) -> u32 {
        let behind = (self.waiters.len() - usize::from(self.speaking)) as u32;
        if behind == 0 || !terms.hands_on() {
            return 1;
        }
        1 + behind
            .min(16)
            .max(self.handed_on.saturating_mul(2))
            .min(terms.handoffs)
            .min(MOST_FENCING_TOKENS)
    }
}

/// A thread's place in a line, until it is dropped.
pub(super) struct InLine<'a> {
    gate: &'a Gate,
    resource: Resource,
    waiter: Arc<Waiter>,
}

impl InLine<'_> {
    /// What the thread may do now.
    pub(super) fn standing(&self) -> Standing {
        let lines = self.gate.lines.lock();
        if let Some(outcome) = self.waiter.outcome.lock().take() {
            return Standing::Out(outcome);
        }
        let line = &lines[&self.resource];
        if !self.is_first(line) {
            return Standing::Behind;
        }
        match line.lease.as_ref().and_then(|lease| lease.taken_until()) {
            Some(until) => Standing::HeldHere { until },
            None => Standing::First {
                answered: line.answered,
            },
        }
    }

    /// Notes that the thread is about to speak to the server: nothing is handed on to it until it has `spoken`. False
    /// if something was meanwhile.
    pub(super) fn speak(&self) -> bool {
        let mut lines = self.gate.lines.lock();
        match lines.get_mut(&self.resource) {
            Some(line) if self.is_first(line) => {
                line.speaking = true;
                self.waiter.has_spoken.store(true, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Notes that the server has not granted it.
    pub(super) fn spoken(&self, answered: bool) {
        if let Some(line) = self.gate.lines.lock().get_mut(&self.resource)
            && self.is_first(line)
        {
            line.answered |= answered;
            line.speaking = false;
        }
    }

    /// Notes that the server has granted the thread `lease`; it is out of the line.
    pub(super) fn granted(&self, lease: &Arc<Lease>) {
        let mut lines = self.gate.lines.lock();
        let line = lines.entry(self.resource.clone()).or_default();
        line.remove(&self.waiter);
        line.handed_on = 0;
        let bell = line.take_up(lease);
        drop(lines);
        ring(bell);
    }

    /// Tells those behind that the server, which has not answered anybody here, is of no use.
    pub(super) fn dissolve(&self, failure: &Failure) {
        let mut lines = self.gate.lines.lock();
        let mut those_behind = VecDeque::new();
        if let Some(line) = lines.get_mut(&self.resource)
            && !line.answered
        {
            line.remove(&self.waiter);
            those_behind = mem::take(&mut line.waiters);
            for waiter in &those_behind {
                *waiter.outcome.lock() = Some(Outcome::Hopeless(failure.clone()));
            }
        }
        drop(lines);
        for waiter in those_behind {
            waiter.bell.ring(Ring::News);
        }
    }

    /// Leaves to the next one what this thread had at the server, which was the first and was handed a permit. The next
    /// one is rung in any case: it is to have a place at the server, where permits of others come from.
    pub(super) fn bequeath(&self, registration: Registration) {
        let mut lines = self.gate.lines.lock();
        let Some(bell) = lines.get(&self.resource).and_then(Line::first_bell) else {
            return;
        };
        let mut surplus = Some(registration).filter(Registration::has_place);
        if let Some(line) = lines.get_mut(&self.resource)
            && line.vacated.is_none()
        {
            line.vacated = surplus.take();
        }
        // What nobody takes over is cleaned up when it goes, below.
        drop(lines);
        ring(Some(bell).filter(|_| !makes(Mistake::VacatesInSilence)));
        drop(surplus);
    }

    /// What one before had at the server, if the thread comes first. One that is not `fresh`, and so has something
    /// there itself, has no use for it.
    pub(super) fn inherit(&self, fresh: bool) -> Option<Registration> {
        let mut lines = self.gate.lines.lock();
        let line = lines.get_mut(&self.resource).filter(|line| self.is_first(line))?;
        let registration = line.vacated.take()?;
        if !fresh {
            drop(lines);
            return None;
        }
        *self.waiter.token.lock() = registration.hold().token.clone();
        // The place is not that which an heir may have been said to give up.
        self.waiter.has_spoken.store(true, Ordering::Relaxed);
        Some(registration)
    }

    /// Leaves the line; returns what another thread has just had for this one.
    pub(super) fn leave(&self) -> Option<Outcome> {
        self.step_out();
        self.waiter.outcome.lock().take()
    }

    /// Leaves the line, if it is in it; the next one may speak to the server then.
    fn step_out(&self) {
        let mut lines = self.gate.lines.lock();
        let (mut bell, mut vacated) = (None, None);
        if let Some(line) = lines.get_mut(&self.resource) {
            let was_first = self.is_first(line);
            line.remove(&self.waiter);
            bell = line
                .first_bell()
                .filter(|_| was_first && !makes(Mistake::LeavesInSilence));
            line.name_heir();
            if line.waiters.is_empty() {
                vacated = line.vacated.take();
            }
            if line.is_empty() {
                lines.remove(&self.resource);
            }
        }
        drop(lines);
        ring(bell);
        drop(vacated);
    }

    fn is_first(&self, line: &Line) -> bool {
        line.waiters
            .front()
            .is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.step_out();
    }
}

fn ring(bell: Option<Arc<Bell>>) {
    if let Some(bell) = bell {
        bell.ring(Ring::News);
    }
}
