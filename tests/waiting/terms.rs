//! What is to be taken, and how.

use std::{fmt, str::FromStr, time::Duration};

use redlatch::{Client, Error, Guard, Inspection, Lock, Semaphore, Wait};

pub use crate::support::PROMPT;
use crate::support::SECOND;

/// How often waiters look by themselves, and how long leases last, where a test is about being woken.
pub const MINUTE: Duration = SECOND.saturating_mul(60);

/// How long waits last that are to be served: longer than what is prompt, so that what comes late is told apart from
/// what never comes, and shorter than what happens without being woken.
pub const LIMIT: Duration = SECOND.saturating_mul(30);

/// The name of the lock, or semaphore, in the tests that need but one.
pub const NAME: &str = "x";

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Lock,
    Semaphore { limit: u32, permits: u32 },
}

/// A semaphore that is as good as a lock: whoever has two of three permits has them alone.
pub const PAIR: Kind = Kind::Semaphore { limit: 3, permits: 2 };

/// A semaphore that several may hold at a time.
pub const THREE: Kind = Kind::Semaphore { limit: 3, permits: 1 };

impl Kind {
    /// Where it stands on the server.
    pub fn key(self, name: &str) -> String {
        match self {
            Kind::Lock => format!("lock:{name}"),
            Kind::Semaphore { .. } => format!("semaphore:{name}"),
        }
    }

    /// Where those are listed who wait for it, in the order in which they are to be served.
    pub fn queue_key(self, name: &str) -> String {
        self.helper_key("queue", name)
    }

    pub fn helper_key(self, helper: &str, name: &str) -> String {
        let key = self.key(name);
        format!("{{{key}}}:redlatch:{helper}:{key}")
    }
}

/// A lock or a semaphore.
#[derive(Clone, Debug)]
pub enum Target {
    Lock(Lock),
    Semaphore(Semaphore),
}

impl Target {
    pub fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
        match self {
            Self::Lock(lock) => lock.acquire_with(wait),
            Self::Semaphore(semaphore) => semaphore.acquire_with(wait),
        }
    }

    pub fn acquire_timeout(&self, limit: Duration) -> Result<Guard, Error> {
        self.acquire_with(Wait::at_most(limit))
    }

    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        match self {
            Self::Lock(lock) => lock.try_acquire(),
            Self::Semaphore(semaphore) => semaphore.try_acquire(),
        }
    }

    pub fn inspect(&self) -> Result<Inspection, Error> {
        match self {
            Self::Lock(lock) => lock.inspect(),
            Self::Semaphore(semaphore) => semaphore.inspect(),
        }
    }
}

/// What is to be taken, and how. It can be said in an order to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub kind: Kind,
    pub name: String,
    pub lease: Duration,
    pub limit: Duration,
    pub fair: bool,
    pub handoffs: Option<u32>,
    /// How long it is kept by those who take it again and again.
    pub work: Duration,
}

impl Terms {
    pub fn new(kind: Kind, fair: bool) -> Self {
        Self {
            kind,
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

    /// For so many permits of the semaphore.
    pub fn permits(self, permits: u32) -> Self {
        let Kind::Semaphore { limit, .. } = self.kind else {
            panic!("a lock has no permits");
        };
        let kind = Kind::Semaphore { limit, permits };
        Self { kind, ..self }
    }

    pub fn target(&self, client: &Client) -> Target {
        let Kind::Semaphore { limit, permits } = self.kind else {
            return Target::Lock(self.lock(client));
        };
        let semaphore = client.semaphore(&self.name, limit).permits(permits);
        let semaphore = semaphore.lease(self.lease).fair(self.fair);
        Target::Semaphore(match self.handoffs {
            Some(handoffs) => semaphore.handoffs(handoffs),
            None => semaphore,
        })
    }

    /// For tests that are about locks only.
    pub fn lock(&self, client: &Client) -> Lock {
        assert_eq!(self.kind, Kind::Lock);
        let lock = client.lock(&self.name).lease(self.lease).fair(self.fair);
        match self.handoffs {
            Some(handoffs) => lock.handoffs(handoffs),
            None => lock,
        }
    }

    pub fn acquire(&self, client: &Client) -> Result<Guard, Error> {
        self.target(client).acquire_timeout(self.limit)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lease, limit, work] = [self.lease, self.limit, self.work].map(|time| time.as_millis());
        let handoffs = self.handoffs.map_or("default".into(), |handoffs| handoffs.to_string());
        let Self { kind, name, fair, .. } = self;
        write!(f, "{kind}/{name}/{lease}/{limit}/{fair}/{handoffs}/{work}")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Lock => f.write_str("lock"),
            Kind::Semaphore { limit, permits } => write!(f, "{permits}:{limit}"),
        }
    }
}

impl FromStr for Kind {
    type Err = Box<dyn std::error::Error>;

    fn from_str(said: &str) -> Result<Self, Self::Err> {
        match said.split_once(':') {
            None => Ok(Kind::Lock),
            Some((permits, limit)) => Ok(Kind::Semaphore {
                limit: limit.parse()?,
                permits: permits.parse()?,
            }),
        }
    }
}

impl FromStr for Terms {
    type Err = Box<dyn std::error::Error>;

    fn from_str(said: &str) -> Result<Self, Self::Err> {
        let [kind, name, lease, limit, fair, handoffs, work] = said.split('/').collect::<Vec<_>>()[..] else {
            return Err(said.into());
        };
        Ok(Self {
            kind: kind.parse()?,
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
