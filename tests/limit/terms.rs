//! How permits are asked for, kept and given back: at random.

use std::time::Duration;

use redlatch::{Client, Error, Guard, Semaphore, Wait};

use crate::support::millis;

/// A semaphore, with the limit that everybody declares.
pub struct Name {
    pub name: &'static str,
    pub limit: u32,
}

pub const NAMES: [Name; 3] = [
    Name { name: "one", limit: 1 },
    Name {
        name: "three",
        limit: 3,
    },
    Name { name: "six", limit: 6 },
];

impl Name {
    pub fn semaphore(&self, client: &Client) -> Semaphore {
        client.semaphore(self.name, self.limit)
    }
}

/// Mostly short, since many a lease runs to its end here. Few lengths, so that holds have equal settings often enough
/// to be handed on.
const LEASES: [Duration; 6] = [
    millis(100),
    millis(100),
    millis(100),
    millis(250),
    millis(250),
    millis(2000),
];

/// What permits are extended by, if not by their lease once more.
const EXTENSION: Duration = millis(1000);

/// How long permits stay at most with a holder that does nothing about it.
pub const LONGEST: Duration = millis(2000);

/// How permits are given back.
#[derive(Clone, Copy, PartialEq)]
pub enum End {
    Release,
    Drop,
    /// They are left to the lease's end.
    Forget,
}

pub struct Terms {
    /// One of [`NAMES`].
    pub name: usize,
    pub permits: u32,
    lease: Duration,
    kind: LeaseKind,
    fair: bool,
    /// `None` to try.
    wait: Option<Duration>,
    /// How long they are kept, unless they are lost before.
    pub work: Duration,
    pub end: End,
}

enum LeaseKind {
    Renewed,
    RenewedFor(Duration),
    Timed,
}

impl Terms {
    /// Mostly what is `usual` in this process, on terms that differ in nothing that hinders hand-overs.
    pub fn random(usual: usize) -> Self {
        let ordinary = fastrand::u8(..5) < 3;
        let name = if ordinary {
            usual
        } else {
            fastrand::usize(..NAMES.len())
        };
        let lease = if ordinary { LEASES[0] } else { *one_of(&LEASES) };
        let kind = match fastrand::u8(..8) {
            _ if ordinary => LeaseKind::Renewed,
            0..2 => LeaseKind::Renewed,
            2 => LeaseKind::RenewedFor(lease * 3 / 2),
            _ => LeaseKind::Timed,
        };
        let end = match fastrand::u8(..20) {
            0 if !matches!(kind, LeaseKind::Renewed) => End::Forget,
            0..5 => End::Drop,
            _ => End::Release,
        };
        Self {
            name,
            permits: if ordinary {
                1
            } else {
                fastrand::u32(1..=NAMES[name].limit.min(3))
            },
            lease,
            kind,
            fair: !ordinary && fastrand::bool(),
            wait: wait(),
            work: if ordinary { up_to(millis(3)) } else { work(lease) },
            end,
        }
    }

    /// By how much the permits are extended now, if they are: to be asked now and then while they are held.
    pub fn extension(&self) -> Option<Duration> {
        match fastrand::u8(..12) {
            0 => Some(EXTENSION),
            1 => Some(self.lease),
            _ => None,
        }
    }

    /// Acquires permits on these terms; `None` if they could not be had.
    pub fn acquire(&self, client: &Client) -> Result<Option<Guard>, Error> {
        let semaphore = NAMES[self.name].semaphore(client).permits(self.permits).fair(self.fair);
        let semaphore = match self.kind {
            LeaseKind::Renewed => semaphore.lease(self.lease),
            LeaseKind::RenewedFor(max_hold) => semaphore.lease(self.lease).max_hold(max_hold),
            LeaseKind::Timed => semaphore.timed(self.lease),
        };
        match self.wait {
            None => semaphore.try_acquire(),
            Some(limit) => semaphore.acquire_with(Wait::at_most(limit)).map(Some),
        }
    }
}

fn wait() -> Option<Duration> {
    match fastrand::u8(..10) {
        0 => None,
        1..8 => Some(up_to(millis(300))),
        _ => Some(up_to(millis(1500))),
    }
}

/// Mostly short, or nobody would get anything; sometimes several leases.
fn work(lease: Duration) -> Duration {
    match fastrand::u8(..10) {
        0..5 => up_to(millis(2)),
        5..8 => up_to(lease),
        _ => up_to(lease * 3),
    }
}

/// A random time from nothing to `most`.
pub fn up_to(most: Duration) -> Duration {
    most.mul_f64(fastrand::f64())
}

fn one_of<T>(all: &[T]) -> &T {
    &all[fastrand::usize(..all.len())]
}
