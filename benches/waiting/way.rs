//! The ways to pass a lock, or the permits of a semaphore, around.

use std::{fmt, num::ParseIntError, str::FromStr};

use redis::{Connection, RedisResult};
use redlatch::{Client, Guard, Lock, Semaphore};

/// What is passed around.
#[derive(Clone, Copy)]
pub enum Prize {
    Lock,
    /// One permit for each who holds it.
    Semaphore {
        limit: u32,
    },
}

impl Prize {
    /// How many may hold it at a time.
    pub fn limit(self) -> u32 {
        match self {
            Prize::Lock => 1,
            Prize::Semaphore { limit } => limit,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// A token in a list, or as many as there are permits: whoever has popped one is a holder.
    ByHand,
    Default,
    Fair,
    Handoffs(u32),
}

/// Who takes turns in one way, each thread for itself.
pub enum Party {
    ByHand { redis: Box<Connection>, key: String },
    Lock(Lock),
    Semaphore(Semaphore),
}

impl Way {
    /// What a row of figures is called.
    pub fn label(self) -> String {
        match self {
            Way::ByHand => "by hand: BLPOP and RPUSH".into(),
            Way::Default => "redlatch".into(),
            Way::Fair => "redlatch, fair(true)".into(),
            Way::Handoffs(budget) => format!("redlatch, handoffs({budget})"),
        }
    }

    /// Makes the prize called `name`, free. Redlatch's need no making.
    pub fn create(self, redis: &mut Connection, prize: Prize, name: &str) -> RedisResult<()> {
        match self {
            Way::ByHand => {
                let tokens = vec!["token"; prize.limit() as usize];
                redis::cmd("RPUSH").arg(token_list(name)).arg(tokens).exec(redis)
            }
            _ => Ok(()),
        }
    }

    /// Removes what does not go by itself.
    pub fn remove(self, redis: &mut Connection, name: &str) -> RedisResult<()> {
        redis::cmd("DEL").arg(token_list(name)).exec(redis)
    }

    /// Redlatch's lock called `name`, for all ways but the one by hand.
    pub fn lock(self, client: &Client, name: &str) -> Lock {
        let lock = client.lock(name);
        match self {
            Way::ByHand | Way::Default => lock,
            Way::Fair => lock.fair(true),
            Way::Handoffs(budget) => lock.handoffs(budget),
        }
    }

    /// Redlatch's semaphore called `name`, likewise.
    fn semaphore(self, client: &Client, name: &str, limit: u32) -> Semaphore {
        let semaphore = client.semaphore(name, limit);
        match self {
            Way::ByHand | Way::Default => semaphore,
            Way::Fair => semaphore.fair(true),
            Way::Handoffs(budget) => semaphore.handoffs(budget),
        }
    }

    /// Lets a thread take part: with a connection of its own by hand, else through its process's client.
    pub fn join(self, url: &str, client: &Client, prize: Prize, name: &str) -> Party {
        match (self, prize) {
            (Way::ByHand, _) => Party::ByHand {
                redis: Box::new(redis::Client::open(url).unwrap().get_connection().unwrap()),
                key: token_list(name),
            },
            (_, Prize::Lock) => Party::Lock(self.lock(client, name)),
            (_, Prize::Semaphore { limit }) => Party::Semaphore(self.semaphore(client, name, limit)),
        }
    }
}

fn token_list(name: &str) -> String {
    format!("{name}:tokens")
}

impl Party {
    /// Waits for the prize as long as it takes. By hand there is no guard.
    pub fn acquire(&mut self) -> Option<Guard> {
        match self {
            Party::ByHand { redis, key } => {
                let popped = redis::cmd("BLPOP").arg(&*key).arg(0).query(redis.as_mut());
                let (_, _): (String, String) = popped.unwrap();
                None
            }
            Party::Lock(lock) => Some(lock.acquire().unwrap()),
            Party::Semaphore(semaphore) => Some(semaphore.acquire().unwrap()),
        }
    }

    /// Gives it back. Takes what `acquire` returned.
    pub fn release(&mut self, guard: Option<Guard>) {
        match self {
            Party::ByHand { redis, key } => redis::cmd("RPUSH")
                .arg(&*key)
                .arg("token")
                .exec(redis.as_mut())
                .unwrap(),
            Party::Lock(_) | Party::Semaphore(_) => guard.expect("redlatch's guard").release().unwrap(),
        }
    }
}

/// As it stands in an order to a worker: one word.
impl fmt::Display for Prize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Prize::Lock => write!(f, "lock"),
            Prize::Semaphore { limit } => write!(f, "{limit}"),
        }
    }
}

impl FromStr for Prize {
    type Err = ParseIntError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "lock" => Prize::Lock,
            limit => Prize::Semaphore { limit: limit.parse()? },
        })
    }
}

/// As it stands in an order to a worker: one word.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::ByHand => write!(f, "by-hand"),
            Way::Default => write!(f, "default"),
            Way::Fair => write!(f, "fair"),
            Way::Handoffs(budget) => write!(f, "{budget}"),
        }
    }
}

impl FromStr for Way {
    type Err = ParseIntError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "by-hand" => Way::ByHand,
            "default" => Way::Default,
            "fair" => Way::Fair,
            budget => Way::Handoffs(budget.parse()?),
        })
    }
}
