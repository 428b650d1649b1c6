//! Stage 3: a semaphore in a sorted set, where each client writes the time of its own clock (Josiah Carlson, *Redis in
//! Action*, section 6.3.1). A client whose clock is slow takes a slot that somebody else holds.

use std::time::{Duration, SystemTime};

use redis::{Commands, Connection, RedisResult};

use super::{Failure, World, monitor::Monitor, world::holders};

pub const LIMIT: u32 = 3;

/// How far one clock is behind the others.
const SLOW_BY: Duration = Duration::from_millis(10);

/// How much later than A its owner asks.
const LATER: Duration = Duration::from_millis(5);

const MS: Duration = Duration::from_millis(1);

pub struct Outcome {
    pub by_hand: ByHand,
    pub with_redlatch: WithRedlatch,
}

pub struct ByHand {
    /// Whether B gets in with a right clock. It must not.
    pub let_in_by_a_right_clock: bool,
    /// All who were told that they have a slot, and were never told otherwise.
    pub holders: Vec<&'static str>,
    /// How many times of day B sends.
    pub times_sent: usize,
}

pub struct WithRedlatch {
    pub holders: usize,
    pub let_in: bool,
    /// How many times of day all of them send.
    pub times_sent: usize,
}

/// What NOT to do.
mod by_hand {
    use std::time::{Duration, SystemTime};

    use redis::{Connection, RedisResult};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// `now` is what the clock of this client says.
    pub fn acquire(redis: &mut Connection, slots: &str, limit: u32, who: &str, now: SystemTime) -> RedisResult<bool> {
        let now = millis(now);
        let (rank,): (u32,) = redis::pipe()
            .atomic()
            .zrembyscore(slots, "-inf", now - TIMEOUT.as_millis() as u64)
            .ignore()
            .zadd(slots, who, now)
            .ignore()
            .zrank(slots, who)
            .query(redis)?;
        if rank < limit {
            return Ok(true);
        }
        redis::cmd("ZREM").arg(slots).arg(who).exec(redis)?;
        Ok(false)
    }

    pub fn millis(time: SystemTime) -> u64 {
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        since_1970.as_millis() as u64
    }
}

pub fn run(world: &World) -> Result<Outcome, Failure> {
    world.stage(
        3,
        "a semaphore in a sorted set, by the clocks of the clients",
        "a clock that is 10 ms slow steals the last slot",
    );
    Ok(Outcome {
        by_hand: fail_by_hand(world)?,
        with_redlatch: succeed_with_redlatch(world)?,
    })
}

/// The clocks are simulated: what happens when is fixed beforehand, and a slow clock is the true time less an offset.
fn fail_by_hand(world: &World) -> Result<ByHand, Failure> {
    world.by_hand();
    let (mut redis, slots) = (world.connect()?, world.key("slots"));
    let noon = SystemTime::now();

    world.did(format_args!(
        "there are {LIMIT} slots; whoever gets a rank below {LIMIT} has one"
    ));
    let mut holders = Vec::new();
    for (who, asks_at) in [("X", noon - MS * 200), ("Y", noon - MS * 100), ("A", noon)] {
        if by_hand::acquire(&mut redis, &slots, LIMIT, who, asks_at)? {
            holders.push(who);
        }
    }
    world.did(format_args!(
        "X, Y and then A ask, by clocks that are right -> {} are told that they have a slot",
        holders.join(", ")
    ));
    world.server_holds(ranks(&mut redis, &slots, noon)?);

    let asks_at = noon + LATER;
    let let_in_by_a_right_clock = by_hand::acquire(&mut redis, &slots, LIMIT, "B", asks_at)?;
    world.did(format_args!(
        "B asks {LATER:?} later, by a right clock: ZADD slots +5 B -> {}",
        answer(let_in_by_a_right_clock)
    ));
    let (let_in, times_sent) = ask_by_a_slow_clock(world, &mut redis, &slots, asks_at)?;
    world.server_holds(ranks(&mut redis, &slots, noon)?);
    holders.extend(let_in.then_some("B"));

    if holders.len() > LIMIT as usize {
        world.wrong(format_args!(
            "{} have {LIMIT} slots: {}.",
            holders.len(),
            holders.join(", ")
        ));
        world.because(
            "B came after A, but by its clock it came before, and the lower time gets the lower rank. A has slid to
             rank 3 and is not told: it looked once, when its rank was 2. A is as much at fault: had its clock been
             10 ms fast, any client with a right clock could have taken the slot from it.",
        );
    }
    Ok(ByHand {
        let_in_by_a_right_clock,
        holders,
        times_sent,
    })
}

