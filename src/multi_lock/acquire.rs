//! Acquiring several locks: in their order, each while all before it are held.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use crate::{
    Error, Guard, Wait,
    cancel::Watch,
    client::Core,
    clock::Moment,
    guard::{Held, several},
    lease::{Doubt, Grant, Lease, Terms, valid_until},
    store::{AskSeveral, Failure, Hold, Limit, Resource, SeveralAcquired},
    waiting::{Acquire, Acquisition, Bell, Consequence, Contact, too_late},
};

/// One lock that is still to be had.
pub(super) struct Wanted {
    name: Arc<[u8]>,
    hold: Hold,
    /// What is not known about the attempts for it.
    doubt: Doubt,
}

impl Wanted {
    pub(super) fn new(name: Arc<[u8]>, resource: Resource) -> Self {
        Self {
            name,
            hold: Hold::new(resource),
            doubt: Doubt::default(),
        }
    }
}

/// An acquire of several locks that is under way. What it has when it is dropped is given back in the background.
///
/// Nobody waits for a lock while holding one that comes after it, so no two can wait for each other, directly or by way
/// of others. That is also why a lock that is lost meanwhile costs all that come after it.
struct Taking<'a> {
    core: &'a Arc<Core>,
    wait: &'a Wait,
    watch: Option<&'a Watch>,
    /// Those on which each lock is held while others are waited for: it is kept alive whatever the user's say, which
    /// count from when all are held.
    terms: Terms,
    started: Moment,
    deadline: Moment,
    contact: Contact,
    /// The first ones, in order.
    held: Vec<Held>,
    /// How many of them were held already when one was waited for.
    old: usize,
    /// The others, in order.
    wanted: VecDeque<Wanted>,
}

/// What came of an attempt to take several at once.
enum Attempt {
    Granted,
    /// This one was taken; those before it were granted, unless it was to be all or none.
    Taken(usize),
    /// They were granted too late.
    Late,
    Failed(Failure, Consequence),
}

/// Acquires all of `wanted`, which are in their order, on the terms `terms`.
pub(super) fn acquire(
    core: &Arc<Core>,
    wanted: impl Iterator<Item = Wanted>,
    terms: &Terms,
    wait: &Wait,
) -> Result<Guard, Error> {
    core.keeper.start(terms)?;
    let bell = Arc::new(Bell::default());
    let watch = wait.watch(&bell);
    let started = core.clock.now();
    let deadline = wait.deadline(started);
    let mut taking = Taking {
        core,
        wait,
        watch: watch.as_ref(),
        terms: Terms {
            handoffs: 0,
            ..Terms::new(terms.first_length(), true)
        },
        started,
        deadline,
        contact: Contact::default(),
        held: Vec::new(),
        old: 0,
        wanted: wanted.collect(),
    };
    let outcome = if deadline > started {
        taking.take_all()
    } else {
        taking.try_all()
    };
    match outcome {
        Ok(()) => Ok(Guard::of_several(mem::take(&mut taking.held), terms)),
        Err(error) => {
            if matches!(error, Error::Timeout { .. }) {
                taking.give_back_within(0, core.command_timeout);
            }
            Err(error)
        }
    }
}

impl<'a> Taking<'a> {
    /// Takes all of them, waiting for those that are taken.
    fn take_all(&mut self) -> Result<(), Error> {
        loop {
            while !self.wanted.is_empty() {
                self.check_cancelled()?;
                let count = self.unwaited_together();
                // For one alone its own acquire does it all.
                let all_granted = count > 1
                    && match self.attempt(count, false) {
                        Attempt::Granted => true,
                        Attempt::Failed(failure, Consequence::GiveUp) => return Err(failure.into()),
                        // The first of them is asked for once more, with all the patience that a wait has.
                        Attempt::Taken(_) | Attempt::Late | Attempt::Failed(..) => false,
                    };
                if !all_granted {
                    self.wait_for_first()?;
                }
            }
            // What stood there while others were waited for may have been deleted since the last renewal. Without an
            // answer each holds as long as it did before.
            let old: Vec<&Held> = self.held[..mem::take(&mut self.old)].iter().collect();
            let _ = several::renew(&old, self.terms.length, &self.limit());
            self.take_losses_in();
            if self.wanted.is_empty() {
                return self.check_cancelled();
            }
        }
    }

    /// Takes all of them if none is taken. An attempt that got no answer is made once more; what is lost before all are
    /// there is asked for again while there is time.
    fn try_all(&mut self) -> Result<(), Error> {
        while !self.wanted.is_empty() {
            self.check_cancelled()?;
            match self.attempt(self.together(), true) {
                Attempt::Granted if self.wanted.is_empty() => self.take_losses_in(),
                Attempt::Granted => {}
                Attempt::Taken(at) => return Err(self.timeout(&self.wanted[at].name, None)),
                Attempt::Late => {
                    self.check_cancelled()?;
                    return Err(too_late(self.terms.length));
                }
                Attempt::Failed(_, Consequence::AskAgain)
                    if self.core.clock.now() < self.deadline + self.core.command_timeout => {}
                Attempt::Failed(failure, _) => {
                    self.check_cancelled()?;
                    return Err(failure.into());
                }
            }
        }
        self.check_cancelled()
    }

