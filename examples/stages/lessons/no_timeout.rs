//! Stage 1: a lock by `SETNX` without a timeout. A crashed holder never gives it back.

use std::{
    thread,
    time::{Duration, Instant},
};

use redis::{Connection, RedisResult};

use super::{
    Failure, World,
    victim::{Victim, wait_to_be_killed},
    world::time_left,
};

/// How long somebody tries to get the lock by hand, and how often.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// The lease with redlatch: what a crash costs the others.
pub const LEASE: Duration = Duration::from_secs(1);

/// The roles of processes that are killed.
pub const BY_HAND: &str = "holder by SETNX";
pub const WITH_REDLATCH: &str = "holder with redlatch";

pub struct Outcome {
    pub by_hand: ByHand,
    pub with_redlatch: WithRedlatch,
}

pub struct ByHand {
    /// Whether the crashed holder's key would ever end by itself.
    pub has_ttl: bool,
    pub tries: u32,
    pub acquired: bool,
}

pub struct WithRedlatch {
    /// How long after the crash somebody else had the lock.
    pub acquired_after: Duration,
}

/// What NOT to do.
mod by_hand {
    use redis::{Commands, Connection, RedisResult};

    pub fn acquire(redis: &mut Connection, lock: &str, who: &str) -> RedisResult<bool> {
        redis.set_nx(lock, who)
    }

    /// If the holder does not come to this, nobody frees the lock.
    pub fn release(redis: &mut Connection, lock: &str) -> RedisResult<()> {
        redis.del(lock)
    }
}

pub fn run(world: &World) -> Result<Outcome, Failure> {
    world.stage(
        1,
        "a lock by SETNX, without a timeout",
        "a holder that crashes keeps it for ever",
    );
    Ok(Outcome {
        by_hand: fail_by_hand(world)?,
        with_redlatch: succeed_with_redlatch(world)?,
    })
}

pub fn hold_by_hand(world: &World) -> Result<(), Failure> {
    let (mut redis, lock) = (world.connect()?, world.key("report"));
    if !by_hand::acquire(&mut redis, &lock, "A")? {
        return Err("the lock is taken already".into());
    }
    wait_to_be_killed()?;
    Ok(by_hand::release(&mut redis, &lock)?)
}

pub fn hold_with_redlatch(world: &World) -> Result<(), Failure> {
    let guard = world.client()?.lock("report").lease(LEASE).acquire()?;
    wait_to_be_killed()?;
    Ok(guard.release()?)
}

fn fail_by_hand(world: &World) -> Result<ByHand, Failure> {
    world.by_hand();
    let (mut redis, lock) = (world.connect()?, world.key("report"));

    let holder = Victim::start(world, BY_HAND)?;
    world.did(format_args!(
        "A, process {}, asks for the lock: SETNX report A -> 1, so it has it",
        holder.id()
    ));
    holder.kill()?;
    world.did("A is killed (SIGKILL). It will never come to its DEL report");
    let has_ttl = time_left(&mut redis, &lock)?.is_some();
    world.server_holds(world.describe(&mut redis, "report")?);

    let (tries, acquired) = try_by_hand(&mut redis, &lock)?;
    world.did(format_args!(
        "B tries for {PATIENCE:?}, every {PAUSE:?}: SETNX report B -> {}, {tries} times",
        u8::from(acquired)
    ));
    if !acquired {
        world.wrong("nobody has the lock, and nobody will ever get it until a human deletes the key.");
        world.because(
            "Only the holder's DEL frees the lock, and a key without a TTL outlives whoever wrote it. To wait longer
             does not help: nothing is going to happen.",
        );
    }
    Ok(ByHand {
        has_ttl,
        tries,
        acquired,
    })
}

/// How often it tried, and whether it has the lock.
fn try_by_hand(redis: &mut Connection, lock: &str) -> RedisResult<(u32, bool)> {
    let (mut tries, mut acquired) = (0, false);
    let start = Instant::now();
    while !acquired && start.elapsed() < PATIENCE {
        acquired = by_hand::acquire(redis, lock, "B")?;
        tries += 1;
        thread::sleep(PAUSE);
    }
    Ok((tries, acquired))
}

fn succeed_with_redlatch(world: &World) -> Result<WithRedlatch, Failure> {
    world.with_redlatch();
    let lock = world.client()?.lock("report").lease(LEASE);

    let holder = Victim::start(world, WITH_REDLATCH)?;
    world.did(format_args!(
        "A, process {}, acquires the lock with a lease of {LEASE:?}, renewed in the background as long as A lives",
        holder.id()
    ));
    world.server_holds(lock.inspect()?);
    let crash = Instant::now();
    holder.kill()?;
    world.did("A is killed (SIGKILL): nobody renews the lease any more");
    let guard = lock.acquire_timeout(LEASE * 20)?;
    let acquired_after = crash.elapsed();
    guard.release()?;
    world.did(format_args!(
        "B waits, and has the lock {acquired_after:.2?} after the crash"
    ));
    world.right("a crash costs the others one lease, and nobody has to do anything about it.");
    world.because("The key and its TTL are written in one step, so there is never one without the other.");
    Ok(WithRedlatch { acquired_after })
}
