//! Which server process answers on a connection, and for how long it has been running.

use std::time::{Duration, Instant};

use redis::Value;

use super::{connection::Connection, permission, reply};
use crate::{
    clock::Moment,
    error::Source,
    store::{Failure, because},
};

/// A server process, as it tells of itself.
#[derive(Debug)]
pub(in crate::store) struct Process {
    /// Another one after each start.
    pub(in crate::store) run_id: String,
    /// For how long it has been running, at least.
    pub(in crate::store) uptime: Duration,
}

/// Who answers on a connection, or why that is not told.
pub(in crate::store) type Identity = Result<Process, Source>;

/// Who answered on a connection when that was asked for the first time.
#[derive(Debug)]
pub(in crate::store) struct Sighting {
    pub(in crate::store) identity: Identity,
    /// When the answer had come.
    pub(in crate::store) at: Moment,
}

/// Asks who answers on `connection`, which has to be open. One that may not tell does so in the answer; the connection
/// stays usable then.
pub(in crate::store) fn ask(connection: &mut Connection, deadline: Instant) -> Result<Identity, Failure> {
    let mut info = redis::cmd("INFO");
    info.arg("server");
    let answer = connection.exchange([&info], deadline)?.remove(0);
    let answer = permission::checked_command("info", answer).and_then(|answer| match answer {
        Value::ServerError(error) => Err(reply::failure(error)),
        answer => Ok(answer),
    });
    match answer {
        Ok(answer) => Ok(told(&reply::parsed::<String>(answer)?)),
        Err(Failure::Denied(why) | Failure::Refused(why)) => Ok(Err(why)),
        Err(failure) => Err(failure),
    }
}

fn told(text: &str) -> Identity {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let run_id = field("run_id").map(str::to_owned);
    let uptime: Option<u64> = field("uptime_in_seconds").and_then(|seconds| seconds.trim().parse().ok());
    match (run_id, uptime) {
        (Some(run_id), Some(uptime)) => Ok(Process {
            run_id,
            // The difference of two times that were both cut to seconds: up to one less has passed.
            uptime: Duration::from_secs(uptime.saturating_sub(1)),
        }),
        _ => Err(because(
            "the server's answer to INFO tells neither its run nor its uptime",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_run_and_has_been_up_for_what_is_certain() {
        let process = told("# Server\r\nredis_version:7.0.15\r\nrun_id:4f1c\r\nuptime_in_seconds:10\r\n").unwrap();
        assert_eq!((&*process.run_id, process.uptime), ("4f1c", Duration::from_secs(9)));
        let process = told("run_id:4f1c\nuptime_in_seconds:0\n").unwrap();
        assert_eq!(process.uptime, Duration::ZERO);
        assert!(told("# Server\r\n").is_err());
    }
}
