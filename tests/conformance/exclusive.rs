//! What the scenarios about locks use: a lock, or a semaphore of limit 1, which is to behave as one.

use std::{ops::Deref, time::Duration};

use redlatch::{Error, Guard, Inspection, Lost, MultiLock, Semaphore, Wait};

/// What the locks of a store are.
#[derive(Clone, Copy)]
pub enum Kind {
    Lock,
    Semaphore,
}

/// A client whose locks are of one kind.
#[derive(Clone)]
pub struct Client {
    pub client: redlatch::Client,
    pub kind: Kind,
    /// The longest lease that its store takes, if that is less than the default.
    pub longest_lease: Option<Duration>,
}

impl Client {
    /// A lock with the default lease, or the longest that its store takes.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        let lock = match self.kind {
            Kind::Lock => Lock::Lock(self.client.lock(name)),
            Kind::Semaphore => Lock::Semaphore(self.client.semaphore(name, 1)),
        };
        match self.longest_lease {
            Some(lease) => lock.lease(lease),
            None => lock,
        }
    }

    /// Several locks with the default lease, or the longest that its store takes.
    pub fn multi_lock(&self, names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> MultiLock {
        let locks = self.client.multi_lock(names);
        match self.longest_lease {
            Some(lease) => locks.lease(lease),
            None => locks,
        }
    }

    pub fn timed_lock(&self, name: impl AsRef<[u8]>, lease: Duration) -> Lock {
        match self.kind {
            Kind::Lock => Lock::Lock(self.client.timed_lock(name, lease)),
            Kind::Semaphore => Lock::Semaphore(self.client.semaphore(name, 1).timed(lease)),
        }
    }
}

impl Deref for Client {
    type Target = redlatch::Client;

    fn deref(&self) -> &redlatch::Client {
        &self.client
    }
}

#[derive(Clone, Debug)]
pub enum Lock {
    Lock(redlatch::Lock),
    Semaphore(Semaphore),
}

macro_rules! settings {
    ($($setting:ident($value:ty))*) => {
        $(pub fn $setting(self, value: $value) -> Self {
            match self {
                Self::Lock(lock) => Self::Lock(lock.$setting(value)),
                Self::Semaphore(semaphore) => Self::Semaphore(semaphore.$setting(value)),
            }
        })*
    };
}

macro_rules! calls {
    ($($call:ident($($arg:ident: $value:ty)?) -> $answer:ty)*) => {
        $(pub fn $call(&self, $($arg: $value)?) -> $answer {
            match self {
                Self::Lock(lock) => lock.$call($($arg)?),
                Self::Semaphore(semaphore) => semaphore.$call($($arg)?),
            }
        })*
    };
}

impl Lock {
    settings! {
        lease(Duration)
        max_hold(Duration)
        fair(bool)
        handoffs(u32)
        on_lost(impl Fn(&Lost) + Send + Sync + 'static)
    }

    calls! {
        acquire() -> Result<Guard, Error>
        try_acquire() -> Result<Option<Guard>, Error>
        acquire_timeout(limit: Duration) -> Result<Guard, Error>
        acquire_with(wait: Wait) -> Result<Guard, Error>
        inspect() -> Result<Inspection, Error>
        force_release() -> Result<bool, Error>
    }

    pub fn with_lock<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        match self {
            Self::Lock(lock) => lock.with_lock(work),
            Self::Semaphore(semaphore) => semaphore.with_permit(work),
        }
    }

    pub fn try_with_lock<T>(&self, work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
        match self {
            Self::Lock(lock) => lock.try_with_lock(work),
            Self::Semaphore(semaphore) => semaphore.try_with_permit(work),
        }
    }

    pub fn with_lock_wait<T>(&self, wait: Wait, work: impl FnOnce() -> T) -> Result<T, Error> {
        match self {
            Self::Lock(lock) => lock.with_lock_wait(wait, work),
            Self::Semaphore(semaphore) => semaphore.with_permit_wait(wait, work),
        }
    }
}
