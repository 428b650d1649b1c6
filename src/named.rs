//! What a lock and a semaphore have in common: a name, and the terms on which it is acquired.

use std::{sync::Arc, time::Duration};

use crate::{
    Client, Error, Guard, Inspection, Wait,
    client::Core,
    lease::Terms,
    store::{Hold, Kind, Resource, Token, Wishes},
};

/// The most permits that one acquire may ask for: each of them is a member of its own at the server.
const MOST_PERMITS: u32 = 1_000;

#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) client: Client,
    pub(crate) name: Arc<[u8]>,
    pub(crate) kind: Kind,
    pub(crate) terms: Terms,
}

impl Named {
    pub(crate) fn new(client: Client, name: &[u8], kind: Kind, length: Duration, renewed: bool) -> Self {
        let mut terms = Terms::new(length, renewed);
        // In a forked child nothing is acquired.
        if client.core().is_ok_and(|core| !core.store.abilities().hand_overs) {
            terms.handoffs = 0;
        }
        Self {
            client,
            name: name.into(),
            kind,
            terms,
        }
    }

    /// The client's core and what is to be held, if the name and the number of permits can work there.
    pub(crate) fn resolve(&self) -> Result<(&Arc<Core>, Resource), Error> {
        let core = self.client.core()?;
        check_permits(self.kind)?;
        let key = core.keyspace.main(self.kind, &self.name)?.into();
        let resource = Resource { key, kind: self.kind };
        core.store.admit(&resource, &Wishes::default())?;
        Ok((core, resource))
    }

    /// As [`resolve`](Self::resolve), if the terms can work as well.
    fn resolve_for_acquire(&self) -> Result<(&Arc<Core>, Resource), Error> {
        let (core, resource) = self.resolve()?;
        self.terms.check()?;
        core.store.admit(&resource, &self.terms.wishes())?;
        Ok((core, resource))
    }

    /// Refuses a name and terms that cannot work. No I/O.
    #[cfg(feature = "capi")]
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.resolve_for_acquire().map(drop)
    }

    pub(crate) fn acquire(&self, wait: Wait) -> Result<Guard, Error> {
        let (core, resource) = self.resolve_for_acquire()?;
        Guard::acquire(core, &self.name, resource, &self.terms, &wait)
    }

    /// `None` if somebody else has it.
    pub(crate) fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Guard::if_free(self.acquire(Wait::none()))
    }

    pub(crate) fn inspect(&self) -> Result<Inspection, Error> {
        let (core, resource) = self.resolve()?;
        Ok(core.ask(core.command_timeout, |timeout, _| {
            core.store.inspect(&resource, timeout)
        })?)
    }

    /// Throws out all who hold it now; tells whether somebody did.
    pub(crate) fn force_release(&self) -> Result<bool, Error> {
        let seen = self.inspect()?;
        let (core, resource) = self.resolve()?;
        for holder in &seen.holders {
            let hold = Hold {
                resource: Resource {
                    kind: self.kind.with_permits(holder.permits),
                    ..resource.clone()
                },
                token: Token::found(&holder.token),
            };
            // Whatever is found there: it is not, or no longer, the holder that was seen.
            core.ask(core.command_timeout * 2, |timeout, _| core.store.evict(&hold, timeout))?;
        }
        Ok(!seen.holders.is_empty())
    }
}

/// Refuses numbers of permits that can never be granted.
fn check_permits(kind: Kind) -> Result<(), Error> {
    let Kind::Semaphore { limit, permits } = kind else {
        return Ok(());
    };
    let why = if limit == 0 {
        "a semaphore with a limit of 0 cannot work: it must be at least 1".to_owned()
    } else if permits == 0 {
        "an acquire of 0 permits cannot work: it must take at least 1".to_owned()
    } else if permits > limit {
        format!("an acquire of {permits} permits cannot work: the semaphore has {limit}")
    } else if permits > MOST_PERMITS {
        format!("an acquire of {permits} permits cannot work: it may take {MOST_PERMITS} at most")
    } else {
        return Ok(());
    };
    Err(Error::invalid(why))
}
