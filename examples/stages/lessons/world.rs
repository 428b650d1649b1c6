//! What the stages share: a server, a prefix for all keys, and the story.

use std::{io::Write, ops::Deref, time::Duration};

use redis::{Commands, Connection, RedisResult};

use super::{Failure, story::Story};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The keys of one stage, on a server. Dropping it removes them.
pub struct World {
    url: String,
    prefix: String,
    redis: redis::Client,
    story: Story,
}

impl World {
    pub fn new(url: &str, out: impl Write + 'static) -> Result<Self, Failure> {
        let prefix = format!("redlatch-stages:{:016x}:", fastrand::u64(..));
        Self::with_prefix(url, &prefix, out)
    }

    pub fn with_prefix(url: &str, prefix: &str, out: impl Write + 'static) -> Result<Self, Failure> {
        Ok(Self {
            url: url.to_owned(),
            prefix: prefix.to_owned(),
            redis: redis::Client::open(url)?,
            story: Story::new(out),
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of this name, for what is built by hand.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The key under which redlatch keeps the lock of this name.
    pub fn lock_key(&self, name: &str) -> String {
        format!("{}lock:{name}", self.prefix)
    }

    pub fn connect(&self) -> RedisResult<Connection> {
        let connection = self.redis.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// A redlatch client, as each machine has one of its own.
    pub fn client(&self) -> Result<redlatch::Client, redlatch::Error> {
        redlatch::Client::builder().url(&self.url).prefix(&self.prefix).build()
    }

    /// What stands at the key of this name.
    pub fn describe(&self, redis: &mut Connection, name: &str) -> RedisResult<String> {
        let key = self.key(name);
        let value: Option<String> = redis.get(&key)?;
        Ok(match (value, time_left(redis, &key)?) {
            (Some(value), Some(left)) => format!("{name} = {value:?} for another {left:?}"),
            (Some(value), None) => format!("{name} = {value:?}, no TTL"),
            (None, _) => format!("no {name}"),
        })
    }

    /// Hence the leading `*`: the keys that redlatch keeps beside its locks begin with a hash tag, `{<prefix>lock:…}`.
    fn remove_all(&self) -> RedisResult<()> {
        let mut redis = self.connect()?;
        let pattern = format!("*{}*", self.prefix);
        let keys = redis.scan_match(&pattern)?.collect::<RedisResult<Vec<Vec<u8>>>>()?;
        if !keys.is_empty() {
            redis.unlink::<_, ()>(keys)?;
        }
        Ok(())
    }
}

/// Who holds permits, in short.
pub fn holders(semaphore: &redlatch::Semaphore) -> Result<String, redlatch::Error> {
    let found = semaphore.inspect()?;
    let holders = found.holders.iter().map(|holder| {
        let token = String::from_utf8_lossy(&holder.token);
        format!("{token:.8}… {}", holder.expiry)
    });
    let (holders, free) = (holders.collect::<Vec<_>>().join(", "), found.available());
    Ok(format!("{holders}; {free} of {} permits free", found.limit))
}

/// For how long a key lasts. `None` if it lasts for ever, or is not there.
pub fn time_left(redis: &mut Connection, key: &str) -> RedisResult<Option<Duration>> {
    let millis: i64 = redis.pttl(key)?;
    Ok(u64::try_from(millis).ok().map(Duration::from_millis))
}

/// A world is where things happen and are told: `world.did(…)`.
impl Deref for World {
    type Target = Story;

    fn deref(&self) -> &Story {
        &self.story
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.remove_all() {
            eprintln!("could not remove the keys under {}: {error}", self.prefix);
        }
    }
}
