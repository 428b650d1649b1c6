//! Having replicas confirm that they have what was written: `WAIT`, on the connection that wrote.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{connection::Connection, reply};
use crate::{
    error::Source,
    store::{Chore, Failure, Found, Replicas, millis_rounded_up},
};

/// A grant or renewal that was made, but of which it is not known how many replicas have it.
#[derive(Debug, thiserror::Error)]
#[error("the server did not tell how many replicas have it")]
struct NotTold(#[source] Source);

/// Waits until the replicas have all that was written on `connection` so far: a failure if too few do in time.
pub(super) fn confirm(connection: &mut Connection, replicas: Replicas, deadline: Instant) -> Result<(), Failure> {
    let mut wait = redis::cmd("WAIT");
    wait.arg(replicas.count)
        .arg(millis_rounded_up(patience(replicas, deadline)));
    let answer = connection.exchange([&wait], deadline);
    let acknowledged: u32 = answer
        .and_then(|mut answers| reply::parsed(answers.remove(0)))
        .map_err(|failure| match failure {
            // What came before has run.
            Failure::Denied(source) | Failure::Refused(source) => Failure::Refused(Arc::new(NotTold(source))),
            Failure::Cut(source) => Failure::Cut(Arc::new(NotTold(source))),
            Failure::Silent(source) => Failure::Silent(Arc::new(NotTold(source))),
            other => other,
        })?;
    if acknowledged >= replicas.count {
        return Ok(());
    }
    Err(Failure::NotReplicated {
        wanted: replicas.count,
        acknowledged,
    })
}

/// Turns the answers to renewals that too few replicas confirm into failures. One wait is enough for all that want the
/// same.
pub(super) fn confirm_renewals<'a>(
    connection: &mut Connection,
    answered: impl Iterator<Item = (&'a Chore, &'a mut Result<Found, Failure>)>,
    deadline: Instant,
) {
    let mut asked: Vec<(Replicas, Result<(), Failure>)> = Vec::new();
    for (chore, answer) in answered {
        let (Chore::Renew(_, _, Some(replicas)), Ok(Found::Ours)) = (chore, &answer) else {
            continue;
        };
        let known = asked.iter().find(|(asked, _)| asked == replicas);
        let confirmed = match known {
            Some((_, confirmed)) => confirmed.clone(),
            None => {
                let confirmed = confirm(connection, *replicas, deadline);
                asked.push((*replicas, confirmed.clone()));
                confirmed
            }
        };
        if let Err(failure) = confirmed {
            *answer = Err(failure);
        }
    }
}

/// How much sooner than its answer is needed the server is to give up: it looks at the time ten times a second only.
const MARGIN: Duration = Duration::from_millis(150);

/// How long the server is to wait. Not 0 ms: that means for ever.
fn patience(replicas: Replicas, deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    let most = left.saturating_sub(MARGIN);
    replicas.timeout.min(most).max(Duration::from_millis(1))
}