/// Whether B gets a slot, and how many times of day it sends.
fn ask_by_a_slow_clock(
    world: &World,
    redis: &mut Connection,
    slots: &str,
    asks_at: SystemTime,
) -> Result<(bool, usize), Failure> {
    let its_clock = asks_at - SLOW_BY;
    let monitor = Monitor::start(world)?;
    let let_in = by_hand::acquire(redis, slots, LIMIT, "B", its_clock)?;
    let sent = monitor.stop()?;
    world.did(format_args!(
        "the same with a clock that is {SLOW_BY:?} slow: ZADD slots -5 B -> {}. It sends:",
        answer(let_in)
    ));
    sent.iter().for_each(|command| world.sent(command));
    Ok((let_in, times_of_day(&sent)))
}

fn answer(let_in: bool) -> &'static str {
    if let_in {
        "rank 2, so it has a slot"
    } else {
        "rank 3, so it takes itself out and has none"
    }
}

fn succeed_with_redlatch(world: &World) -> Result<WithRedlatch, Failure> {
    world.with_redlatch();
    let machine = || Ok::<_, Failure>(world.client()?.semaphore("slots", LIMIT));
    let (x, y, a, b) = (machine()?, machine()?, machine()?, machine()?);
    // So that the server knows the script by its number afterwards.
    world.client()?.semaphore("others", LIMIT).acquire()?.release()?;

    let monitor = Monitor::start(world)?;
    let mut guards = Vec::new();
    for semaphore in [&x, &y, &a] {
        guards.extend(semaphore.try_acquire()?);
    }
    let late = b.try_acquire()?;
    let sent = monitor.stop()?;
    let times_sent = times_of_day(&sent);

    world.did(format_args!(
        "X, Y and then A acquire a permit -> {} of them have one",
        guards.len()
    ));
    world.did(format_args!(
        "B tries to -> {}",
        if late.is_some() { "a permit" } else { "none is free" }
    ));
    world.server_holds(holders(&a)?);
    world.did("this is all that they have sent, with long words cut short:");
    sent.iter().for_each(|command| world.sent(command));
    if late.is_none() && times_sent == 0 {
        world.right("no client sends the time of its clock, so no clock can be wrong.");
        world.because(
            "What is sent is how long a lease lasts. When it ends is worked out by the server's clock, in the very
             step that counts who holds a permit.",
        );
    }
    Ok(WithRedlatch {
        holders: a.holders()?.len(),
        let_in: late.is_some(),
        times_sent,
    })
}

fn ranks(redis: &mut Connection, slots: &str, noon: SystemTime) -> RedisResult<String> {
    let members: Vec<(String, f64)> = redis.zrange_withscores(slots, 0, -1)?;
    let ranked = members.iter().enumerate().map(|(rank, (who, score))| {
        let ms = score - by_hand::millis(noon) as f64;
        format!("rank {rank} {who} (at {ms:+} ms)")
    });
    Ok(ranked.collect::<Vec<_>>().join(", "))
}

fn times_of_day(sent: &[Vec<String>]) -> usize {
    sent.iter().flatten().filter(|word| is_time_of_day(word)).count()
}

/// Whether this is a time of the last or next day, in seconds or any smaller unit.
fn is_time_of_day(word: &str) -> bool {
    let now = by_hand::millis(SystemTime::now()) as f64 / 1e3;
    let number: f64 = word.parse().unwrap_or_default();
    [1.0, 1e3, 1e6, 1e9]
        .iter()
        .any(|unit| (number / unit - now).abs() < 86_400.0)
}
