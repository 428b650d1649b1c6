//! The ways to pass one lock around.

use std::{fmt, str::FromStr};

use redis::{Connection, RedisResult};
use redlatch::{Client, Guard, Lock};

#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// A token in a list: whoever has popped it holds the lock.
    ByHand,
    Default,
    Fair,
    Handoffs(u32),
}

/// Who takes turns in one way, each thread for itself.
pub enum Party {
    ByHand { redis: Box<Connection>, key: String },
    Redlatch(Lock),
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

    /// Makes the lock called `name`, free. Redlatch's need no making.
    pub fn create(self, redis: &mut Connection, name: &str) -> RedisResult<()> {
        match self {
            Way::ByHand => redis::cmd("RPUSH").arg(token_list(name)).arg("token").exec(redis),
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

    /// Lets a thread take part: with a connection of its own by hand, else through its process's client.
    pub fn join(self, url: &str, client: &Client, name: &str) -> Party {
        match self {
            Way::ByHand => Party::ByHand {
                redis: Box::new(redis::Client::open(url).unwrap().get_connection().unwrap()),
                key: token_list(name),
            },
            _ => Party::Redlatch(self.lock(client, name)),
        }
    }
}

fn token_list(name: &str) -> String {
    format!("{name}:tokens")
}

impl Party {
    /// Waits for the lock as long as it takes. By hand there is no guard.
    pub fn acquire(&mut self) -> Option<Guard> {
        match self {
            Party::ByHand { redis, key } => {
                let popped = redis::cmd("BLPOP").arg(&*key).arg(0).query(redis.as_mut());
                let (_, _): (String, String) = popped.unwrap();
                None
            }
            Party::Redlatch(lock) => Some(lock.acquire().unwrap()),
        }
    }

    /// Gives the lock back. Takes what `acquire` returned.
    pub fn release(&mut self, guard: Option<Guard>) {
        match self {
            Party::ByHand { redis, key } => redis::cmd("RPUSH")
                .arg(&*key)
                .arg("token")
                .exec(redis.as_mut())
                .unwrap(),
            Party::Redlatch(_) => guard.expect("redlatch's guard").release().unwrap(),
        }
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
    type Err = std::num::ParseIntError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "by-hand" => Way::ByHand,
            "default" => Way::Default,
            "fair" => Way::Fair,
            budget => Way::Handoffs(budget.parse()?),
        })
    }
}
