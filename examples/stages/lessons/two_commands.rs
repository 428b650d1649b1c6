//! Stage 2: a lock by `SETNX` and then `EXPIRE`, where whoever finds a lock without a timeout sets one. A crash between
//! the two commands leaves a lock without a timeout, until somebody happens to come by.

use std::{
    thread,
    time::{Duration, Instant},
};

use redis::{Commands, Connection, RedisResult};

use super::{
    Failure, World, no_timeout,
    victim::{Victim, wait_to_be_killed},
    world::time_left,
};

/// The timeout by hand, and the lease with redlatch.
pub const TIMEOUT: Duration = no_timeout::LEASE;
/// As `EXPIRE` has it.
const TIMEOUT_SECONDS: i64 = TIMEOUT.as_secs() as i64;

/// How long nobody wants the lock after the crash.
pub const NOBODY_TRIES: Duration = TIMEOUT.saturating_mul(2);

const PAUSE: Duration = Duration::from_millis(10);

/// The timeout in the second scene: long, lest the scene last longer on a slow machine.
const LONG_TIMEOUT_SECONDS: i64 = 60;
const LONG_TIMEOUT: Duration = Duration::from_secs(LONG_TIMEOUT_SECONDS as u64);

/// How much of it has passed when the late repair comes.
const WORKED: Duration = Duration::from_millis(500);

/// The role of the process that is killed between the two commands.
pub const BY_HAND: &str = "holder by SETNX before its EXPIRE";

pub struct Outcome {
    pub by_hand: ByHand,
    pub with_redlatch: WithRedlatch,
}

pub struct ByHand {
    /// Whether the lock came free while nobody tried to get it.
    pub freed_by_itself: Option<Duration>,
    /// How long the first one that tries has to wait all the same.
    pub waited_then: Duration,
    pub late_repair: Repair,
}

pub struct WithRedlatch {
    /// How long after the crash the lock was free, though nobody tried to get it.
    pub freed_by_itself: Option<Duration>,
    pub late_try: Repair,
}

/// How long a lock was to last before another client tried to get it, and after.
pub struct Repair {
    pub before: Duration,
    pub after: Duration,
}

impl Repair {
    pub fn has_prolonged(&self) -> bool {
        self.after > self.before
    }
}

/// What NOT to do.
mod by_hand {
    use redis::{Commands, Connection, RedisResult};

    pub fn acquire(redis: &mut Connection, lock: &str, who: &str, seconds: i64) -> RedisResult<bool> {
        if take(redis, lock, who)? {
            // A crash here leaves the lock without a timeout.
            set_timeout(redis, lock, seconds)?;
            return Ok(true);
        }
        if lacks_timeout(redis, lock)? {
            // The repair: somebody must have crashed there. Or is slow, and has even released the lock by now.
            set_timeout(redis, lock, seconds)?;
        }
        Ok(false)
    }

    pub fn take(redis: &mut Connection, lock: &str, who: &str) -> RedisResult<bool> {
        redis.set_nx(lock, who)
    }

    pub fn lacks_timeout(redis: &mut Connection, lock: &str) -> RedisResult<bool> {
        let seconds: i64 = redis.ttl(lock)?;
        Ok(seconds == -1)
    }

    pub fn set_timeout(redis: &mut Connection, lock: &str, seconds: i64) -> RedisResult<()> {
        redis.expire(lock, seconds)
    }

    pub fn release(redis: &mut Connection, lock: &str) -> RedisResult<()> {
        redis.del(lock)
    }
}

pub fn run(world: &World) -> Result<Outcome, Failure> {
    world.stage(
        2,
        "a lock by SETNX, then EXPIRE; whoever finds a lock without a TTL sets one",
        "a crash between the two commands",
    );
    world.by_hand();
    let (freed_by_itself, waited_then) = crash_between_the_commands(world)?;
    let by_hand = ByHand {
        freed_by_itself,
        waited_then,
        late_repair: repair_too_late(world)?,
    };
    world.with_redlatch();
    let with_redlatch = WithRedlatch {
        freed_by_itself: crash_with_redlatch(world)?,
        late_try: try_with_redlatch(world)?,
    };
    Ok(Outcome { by_hand, with_redlatch })
}

