//! What clients have sent to a server.

use std::ops::Sub;

use redis::{Connection, RedisResult};

/// Commands, or the part of their names before a `|`, that come from clients. What the scripts call is counted by the
/// server as well, so a name that scripts may use (`SET`, `PUBLISH`, `RPUSH`) cannot be here.
#[rustfmt::skip]
const FROM_CLIENTS: [&str; 29] = [
    "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro", "script", "function",
    "ping", "hello", "auth", "select", "client", "quit", "reset",
    "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe",
    "blpop", "brpop", "blmove", "blmpop", "bzpopmin", "bzpopmax", "bzmpop", "xread",
];

#[derive(Clone, Copy)]
pub struct Sent {
    /// Those that are certainly not a script's.
    pub commands: u64,
    /// How often the server has read something from a client, whatever it was: a check on the above. A pipeline is
    /// one, as is the end of a connection.
    pub reads: u64,
}

impl Sent {
    pub fn until_now(redis: &mut Connection) -> RedisResult<Self> {
        let info: String = redis::cmd("INFO").arg("stats").arg("commandstats").query(redis)?;
        let mut sent = Sent { commands: 0, reads: 0 };
        for line in info.lines() {
            if let Some(reads) = line.strip_prefix("total_reads_processed:") {
                sent.reads = reads.parse().expect("a number of reads");
            } else if let Some((command, rest)) = line
                .strip_prefix("cmdstat_")
                .and_then(|line| line.split_once(":calls="))
                && FROM_CLIENTS.contains(&command.split('|').next().unwrap_or_default())
            {
                let calls = rest.split(',').next().unwrap_or_default();
                sent.commands += calls.parse::<u64>().expect("a number of calls");
            }
        }
        Ok(sent)
    }
}

/// Between two looks; the second look itself is left out.
impl Sub for Sent {
    type Output = Sent;

    fn sub(self, earlier: Sent) -> Sent {
        Sent {
            commands: self.commands - earlier.commands,
            reads: (self.reads - earlier.reads).saturating_sub(1),
        }
    }
}
