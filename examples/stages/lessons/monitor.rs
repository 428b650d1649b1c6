//! What is sent to the server, as the server sees it.

use redis::{Connection, RedisResult, Value};

use super::{Failure, World};

/// Listens to all commands (`MONITOR`), from its start to its stop.
pub struct Monitor<'a> {
    world: &'a World,
    connection: Connection,
}

impl<'a> Monitor<'a> {
    pub fn start(world: &'a World) -> RedisResult<Self> {
        let mut connection = world.connect()?;
        redis::cmd("MONITOR").exec(&mut connection)?;
        Ok(Self { world, connection })
    }

    /// The commands that were sent meanwhile and name a key of this world, by their words, without the prefix of its
    /// keys. Not what scripts called: that was not sent.
    pub fn stop(mut self) -> Result<Vec<Vec<String>>, Failure> {
        let end = self.world.key("end");
        redis::cmd("EXISTS").arg(&end).exec(&mut self.world.connect()?)?;
        let mut all = Vec::new();
        loop {
            let Value::SimpleString(line) = self.connection.recv_response()? else {
                return Err("MONITOR was to answer by lines".into());
            };
            if line.contains(&end) {
                return Ok(all);
            }
            if line.contains(self.world.prefix()) && !line.contains(" lua] ") {
                all.push(words(&line.replace(self.world.prefix(), "")));
            }
        }
    }
}

/// Such as `1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`.
fn words(line: &str) -> Vec<String> {
    let (_, quoted) = line.split_once("] \"").unwrap_or_default();
    let quoted = quoted.trim_end_matches('"');
    quoted.split("\" \"").map(str::to_owned).collect()
}
