//! What a grant needs from a server. Everything above this line knows no Redis.

use std::{fmt, sync::Arc, time::Duration};

use crate::{Error, Finding, Inspection, error::Source};

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod memory;
pub(crate) mod redis;

/// A key and the token that proves its owner: what every request about a grant carries.
///
/// The token is drawn before the first request is sent and never used for another grant, so a request can be
/// repeated when its outcome is unknown, and one that arrives late can do no harm to anybody else.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) key: Arc<[u8]>,
    pub(crate) token: Token,
}

impl Hold {
    /// A hold on `key` with a fresh token.
    pub(crate) fn new(key: Arc<[u8]>) -> Self {
        let token = Token::draw();
        Self { key, token }
    }
}

/// What stands at the key of a lock: bytes, since other libraries may have put them there.
#[derive(Clone, Debug, PartialEq)]
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

/// A server that grants leases.
///
/// Each call is one attempt, blocks for at most `timeout` (connecting included), and may be repeated with the same
/// hold: every request is idempotent.
pub(crate) trait Store: Send + Sync {
    /// Grants the key to the token for `lease` if it is free or already the token's (never shortening its TTL).
    fn acquire(&self, hold: &Hold, lease: Duration, timeout: Duration) -> Result<Acquired, Failure>;

    /// Makes the key last at least `lease` from now if it is the token's; never shortens it, never creates it.
    fn renew(&self, hold: &Hold, lease: Duration, timeout: Duration) -> Result<Found, Failure>;

    /// Deletes the key if it is the token's, whose grant drew `fencing_token`. `repeated` says that the same was asked
    /// before, and not answered: what that request did counts as well, and it is a failure if nobody can tell.
    fn release(&self, hold: &Hold, fencing_token: u64, repeated: bool, timeout: Duration) -> Result<Found, Failure>;

    /// Deletes the key if it is the token's, on behalf of somebody else: the holder's own release finds it gone.
    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure>;

    /// Looks at `key` and what belongs to it, and changes nothing.
    fn inspect(&self, key: &[u8], timeout: Duration) -> Result<Inspection, Failure>;

    /// An audit of the keys that match the glob `pattern`.
    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor>;

    /// A line of its own for the background work, so that it never waits behind the callers' requests.
    fn upkeep(&self) -> Box<dyn Upkeep>;
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
    Renew(Hold, Duration),
    /// As [`Store::evict`].
    Release(Hold),
}

/// The answer to an acquire.
#[derive(Debug, PartialEq)]
pub(crate) enum Acquired {
    Granted {
        fencing_token: u64,
    },
    /// Somebody else holds the key; it expires after `ttl`, or never.
    Busy {
        ttl: Option<Duration>,
    },
}

/// What stood at the key when a renewal or release looked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found {
    Ours,
    Nothing,
    Anothers,
}

/// Why there is no answer, by what is known of the request's effect.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server could not be reached; nothing was sent.
    Unreachable(Source),
    /// The time was over before anything could be sent: all connections were in use by other requests, or the log-in
    /// stayed unanswered.
    NotSent(Source),
    /// The server did not let us in (a wrong password, no such database), or does not let us make the request at all.
    /// Nothing ran.
    Denied(Source),
    /// The request was sent, and the connection broke or spoke nonsense: it may have run, and may still run later.
    Cut(Source),
    /// The server was reached, and said nothing until the time was over: it may have run, and may still run later.
    Silent(Source),
    /// The server answered with an error that passes by itself, such as LOADING.
    Unready(Source),
    /// The server answered with an error that will stay, such as a missing permission.
    Refused(Source),
    /// The key (the lock's or its counter's) holds something else; nothing was changed.
    KeyConflict(Vec<u8>),
}

impl Failure {
    /// Whether the request may have taken effect, or may still do so.
    pub(crate) fn may_have_run(&self) -> bool {
        match self {
            Failure::Unreachable(_) | Failure::NotSent(_) | Failure::Denied(_) | Failure::KeyConflict(_) => false,
            // A server error is an unknown outcome too: a script may stop at any of its calls.
            Failure::Cut(_) | Failure::Silent(_) | Failure::Unready(_) | Failure::Refused(_) => true,
        }
    }

    /// Whether the request may still run, although nobody waits for its answer any more.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Failure::Cut(_) | Failure::Silent(_))
    }

    /// Whether repeating the request later may help.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Failure::Unreachable(_)
            | Failure::NotSent(_)
            | Failure::Cut(_)
            | Failure::Silent(_)
            | Failure::Unready(_) => true,
            Failure::Denied(_) | Failure::Refused(_) | Failure::KeyConflict(_) => false,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(source) | Failure::NotSent(source) => Error::Connection(source),
            Failure::Cut(source) | Failure::Silent(source) => Error::Unconfirmed(source),
            Failure::Denied(source) | Failure::Unready(source) | Failure::Refused(source) => Error::Server(source),
            Failure::KeyConflict(key) => Error::KeyConflict { key },
        }
    }
}

/// A failure that redlatch itself found.
#[derive(Debug)]
struct Because(String);

/// The [`Source`] for a failure that redlatch itself found.
pub(crate) fn because(why: impl Into<String>) -> Source {
    Arc::new(Because(why.into()))
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Because {}

/// The whole milliseconds that a server is asked for: rounded up, so that the lease it keeps is never shorter
/// than the one counted here.
pub(crate) fn millis_rounded_up(lease: Duration) -> u64 {
    u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
