//! Running scripts: EVALSHA, and EVAL for those that the server does not know, or no longer.

use std::{borrow::Borrow, time::Instant};

use redis::{Cmd, Value};

use super::Call;
use crate::store::{
    Failure,
    redis::{
        connection::{self, Connection},
        permission, reply,
    },
};

/// A reply to each of the scripts that were sent together, server errors among them, or why there is none.
type Replies = Result<Vec<Value>, Failure>;

/// Runs scripts in one round trip, or in two if the server has to be given their text. Returns an answer for each;
/// server errors are replies, but for those about permissions.
pub(in crate::store::redis) fn run<'a>(
    connection: &mut Connection,
    calls: &[impl Borrow<Call<'a>>],
    deadline: Instant,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    connection.open(deadline)?;
    run_if_open(connection, calls, deadline)
}

/// As [`run`], but never on another connection than before.
pub(in crate::store::redis) fn run_if_open<'a>(
    connection: &mut Connection,
    calls: &[impl Borrow<Call<'a>>],
    deadline: Instant,
) -> Result<Vec<Result<Value, Failure>>, Failure> {
    let calls: Vec<&Call> = calls.iter().map(Borrow::borrow).collect();
    let commands: Vec<_> = calls.iter().map(|call| (call.asking, &call.command)).collect();
    let mut replies = exchange(connection, &commands, deadline)?;
    let unknown = unknown_among(&replies);
    if !unknown.is_empty() {
        let in_full: Vec<Cmd> = unknown.iter().map(|&at| calls[at].in_full()).collect();
        let commands: Vec<_> = unknown.iter().map(|&at| calls[at].asking).zip(&in_full).collect();
        let answers = exchange(connection, &commands, deadline)?;
        for (at, reply) in unknown.into_iter().zip(answers) {
            replies[at] = reply;
        }
    }
    Ok(checked(calls.into_iter().zip(replies)))
}

/// Sends commands at once, those that are to be behind an ASKING, which is good for one command only, and returns a
/// reply for each.
fn exchange(connection: &mut Connection, commands: &[(bool, &Cmd)], deadline: Instant) -> Replies {
    let asking = redis::cmd("ASKING");
    let mut all = Vec::with_capacity(commands.len());
    for &(asks, command) in commands {
        if asks {
            all.push(&asking);
        }
        all.push(command);
    }
    let mut replies = connection.exchange(all, deadline)?.into_iter();
    let mut answers = Vec::with_capacity(commands.len());
    for &(asks, _) in commands {
        let granted = if asks { replies.next() } else { None };
        let Some(answer) = replies.next() else {
            break;
        };
        answers.push(match granted {
            // It may not be asked: the answer says no more than that the node has not got the key.
            Some(refusal @ Value::ServerError(_)) => refusal,
            _ => answer,
        });
    }
    Ok(answers)
}

/// Runs scripts on several connections, all at once: as [`run_if_open`] on each.
pub(in crate::store) fn run_on_all(
    batches: &mut [(&mut Connection, &[Call])],
    deadline: Instant,
) -> Vec<Result<Vec<Result<Value, Failure>>, Failure>> {
    let requests = batches
        .iter_mut()
        .map(|(connection, calls)| (&mut **connection, calls.iter().map(|call| &call.command)));
    let mut answers = connection::exchange_all(requests, deadline);
    let unknown: Vec<Vec<usize>> = answers
        .iter()
        .map(|replies| {
            replies
                .as_ref()
                .map_or_else(|_| Vec::new(), |replies| unknown_among(replies))
        })
        .collect();
    if unknown.iter().any(|unknown| !unknown.is_empty()) {
        run_in_full(batches, &unknown, &mut answers, deadline);
    }
    let answers = batches.iter().zip(answers);
    answers
        .map(|((_, calls), replies)| Ok(checked(calls.iter().zip(replies?))))
        .collect()
}

/// Runs again, with their texts, those of the scripts that are `unknown` to each server, and puts the replies in the
/// place of those that said so.
fn run_in_full(
    batches: &mut [(&mut Connection, &[Call])],
    unknown: &[Vec<usize>],
    answers: &mut [Replies],
    deadline: Instant,
) {
    let (mut concerned, mut requests) = (Vec::new(), Vec::new());
    for (at, (connection, calls)) in batches.iter_mut().enumerate() {
        if !unknown[at].is_empty() {
            concerned.push(at);
            let in_full: Vec<Cmd> = unknown[at].iter().map(|&call| calls[call].in_full()).collect();
            requests.push((&mut **connection, in_full));
        }
    }
    let requests = requests
        .iter_mut()
        .map(|(connection, commands)| (&mut **connection, &*commands));
    for (at, replies) in concerned.into_iter().zip(connection::exchange_all(requests, deadline)) {
        match (&mut answers[at], replies) {
            (Ok(known), Ok(replies)) => {
                for (&call, reply) in unknown[at].iter().zip(replies) {
                    known[call] = reply;
                }
            }
            (answer, replies) => *answer = replies,
        }
    }
}

/// Which of the scripts the server did not know.
fn unknown_among(replies: &[Value]) -> Vec<usize> {
    (0..replies.len())
        .filter(|&at| reply::is_unknown_script(&replies[at]))
        .collect()
}

/// The replies, but for errors about permissions, which are failures.
fn checked<'a, 'b: 'a>(replies: impl Iterator<Item = (&'a Call<'b>, Value)>) -> Vec<Result<Value, Failure>> {
    replies.map(|(call, reply)| permission::checked(call, reply)).collect()
}
