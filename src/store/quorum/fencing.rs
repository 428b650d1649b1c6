//! Fencing tokens over several servers: the highest that one of them drew, once a majority will draw none below it.

use std::time::Duration;

use super::{
    members::Nodes,
    tally::{Outcome, Vote, majority},
};
use crate::clock::Moment;

/// The fencing token of a grant, and which servers have drawn a lower one: their counters have to be raised.
#[derive(Debug, PartialEq)]
pub(super) struct Drawn {
    pub(super) fencing_token: u64,
    pub(super) behind: Nodes,
}

/// What the servers drew together. A later grant needs the vote of one of any majority; so if a majority of those whose
/// votes count have drawn it, or were raised to it, the next token is higher, however their clocks differ.
pub(super) fn drawn(votes: &[Outcome<Vote>]) -> Drawn {
    let fencing_token = tokens(votes).map(|(_, drawn)| drawn).max().unwrap_or(0);
    let behind = tokens(votes).filter(|&(_, drawn)| drawn < fencing_token);
    Drawn {
        fencing_token,
        behind: behind.map(|(at, _)| at).collect(),
    }
}

/// Whether enough of the servers whose votes count have drawn the token, or were raised to it.
pub(super) fn stands(votes: &[Outcome<Vote>], drawn: &Drawn, raised: Nodes) -> bool {
    let up_to_it = tokens(votes).filter(|&(at, _)| !drawn.behind.contains(at) || raised.contains(at));
    up_to_it.filter(|&(at, _)| votes[at].counted().is_some()).count() >= majority(votes.len())
}

fn tokens(votes: &[Outcome<Vote>]) -> impl Iterator<Item = (usize, u64)> {
    votes.iter().enumerate().filter_map(|(at, vote)| match vote.said() {
        Some(Vote::Granted { drawn }) => Some((at, *drawn)),
        _ => None,
    })
}

/// How old what is known of a clock may be: two clocks drift apart by some microseconds a second.
const LONGEST_KNOWN: Duration = Duration::from_secs(10);

/// What is known of the servers' clocks: from it the lowest token to draw is proposed, so that all draw the same one and
/// none has to be raised.
///
/// The proposal is about what the fastest clock shows when the request gets there: ahead of it by two round trips at
/// most. It must not run further ahead, for a token is only safe from being drawn again after a loss of the counters as
/// long as the clocks are ahead of it. So it comes from what the servers' clocks showed a moment ago, and from this
/// machine's boot-time clock for the time since then, never from what this machine believes the time to be. If it is too
/// low, that costs the round trip in which the others are raised.
pub(super) struct Clocks(Vec<Option<Reading>>);

#[derive(Clone, Copy)]
struct Reading {
    /// What the server's clock showed, in microseconds.
    micros: u64,
    /// When it was asked: it showed that later.
    sent: Moment,
    round_trip: Duration,
}

impl Clocks {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![None; count])
    }

    /// Takes in what a server answered at `received` to a request that was sent at `sent`.
    pub(super) fn note(&mut self, at: usize, micros: u64, sent: Moment, received: Moment) {
        self.0[at] = Some(Reading {
            micros,
            sent,
            round_trip: sent.until(received),
        });
    }

    /// The lowest token to draw, for a request that is sent at `now`; 0 for none.
    pub(super) fn floor(&self, now: Moment) -> u64 {
        let known = self.0.iter().flatten();
        known
            .filter(|reading| reading.sent.until(now) <= LONGEST_KNOWN)
            .map(|reading| {
                let since = reading.sent.until(now) + reading.round_trip;
                reading.micros.saturating_add(since.as_micros() as u64)
            })
            .max()
            .unwrap_or(0)
    }
}
