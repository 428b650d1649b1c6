//! A waiter's place at the server: taken when it first has to wait, kept as long as it does.

use std::{mem, sync::Arc, time::Duration};

use super::{
    Bell, LONGEST_PAUSE, Ring,
    knocks::{Expectation, Shared},
};
use crate::{
    clock::Moment,
    lease::{Doubt, Terms},
    mistakes::{Mistake, makes},
    store::{Channel, Hold, Place, Token},
};

/// How long the key is kept for a waiter that was knocked for: several round trips, and time to wake up on a busy
/// machine. Twice as long after each time that it came too late, up to the time that its place lasts; so it is
/// overtaken a few times at most.
const SHORTEST_CLAIM: Duration = Duration::from_millis(50);
const LONGEST_FIRST_CLAIM: Duration = Duration::from_millis(200);
const ROUND_TRIPS_A_CLAIM: u32 = 4;

/// How long the place of a waiter lasts that hears no knock: it looks several times meanwhile.
const UNHEARD_PLACE_LASTS: Duration = LONGEST_PAUSE.saturating_mul(5);

/// What one waiter has at the server while it waits: its token, and a place once it has asked for one. Another thread
/// of the client may [take it over](Self::take_over). What is left of it when it goes is cleaned up in the background,
/// unless it was [granted](Self::note_granted): no attempt with its token follows then.
pub(super) struct Registration {
    knocks: Arc<Shared>,
    hold: Hold,
    /// How long a lease is asked for.
    lease: Duration,
    /// What is not known about the attempts that were made with the token.
    doubt: Doubt,
    granted: bool,
    /// Whether it keeps to its turn.
    fair: bool,
    /// Rung by a knock.
    bell: Arc<Bell>,
    /// Present once it has asked for a place.
    expectation: Option<Expectation>,
    number: Option<u64>,
    /// How long the last answer took.
    round_trip: Duration,
    /// How often the key was left to it, and it came too late.
    missed_claims: u32,
    next_look: Moment,
}

/// What an attempt says of the waiter's place.
#[derive(Default)]
pub(super) struct Request {
    /// Whether it asks for a place, or to keep it.
    pub(super) asks: bool,
    /// Whether an attempt before did.
    pub(super) asked_before: bool,
    /// Whether a knock would reach the waiter.
    pub(super) heard: bool,
    /// Others of this client whose places are to be kept as well.
    pub(super) companions: Vec<(Token, u64)>,
}

impl Registration {
    /// That of a waiter who has not asked for anything yet.
    pub(super) fn new(knocks: &Arc<Shared>, hold: Hold, terms: &Terms, bell: &Arc<Bell>, now: Moment) -> Self {
        Self {
            knocks: knocks.clone(),
            hold,
            lease: terms.first_length(),
            doubt: Doubt::default(),
            granted: false,
            fair: terms.fair,
            bell: bell.clone(),
            expectation: None,
            number: None,
            round_trip: Duration::ZERO,
            missed_claims: 0,
            next_look: now,
        }
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(super) fn channel(&self) -> &Channel {
        self.knocks.channel()
    }

    pub(super) fn doubt(&self) -> Doubt {
        self.doubt
    }

    pub(super) fn doubt_mut(&mut self) -> &mut Doubt {
        &mut self.doubt
    }

    /// Whether nothing was asked for yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.expectation.is_none() && self.is_clean()
    }

    /// Whether nothing of it can stand at the server.
    fn is_clean(&self) -> bool {
        self.number.is_none() && !self.doubt.may_stand()
    }

    /// Whether it has a place that is worth to be taken over.
    pub(super) fn has_place(&self) -> bool {
        self.number.is_some()
    }

    /// Goes on with a fresh token. What may be left of the former one is cleaned up in the background.
    pub(super) fn draw_anew(&mut self) {
        if !self.is_clean() {
            self.knocks.clean_up(&self.hold, self.doubt, self.lease);
        }
        self.hold = Hold::new(self.hold.resource.clone());
        self.doubt = Doubt::default();
    }

    /// Puts what another waiter of the client had at the server in the place of this, which has asked for nothing yet.
    /// Knocks for that one ring for this one from now on.
    pub(super) fn take_over(&mut self, mut former: Self) {
        if let Some(expectation) = &former.expectation {
            expectation.rebind(&self.bell);
        }
        former.lease = former.lease.max(self.lease);
        mem::swap(&mut self.bell, &mut former.bell);
        mem::swap(self, &mut former);
    }

    /// Takes in that its place is gone.
    pub(super) fn note_withdrawn(&mut self) {
        self.number = None;
    }

