//! What the run leaves on the server, all under one prefix, and its removal.

use redis::{Commands, RedisResult, ScanOptions};

/// A prefix that nobody else uses. Dropping it removes the keys that have it.
pub struct Traces {
    redis: redis::Client,
    prefix: String,
}

impl Traces {
    pub fn new(url: &str) -> RedisResult<Self> {
        Ok(Traces {
            redis: redis::Client::open(url)?,
            prefix: format!("redlatch-api-limit:{:016x}:", fastrand::u64(..)),
        })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// They would expire by themselves, but not soon: a semaphore's limit outlives its last holder by days. Some begin
    /// with a hash tag, `{<prefix>semaphore:…}`, hence the leading `*`.
    fn remove(&self) -> RedisResult<()> {
        let mut redis = self.redis.get_connection()?;
        let ours = ScanOptions::default()
            .with_pattern(format!("*{}*", self.prefix))
            .with_count(1000);
        let keys: Vec<Vec<u8>> = redis.scan_options(ours)?.collect::<RedisResult<_>>()?;
        if keys.is_empty() {
            return Ok(());
        }
        redis.unlink(keys)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("could not remove the keys under {}: {error}", self.prefix);
        }
    }
}
