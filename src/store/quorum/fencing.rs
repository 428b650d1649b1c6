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

/// How long an exchange may have taken for what it told of a clock to be used. It bounds how far ahead of the clocks a
/// token is drawn: after an answer that was late, or a process that was stopped meanwhile, that would be as much.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(20);

/// What is known of the servers' clocks: from it the lowest token to draw is proposed, so that all draw the same one
/// and none has to be raised.
///
/// The proposal is about what the fastest clock shows when the request gets there: ahead of it by two round trips at
/// most. It must not run further ahead, for a token is only safe from being drawn again after a loss of the counters as
/// long as the clocks are ahead of it. So it comes from what the servers' clocks showed a moment ago, and from this
/// machine's boot-time clock for the time since then, never from what this machine believes the time to be. If it is
/// too low, that costs the round trip in which the others are raised.
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
        let round_trip = sent.until(received);
        if round_trip <= LONGEST_ROUND_TRIP {
            self.0[at] = Some(Reading {
                micros,
                sent,
                round_trip,
            });
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        clock::{Clock, ManualClock},
        store::{
            Failure, because,
            quorum::tally::{Mute, Verdict, verdict},
        },
    };

    fn granted(drawn: u64) -> Outcome<Vote> {
        Outcome::Said(Vote::Granted { drawn })
    }

    fn away() -> Outcome<Vote> {
        Outcome::Failed(Failure::Silent(because("no answer in time")))
    }

    #[test]
    fn a_token_that_a_majority_drew_stands_and_another_has_to_be_written_back() {
        let votes = [granted(9), granted(9), granted(9), granted(4), away()];
        let agreed = drawn(&votes);
        assert_eq!((agreed.fencing_token, agreed.behind), (9, Nodes::only(3)));
        assert!(stands(&votes, &agreed, Nodes::default()));

        let votes = [granted(9), granted(5), granted(9), away(), away()];
        let agreed = drawn(&votes);
        assert!(!stands(&votes, &agreed, Nodes::default()));
        assert!(stands(&votes, &agreed, Nodes::only(1)));
    }

    #[test]
    fn a_server_without_a_vote_is_outdone_but_does_not_help_to_make_a_majority() {
        let mute = Mute::Young(Duration::ZERO);
        let votes = [
            granted(5),
            granted(5),
            granted(5),
            Outcome::Muted(Vote::Granted { drawn: 8 }, mute),
            away(),
        ];
        let agreed = drawn(&votes);
        assert_eq!(agreed.fencing_token, 8);
        let two: Nodes = [0, 1].into_iter().collect();
        assert!(!stands(&votes, &agreed, two));
        assert!(stands(&votes, &agreed, two | Nodes::only(2)));
    }

    #[test]
    fn what_a_late_answer_tells_of_a_clock_is_not_used() {
        let clock = ManualClock::default();
        let mut clocks = Clocks::new(1);
        let sent = clock.now();
        clock.advance(LONGEST_ROUND_TRIP + Duration::from_micros(1));
        clocks.note(0, 1_000_000, sent, clock.now());
        assert_eq!(clocks.floor(clock.now()), 0);
    }

    #[test]
    fn the_proposal_is_what_the_fastest_clock_shows_when_the_request_gets_there() {
        let (clock, round_trip) = (ManualClock::default(), Duration::from_micros(300));
        let mut clocks = Clocks::new(3);
        assert_eq!(clocks.floor(clock.now()), 0);
        let sent = clock.now();
        clock.advance(round_trip);
        // They showed that at some time in between.
        clocks.note(0, 1_000_000, sent, clock.now());
        clocks.note(1, 2_000_000, sent, clock.now());
        clock.advance(Duration::from_millis(5));
        let floor = clocks.floor(clock.now());
        let [least, most] = [0, 300].map(|showed_at| 2_000_000 + 5_300 - showed_at);
        assert!(floor >= most, "no server is ahead of it when it gets there at once");
        assert!(floor <= least + 2 * 300, "nor is it far ahead");
        // What was known too long ago is not known.
        clock.advance(LONGEST_KNOWN);
        assert_eq!(clocks.floor(clock.now()), 0);
    }

    /// How far the clocks of the model may differ: less than the time for which a server has no vote, in microseconds.
    const SKEW: u64 = 50_000;
    const MUTE: u64 = 60_000;

    #[derive(Clone, Copy, Debug)]
    struct Server {
        skew: u64,
        counter: u64,
        votes_from: u64,
    }

    #[derive(Clone, Debug)]
    enum Event {
        /// Time passes.
        Pass(u64),
        /// A server is restarted and loses its counter.
        Forget(usize),
        /// These servers are asked, with a proposal that is so far off the fastest clock; those of the others are
        /// raised that are reached.
        Grant { asked: u8, raised: u8, floor: Option<i64> },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            2 => (1..20_000_u64).prop_map(Event::Pass),
            1 => (0..5_usize).prop_map(Event::Forget),
            4 => (any::<u8>(), any::<u8>(), proptest::option::of(-1000..1000_i64))
                .prop_map(|(asked, raised, floor)| Event::Grant { asked, raised, floor }),
        ]
    }

    proptest! {
        #[test]
        fn tokens_rise_over_changing_majorities_skewed_clocks_and_lost_memories(
            skews in proptest::collection::vec(0..SKEW, 5),
            events in proptest::collection::vec(event(), 1..200),
        ) {
            let mut now = 1_000_000;
            let mut last = 0;
            let mut servers: Vec<Server> = skews
                .into_iter()
                .map(|skew| Server { skew, counter: 0, votes_from: 0 })
                .collect();
            for event in events {
                match event {
                    Event::Pass(time) => now += time,
                    Event::Forget(at) => (servers[at].counter, servers[at].votes_from) = (0, now + MUTE),
                    Event::Grant { asked, raised, floor } => {
                        let fastest = servers.iter().map(|server| now + server.skew).max().unwrap();
                        let floor = floor.map_or(0, |off| fastest.saturating_add_signed(off));
                        let votes: Vec<_> = servers
                            .iter_mut()
                            .enumerate()
                            .map(|(at, server)| {
                                if asked & 1 << at == 0 {
                                    return away();
                                }
                                server.counter = (server.counter + 1).max(now + server.skew).max(floor);
                                let vote = Vote::Granted { drawn: server.counter };
                                if now > server.votes_from {
                                    Outcome::Said(vote)
                                } else {
                                    Outcome::Muted(vote, Mute::Young(Duration::ZERO))
                                }
                            })
                            .collect();
                        now += 1;
                        if verdict(&votes) != Verdict::Granted {
                            continue;
                        }
                        let agreed = drawn(&votes);
                        let mut raised_now = Nodes::default();
                        if !stands(&votes, &agreed, raised_now) {
                            for at in agreed.behind.iter().filter(|at| raised & 1 << at != 0) {
                                servers[at].counter = servers[at].counter.max(agreed.fencing_token);
                                raised_now.insert(at);
                            }
                        }
                        if stands(&votes, &agreed, raised_now) {
                            prop_assert!(agreed.fencing_token > last, "{} after {last}", agreed.fencing_token);
                            last = agreed.fencing_token;
                        }
                    }
                }
            }
        }
    }
}
