//! What can go wrong, by what the caller does next.

use std::{error, fmt, io, iter, sync::Arc, time::Duration};

use crate::lease::Lost;

/// The underlying failure that an [`Error`] keeps as its [`source`](error::Error::source).
pub type Source = Arc<dyn error::Error + Send + Sync>;

/// What can go wrong, by what the caller does next.
///
/// Its `Display` is one line without the causes, which [`source`](error::Error::source) keeps. Its `Debug`, which is
/// what `unwrap` and a `main` that returns it print, has all of them, in a line. Neither contains a password.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The wait ended before the lock, or so many permits, could be had. Try later, or wait longer.
    #[error(
        "could not acquire `{}` within {waited:.1?} because {}",
        name.escape_ascii(),
        if last.is_some() { "every attempt failed or found it taken" } else { "it was taken" }
    )]
    #[non_exhaustive]
    Timeout {
        /// The name, as it was given to the client.
        name: Vec<u8>,
        /// How long the wait lasted.
        waited: Duration,
        /// The last failure met while waiting, if there was one: the server may have been away all along.
        #[source]
        last: Option<Box<Error>>,
    },

    /// The wait was ended by its [`CancelToken`](crate::CancelToken). What it may have left behind is cleaned up in the
    /// background.
    #[error("could not acquire it because the wait was cancelled")]
    Cancelled,

    /// The lease ended before its holder released it. Work done since then was not protected: undo it, or
    /// let the resource refuse it by its fencing token.
    #[error(transparent)]
    Lost(#[from] Lost),

    /// The server did not confirm the request in time, so its outcome is unknown. What it may have left behind is
    /// cleaned up in the background, and ends with the lease in any case; a mere look leaves nothing behind.
    #[error("could not confirm the outcome because the server gave no usable answer")]
    Unconfirmed(#[source] Source),

    /// Too few of the servers of a Redlock granted it, or could be asked. Nothing is held; what single servers had
    /// granted was given back. Try later; a wait goes on trying.
    #[error("could not get the agreement of a majority of the servers")]
    NoQuorum(#[source] Source),

    /// Too few replicas confirmed the grant, or the renewal, within the time that was set for them. A grant was given
    /// back. See [`replicas`](crate::Lock::replicas).
    #[error("could not have it confirmed in time by as many replicas as wanted: by {acknowledged} of {wanted}")]
    #[non_exhaustive]
    NotReplicated {
        /// How many replicas were to confirm it.
        wanted: u32,
        /// How many did.
        acknowledged: u32,
    },

    /// The key holds a value that no lock can be (not a string), or no semaphore (not a sorted set), or a helper key
    /// one that no fencing counter or limit can be. It was left as it is. Use another name or prefix.
    #[error("could not use the key `{}` because it holds something else already", key.escape_ascii())]
    #[non_exhaustive]
    KeyConflict {
        /// The key on the server.
        key: Vec<u8>,
    },

    /// Others declare another limit for the semaphore of this name. Nothing was granted or changed. Declare the same
    /// limit everywhere, and change the one that governs by [`set_limit`](crate::Semaphore::set_limit).
    #[error("could not use `{}` with {declared} permits because others declare {stored}", key.escape_ascii())]
    #[non_exhaustive]
    LimitMismatch {
        /// The key on the server.
        key: Vec<u8>,
        /// The limit that this program declares.
        declared: u32,
        /// The limit that was declared before, and is kept on the server.
        stored: u32,
    },

    /// This version, or this build, cannot do what was asked. Nothing was sent.
    #[error("unsupported: {0}")]
    Unsupported(String),

    /// An argument or setting cannot work. Nothing was sent.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),

    /// The handle was made before a `fork()`, by the parent. Open a new client in this process.
    #[error("could not use the handle because it belongs to the parent process: open a new client after fork()")]
    Forked,

    /// The server could not be reached, or no connection to it was free in time. The request was not sent; if an
    /// attempt before it was cut off, what that may have left behind is cleaned up in the background.
    #[error("could not get a connection to the server")]
    Connection(#[source] Source),

    /// The server answered with an error: it is not ready, or it does not permit the request.
    #[error("the server refused the request")]
    Server(#[source] Source),

    /// The operating system gave no thread for the background work that keeps leases alive. Nothing was sent.
    #[error("could not start a background thread")]
    Thread(#[source] io::Error),
}

impl Error {
    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::InvalidArgument(why.into())
    }

    /// What led to it, the nearest first.
    pub(crate) fn causes(&self) -> impl Iterator<Item = &(dyn error::Error + 'static)> {
        iter::successors(error::Error::source(self), |cause| cause.source())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = match self {
            Self::Timeout { .. } => "Timeout",
            Self::Cancelled => "Cancelled",
            Self::Lost(_) => "Lost",
            Self::Unconfirmed(_) => "Unconfirmed",
            Self::NoQuorum(_) => "NoQuorum",
            Self::NotReplicated { .. } => "NotReplicated",
            Self::KeyConflict { .. } => "KeyConflict",
            Self::LimitMismatch { .. } => "LimitMismatch",
            Self::Unsupported(_) => "Unsupported",
            Self::InvalidArgument(_) => "InvalidArgument",
            Self::Forked => "Forked",
            Self::Connection(_) => "Connection",
            Self::Server(_) => "Server",
            Self::Thread(_) => "Thread",
        };
        write!(f, "{variant}({self}")?;
        for cause in self.causes() {
            write!(f, ": {cause}")?;
        }
        f.write_str(")")
    }
}