    /// Has whoever takes it over ask at once, because of `ring`.
    pub(super) fn ring_for_successor(&self, ring: Ring) {
        self.bell.ring(ring);
    }

    /// What the next attempt is to say. One in a `hurry`, since the key was left to it, does not look after others.
    pub(super) fn request(&mut self, looked_before: bool, hurry: bool) -> Request {
        let knocks = &self.knocks;
        // Without anybody who hears a knock a place is good for little, and the first time the key may well be free.
        // But one that keeps to its turn needs a place in any case.
        let asks = knocks.are_heard() || self.fair || looked_before;
        let asked_before = self.expectation.is_some();
        if asks && !asked_before && !makes(Mistake::ExpectsAfterAsking) {
            self.expectation = Some(knocks.expect(&self.hold, &self.bell));
        }
        let companions = match &self.expectation {
            Some(expectation) if !hurry => expectation.companions(),
            _ => Vec::new(),
        };
        Request {
            asks,
            asked_before,
            // Looked at now that the bell is rung should that change.
            heard: asks && knocks.are_heard(),
            companions,
        }
    }

    /// The place to ask for.
    pub(super) fn place<'b>(&self, request: &'b Request, channel: &'b Channel) -> Place<'b> {
        let long = request.heard || self.fair;
        Place {
            channel,
            lasts: if long {
                self.knocks.place_lasts()
            } else {
                UNHEARD_PLACE_LASTS.max(self.round_trip * ROUND_TRIPS_A_CLAIM)
            },
            claim: (request.heard && !self.fair).then(|| self.claim()),
            number: self.number,
            companions: &request.companions,
        }
    }

    fn claim(&self) -> Duration {
        let several = self.round_trip * ROUND_TRIPS_A_CLAIM;
        let first = several.clamp(SHORTEST_CLAIM, LONGEST_FIRST_CLAIM);
        first * 2_u32.saturating_pow(self.missed_claims.min(10))
    }

    /// Takes in that the server was asked with `request`, and whether it has answered that the key is taken.
    pub(super) fn note_request(&mut self, request: &Request, busy: bool) {
        if request.asks && makes(Mistake::ExpectsAfterAsking) {
            let expect = || self.knocks.expect(&self.hold, &self.bell);
            self.expectation.get_or_insert_with(expect);
        }
        if let Some(expectation) = &self.expectation
            && !request.companions.is_empty()
        {
            if busy {
                expectation.note_spoken_for();
            }
            expectation.let_go_of_the_departed(&request.companions);
        }
    }

    /// Takes in that the key is taken, and which place the waiter has. `knocked` says that it had been left to it.
    pub(super) fn note_busy(&mut self, place: Option<u64>, round_trip: Duration, knocked: bool) {
        self.round_trip = round_trip;
        self.missed_claims += u32::from(knocked);
        self.number = place.or(self.number);
        if let Some(expectation) = &self.expectation
            && self.fair
        {
            expectation.note_place(self.number);
        }
    }

    /// Takes in that the waiter has the key. For those of this client who wait behind it at the server: if nobody had
    /// called it, it may be that nobody will call them.
    pub(super) fn note_granted(&mut self, knocked: bool, now: Moment) {
        self.granted = true;
        if let Some(expectation) = &self.expectation {
            let lapse = self.knocks.poll_interval().min(just_after(self.lease));
            expectation.note_next_look(if knocked { now + lapse } else { now });
        }
    }

    /// When to look again if no knock is heard: when the key should be free, and after an `interval`, since others may
    /// have freed it without a knock. That also keeps the place. Those whose place another one keeps do not look.
    pub(super) fn look_after(&mut self, interval: Duration, free_in: Option<Duration>, now: Moment) -> Moment {
        self.next_look = now + free_in.map_or(interval, |ttl| interval.min(just_after(ttl)));
        if let Some(expectation) = &self.expectation {
            expectation.note_next_look(self.next_look);
            if expectation.is_kept_by_another() {
                return Moment::NEVER;
            }
        }
        self.next_look
    }

    /// When it is going to look by itself.
    pub(super) fn next_look(&self) -> Moment {
        self.next_look
    }

    /// When it has to look to keep its place, if it has one.
    pub(super) fn keep_by(&self) -> Moment {
        self.number.map_or(Moment::NEVER, |_| self.next_look)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Nobody expects a knock for it from here on: whoever still speaks for it looks whether it has gone.
        self.expectation = None;
        if !self.granted && !self.is_clean() {
            self.knocks.clean_up(&self.hold, self.doubt, self.lease);
        }
    }
}

/// When what has so much time to live has gone: a server tells whole milliseconds, rounded up or down as it likes.
pub(super) fn just_after(ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1)
}
