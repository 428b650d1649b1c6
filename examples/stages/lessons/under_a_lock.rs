//! Stage 5: the fair semaphore of stage 4, with a lock around it (Josiah Carlson, *Redis in Action*, section 6.3.5). It
//! is right; this is what it costs.

use std::time::SystemTime;

use redis::Connection;

use super::{
    Failure, World,
    cost::{Cost, Counted},
    counter_race::{by_hand as fair, ranks},
    monitor::Monitor,
    world,
};

pub const LIMIT: u32 = 3;

pub struct Outcome {
    pub by_hand: Found,
    pub with_redlatch: Found,
}

pub struct Found {
    /// How many have a slot at the end of the race that broke stage 4.
    pub holders: usize,
    pub acquire: Cost,
    pub release: Cost,
}

/// Not wrong any more, but costly.
mod by_hand {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use redis::{ConnectionLike, RedisResult};

    use super::fair;

    const LOCK_TIMEOUT_MILLIS: u64 = 10_000;

    /// How long a client tries to get the lock, and how often.
    const PATIENCE: Duration = Duration::from_millis(10);
    const PAUSE: Duration = Duration::from_millis(1);

    /// Also false if the lock could not be had, though a slot may be free.
    pub fn acquire(redis: &mut impl ConnectionLike, slots: &str, limit: u32, who: &str) -> RedisResult<bool> {
        if !lock(redis, slots, who)? {
            return Ok(false);
        }
        let has_slot = fair::acquire(redis, slots, limit, who);
        unlock(redis, slots, who)?;
        has_slot
    }

    pub fn lock(redis: &mut impl ConnectionLike, slots: &str, who: &str) -> RedisResult<bool> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut set = redis::cmd("SET");
            set.arg(key(slots))
                .arg(who)
                .arg("NX")
                .arg("PX")
                .arg(LOCK_TIMEOUT_MILLIS);
            if set.query::<Option<String>>(redis)?.is_some() {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Deletes the lock if it is still this client's, which nobody may change in between: hence the `WATCH`.
    pub fn unlock(redis: &mut impl ConnectionLike, slots: &str, who: &str) -> RedisResult<()> {
        redis::cmd("WATCH").arg(key(slots)).exec(redis)?;
        let holder: Option<String> = redis::cmd("GET").arg(key(slots)).query(redis)?;
        if holder.as_deref() != Some(who) {
            return redis::cmd("UNWATCH").exec(redis);
        }
        // If it is not executed, the lock is somebody else's by now: it is not to be deleted then.
        redis::pipe().atomic().del(key(slots)).exec(redis)
    }

    fn key(slots: &str) -> String {
        format!("{slots}:lock")
    }
}

pub fn run(world: &World) -> Result<Outcome, Failure> {
    world.stage(
        5,
        "the fair semaphore of stage 4, under a lock",
        "none; it is slow, and may say no although there is room",
    );
    Ok(Outcome {
        by_hand: by_hand_under_a_lock(world)?,
        with_redlatch: with_redlatch(world)?,
    })
}

fn by_hand_under_a_lock(world: &World) -> Result<Found, Failure> {
    world.by_hand();
    let (mut redis, slots) = (world.connect()?, world.key("slots"));
    let holders = race_by_hand(world, &mut redis, &slots)?;
    let (acquire, release) = cost_by_hand(&mut redis, &world.key("measured"))?;
    world.did(format_args!(
        "counted on the way, without any competitor: an acquire is {acquire}, a release {release}"
    ));
    world.right(format_args!("{holders} have {LIMIT} slots."));
    world.because(
        "But every acquire stands in line for the lock, also if the slots were plenty, and B was told no while one slot
         was free. And it is as good as its lock: a holder of it that is paused for longer than the lock's timeout
         brings stage 4 back.",
    );
    Ok(Found {
        holders,
        acquire,
        release,
    })
}

/// The race that broke stage 4: A is slow between its two requests.
fn race_by_hand(world: &World, redis: &mut Connection, slots: &str) -> Result<usize, Failure> {
    let now = SystemTime::now();
    let mut holders = 0;
    for who in ["X", "Y"] {
        holders += usize::from(by_hand::acquire(redis, slots, LIMIT, who)?);
    }
    world.did(format_args!("there are {LIMIT} slots; X and Y have two of them"));
    world.server_holds(ranks(redis, slots)?);

    by_hand::lock(redis, slots, "A")?;
    let number = fair::draw_number(redis, slots, now)?;
    world.did(format_args!(
        "A takes the lock and draws a number, {number}, and is slow"
    ));
    let b_has_slot = by_hand::acquire(redis, slots, LIMIT, "B")?;
    holders += usize::from(b_has_slot);
    world.did(format_args!(
        "B tries to take the lock for 10 ms -> {}",
        if b_has_slot {
            "it has a slot"
        } else {
            "no lock, so no number, and no slot"
        }
    ));
    let a_has_slot = fair::enter(redis, slots, LIMIT, "A", number, now)?;
    by_hand::unlock(redis, slots, "A")?;
    holders += usize::from(a_has_slot);
    world.did("A enters by its number, and releases the lock");
    world.server_holds(ranks(redis, slots)?);
    Ok(holders)
}

fn cost_by_hand(redis: &mut Connection, slots: &str) -> Result<(Cost, Cost), Failure> {
    let mut counted = Counted::new(redis);
    if !by_hand::acquire(&mut counted, slots, LIMIT, "A")? {
        return Err("a slot was to be free".into());
    }
    let acquire = counted.take_cost();
    fair::release(&mut counted, slots, "A")?;
    Ok((acquire, counted.take_cost()))
}

fn with_redlatch(world: &World) -> Result<Found, Failure> {
    world.with_redlatch();
    let semaphore = world.client()?.semaphore("slots", LIMIT);
    let mut guards = Vec::new();
    for _ in ["X", "Y", "A", "B"] {
        guards.extend(semaphore.try_acquire()?);
    }
    world.did(format_args!(
        "X, Y, A and B try to acquire a permit -> {} of them have one",
        guards.len()
    ));
    world.server_holds(world::holders(&semaphore)?);

    let (acquire, release) = cost_with_redlatch(world)?;
    world.did(format_args!(
        "counted by the server: an acquire is {acquire}, a release {release}"
    ));
    world.right(format_args!(
        "{} have {LIMIT} permits, and nobody stands in line for a lock.",
        guards.len()
    ));
    world.because(
        "Each command is a script that calls others at the server, which costs the server some time but no further
         round trip.",
    );
    Ok(Found {
        holders: guards.len(),
        acquire,
        release,
    })
}

/// Each command is a round trip: a call returns when its answer has come.
fn cost_with_redlatch(world: &World) -> Result<(Cost, Cost), Failure> {
    let semaphore = world.client()?.semaphore("measured", LIMIT);
    // The first ones open a connection and teach the server the scripts.
    semaphore.acquire()?.release()?;

    let monitor = Monitor::start(world)?;
    let guard = semaphore.acquire()?;
    let acquire = Cost::of_single_commands(monitor.stop()?.len());

    let monitor = Monitor::start(world)?;
    guard.release()?;
    Ok((acquire, Cost::of_single_commands(monitor.stop()?.len())))
}
