//! Three ways to keep others out of the time between the reads and the writes of a move. The rest is the same for all.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis::{Connection, RedisResult};

use crate::Failure;
use crate::moves::Move;
use crate::world::World;

#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    Watch,
    MarketLock,
    ItemLocks,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Watch, Way::MarketLock, Way::ItemLocks];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Way::Watch => "WATCH",
            Way::MarketLock => "market lock",
            Way::ItemLocks => "item locks",
        })
    }
}

/// How a trader makes sure that what it read still holds when it writes.
enum Protection {
    /// Optimistic: the server refuses the `EXEC` if a watched key was touched. Every listing and every sale touches
    /// the market.
    Watch,
    /// Nobody else moves anything meanwhile.
    MarketLock(redlatch::Lock),
    /// Nobody else moves *this item* meanwhile, and that suffices. A purchase reads the item's price and the buyer's
    /// funds:
    /// - The entry of an item on the market changes only under the lock of that item.
    /// - A buyer's funds are lowered only by that buyer's own thread, which makes one purchase at a time. Whatever
    ///   others did to them would be an addition, and a buyer who can pay now can still pay then.
    ///
    /// What it writes for others commutes with what they write at the same time: the seller's funds by `HINCRBY`, the
    /// market and the inventories by adding and removing different members. A user who buys on two machines at once
    /// would need the lock of the account too, always taken before or always after the item's.
    ItemLocks(redlatch::Client),
}

#[derive(PartialEq)]
pub enum Outcome {
    Done,
    /// There was nothing to move any more: somebody else was quicker.
    Missed,
    /// The server did not run the writes: a `WATCH` broke.
    Refused,
}

/// A lister's or buyer's access to the market: with a connection of its own and, with locks, a redlatch client of its
/// own, as if each were a program on another machine. That is what distributed locks are for.
pub struct Trader {
    name: String,
    redis: Connection,
    protection: Protection,
}

impl Trader {
    pub fn new(world: &World, way: Way, name: &str) -> Result<Self, Failure> {
        let client = || {
            redlatch::Client::builder()
                .url(world.url())
                .prefix(world.prefix())
                .build()
        };
        let protection = match way {
            Way::Watch => Protection::Watch,
            Way::MarketLock => Protection::MarketLock(client()?.lock("market")),
            Way::ItemLocks => Protection::ItemLocks(client()?),
        };
        Ok(Trader {
            name: name.to_owned(),
            redis: world.connect()?,
            protection,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn redis(&mut self) -> &mut Connection {
        &mut self.redis
    }

    /// Makes a move, however many attempts that takes, and tells how many of them were refused. With locks that is 0
    /// because nothing is watched, not because nobody counts. The outcome is `Refused` only if the session is over.
    pub fn make(&mut self, step: &impl Move, stop: &AtomicBool) -> Result<(Outcome, u64), Failure> {
        let redis = &mut self.redis;
        let mut retries = 0;
        loop {
            // `??`: the first error is the lock's (no server, lease lost), the second that of what was done under it.
            let outcome = match &self.protection {
                Protection::Watch => attempt_watched(redis, step)?,
                Protection::MarketLock(lock) => lock.with_lock(|| attempt(redis, step))??,
                Protection::ItemLocks(client) => {
                    let lock = client.lock(format!("item:{}", step.item()));
                    lock.with_lock(|| attempt(redis, step))??
                }
            };
            if outcome != Outcome::Refused {
                return Ok((outcome, retries));
            }
            retries += 1; // and at once, without a pause, as in the book
            if stop.load(Relaxed) {
                return Ok((outcome, retries));
            }
        }
    }
}

fn attempt_watched(redis: &mut Connection, step: &impl Move) -> RedisResult<Outcome> {
    redis::cmd("WATCH").arg(step.rests_on()).exec(redis)?;
    let outcome = attempt(redis, step)?;
    if outcome == Outcome::Missed {
        redis::cmd("UNWATCH").exec(redis)?; // there was no EXEC to do it
    }
    Ok(outcome)
}

fn attempt(redis: &mut Connection, step: &impl Move) -> RedisResult<Outcome> {
    if !step.is_possible(redis)? {
        return Ok(Outcome::Missed);
    }
    let executed: Option<redis::Value> = step.writes().query(redis)?;
    Ok(if executed.is_some() {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}
