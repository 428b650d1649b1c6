//! Why a request has no answer, by what is known of its effect.

use std::{fmt, sync::Arc};

use crate::{Error, error::Source};

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
    /// The key (the resource's or its counter's) holds something else; nothing was changed.
    KeyConflict(Vec<u8>),
    /// Too few of several servers granted it, or could be asked; what some had granted was taken back, or will have to
    /// be. Whether one of them may still run it.
    NoQuorum { source: Source, unanswered: bool },
    /// It was done, but too few replicas confirmed it in time.
    NotReplicated { wanted: u32, acknowledged: u32 },
    /// Others declare another limit for the semaphore; nothing was changed.
    LimitMismatch { key: Vec<u8>, declared: u32, stored: u32 },
}

impl Failure {
    /// Its wait was cancelled before it could be sent.
    pub(crate) fn cancelled() -> Self {
        Failure::NotSent(because("the wait was cancelled"))
    }

    /// Its time was over before it could be sent.
    pub(crate) fn too_late() -> Self {
        Failure::NotSent(because("the time was over before the request could be sent"))
    }

    /// Whether the request may have taken effect, or may still do so.
    pub(crate) fn may_have_run(&self) -> bool {
        match self {
            Failure::Unreachable(_)
            | Failure::NotSent(_)
            | Failure::Denied(_)
            | Failure::KeyConflict(_)
            | Failure::LimitMismatch { .. } => false,
            // A server error is an unknown outcome too: a script may stop at any of its calls.
            Failure::Cut(_)
            | Failure::Silent(_)
            | Failure::Unready(_)
            | Failure::Refused(_)
            | Failure::NoQuorum { .. }
            | Failure::NotReplicated { .. } => true,
        }
    }

    /// Whether the request may still run, although nobody waits for its answer any more.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self {
            Failure::Cut(_) | Failure::Silent(_) => true,
            Failure::NoQuorum { unanswered, .. } => *unanswered,
            _ => false,
        }
    }

    /// The same, of what has to come before a request, such as a log-in: whatever became of that, the request itself
    /// was not sent.
    pub(crate) fn before_the_request(self) -> Self {
        match self {
            Failure::Cut(source) => Failure::Unreachable(source),
            Failure::Silent(source) => Failure::NotSent(source),
            other => other,
        }
    }

    /// Whether repeating the request later may help.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Failure::Unreachable(_)
            | Failure::NotSent(_)
            | Failure::Cut(_)
            | Failure::Silent(_)
            | Failure::Unready(_)
            | Failure::NoQuorum { .. } => true,
            Failure::Denied(_)
            | Failure::Refused(_)
            | Failure::KeyConflict(_)
            | Failure::LimitMismatch { .. }
            | Failure::NotReplicated { .. } => false,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(source) | Failure::NotSent(source) => Error::Connection(source),
            Failure::Cut(source) | Failure::Silent(source) => Error::Unconfirmed(source),
            Failure::Denied(source) | Failure::Unready(source) | Failure::Refused(source) => Error::Server(source),
            Failure::NoQuorum { source, .. } => Error::NoQuorum(source),
            Failure::NotReplicated { wanted, acknowledged } => Error::NotReplicated { wanted, acknowledged },
            Failure::KeyConflict(key) => Error::KeyConflict { key },
            Failure::LimitMismatch { key, declared, stored } => Error::LimitMismatch { key, declared, stored },
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
