//! Several requests of a holder at once: one batch for each node.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use redis::Value;

use super::{Cluster, redirect::Next, slots::Endpoint};
use crate::store::{
    Failure,
    redis::{connection::Connection, pool::Urgency, script::Call},
};

impl Cluster {
    /// Runs scripts by `run` at the nodes that have their keys, as far as is known, within `timeout`. `None` for one
    /// that did not run there: it is to be [asked for](Self::ask) alone.
    pub(in crate::store::redis) fn run_at_once(
        &self,
        calls: &[Call],
        timeout: Duration,
        run: impl Fn(&mut Connection, &[&Call], Instant) -> Result<Vec<Result<Value, Failure>>, Failure>,
    ) -> Vec<Option<Result<Value, Failure>>> {
        let deadline = Instant::now() + timeout;
        self.refresh(deadline);
        let map = self.map();
        let mut by_node: HashMap<&Endpoint, Vec<usize>> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            if let Some(owner) = map.owner(call.slot()) {
                by_node.entry(owner).or_default().push(at);
            }
        }
        let mut answers: Vec<_> = calls.iter().map(|_| None).collect();
        let mut nodes_left = by_node.len() as u32;
        for (address, batch) in by_node {
            // The nodes share the time, so that a silent one leaves some for the others.
            let share = deadline.saturating_duration_since(Instant::now()) / nodes_left;
            nodes_left -= 1;
            let requests: Vec<&Call> = batch.iter().map(|&at| &calls[at]).collect();
            let outcome = self
                .node(address)
                .connection(Urgency::First, share)
                .and_then(|(mut connection, deadline)| run(&mut connection, &requests, deadline));
            self.note(address, outcome.as_ref().err());
            let replies = outcome.unwrap_or_else(|failure| vec![Err(failure); batch.len()]);
            for (at, reply) in batch.into_iter().zip(replies) {
                if Next::after(&reply, address) == Next::Done {
                    answers[at] = Some(reply);
                }
            }
        }
        answers
    }
}
