//! How a lock is to be taken.

use std::{fmt, str::FromStr, time::Duration};

use redlatch::{Client, Error, Guard, Lock};

use crate::support::SECOND;

/// How often waiters look by themselves, and how long leases last, where a test is about being woken.
pub const MINUTE: Duration = SECOND.saturating_mul(60);

/// How long anything may take on a busy machine that happens because somebody was woken.
pub const PROMPT: Duration = SECOND.saturating_mul(10);

/// How long waits last that are to be served: longer than what is prompt, so that what comes late is told apart from
/// what never comes, and shorter than what happens without being woken.
pub const LIMIT: Duration = SECOND.saturating_mul(30);

/// The name of the lock in the tests that need but one.
pub const NAME: &str = "x";

/// How a lock is to be taken. It can be said in an order to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub name: String,
    pub lease: Duration,
    pub limit: Duration,
    pub fair: bool,
    pub handoffs: Option<u32>,
    /// How long it is kept by those who take it again and again.
    pub work: Duration,
}

impl Terms {
    pub fn new(fair: bool) -> Self {
        Self {
            name: NAME.into(),
            lease: MINUTE,
            limit: LIMIT,
            fair,
            handoffs: None,
            work: Duration::ZERO,
        }
    }

    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub fn handoffs(self, handoffs: u32) -> Self {
        Self {
            handoffs: Some(handoffs),
            ..self
        }
    }

    pub fn work(self, work: Duration) -> Self {
        Self { work, ..self }
    }

    pub fn lock(&self, client: &Client) -> Lock {
        let lock = client.lock(&self.name).lease(self.lease).fair(self.fair);
        match self.handoffs {
            Some(handoffs) => lock.handoffs(handoffs),
            None => lock,
        }
    }

    pub fn acquire(&self, client: &Client) -> Result<Guard, Error> {
        self.lock(client).acquire_timeout(self.limit)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lease, limit, work] = [self.lease, self.limit, self.work].map(|time| time.as_millis());
        let handoffs = self.handoffs.map_or("default".into(), |handoffs| handoffs.to_string());
        write!(f, "{}/{lease}/{limit}/{}/{handoffs}/{work}", self.name, self.fair)
    }
}

impl FromStr for Terms {
    type Err = Box<dyn std::error::Error>;

    fn from_str(said: &str) -> Result<Self, Self::Err> {
        let [name, lease, limit, fair, handoffs, work] = said.split('/').collect::<Vec<_>>()[..] else {
            return Err(said.into());
        };
        Ok(Self {
            name: name.into(),
            lease: Duration::from_millis(lease.parse()?),
            limit: Duration::from_millis(limit.parse()?),
            fair: fair.parse()?,
            handoffs: if handoffs == "default" {
                None
            } else {
                Some(handoffs.parse()?)
            },
            work: Duration::from_millis(work.parse()?),
        })
    }
}
