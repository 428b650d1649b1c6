//! Looking through the server's keys for locks without a TTL.

use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::{connection::Connection, process, reply};
use crate::{
    DataType, Finding,
    store::{Auditor, Failure, because},
};

/// How many keys the server looks at in one go, roughly: a fraction of a millisecond's work.
const KEYS_A_PAGE: u32 = 1000;

/// How often an audit begins anew before it gives up.
pub(super) const MOST_RESTARTS: u32 = 10;

/// An audit on a connection of its own.
pub(in crate::store) struct RedisAuditor {
    connection: Connection,
    pattern: Vec<u8>,
    /// The cursor of the next page; 0 is the beginning.
    cursor: u64,
    through: bool,
    /// Who gave the cursor, if that may be known.
    server: Option<String>,
    restarts: u32,
}

impl RedisAuditor {
    pub(in crate::store) fn new(connection: Connection, pattern: &[u8]) -> Self {
        Self {
            connection,
            pattern: pattern.to_vec(),
            cursor: 0,
            through: false,
            server: None,
            restarts: 0,
        }
    }

    /// Sees to it that there is a connection, and that the cursor is good for the server behind it.
    fn connect(&mut self, deadline: Instant) -> Result<(), Failure> {
        if !self.connection.open(deadline)? {
            return Ok(());
        }
        // A cursor means something only to the server process that gave it, and another one may answer at the address
        // now, such as the same one restarted.
        let server = process::ask(&mut self.connection, deadline)?
            .ok()
            .map(|process| process.run_id);
        if self.cursor != 0 && (server.is_none() || server != self.server) {
            self.restarts += 1;
            self.cursor = 0;
        }
        self.server = server;
        if self.restarts > MOST_RESTARTS {
            return Err(Failure::Refused(because(
                "the connection broke again and again, and each time the audit had to begin anew",
            )));
        }
        Ok(())
    }

    /// Asks `command` about each of the keys, all at once.
    fn ask(
        &mut self,
        command: &str,
        keys: Vec<Vec<u8>>,
        deadline: Instant,
    ) -> Result<impl Iterator<Item = (Vec<u8>, Value)> + use<>, Failure> {
        let commands: Vec<Cmd> = keys.iter().map(|key| redis::cmd(command).arg(key).take()).collect();
        let replies = self.connection.exchange(&commands, deadline)?;
        Ok(keys.into_iter().zip(replies))
    }
}

impl Auditor for RedisAuditor {
    /// Looks at the names of some keys, then at the TTL of those that match, then at the type of those without one. No
    /// key is read.
    fn next_page(&mut self, timeout: Duration) -> Result<Option<Vec<Finding>>, Failure> {
        if self.through {
            return Ok(None);
        }
        let deadline = Instant::now() + timeout;
        self.connect(deadline)?;
        let mut scan = redis::cmd("SCAN");
        scan.arg(self.cursor).arg("MATCH").arg(&self.pattern);
        scan.arg("COUNT").arg(KEYS_A_PAGE);
        let scanned = self.connection.exchange([&scan], deadline)?.remove(0);
        let (next, keys): (u64, Vec<Vec<u8>>) = reply::parsed(scanned)?;

        let mut without_ttl = Vec::new();
        for (key, ttl) in self.ask("PTTL", keys, deadline)? {
            // One that is gone meanwhile has -2.
            if reply::parsed::<i64>(ttl)? == -1 {
                without_ttl.push(key);
            }
        }
        let mut findings = Vec::new();
        for (key, data_type) in self.ask("TYPE", without_ttl, deadline)? {
            let data_type = match reply::parsed::<String>(data_type)?.as_str() {
                "string" => DataType::String,
                "hash" => DataType::Hash,
                _ => continue,
            };
            findings.push(Finding { key, data_type });
        }
        // Only now: a page that failed is asked for again.
        self.cursor = next;
        self.through = next == 0;
        Ok(Some(findings))
    }
}
