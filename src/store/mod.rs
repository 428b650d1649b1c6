//! What a grant needs from a server. Everything above this line knows no Redis.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use self::failure::{Failure, because};
use crate::{Error, Finding, Inspection, interrupt::Interrupt};

mod failure;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;

/// What can be held: a key on the server, and what stands there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    pub(crate) key: Arc<[u8]>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A string: the token of the one holder.
    Lock,
    /// A sorted set: the tokens of the holders, by the end of their leases.
    Semaphore {
        /// How many permits there are, as its users declare.
        limit: u32,
        /// How many of them one hold has.
        permits: u32,
    },
}

impl Kind {
    /// The same, for a hold of so many permits.
    pub(crate) fn with_permits(self, permits: u32) -> Self {
        match self {
            Self::Lock => Self::Lock,
            Self::Semaphore { limit, .. } => Self::Semaphore { limit, permits },
        }
    }
}

impl Resource {
    #[cfg(test)]
    pub(crate) fn lock(key: &str) -> Self {
        Self {
            key: key.as_bytes().into(),
            kind: Kind::Lock,
        }
    }

    /// How many permits a hold of it has: a lock has but one.
    pub(crate) fn permits(&self) -> u32 {
        match self.kind {
            Kind::Lock => 1,
            Kind::Semaphore { permits, .. } => permits,
        }
    }

    /// How many permits there are, as its users declare.
    pub(crate) fn limit(&self) -> u32 {
        match self.kind {
            Kind::Lock => 1,
            Kind::Semaphore { limit, .. } => limit,
        }
    }

    /// Whether a hold of it leaves nothing for anybody else.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.kind == Kind::Lock
    }
}

/// A resource and the token that proves its holder: what every request about a grant carries.
///
/// The token is drawn before the first request is sent and never used by another client, nor again after it was
/// released; so a request can be repeated when its outcome is unknown, and one that arrives late can do no harm to
/// anybody else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) resource: Resource,
    pub(crate) token: Token,
}

impl Hold {
    /// A hold of `resource` with a fresh token.
    pub(crate) fn new(resource: Resource) -> Self {
        let token = Token::draw();
        Self { resource, token }
    }
}

/// What proves a hold at its key: bytes, since other libraries may have put them there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(Arc<[u8]>);

impl Token {
    /// A UUID v4 straight from the system's random source.
    fn draw() -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        let text = uuid::Uuid::new_v4().simple().encode_lower(&mut text);
        Self(text.as_bytes().into())
    }

    /// The token of a hold that was found on the server.
    pub(crate) fn found(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text of a token that was drawn.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("drawn tokens are hex digits")
    }
}

/// One attempt to acquire.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) hold: &'a Hold,
    pub(crate) lease: Duration,
    /// How many fencing tokens to draw, in a row: one, and those for hand-overs.
    pub(crate) fencing_tokens: u32,
    /// Whether all who wait come first.
    pub(crate) fair: bool,
    /// The place to take among those who wait, if it cannot be granted.
    pub(crate) place: Option<&'a Place<'a>>,
    /// Whether an attempt before asked for a place.
    pub(crate) asked_for_place: bool,
    /// Who has to confirm the grant.
    pub(crate) replicas: Option<Replicas>,
    /// What breaks the request off, if anything may.
    pub(crate) interrupt: Option<&'a Interrupt>,
}

/// How many replicas of the server have to confirm that they have a grant or renewal too, and in what time. It comes on
/// top of that which the request itself may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

/// One attempt to acquire several locks at once, each for a token of its own.
#[derive(Clone, Copy)]
pub(crate) struct AskSeveral<'a> {
    /// In the order in which they are to be had. All of them go [together](Store::together).
    pub(crate) holds: &'a [&'a Hold],
    pub(crate) lease: Duration,
    /// Whether none is to be granted unless all are.
    pub(crate) all_or_none: bool,
    /// What breaks the request off, if anything may.
    pub(crate) interrupt: Option<&'a Interrupt>,
}

impl<'a> AskSeveral<'a> {
    /// The attempt to acquire one of them.
    fn one(&self, hold: &'a Hold) -> Ask<'a> {
        Ask {
            hold,
            lease: self.lease,
            fencing_tokens: 1,
            fair: false,
            place: None,
            asked_for_place: false,
            replicas: None,
            interrupt: self.interrupt,
        }
    }
}

/// A place among those who wait for a key.
pub(crate) struct Place<'a> {
    /// Where its owner is to be knocked for.
    pub(crate) channel: &'a Channel,
    /// How long it lasts unless it is asked for again.
    pub(crate) lasts: Duration,
    /// How long the key is kept for its owner after a knock; `None` for as long as the place lasts.
    pub(crate) claim: Option<Duration>,
    /// Which one it is, if that was told. Places are numbered in the order in which they were taken.
    pub(crate) number: Option<u64>,
    /// Others of the same client that wait for the key: their places are to last as well.
    pub(crate) companions: &'a [(Token, u64)],
}

