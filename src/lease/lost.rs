//! The news that a lease was lost.

use std::{fmt, sync::Arc};

use crate::{error::Source, store::Found};

/// A lease that ended before its holder released it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Lost {
    /// Why it ended.
    pub reason: LostReason,
    /// The fencing token of the grant that was lost.
    pub fencing_token: u64,
    name: Arc<[u8]>,
    cause: Option<Source>,
}

/// Why a lease ended before its holder released it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// It ran out before it was renewed: the server was away, this process was paused, or the lease is a timed one.
    Expired,
    /// The key, or the permit in it, is gone from the server: it was deleted, flushed, evicted, forced out, or lost in
    /// a restart or failover.
    Deleted,
    /// Another holder's token stands at the key.
    Taken,
    /// The grant reached its [`max_hold`](crate::Lock::max_hold).
    MaxHold,
}

impl LostReason {
    /// What it means for a holder that the server found this at its key; `None` if it is still the holder's.
    pub(crate) fn from_found(found: Found) -> Option<Self> {
        match found {
            Found::Ours => None,
            Found::Nothing => Some(Self::Deleted),
            Found::Anothers => Some(Self::Taken),
        }
    }
}

impl Lost {
    pub(crate) fn new(reason: LostReason, name: Arc<[u8]>, fencing_token: u64, cause: Option<Source>) -> Self {
        Self {
            reason,
            fencing_token,
            name,
            cause,
        }
    }

    /// The name of the lock or semaphore, as it was given to the client.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost")
            .field("reason", &self.reason)
            .field("fencing_token", &self.fencing_token)
            .field("name", &self.name.escape_ascii().to_string())
            .field("cause", &self.cause)
            .finish()
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            LostReason::Expired => "it ran out",
            LostReason::Deleted => "it is gone from the server",
            LostReason::Taken => "another holder has it",
            LostReason::MaxHold => "it reached its longest hold",
        };
        write!(f, "lost the lease of `{}` because {why}", self.name.escape_ascii())
    }
}

impl std::error::Error for Lost {
    /// Why the last renewal failed, if the lease expired over that.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as _)
    }
}
