//! Stage 4: the fair semaphore, where a counter decides instead of clocks (Josiah Carlson, *Redis in Action*, section
//! 6.3.2). Who draws the lower number and comes second with it takes a slot that somebody else holds.

use std::{sync::Barrier, thread, time::SystemTime};

use redis::{Commands, Connection, RedisResult};

use super::{Failure, World, world::holders};

pub const LIMIT: u32 = 3;

/// How often two clients race for the last permit with redlatch.
pub const RACES: usize = 100;

pub struct Outcome {
    pub by_hand: ByHand,
    pub with_redlatch: WithRedlatch,
}

pub struct ByHand {
    /// All who were told that they have a slot, and were never told otherwise.
    pub holders: Vec<&'static str>,
}

pub struct WithRedlatch {
    /// In how many of the races just one of the two got the permit.
    pub won_by_one: usize,
}

/// What NOT to do.
pub mod by_hand {
    use std::time::{Duration, SystemTime};

    use redis::{ConnectionLike, RedisResult};

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Two requests, each atomic in itself.
    pub fn acquire(redis: &mut impl ConnectionLike, slots: &str, limit: u32, who: &str) -> RedisResult<bool> {
        let now = SystemTime::now();
        let number = draw_number(redis, slots, now)?;
        // Whoever draws here, and is quicker below, is not yet there when it counts who stands before it.
        enter(redis, slots, limit, who, number, now)
    }

    /// Takes out those whose time is over, from the owners too, and draws a number.
    pub fn draw_number(redis: &mut impl ConnectionLike, slots: &str, now: SystemTime) -> RedisResult<u64> {
        let (owners, counter) = (owners(slots), format!("{slots}:counter"));
        let (number,) = redis::pipe()
            .atomic()
            .zrembyscore(slots, "-inf", seconds(now) - TIMEOUT.as_secs_f64())
            .ignore()
            .zinterstore_weights(&owners, &[(owners.as_str(), 1), (slots, 0)])
            .ignore()
            .incr(&counter, 1)
            .query(redis)?;
        Ok(number)
    }

    /// Stands among the owners by its number; whether it has a slot there.
    pub fn enter(
        redis: &mut impl ConnectionLike,
        slots: &str,
        limit: u32,
        who: &str,
        number: u64,
        now: SystemTime,
    ) -> RedisResult<bool> {
        let (rank,): (u32,) = redis::pipe()
            .atomic()
            .zadd(slots, who, seconds(now))
            .ignore()
            .zadd(owners(slots), who, number)
            .ignore()
            .zrank(owners(slots), who)
            .query(redis)?;
        if rank < limit {
            return Ok(true);
        }
        release(redis, slots, who)?;
        Ok(false)
    }

    pub fn release(redis: &mut impl ConnectionLike, slots: &str, who: &str) -> RedisResult<()> {
        redis::pipe()
            .atomic()
            .zrem(slots, who)
            .zrem(owners(slots), who)
            .exec(redis)
    }

    pub fn owners(slots: &str) -> String {
        format!("{slots}:owner")
    }

    fn seconds(time: SystemTime) -> f64 {
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        since_1970.as_secs_f64()
    }
}

pub fn run(world: &World) -> Result<Outcome, Failure> {
    world.stage(
        4,
        "a fair semaphore, by a counter and a set of owners",
        "who draws its number first and enters second steals the last slot",
    );
    Ok(Outcome {
        by_hand: fail_by_hand(world)?,
        with_redlatch: succeed_with_redlatch(world)?,
    })
}

/// Step by step what may happen at any time: A is slow between its two requests.
fn fail_by_hand(world: &World) -> Result<ByHand, Failure> {
    world.by_hand();
    let (mut redis, slots) = (world.connect()?, world.key("slots"));
    let now = SystemTime::now();
    let mut holders = Vec::new();

    for who in ["X", "Y"] {
        if by_hand::acquire(&mut redis, &slots, LIMIT, who)? {
            holders.push(who);
        }
    }
    world.did(format_args!("there are {LIMIT} slots; X and Y have two of them"));
    world.server_holds(ranks(&mut redis, &slots)?);

    let number_of_a = by_hand::draw_number(&mut redis, &slots, now)?;
    world.did(format_args!(
        "A draws a number: INCR slots:counter -> {number_of_a}, and is slow"
    ));
    let number_of_b = by_hand::draw_number(&mut redis, &slots, now)?;
    world.did(format_args!("B draws a number: INCR slots:counter -> {number_of_b}"));
    for (who, number) in [("B", number_of_b), ("A", number_of_a)] {
        let has_slot = by_hand::enter(&mut redis, &slots, LIMIT, who, number, now)?;
        if has_slot {
            holders.push(who);
        }
        world.did(format_args!(
            "{who} enters: ZADD slots:owner {number} {who}, ZRANK slots:owner {who} -> {}",
            if has_slot {
                "below 3, so it has a slot"
            } else {
                "3 or more, so it has none"
            }
        ));
        world.server_holds(ranks(&mut redis, &slots)?);
    }
    if holders.len() > LIMIT as usize {
        world.wrong(format_args!(
            "{} have {LIMIT} slots: {}.",
            holders.len(),
            holders.join(", ")
        ));
        world.because(
            "The number is drawn in one step and used in the next. B looked between A's two steps, and A was not there
             yet. Then A came in with its lower number, and B has slid to rank 3 and is not told.",
        );
    }
    Ok(ByHand { holders })
}

/// There is nothing between two steps to drive by hand, so this leaves it to chance, many times.
fn succeed_with_redlatch(world: &World) -> Result<WithRedlatch, Failure> {
    world.with_redlatch();
    let machine = || Ok::<_, Failure>(world.client()?.semaphore("slots", LIMIT));
    let (x, y, a, b) = (machine()?, machine()?, machine()?, machine()?);
    let _guards = (x.acquire()?, y.acquire()?);
    world.did(format_args!("there are {LIMIT} permits; X and Y have two of them"));
    world.server_holds(holders(&x)?);

    let mut won_by_one = 0;
    for _ in 0..RACES {
        let start = Barrier::new(2);
        let race = |semaphore: &redlatch::Semaphore| {
            start.wait();
            semaphore.try_acquire()
        };
        let (for_a, for_b) = thread::scope(|scope| {
            let a = scope.spawn(|| race(&a));
            (race(&b), a.join().expect("A does not panic"))
        });
        won_by_one += usize::from(for_a?.is_some() != for_b?.is_some());
    }
    world.did(format_args!(
        "A and B try for the last one at the same instant, {RACES} times -> one of them has it, {won_by_one} times"
    ));
    if won_by_one == RACES {
        world.right(format_args!("never do more than {LIMIT} have {LIMIT} permits."));
        world.because(
            "Who holds permits is counted and the next is granted in one script, one step for the server: nobody can
             look in between, for there is no between.",
        );
    }
    Ok(WithRedlatch { won_by_one })
}

pub fn ranks(redis: &mut Connection, slots: &str) -> RedisResult<String> {
    let members: Vec<(String, u64)> = redis.zrange_withscores(by_hand::owners(slots), 0, -1)?;
    let ranked = members.iter().enumerate();
    let ranked = ranked.map(|(rank, (who, number))| format!("rank {rank} {who} (number {number})"));
    Ok(ranked.collect::<Vec<_>>().join(", "))
}
