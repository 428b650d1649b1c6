//! Looking through the server's keys for locks without a TTL.

use std::time::Instant;

use redis::{Cmd, Value};

use super::{connection::Connection, reply};
use crate::{
    DataType, Finding,
    store::{Cursor, Failure, Page, because},
};

/// How many keys the server looks at in one go, roughly: a fraction of a millisecond's work.
const KEYS_A_PAGE: u32 = 1000;

/// How often an audit begins anew before it gives up.
const MOST_RESTARTS: u32 = 10;

/// Looks through a page of the keys: at their names, then at the TTL of those that match, then at the type of those
/// without one. No key is read.
pub(super) fn page(
    connection: &mut Connection,
    pattern: &[u8],
    from: Option<Cursor>,
    deadline: Instant,
) -> Result<Page, Failure> {
    let (at, restarts) = match from {
        None => (0, 0),
        // A cursor means something only to the server that gave it. Behind a connection that was opened later there may
        // be another one, such as this one restarted.
        Some(cursor) if connection.connect(deadline)? > cursor.given => (0, cursor.restarts + 1),
        Some(cursor) => (cursor.at, cursor.restarts),
    };
    if restarts > MOST_RESTARTS {
        return Err(Failure::Cut(because("the server went away again and again")));
    }
    let mut scan = redis::cmd("SCAN");
    scan.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS_A_PAGE);
    let scanned = connection.exchange([&scan], deadline)?.remove(0);
    let (next, keys): (u64, Vec<Vec<u8>>) = reply::parsed(scanned)?;

    let mut without_ttl = Vec::new();
    for (key, ttl) in ask(connection, "PTTL", keys, deadline)? {
        // One that is gone meanwhile has -2.
        if reply::parsed::<i64>(ttl)? == -1 {
            without_ttl.push(key);
        }
    }
    let mut findings = Vec::new();
    for (key, data_type) in ask(connection, "TYPE", without_ttl, deadline)? {
        let data_type = match reply::parsed::<String>(data_type)?.as_str() {
            "string" => DataType::String,
            "hash" => DataType::Hash,
            _ => continue,
        };
        findings.push(Finding { key, data_type });
    }
    Ok(Page {
        findings,
        next: (next != 0).then_some(Cursor {
            at: next,
            given: Instant::now(),
            restarts,
        }),
    })
}

/// Asks `command` about each of the keys, all at once.
fn ask(
    connection: &mut Connection,
    command: &str,
    keys: Vec<Vec<u8>>,
    deadline: Instant,
) -> Result<impl Iterator<Item = (Vec<u8>, Value)>, Failure> {
    let commands: Vec<Cmd> = keys.iter().map(|key| redis::cmd(command).arg(key).take()).collect();
    let replies = connection.exchange(&commands, deadline)?;
    Ok(keys.into_iter().zip(replies))
}