/// Where the waiters of one client are knocked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel(pub(crate) Arc<[u8]>);

/// What a store does besides granting leases.
#[derive(Clone, Copy)]
pub(crate) struct Abilities {
    /// Whether those who wait are knocked for; where not, they look again and again.
    pub(crate) knocks: bool,
    /// Whether a lease may be handed on within a client.
    pub(crate) hand_overs: bool,
    /// Whether the token of an attempt that was not granted is good for the next one. Where it is not, the store itself
    /// takes back whatever such an attempt has left.
    pub(crate) tokens_last: bool,
    /// The longest lease that is granted here.
    pub(crate) longest_lease: Duration,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            knocks: true,
            hand_overs: true,
            tokens_last: true,
            longest_lease: Duration::MAX,
        }
    }
}

/// What a user wants of a resource that not every store has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wishes {
    /// The longest lease that is asked for.
    pub(crate) lease: Duration,
    pub(crate) fair: bool,
    pub(crate) hand_overs: bool,
    pub(crate) replicas: bool,
}

/// A server that grants leases.
///
/// Each call is one attempt, blocks for at most `timeout` (connecting included), and may be repeated with the same
/// hold: every request but `turn` is idempotent.
pub(crate) trait Store: Send + Sync {
    /// What can be had here besides leases.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Refuses what cannot be had here, before anything is sent.
    fn admit(&self, _resource: &Resource, _wishes: &Wishes) -> Result<(), Error> {
        Ok(())
    }

    /// Grants the key to the token if it is free, left to it, or its already (never shortening its TTL).
    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure>;

    /// Whether what concerns both can be asked for in one request.
    fn together(&self, _: &Resource, _: &Resource) -> bool {
        false
    }

    /// Grants those of several locks that are free, or their tokens' already, in their order up to the first that is
    /// taken; what was left to another who waits is taken. Asks for no place.
    fn acquire_several(&self, ask: &AskSeveral, timeout: Duration) -> Result<SeveralAcquired, Failure> {
        // Where nothing goes together, there is but one.
        let mut answer = SeveralAcquired::default();
        for (at, hold) in ask.holds.iter().enumerate() {
            match self.acquire(&ask.one(hold), timeout)? {
                Acquired::Granted { fencing_token } => answer.fencing_tokens.push(fencing_token),
                Acquired::Busy { .. } => {
                    answer.taken = Some(at);
                    break;
                }
            }
        }
        Ok(answer)
    }

    /// As [`renew`](Self::renew) for each of `holds`, in as few round trips as may be; an answer for each, in order.
    fn renew_several(&self, holds: &[&Hold], lease: Duration, limit: &Limit) -> Vec<Result<Found, Failure>> {
        one_after_the_other(holds, limit, |hold, timeout| self.renew(hold, lease, None, timeout))
    }

    /// As [`release`](Self::release) for each of `spent`, in as few round trips as may be; an answer for each, in
    /// order.
    fn release_several(&self, spent: &[Spent], repeated: bool, limit: &Limit) -> Vec<Result<Found, Failure>> {
        one_after_the_other(spent, limit, |spent, timeout| self.release(spent, repeated, timeout))
    }

    /// Makes the key last at least `lease` from now if it is the token's; never shortens it, never creates it.
    fn renew(
        &self,
        hold: &Hold,
        lease: Duration,
        replicas: Option<Replicas>,
        timeout: Duration,
    ) -> Result<Found, Failure>;

    /// Takes the key from the token, whose grant drew `fencing_token`, and leaves it to the next who waits. `repeated`
    /// says that the same was asked before, and not answered: what that request did counts as well, and it is a failure
    /// if nobody can tell.
    fn release(&self, spent: &Spent, repeated: bool, timeout: Duration) -> Result<Found, Failure>;

    /// As [`release`](Self::release) if somebody waits but the heir; otherwise keeps what was held for the grants that
    /// follow.
    fn turn(&self, spent: &Spent, sequel: &Sequel, timeout: Duration) -> Result<Turn, Failure>;

    /// Takes the key from the token on behalf of somebody else, so that the holder's own release finds it gone, and
    /// whatever place the token has among those who wait.
    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure>;

    /// Looks at `resource` and what belongs to it, and changes nothing.
    fn inspect(&self, resource: &Resource, timeout: Duration) -> Result<Inspection, Failure>;

    /// Makes `limit` the number of permits of the semaphore `resource`, and leaves those that this adds to those who
    /// wait.
    fn set_limit(&self, resource: &Resource, limit: u32, timeout: Duration) -> Result<(), Failure>;

    /// What hears the knocks at `channel`.
    fn listener(&self, channel: &Channel) -> Box<dyn Listener>;

    /// An audit of the keys that match the glob `pattern`.
    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor>;

    /// Which lane the background work about `resource` belongs in, at the moment: the work of one lane never waits for
    /// that of another. Lanes are numbered from 0, and there are as many as there are servers at most, and one.
    fn lane(&self, _resource: &Resource) -> usize {
        0
    }