pub fn take_half_by_hand(world: &World) -> Result<(), Failure> {
    let (mut redis, lock) = (world.connect()?, world.key("invoice"));
    if !by_hand::take(&mut redis, &lock, "A")? {
        return Err("the lock is taken already".into());
    }
    wait_to_be_killed()?;
    by_hand::set_timeout(&mut redis, &lock, TIMEOUT_SECONDS)?;
    Ok(by_hand::release(&mut redis, &lock)?)
}

fn crash_between_the_commands(world: &World) -> Result<(Option<Duration>, Duration), Failure> {
    let (mut redis, lock) = (world.connect()?, world.key("invoice"));
    let holder = Victim::start(world, BY_HAND)?;
    world.did(format_args!(
        "A, process {}: SETNX invoice A -> 1. Next would be: EXPIRE invoice {TIMEOUT_SECONDS}",
        holder.id()
    ));
    let crash = Instant::now();
    holder.kill()?;
    world.did("A is killed (SIGKILL) before it sends the EXPIRE");

    let freed_by_itself = look_until_free(&mut redis, &lock, crash)?;
    world.did(format_args!(
        "for {NOBODY_TRIES:?}, twice the timeout, nobody wants the lock"
    ));
    world.server_holds(world.describe(&mut redis, "invoice")?);

    let start = Instant::now();
    acquire_after_repair(world, &mut redis, &lock)?;
    let waited_then = start.elapsed();
    world.did(format_args!(
        "B has the lock {waited_then:.2?} after it first tried, {:.2?} after the crash",
        crash.elapsed()
    ));
    if freed_by_itself.is_none() {
        world.wrong("a lock with a timeout stayed taken until somebody happened to try, and a full timeout longer.");
        world.because(
            "SETNX and EXPIRE are two commands, and a crash can come between any two. The repair hides that it has:
             the timeout counts from when the lock is missed, not from when its holder was last heard of.",
        );
    }
    by_hand::release(&mut redis, &lock)?;
    Ok((freed_by_itself, waited_then))
}

