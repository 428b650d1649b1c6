//! Several holds at once: extended, given back and waited for together, in one round trip where they share a server.

use std::{sync::Arc, time::Duration};

use super::{Guard, Held, is_gone};
use crate::{
    Error,
    client::Core,
    clock::Clock,
    lease::{Lease, Terms},
    store::{Failure, Found, Hold, Limit, Spent},
    waiting::Bell,
};

impl Held {
    /// That of a lease which is kept for its holder until it is [the guard's](Guard::of_several).
    pub(crate) fn new(core: &Arc<Core>, lease: Arc<Lease>, fencing_token: u64) -> Self {
        core.keeper.keep(&lease);
        Self {
            core: core.clone(),
            lease,
            fencing_token,
            report: None,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.lease.check().is_ok()
    }

    pub(crate) fn name(&self) -> &Arc<[u8]> {
        &self.lease.name
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.lease.hold
    }

    /// Gives it back in the background.
    pub(crate) fn abandon(&self) {
        // Whether it was lost by now is nobody's business.
        let _ = self.finish();
        self.clean_up_after(&self.lease, true);
        self.leave();
    }
}

impl Guard {
    /// The guard of all of `held`, on these terms from now on. There is one at least.
    pub(crate) fn of_several(mut held: Vec<Held>, terms: &Terms) -> Self {
        for Held {
            core, lease, report, ..
        } in &mut held
        {
            lease.begin(terms, core.clock.now());
            *report = core.keeper.watch(lease);
            // It may have been lost by now, when there was nobody to tell.
            core.keeper.report(lease);
        }
        let others = held.split_off(1).into();
        Self::of(held.remove(0), others)
    }
}

/// Blocks until one of them is lost, for at most `limit`; tells whether one was.
pub(super) fn wait_lost(holds: &[&Held], limit: Duration) -> bool {
    let clock: &dyn Clock = &*holds[0].core.clock;
    let deadline = clock.now() + limit;
    let bell = Arc::new(Bell::default());
    holds.iter().for_each(|held| held.lease.attend(&bell));
    let lost = loop {
        if holds.iter().any(|held| held.lease.remaining().is_zero()) {
            break true;
        }
        if clock.now() >= deadline {
            break false;
        }
        let ends = holds.iter().map(|held| held.lease.valid_until());
        bell.wait(clock, ends.fold(deadline, Ord::min));
    };
    holds.iter().for_each(|held| held.lease.dismiss(&bell));
    lost
}

/// Extends all of them; fails if one of them is lost, or was not confirmed.
pub(super) fn extend(holds: &[&Held], length: Duration) -> Result<(), Error> {
    for held in holds {
        held.lease.will_ask(held.fencing_token, length);
    }
    let timeout = holds[0].core.command_timeout;
    let interrupt = None;
    let outcome = renew(holds, length, &Limit { timeout, interrupt });
    holds.iter().try_for_each(|held| held.lease.check())?;
    Ok(outcome?)
}

/// Has the server make all of them last at least `length` from now, within `limit`. Whether one is lost by then is to
/// be looked at.
pub(crate) fn renew(holds: &[&Held], length: Duration, limit: &Limit) -> Result<(), Failure> {
    let Some(Held { core, .. }) = holds.first() else {
        return Ok(());
    };
    let mut sent = vec![core.clock.now(); holds.len()];
    let answers = core.ask_several(limit, holds.len(), |which, limit, _| {
        which.iter().for_each(|&at| sent[at] = core.clock.now());
        let asked: Vec<_> = which.iter().map(|&at| &holds[at].lease.hold).collect();
        core.store.renew_several(&asked, length, limit)
    });
    let mut outcome = Ok(());
    for ((held, sent), answer) in holds.iter().zip(sent).zip(answers) {
        match answer {
            Ok(found) => held.extended(found, sent, length),
            Err(failure) => outcome = Err(failure),
        }
    }
    outcome
}

/// Gives all of them back within `limit`, for those who wait here last; reports the worst that befell one of them.
pub(crate) fn release(holds: &[&Held], limit: &Limit) -> Result<(), Error> {
    let Some(Held { core, .. }) = holds.first() else {
        return Ok(());
    };
    let held_so_far: Vec<_> = holds.iter().map(|held| held.finish()).collect();
    let (gone, standing): (Vec<_>, Vec<_>) = holds.iter().zip(&held_so_far).partition(|(_, held)| is_gone(held));
    gone.iter().for_each(|(held, _)| held.clean_up_after_loss());
    let asked: Vec<&Held> = standing.iter().map(|(held, _)| **held).collect();
    let answers = core.ask_several(limit, asked.len(), |which, limit, repeated| {
        let spent: Vec<Spent> = which.iter().map(|&at| asked[at].spent()).collect();
        core.store.release_several(&spent, repeated, limit)
    });
    let outcomes: Vec<_> = asked
        .iter()
        .zip(answers)
        .map(|(held, answer)| held.released(answer))
        .collect();
    holds.iter().for_each(|held| held.leave());
    let losses = held_so_far.into_iter().map(|held| held.map_err(Error::Lost));
    worst(losses.chain(outcomes))
}

/// A loss if there is one, otherwise what else went wrong.
fn worst(outcomes: impl Iterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let mut worst = Ok(());
    for outcome in outcomes {
        match (&worst, &outcome) {
            (Err(Error::Lost(_)), _) | (_, Ok(())) => {}
            (Ok(()), Err(_)) | (_, Err(Error::Lost(_))) => worst = outcome,
            (Err(_), Err(_)) => {}
        }
    }
    worst
}

impl Held {
    /// Draws the consequences of the answer to its release.
    fn released(&self, answer: Result<Found, Failure>) -> Result<(), Error> {
        self.clean_up_after(&self.lease, answer.is_err());
        self.outcome(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{
        LostReason,
        clock::ManualClock,
        keys::Keyspace,
        lease::{Doubt, Grant},
        store::{Resource, because, fake::FakeStore},
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn lease_of(name: &str, clock: &Arc<ManualClock>) -> Arc<Lease> {
        let grant = Grant {
            fencing_tokens: 1..2,
            sent: clock.now(),
            doubt: Doubt::default(),
        };
        let (hold, terms) = (Hold::new(Resource::lock(name)), Terms::new(SECOND * 30, true));
        Arc::new(Lease::new(hold, name.as_bytes().into(), &grant, &terms, clock.clone()))
    }

    #[test]
    fn a_loss_is_told_although_it_came_before_there_was_anybody_to_tell() {
        let store = FakeStore::new();
        let clock = store.clock.clone();
        let keyspace = Keyspace::default();
        let core = Arc::new(Core::new(Arc::new(store), clock.clone(), keyspace, SECOND, SECOND));
        let (told, losses) = mpsc::channel();
        let terms = Terms {
            on_lost: Some(Arc::new(move |lost| told.send(lost.reason).unwrap())),
            ..Terms::new(SECOND * 30, true)
        };
        core.keeper.start(&terms).unwrap();
        let lease = lease_of("x", &clock);
        let held = Held::new(&core, lease.clone(), 1);
        lease.lose(LostReason::Deleted);
        let _guard = Guard::of_several(vec![held], &terms);
        // Not when the lease would have ended: this clock stands still.
        assert_eq!(losses.recv_timeout(SECOND * 30), Ok(LostReason::Deleted));
    }

    #[test]
    fn a_loss_is_the_worst_and_the_first_of_its_kind_is_told() {
        let unconfirmed = || Err(Error::Unconfirmed(because("silence")));
        let lost = |name: &str| {
            let lease = lease_of(name, &Arc::default());
            Err(Error::Lost(lease.found_lost(LostReason::Taken)))
        };
        assert!(worst([Ok(()), Ok(())].into_iter()).is_ok());
        for outcomes in [
            [unconfirmed(), lost("a"), lost("b"), Ok(())],
            [Ok(()), lost("a"), unconfirmed(), lost("b")],
        ] {
            let told = worst(outcomes.into_iter());
            assert!(matches!(told, Err(Error::Lost(lost)) if lost.name() == b"a"));
        }
        let told = worst([Ok(()), unconfirmed(), Ok(())].into_iter());
        assert!(matches!(told, Err(Error::Unconfirmed(_))));
    }
}