    /// A line of its own for the background work in one lane, so that it never waits behind the callers' requests.
    fn upkeep(&self) -> Box<dyn Upkeep>;
}

/// Makes a request about each of `items`, all of them within `limit`.
fn one_after_the_other<T>(
    items: &[T],
    limit: &Limit,
    mut request: impl FnMut(&T, Duration) -> Result<Found, Failure>,
) -> Vec<Result<Found, Failure>> {
    let started = Instant::now();
    let requests = items.iter().map(|item| {
        limit.check()?;
        request(item, limit.timeout.saturating_sub(started.elapsed()))
    });
    requests.collect()
}

/// How long a request may take.
#[derive(Clone, Copy)]
pub(crate) struct Limit<'a> {
    pub(crate) timeout: Duration,
    /// Ends it before.
    pub(crate) interrupt: Option<&'a Interrupt>,
}

impl Limit<'_> {
    /// Fails once it was interrupted.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.interrupt.is_some_and(Interrupt::is_tripped) {
            return Err(Failure::NotSent(because("the wait was cancelled")));
        }
        Ok(())
    }
}

/// A grant that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Spent<'a> {
    pub(crate) hold: &'a Hold,
    pub(crate) fencing_token: u64,
}

/// What is to follow on a grant that has ended, within the same client.
#[derive(Clone, Copy)]
pub(crate) struct Sequel<'a> {
    /// How long the hold is to last from now on, at least.
    pub(crate) lease: Duration,
    /// How many fencing tokens to draw, in a row.
    pub(crate) fencing_tokens: u32,
    /// The token of the waiter that is to have it.
    pub(crate) heir: &'a Token,
    /// Whether that gives up its place among those who wait.
    pub(crate) heir_leaves: bool,
    /// Whether it is to have it although others wait.
    pub(crate) insists: bool,
}

/// Hears the knocks at one channel, on a line of its own to the server.
pub(crate) trait Listener: Send {
    /// Sees to it that knocks are heard from here on. Blocks for at most `timeout`.
    fn open(&mut self, timeout: Duration) -> Result<(), Failure>;

    /// Waits for the next knock, for at most `limit`; `None` if none came. After a failure it has to be opened again.
    fn next(&mut self, limit: Duration) -> Result<Option<Knock>, Failure>;

    /// Ends whatever it waits for, now and later, from another thread.
    fn stopper(&self) -> Box<dyn Fn() + Send + Sync>;
}

/// The news that a waiter should come for its key.
#[derive(Debug, PartialEq)]
pub(crate) struct Knock {
    pub(crate) hold: Hold,
    /// In how long. At once: the key was left to it.
    pub(crate) after: Duration,
}

/// The background work's own line to the server.
pub(crate) trait Upkeep: Send {
    /// Sends all of `chores` at once and returns an answer for each, in order. Blocks for at most `timeout`.
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>>;
}

/// Goes through keys for those that look like locks and have no TTL.
pub(crate) trait Auditor: Send {
    /// Looks through some more of the keys; `None` when it is through. Blocks for at most `timeout`; after a failure it
    /// may be called again, for the same keys.
    fn next_page(&mut self, timeout: Duration) -> Result<Option<Vec<Finding>>, Failure>;
}

/// One request of the background work.
pub(crate) enum Chore {
    /// As [`Store::renew`].
    Renew(Hold, Duration, Option<Replicas>),
    /// As [`Store::evict`].
    Evict(Hold),
    /// Takes back the token's place among those who wait, and leaves to the next one what was left to it. What it holds
    /// it keeps.
    Withdraw(Hold),
}

/// The answer to an acquire.
#[derive(Debug, PartialEq)]
pub(crate) enum Acquired {
    Granted {
        /// The first of those that were asked for.
        fencing_token: u64,
    },
    /// Somebody else holds the key, or has to have it first; that ends after `ttl`, or never.
    Busy {
        ttl: Option<Duration>,
        /// The place of the token among those who wait, if it has one.
        place: Option<u64>,
    },
}

/// The answer to an attempt to acquire several.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SeveralAcquired {
    /// Those of the ones that were granted: the first ones.
    pub(crate) fencing_tokens: Vec<u64>,
    /// Which one was found taken, if one was.
    pub(crate) taken: Option<usize>,
}

/// What became of a hold whose grant has ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn {
    /// It was kept, with fencing tokens from this one on.
    Kept { fencing_token: u64 },
    /// It went to somebody else, if it was still the token's.
    Left(Found),
}

/// What stood at the key when a renewal or release looked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found {
    Ours,
    Nothing,
    Anothers,
}

/// How long the fencing counter of a name, and the limit of a semaphore, are kept after the last lease. The server's
/// clock alone keeps tokens rising; the counter bridges a clock that was stepped back, so it has to outlive such a
/// step.
pub(crate) const KEPT: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// The whole milliseconds that a server is asked for: rounded up, so that the lease it keeps is never shorter
/// than the one counted here.
pub(crate) fn millis_rounded_up(lease: Duration) -> u64 {
    u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
