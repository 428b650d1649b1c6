//! What stands at one key: who holds it, what is left to whom, and who waits.

use std::time::Duration;

use super::{inbox::Inboxes, queue::Queue};
use crate::{
    clock::Moment,
    store::{Acquired, Ask, Hold, KEPT, Knock, Resource, Token},
};

/// A lock is a slot with one permit.
pub(super) struct Slot {
    pub(super) grants: Vec<Grant>,
    pub(super) queue: Queue,
    pub(super) limit: Limit,
    /// The last that was drawn.
    pub(super) fencing_token: u64,
}

pub(super) struct Grant {
    pub(super) token: Token,
    pub(super) resource: Resource,
    pub(super) ends: Moment,
    /// Whether it is only kept for its token, which was knocked for.
    pub(super) claim: bool,
}

/// How many permits there are.
pub(super) struct Limit {
    pub(super) declared: u32,
    /// The number that governs.
    pub(super) effective: u32,
    /// From here on, another one may be declared.
    kept_until: Moment,
}

impl Slot {
    pub(super) fn new(resource: &Resource, now: Moment) -> Self {
        Self {
            grants: Vec::new(),
            queue: Queue::default(),
            limit: Limit::declared(resource, now),
            fencing_token: 0,
        }
    }

    /// Forgets what has ended by now.
    pub(super) fn expire(&mut self, now: Moment) {
        self.grants.retain(|grant| grant.ends > now);
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_idle(&mut self, now: Moment) -> bool {
        self.is_empty(now) && self.limit.kept_until <= now
    }

    pub(super) fn is_empty(&mut self, now: Moment) -> bool {
        self.expire(now);
        self.queue.bury(now);
        self.grants.is_empty() && self.queue.is_empty()
    }

    /// What was granted to `token`.
    pub(super) fn held_by(&mut self, token: &Token) -> Option<&mut Grant> {
        self.grants
            .iter_mut()
            .find(|grant| grant.token == *token && !grant.claim)
    }

    /// Whether another token than this has all of it.
    pub(super) fn is_taken_from(&mut self, token: &Token) -> bool {
        self.held_by(token).is_none() && self.room() == 0
    }

    /// How many permits were left to `token`.
    fn left_to(&self, token: &Token) -> u32 {
        let claim = self.grants.iter().find(|grant| grant.token == *token && grant.claim);
        claim.map_or(0, |claim| claim.resource.permits())
    }

    pub(super) fn taken(&self) -> u32 {
        let permits = self.grants.iter().map(|grant| grant.resource.permits());
        permits.fold(0, u32::saturating_add)
    }

    fn room(&self) -> u32 {
        self.limit.effective.saturating_sub(self.taken())
    }

    /// How long it takes until so many more permits are free, if nothing is renewed.
    fn room_in(&self, more: u32, now: Moment) -> Option<Duration> {
        let mut ends: Vec<_> = self
            .grants
            .iter()
            .map(|grant| (grant.ends, grant.resource.permits()))
            .collect();
        ends.sort_unstable_by_key(|(end, _)| *end);
        let mut freed = 0;
        let enough = ends.iter().find(|(_, permits)| {
            freed += permits;
            freed >= more
        });
        enough.map(|(end, _)| now.until(*end))
    }

    /// Grants what is asked for, if it is the token's already, left to it, or free and not another's by turn. Otherwise
    /// it may take a place, `fresh` if it has none. What was granted has to be drawn a fencing token for.
    pub(super) fn acquire(&mut self, ask: &Ask, fresh: u64, now: Moment) -> Result<(), Acquired> {
        let Hold { resource, token } = ask.hold;
        if self.limit.kept_until <= now {
            self.limit = Limit::declared(resource, now);
        }
        if self.held_by(token).is_none()
            && let Err(ttl) = self.take(ask, now)
        {
            let place = match ask.place {
                Some(place) => Some(self.queue.enter(token, resource, place, fresh, now)),
                None => self.queue.place_of(token),
            };
            return Err(Acquired::Busy { ttl, place });
        }
        self.queue.take_out(token);
        self.prolong(token, ask.lease, now);
        Ok(())
    }

    /// Otherwise tells when that may change.
    fn take(&mut self, ask: &Ask, now: Moment) -> Result<(), Option<Duration>> {
        let Hold { resource, token } = ask.hold;
        let left_to_it = self.left_to(token);
        // In 64 bits: more may be taken than there are, if the limit was lowered.
        let room = i64::from(self.limit.effective) - i64::from(self.taken()) + i64::from(left_to_it);
        let missing = i64::from(resource.permits()) - room;
        if missing > 0 {
            // What was left to it is too much since the limit was lowered. It is left to it anew when there is room.
            self.grants.retain(|grant| grant.token != *token);
            return Err(self.room_in(missing as u32, now));
        }
        let head = if ask.fair && left_to_it == 0 {
            self.queue.first(now)
        } else {
            None
        };
        let its_place = ask.place.and_then(|place| place.number);
        if let Some((place, head)) = head
            && head.token != *token
            && its_place.is_none_or(|own| own >= place)
        {
            return Err(Some(now.until(head.lives_until)));
        }
        self.grants.retain(|grant| grant.token != *token);
        self.grants.push(Grant {
            token: token.clone(),
            resource: resource.clone(),
            ends: now,
            claim: false,
        });
        Ok(())
    }

    /// Makes what `token` holds last at least `lease` from now, as a server would: in whole milliseconds.
    pub(super) fn prolong(&mut self, token: &Token, lease: Duration, now: Moment) {
        let end = now + Duration::from_millis(crate::store::millis_rounded_up(lease));
        if let Some(grant) = self.held_by(token) {
            grant.ends = grant.ends.max(end);
            if !grant.resource.is_exclusive() {
                self.limit.kept_until = self.limit.kept_until.max(end + KEPT);
            }
        }
    }

    /// Takes from `token` what it holds; the others are to be [served](Self::serve).
    pub(super) fn release(&mut self, token: &Token) {
        self.grants.retain(|grant| grant.token != *token || grant.claim);
    }

    /// Takes from `token` its place, and what was left to it; the others are to be [served](Self::serve).
    pub(super) fn withdraw(&mut self, token: &Token) {
        self.queue.take_out(token);
        self.grants.retain(|grant| grant.token != *token || !grant.claim);
    }

    /// Whether a living waiter other than `token` comes first.
    pub(super) fn waited_for_by_others_than(&mut self, token: &Token, now: Moment) -> bool {
        self.queue.first(now).is_some_and(|(_, first)| first.token != *token)
    }

    /// Leaves what is free to those who wait, as claims, in their order. One that needs more than there is stops the
    /// others if it is strict about its turn, and is passed over if not; so is one whom nobody hears knocked for. The
    /// next two clients whom that would serve are told when a claim is over.
    pub(super) fn serve(&mut self, inboxes: &mut Inboxes, now: Moment) {
        self.expire(now);
        self.queue.bury(now);
        let mut behind = 0;
        while self.room() > 0
            && let Some((place, waiter)) = self.queue.behind(behind)
        {
            behind = place;
            let strict = waiter.claim.is_none();
            if self.left_to(&waiter.token) > 0 {
                continue;
            }
            if waiter.resource.permits() > self.room() {
                if strict {
                    break;
                }
                continue;
            }
            let knock = |waiter: &super::queue::Waiter, after| Knock {
                hold: Hold {
                    resource: waiter.resource.clone(),
                    token: waiter.token.clone(),
                },
                after,
            };
            let claim_ends = waiter.claim_ends(now);
            if !inboxes.leave(&waiter.channel, knock(&waiter, Duration::ZERO)) && !strict {
                self.queue.take_out(&waiter.token);
                continue;
            }
            let others = self.queue.call(place, now);
            let freed_then = waiter.resource.permits();
            self.grants.push(Grant {
                token: waiter.token,
                resource: waiter.resource,
                ends: claim_ends,
                claim: true,
            });
            let mut delay = now.until(claim_ends);
            let room_then = self.room().saturating_add(freed_then);
            let served_then = others.into_iter().filter(|other| other.resource.permits() <= room_then);
            for other in served_then.take(2) {
                inboxes.leave(&other.channel, knock(&other, delay));
                delay *= 2;
            }
        }
    }

    /// Makes `limit` the one that governs; those who wait are to be [served](Self::serve).
    pub(super) fn set_limit(&mut self, resource: &Resource, limit: u32, now: Moment) {
        if self.limit.kept_until <= now {
            self.limit = Limit::declared(resource, now);
        }
        self.limit.effective = limit;
        // What was left to the last of those who wait and is too much is taken back.
        for token in self.queue.last_first() {
            if !self.is_overdrawn() {
                break;
            }
            self.grants.retain(|grant| grant.token != token || !grant.claim);
        }
        self.limit.kept_until = self.limit.kept_until.max(now + KEPT);
    }

    /// Whether others declare another limit.
    pub(super) fn declared_otherwise(&self, resource: &Resource, now: Moment) -> Option<u32> {
        let stored = self.limit.declared;
        (self.limit.kept_until > now && stored != resource.limit()).then_some(stored)
    }

    /// The limit that governs, if one is kept.
    pub(super) fn limit_at(&self, now: Moment) -> Option<u32> {
        (self.limit.kept_until > now).then_some(self.limit.effective)
    }

    /// Whether more is taken than there is.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.taken() > self.limit.effective
    }
}

impl Limit {
    /// What is declared with `resource`, for as long as nothing was granted.
    fn declared(resource: &Resource, now: Moment) -> Self {
        Self {
            declared: resource.limit(),
            effective: resource.limit(),
            kept_until: now,
        }
    }
}