    /// How long the next request may take: all of them end one command timeout after the deadline, or when the wait is
    /// cancelled.
    fn limit(&self) -> Limit<'a> {
        let left = self.core.clock.now().until(self.deadline + self.core.command_timeout);
        Limit {
            timeout: left.min(self.core.command_timeout),
            interrupt: self.watch.map(Watch::interrupt),
        }
    }

    fn check_cancelled(&self) -> Result<(), Error> {
        if self.wait.is_cancelled() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// How many of the wanted ones, from the first on, can be asked for in one request.
    fn together(&self) -> usize {
        let first = &self.wanted[0].hold.resource;
        let store = &self.core.store;
        let others = self.wanted.iter().skip(1);
        1 + others
            .take_while(|other| store.together(first, &other.hold.resource))
            .count()
    }

    /// As [`together`](Self::together), without those that this process has or waits for: their lines are kept to.
    fn unwaited_together(&self) -> usize {
        let candidates = self.wanted.iter().take(self.together());
        candidates
            .take_while(|wanted| !self.core.gate.is_wanted(&wanted.hold.resource))
            .count()
    }

    /// Makes one attempt to take the first `count` of the wanted ones.
    fn attempt(&mut self, count: usize, all_or_none: bool) -> Attempt {
        let Self { core, .. } = *self;
        let length = self.terms.length;
        let sent = core.clock.now();
        let holds: Vec<&Hold> = self.wanted.iter().take(count).map(|wanted| &wanted.hold).collect();
        let ask = AskSeveral {
            holds: &holds,
            lease: length,
            all_or_none,
            interrupt: self.watch.map(Watch::interrupt),
        };
        let answer = core.store.acquire_several(&ask, self.limit().timeout);
        let SeveralAcquired { fencing_tokens, taken } = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let tokens_last = core.store.abilities().tokens_last;
                for wanted in self.wanted.iter_mut().take(count) {
                    if tokens_last {
                        wanted.doubt.add(sent, length, &failure);
                    } else {
                        wanted.hold = Hold::new(wanted.hold.resource.clone());
                    }
                }
                let consequence = self.contact.consequence_of(&failure);
                return Attempt::Failed(failure, consequence);
            }
        };
        self.contact.heard();
        let late = core.clock.now() >= valid_until(sent, length);
        if late && !fencing_tokens.is_empty() || self.wait.is_cancelled() {
            for wanted in self.wanted.iter_mut().take(fencing_tokens.len()) {
                wanted.doubt.add_unused_grant();
            }
            return Attempt::Late;
        }
        for fencing_token in fencing_tokens {
            self.take_up(fencing_token, sent);
        }
        taken.map_or(Attempt::Granted, Attempt::Taken)
    }

    /// Takes in that the first of the wanted ones was granted by a request that was sent at `sent`.
    fn take_up(&mut self, fencing_token: u64, sent: Moment) {
        let Some(Wanted { name, hold, doubt }) = self.wanted.pop_front() else {
            return;
        };
        let grant = Grant {
            fencing_tokens: fencing_token..fencing_token + 1,
            sent,
            doubt,
        };
        let lease = Arc::new(Lease::new(hold, name, &grant, &self.terms, self.core.clock.clone()));
        self.core.gate.hold(&lease);
        self.held.push(Held::new(self.core, lease, fencing_token));
    }

    /// Waits for the first of the wanted ones, as one waits for a lock.
    fn wait_for_first(&mut self) -> Result<(), Error> {
        let Some(Wanted { name, hold, doubt }) = self.wanted.pop_front() else {
            return Ok(());
        };
        let acquire = Acquire {
            core: self.core,
            resource: &hold.resource.clone(),
            name: &name,
            terms: &self.terms,
            wait: &self.wait.rest(self.core.clock.now(), self.deadline),
        };
        match acquire.go_on(hold, doubt, self.contact.clone()) {
            Ok(Acquisition {
                lease,
                fencing_token,
                waited,
                ..
            }) => {
                if waited {
                    self.old = self.held.len();
                }
                self.contact.heard();
                self.held.push(Held::new(self.core, lease, fencing_token));
                self.take_losses_in();
                Ok(())
            }
            Err(Error::Timeout { last, .. }) => Err(self.timeout(&name, last)),
            Err(error) => Err(error),
        }
    }

    /// Gives up all from the first on that was lost meanwhile: they are wanted again.
    fn take_losses_in(&mut self) {
        if let Some(lost) = self.held.iter().position(|held| !held.is_held()) {
            self.give_back_from(lost);
        }
    }

    /// Gives back all that are held but the first `kept`: they are wanted again.
    fn give_back_from(&mut self, kept: usize) {
        self.give_back_within(kept, self.limit().timeout);
    }

    fn give_back_within(&mut self, kept: usize, timeout: Duration) {
        let given_up = self.held.split_off(kept);
        let limit = Limit {
            timeout,
            ..self.limit()
        };
        // What was not confirmed is completed in the background.
        let _ = several::release(&given_up.iter().collect::<Vec<_>>(), &limit);
        for held in given_up.iter().rev() {
            let again = Wanted::new(held.name().clone(), held.hold().resource.clone());
            self.wanted.push_front(again);
        }
        self.old = self.old.min(kept);
    }

    fn timeout(&self, name: &[u8], last: Option<Box<Error>>) -> Error {
        Error::Timeout {
            name: name.to_vec(),
            waited: self.started.until(self.core.clock.now()),
            last,
        }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.held.iter().for_each(Held::abandon);
        for Wanted { hold, doubt, .. } in &self.wanted {
            if doubt.may_stand() {
                self.core.keeper.sweeper().clean_up(hold, *doubt, self.terms.length);
            }
        }
    }
}