fn acquire_after_repair(world: &World, redis: &mut Connection, lock: &str) -> RedisResult<()> {
    if by_hand::acquire(redis, lock, "B", TIMEOUT_SECONDS)? {
        return Ok(());
    }
    world.did(format_args!(
        "B comes by: SETNX -> 0, TTL -> none, so it repairs that: EXPIRE invoice {TIMEOUT_SECONDS}"
    ));
    world.server_holds(world.describe(redis, "invoice")?);
    while !by_hand::acquire(redis, lock, "B", TIMEOUT_SECONDS)? {
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Step by step what may happen at any time: B is slow between its look and its repair.
fn repair_too_late(world: &World) -> Result<Repair, Failure> {
    let (mut redis, lock) = (world.connect()?, world.key("payout"));
    let seconds = LONG_TIMEOUT_SECONDS;

    world.did("nor is the repair harmless. A, alive: SETNX payout A -> 1");
    by_hand::take(&mut redis, &lock, "A")?;
    let b_will_repair = !by_hand::take(&mut redis, &lock, "B")? && by_hand::lacks_timeout(&mut redis, &lock)?;
    world.did("B: SETNX payout B -> 0, TTL -> none. It decides to repair that, and is slow");
    by_hand::set_timeout(&mut redis, &lock, seconds)?;
    by_hand::release(&mut redis, &lock)?;
    world.did(format_args!(
        "A: EXPIRE payout {seconds}; it works, and is done: DEL payout"
    ));
    by_hand::acquire(&mut redis, &lock, "C", seconds)?;
    world.did(format_args!(
        "C: SETNX payout C -> 1, EXPIRE payout {seconds}; it works for a while"
    ));

    let before = wait_until_left(&mut redis, &lock, LONG_TIMEOUT - WORKED)?;
    world.server_holds(world.describe(&mut redis, "payout")?);
    if b_will_repair {
        by_hand::set_timeout(&mut redis, &lock, seconds)?;
    }
    let after = time_left(&mut redis, &lock)?.ok_or("the lock of C is gone")?;
    world.did(format_args!("B is through: EXPIRE payout {seconds}"));
    world.server_holds(world.describe(&mut redis, "payout")?);
    let repair = Repair { before, after };
    if repair.has_prolonged() {
        world.wrong("B, which has nothing, has prolonged the lock of C, which has done nothing wrong.");
        world.because(
            "Should C crash now, its lock lasts longer than C ever asked for. With a shorter timeout than C's, B would
             have shortened it, and C would lose the lock in the middle of its work.",
        );
    }
    Ok(repair)
}

fn crash_with_redlatch(world: &World) -> Result<Option<Duration>, Failure> {
    let lock = world.client()?.lock("report").lease(TIMEOUT);
    let holder = Victim::start(world, no_timeout::WITH_REDLATCH)?;
    world.did(format_args!(
        "A, process {}, acquires the lock with a lease of {TIMEOUT:?}: one script, which either ran or did not",
        holder.id()
    ));
    world.server_holds(lock.inspect()?);
    let crash = Instant::now();
    holder.kill()?;
    world.did("A is killed (SIGKILL) as soon as it has the lock");
    let freed_by_itself = look_until_free(&mut world.connect()?, &world.lock_key("report"), crash)?;
    world.did(format_args!("for {NOBODY_TRIES:?} nobody wants the lock"));
    world.server_holds(lock.inspect()?);
    if let Some(freed) = freed_by_itself {
        world.right(format_args!(
            "the lock was free {freed:.2?} after the crash, whether anybody tried or not."
        ));
    }
    Ok(freed_by_itself)
}

fn try_with_redlatch(world: &World) -> Result<Repair, Failure> {
    let (mut redis, key) = (world.connect()?, world.lock_key("payout"));
    let guard = world.client()?.timed_lock("payout", LONG_TIMEOUT).acquire()?;
    world.did(format_args!(
        "C acquires a lock with a lease of {LONG_TIMEOUT:?}; it works for a while"
    ));

    let before = wait_until_left(&mut redis, &key, LONG_TIMEOUT - WORKED)?;
    world.server_holds(format_args!("lock:payout for another {before:?}"));
    let taken = world.client()?.lock("payout").try_acquire()?.is_none();
    let after = time_left(&mut redis, &key)?.ok_or("the lock of C is gone")?;
    world.did(format_args!(
        "B tries to acquire it -> {}",
        if taken { "taken" } else { "acquired" }
    ));
    world.server_holds(format_args!("lock:payout for another {after:?}"));
    guard.release()?;
    let late_try = Repair { before, after };
    if taken && !late_try.has_prolonged() {
        world.right("only the holder ever changes how long a lock lasts.");
    }
    Ok(late_try)
}

/// Only looks at the key, which is no attempt to get the lock. How long after the crash it was gone, if it ever was.
fn look_until_free(redis: &mut Connection, lock: &str, crash: Instant) -> RedisResult<Option<Duration>> {
    let mut freed = None;
    while crash.elapsed() < NOBODY_TRIES {
        if freed.is_none() && !redis.exists::<_, bool>(lock)? {
            freed = Some(crash.elapsed());
        }
        thread::sleep(PAUSE);
    }
    Ok(freed)
}

/// Returns what is left then: so much or a little less.
fn wait_until_left(redis: &mut Connection, lock: &str, at_most: Duration) -> Result<Duration, Failure> {
    loop {
        let left = time_left(redis, lock)?.ok_or("a key was to have a TTL")?;
        if left <= at_most {
            return Ok(left);
        }
        thread::sleep(PAUSE);
    }
}
