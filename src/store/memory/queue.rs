//! Who waits for a slot, in the order of their places.

use std::{collections::BTreeMap, ops::Bound, time::Duration};

use crate::{
    clock::Moment,
    store::{Channel, Place, Resource, Token},
};

#[derive(Default)]
pub(super) struct Queue {
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Clone)]
pub(super) struct Waiter {
    pub(super) token: Token,
    pub(super) resource: Resource,
    pub(super) channel: Channel,
    pub(super) lives_until: Moment,
    /// `None` for one that keeps to its turn: its claim lasts as long as it lives.
    pub(super) claim: Option<Duration>,
}

impl Waiter {
    pub(super) fn claim_ends(&self, now: Moment) -> Moment {
        let claim = self.claim.unwrap_or(Duration::MAX);
        (now + claim).min(self.lives_until)
    }
}

impl Queue {
    /// Gives `token` the place that it asks for, or keeps it, along with those of its companions; `fresh` is the number
    /// of a new place, unless a later one was given already.
    pub(super) fn enter(&mut self, token: &Token, resource: &Resource, place: &Place, fresh: u64, now: Moment) -> u64 {
        let behind_all = self.waiters.last_key_value().map_or(0, |(last, _)| last + 1);
        let known = self.place_of(token);
        let number = place.number.or(known).unwrap_or_else(|| fresh.max(behind_all));
        let own = [(token.clone(), number)];
        // If its place is still there, those of its companions have not lapsed either: one that is not there has gone.
        let companions = place
            .companions
            .iter()
            .filter(|(token, _)| known.is_none() || self.place_of(token).is_some());
        let kept: Vec<_> = own.iter().chain(companions).cloned().collect();
        for (token, number) in kept {
            let waiter = Waiter {
                token,
                resource: resource.clone(),
                channel: place.channel.clone(),
                lives_until: now + place.lasts,
                claim: place.claim,
            };
            self.waiters.insert(number, waiter);
        }
        number
    }

    pub(super) fn take_out(&mut self, token: &Token) {
        self.waiters.retain(|_, waiter| waiter.token != *token);
    }

    /// The first that lives, with its place. Takes out the dead.
    pub(super) fn first(&mut self, now: Moment) -> Option<(u64, Waiter)> {
        self.bury(now);
        self.behind(0)
    }

    /// The first that stands behind `place`.
    pub(super) fn behind(&self, place: u64) -> Option<(u64, Waiter)> {
        let behind = (Bound::Excluded(place), Bound::Unbounded);
        let (place, waiter) = self.waiters.range(behind).next()?;
        Some((*place, waiter.clone()))
    }

    /// Notes that the waiter at `place` was called: it counts as dead from the end of its claim on, unless it asks
    /// again. Returns the first ones of other clients behind it.
    pub(super) fn call(&mut self, place: u64, now: Moment) -> Vec<Waiter> {
        let mut waiters = self.waiters.range_mut(place..).map(|(_, waiter)| waiter);
        let Some(called) = waiters.next() else {
            return Vec::new();
        };
        called.lives_until = called.claim_ends(now);
        let mut others: Vec<Waiter> = Vec::new();
        for waiter in waiters {
            if called.channel != waiter.channel && others.iter().all(|other| other.channel != waiter.channel) {
                others.push(waiter.clone());
            }
        }
        others
    }

    /// The tokens of all, the last one first.
    pub(super) fn last_first(&self) -> Vec<Token> {
        self.waiters.values().rev().map(|waiter| waiter.token.clone()).collect()
    }

    pub(super) fn len(&self, now: Moment) -> usize {
        self.waiters.values().filter(|waiter| waiter.lives_until > now).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn place_of(&self, token: &Token) -> Option<u64> {
        self.waiters
            .iter()
            .find(|(_, waiter)| waiter.token == *token)
            .map(|(place, _)| *place)
    }

    pub(super) fn bury(&mut self, now: Moment) {
        self.waiters.retain(|_, waiter| waiter.lives_until > now);
    }
}
