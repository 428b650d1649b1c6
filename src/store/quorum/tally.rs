//! What the answers of several servers mean together. Pure decisions: no I/O, no clock.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use crate::{
    Error, Expiry, Holder, Inspection,
    error::Source,
    store::{Failure, Found},
};

/// How many of `count` servers are a majority.
pub(super) fn majority(count: usize) -> usize {
    count / 2 + 1
}

/// What came of asking one server.
#[derive(Clone, Debug)]
pub(super) enum Outcome<T> {
    /// It was not asked, since it did not answer of late.
    LeftOut,
    Failed(Failure),
    /// It has answered, and its word does not count.
    Muted(T, Mute),
    Said(T),
}

/// Why the word of a server does not count: it may have lost in a restart what it had granted.
#[derive(Clone, Debug)]
pub(super) enum Mute {
    /// It has not been up for long enough. Its word counts after so long.
    Young(Duration),
    /// It is not told how long it has been up.
    Unknown(Source),
}

impl<T> Outcome<T> {
    /// What it said, if its word counts.
    pub(super) fn counted(&self) -> Option<&T> {
        match self {
            Self::Said(said) => Some(said),
            _ => None,
        }
    }

    /// What it said, whether or not that counts.
    pub(super) fn said(&self) -> Option<&T> {
        match self {
            Self::Said(said) | Self::Muted(said, _) => Some(said),
            _ => None,
        }
    }

    /// The same with what `read` makes of what was said, and why that does not count, if it does not. Nothing was said
    /// if it makes nothing of it.
    pub(super) fn try_map<U>(self, read: impl FnOnce(T) -> Option<(U, Option<Mute>)>) -> Outcome<U> {
        match self {
            Self::LeftOut => Outcome::LeftOut,
            Self::Failed(failure) => Outcome::Failed(failure),
            Self::Said(said) | Self::Muted(said, _) => match read(said) {
                Some((said, None)) => Outcome::Said(said),
                Some((said, Some(mute))) => Outcome::Muted(said, mute),
                None => Outcome::LeftOut,
            },
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// What one server says to an attempt to acquire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Vote {
    Granted { drawn: u64 },
    Busy { ttl: Option<Duration> },
}

/// What the servers say to an attempt together.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Granted,
    /// Somebody else has it. That may change after `ttl`, if it does by itself.
    Busy {
        ttl: Option<Duration>,
    },
    /// Too few have a word in it.
    NoQuorum,
}

/// What the votes mean. Only those that count are; whatever the servers granted that do not is a help to renewals.
pub(super) fn verdict(votes: &[Outcome<Vote>]) -> Verdict {
    let needed = majority(votes.len());
    let counted = || votes.iter().filter_map(Outcome::counted);
    let granted = counted().filter(|vote| matches!(vote, Vote::Granted { .. })).count();
    if granted >= needed {
        return Verdict::Granted;
    }
    if counted().count() < needed {
        return Verdict::NoQuorum;
    }
    let mut ends: Vec<Duration> = counted()
        .filter_map(|vote| match vote {
            Vote::Busy { ttl } => Some(ttl.unwrap_or(Duration::MAX)),
            Vote::Granted { .. } => None,
        })
        .collect();
    ends.sort_unstable();
    // Once that many more are free.
    let end = ends[needed - granted - 1];
    Verdict::Busy {
        ttl: (end < Duration::MAX).then_some(end),
    }
}

/// What a renewal found: it holds if a majority says so, and is lost when none can say so any more. Every server that
/// has the token counts, since it can grant nothing to others.
pub(super) fn renewed(answers: &[Outcome<Found>]) -> Option<Found> {
    let needed = majority(answers.len());
    if count(answers, Found::Ours) >= needed {
        return Some(Found::Ours);
    }
    lost(answers)
}

/// What a release found: it is done once a majority has answered, for nothing of it stands in the way of others then.
pub(super) fn released(answers: &[Outcome<Found>]) -> Option<Found> {
    let answered = answers.iter().filter_map(Outcome::said).count();
    if answered < majority(answers.len()) {
        return None;
    }
    Some(lost(answers).unwrap_or(Found::Ours))
}

/// How it was lost, if a majority cannot have it any more, whatever those say that did not answer.
fn lost(answers: &[Outcome<Found>]) -> Option<Found> {
    let [nothing, anothers] = [Found::Nothing, Found::Anothers].map(|found| count(answers, found));
    let possible = answers.len() - nothing - anothers;
    (possible < majority(answers.len())).then_some(if anothers >= nothing {
        Found::Anothers
    } else {
        Found::Nothing
    })
}

fn count(answers: &[Outcome<Found>], found: Found) -> usize {
    let said = answers.iter().filter_map(Outcome::said);
    said.filter(|said| **said == found).count()
}

/// What the looks of the servers show together, if a majority has answered: the holder is whoever may have a majority,
/// for as long as the weakest of that majority lasts.
pub(super) fn seen(looks: &[Outcome<Inspection>]) -> Option<Inspection> {
    let needed = majority(looks.len());
    let looked: Vec<&Inspection> = looks.iter().filter_map(Outcome::said).collect();
    let silent = looks.len() - looked.len();
    if looked.len() < needed {
        return None;
    }
    let holds = |token: &[u8]| -> Vec<&Holder> {
        let holders = looked.iter().flat_map(|look| &look.holders);
        holders.filter(|holder| holder.token == token).collect()
    };
    let tokens = looked
        .iter()
        .flat_map(|look| &look.holders)
        .map(|holder| &*holder.token);
    let token = tokens.max_by_key(|token| holds(token).len());
    let holders = token.map(holds).filter(|holds| holds.len() + silent >= needed);
    let holder = holders.map(|mut holds| {
        let end = |holder: &&Holder| match holder.expiry {
            Expiry::In(left) => left,
            Expiry::Never => Duration::MAX,
        };
        holds.sort_by_key(|holder| std::cmp::Reverse(end(holder)));
        holds[needed.min(holds.len()) - 1].clone()
    });
    let fencing_token = looked.iter().filter_map(|look| look.fencing_token).max();
    Some(Inspection {
        fencing_token: fencing_token.filter(|_| holder.is_some()),
        holders: holder.into_iter().collect(),
        waiters: 0,
        reserved: 0,
        limit: 1,
        declared_limit: 1,
    })
}

/// Why there is no majority: a failure of the servers `names` together.
pub(super) fn failure<T>(names: &[&str], outcomes: &[Outcome<T>]) -> Failure {
    let needed = majority(outcomes.len());
    let failures = || outcomes.iter().filter_map(Outcome::failure);
    // Those that stay as they are prevent a majority for good.
    let stays = |outcome: &Outcome<T>| match outcome {
        Outcome::Failed(failure) if !failure.passes() => Some(failure.clone()),
        Outcome::Muted(_, Mute::Unknown(why)) => Some(Failure::Denied(why.clone())),
        _ => None,
    };
    let staying: Vec<Failure> = outcomes.iter().filter_map(stays).collect();
    if outcomes.len() - staying.len() < needed
        && let Some(first) = staying.into_iter().next()
    {
        return first;
    }
    let source: Source = Arc::new(NoMajority {
        needed,
        counted: outcomes.iter().filter_map(Outcome::counted).count(),
        servers: names
            .iter()
            .zip(outcomes)
            .map(|(name, outcome)| said_of(name, outcome))
            .collect(),
    });
    let answered = outcomes.iter().any(|outcome| outcome.said().is_some());
    if !answered && failures().all(|failure| matches!(failure, Failure::Unreachable(_))) {
        return Failure::Unreachable(source);
    }
    Failure::NoQuorum {
        source,
        unanswered: failures().any(Failure::is_unanswered),
    }
}

/// As [`failure`], of an attempt to acquire. Nothing of it is left to find out: what it may have left is taken back. So
/// it counts as unanswered, and is made again at once, only if a connection broke: that one may have died long before.
pub(super) fn not_granted(names: &[&str], votes: &[Outcome<Vote>]) -> Failure {
    match failure(names, votes) {
        Failure::NoQuorum { source, .. } => Failure::NoQuorum {
            source,
            unanswered: votes.iter().any(|vote| matches!(vote.failure(), Some(Failure::Cut(_)))),
        },
        other => other,
    }
}

/// Why no majority of the servers has agreed.
#[derive(Debug)]
struct NoMajority {
    needed: usize,
    /// How many had a word in it.
    counted: usize,
    /// What is to be said of each.
    servers: Vec<String>,
}

impl fmt::Display for NoMajority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "of {} servers {} are needed, and the answers of {} count ({})",
            self.servers.len(),
            self.needed,
            self.counted,
            self.servers.join("; ")
        )
    }
}

impl StdError for NoMajority {}

fn said_of<T>(name: &str, outcome: &Outcome<T>) -> String {
    match outcome {
        Outcome::LeftOut => format!("{name} did not answer a moment ago"),
        Outcome::Failed(failure) => {
            let error = Error::from(failure.clone());
            let causes: Vec<String> = error.causes().map(ToString::to_string).collect();
            format!("{name}: {}", causes.join(": "))
        }
        Outcome::Muted(_, Mute::Young(left)) => {
            format!("{name} may have lost its memory in a restart, and its word counts in {left:.1?}")
        }
        Outcome::Muted(_, Mute::Unknown(why)) => format!("{name} may have lost its memory in a restart: {why}"),
        Outcome::Said(_) => format!("{name} has answered"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::because;

    fn busy(millis: u64) -> Vote {
        Vote::Busy {
            ttl: Some(Duration::from_millis(millis)),
        }
    }

    fn granted() -> Outcome<Vote> {
        Outcome::Said(Vote::Granted { drawn: 7 })
    }

    fn muted() -> Outcome<Vote> {
        Outcome::Muted(Vote::Granted { drawn: 7 }, Mute::Young(Duration::from_secs(9)))
    }

    fn away<T>() -> Outcome<T> {
        Outcome::Failed(Failure::Unreachable(because("connection refused")))
    }

    fn silent<T>() -> Outcome<T> {
        Outcome::Failed(Failure::Silent(because("no answer in time")))
    }

    fn found(all: [Option<Found>; 5]) -> Vec<Outcome<Found>> {
        all.map(|found| found.map_or_else(silent, Outcome::Said)).into()
    }

    #[test]
    fn a_majority_of_the_votes_that_count_grants() {
        let grants = [granted(), granted(), granted(), away(), Outcome::LeftOut];
        assert_eq!(verdict(&grants), Verdict::Granted);
        let two = [granted(), granted(), muted(), muted(), muted()];
        assert_eq!(verdict(&two), Verdict::NoQuorum);
        let even = [granted(), granted(), away(), away()];
        assert_eq!(verdict(&even), Verdict::NoQuorum);
    }

    #[test]
    fn what_others_hold_may_change_once_enough_of_it_has_ended() {
        let split = [
            granted(),
            granted(),
            Outcome::Said(busy(30)),
            Outcome::Said(busy(10)),
            Outcome::Said(busy(20)),
        ];
        assert_eq!(
            verdict(&split),
            Verdict::Busy {
                ttl: Some(Duration::from_millis(10))
            }
        );
        let taken = [50, 10, 40, 20, 30].map(|millis| Outcome::Said(busy(millis)));
        assert_eq!(
            verdict(&taken),
            Verdict::Busy {
                ttl: Some(Duration::from_millis(30))
            }
        );
        let for_ever = [
            granted(),
            granted(),
            Outcome::Said(Vote::Busy { ttl: None }),
            away(),
            away(),
        ];
        assert_eq!(verdict(&for_ever), Verdict::Busy { ttl: None });
    }

    #[test]
    fn a_renewal_holds_by_a_majority_and_is_lost_when_none_can_be_had() {
        use Found::{Anothers, Nothing, Ours};
        let [ours, gone, other] = [Some(Ours), Some(Nothing), Some(Anothers)];
        assert_eq!(renewed(&found([ours, ours, ours, gone, other])), Some(Ours));
        assert_eq!(renewed(&found([ours, ours, None, None, gone])), None);
        assert_eq!(renewed(&found([ours, ours, None, gone, gone])), None);
        assert_eq!(renewed(&found([ours, ours, gone, gone, gone])), Some(Nothing));
        assert_eq!(renewed(&found([ours, gone, gone, other, None])), Some(Nothing));
        assert_eq!(renewed(&found([other, other, other, gone, None])), Some(Anothers));
    }

    #[test]
    fn a_release_is_done_when_a_majority_has_answered() {
        use Found::{Anothers, Nothing, Ours};
        let [ours, gone, other] = [Some(Ours), Some(Nothing), Some(Anothers)];
        assert_eq!(released(&found([ours, ours, ours, None, None])), Some(Ours));
        assert_eq!(
            released(&found([ours, gone, gone, None, None])),
            Some(Ours),
            "the silent ones may have had it"
        );
        assert_eq!(released(&found([gone, gone, gone, None, None])), Some(Nothing));
        assert_eq!(released(&found([other, other, other, ours, ours])), Some(Anothers));
        assert_eq!(released(&found([ours, ours, None, None, None])), None);
    }

    fn failed(outcomes: &[Outcome<Vote>]) -> Failure {
        failure(&["a", "b", "c", "d", "e"][..outcomes.len()], outcomes)
    }

    #[test]
    fn servers_that_are_all_out_of_reach_are_told_from_too_few() {
        let nobody = [away(), away(), away(), Outcome::LeftOut, Outcome::LeftOut];
        assert!(matches!(failed(&nobody), Failure::Unreachable(_)));
        for too_few in [
            [granted(), away(), away(), away(), away()],
            [muted(), away(), away(), away(), away()],
            [silent(), away(), away(), away(), away()],
        ] {
            assert!(matches!(failed(&too_few), Failure::NoQuorum { .. }), "{too_few:?}");
        }
    }

    #[test]
    fn what_stays_is_told_once_it_prevents_a_majority() {
        let refuses = || Outcome::Failed(Failure::KeyConflict(b"lock:x".to_vec()));
        let unknown = || Outcome::Muted(busy(1), Mute::Unknown(because("no permission")));
        let two = [refuses(), refuses(), granted(), granted(), away()];
        assert!(matches!(failed(&two), Failure::NoQuorum { .. }));
        let three = [refuses(), refuses(), refuses(), granted(), granted()];
        assert!(matches!(failed(&three), Failure::KeyConflict(_)));
        let unknown = [unknown(), unknown(), unknown(), granted(), granted()];
        assert!(matches!(failed(&unknown), Failure::Denied(_)));
    }

    #[test]
    fn a_failure_says_of_each_server_what_is_the_matter() {
        let Failure::NoQuorum { source, unanswered } =
            failed(&[granted(), muted(), away(), silent(), Outcome::LeftOut])
        else {
            panic!("two have answered");
        };
        let said = source.to_string();
        for part in [
            "of 5 servers 3",
            "counts in 9.0s",
            "c: connection refused",
            "d: no answer",
            "e did not answer",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert!(unanswered);
    }

    fn look(token: &str, millis: u64, fencing_token: u64) -> Outcome<Inspection> {
        Outcome::Said(Inspection {
            holders: vec![Holder {
                token: token.into(),
                expiry: Expiry::In(Duration::from_millis(millis)),
                permits: 1,
            }],
            fencing_token: Some(fencing_token),
            waiters: 0,
            reserved: 0,
            limit: 1,
            declared_limit: 1,
        })
    }

    #[test]
    fn a_holder_is_seen_if_it_may_have_a_majority_as_long_as_the_weakest_of_it_lasts() {
        let five = [
            look("a", 10, 1),
            look("a", 50, 2),
            look("a", 30, 9),
            look("b", 99, 3),
            look("a", 40, 4),
        ];
        let seen_now = seen(&five).unwrap();
        assert_eq!(seen_now.holders[0].token, b"a");
        assert_eq!(seen_now.holders[0].expiry, Expiry::In(Duration::from_millis(30)));
        assert_eq!(seen_now.fencing_token, Some(9));
        let maybe = [look("a", 10, 1), look("a", 50, 2), silent(), look("b", 9, 3), silent()];
        assert_eq!(
            seen(&maybe).unwrap().holders[0].expiry,
            Expiry::In(Duration::from_millis(10))
        );
        let split = [
            look("a", 10, 1),
            look("a", 50, 2),
            look("b", 9, 3),
            look("b", 9, 3),
            look("c", 9, 3),
        ];
        assert!(seen(&split).unwrap().is_free());
        assert!(seen(&[look("a", 10, 1), look("a", 50, 2), silent(), silent(), silent()]).is_none());
    }

    proptest! {
        #[test]
        fn no_two_are_granted_what_each_server_grants_once(grants in proptest::collection::vec(0..3_u8, 3..9)) {
            let votes = |who: u8| -> Vec<Outcome<Vote>> {
                grants.iter().map(|&to| if to == who { granted() } else { Outcome::Said(busy(1)) }).collect()
            };
            let winners = (0..3).filter(|&who| verdict(&votes(who)) == Verdict::Granted).count();
            prop_assert!(winners <= 1);
        }

        #[test]
        fn whoever_is_lost_is_not_held_and_no_answer_that_comes_later_changes_that(
            answers in proptest::collection::vec(0..4_u8, 3..9),
            later in proptest::collection::vec(0..3_u8, 9),
        ) {
            let read = |answer: u8| match answer {
                0 => Outcome::Said(Found::Ours),
                1 => Outcome::Said(Found::Nothing),
                2 => Outcome::Said(Found::Anothers),
                _ => silent(),
            };
            let now: Vec<_> = answers.iter().map(|&answer| read(answer)).collect();
            let then: Vec<_> = answers
                .iter()
                .zip(later)
                .map(|(&answer, later)| read(if answer == 3 { later } else { answer }))
                .collect();
            match renewed(&now) {
                Some(Found::Ours) => prop_assert_eq!(renewed(&then), Some(Found::Ours)),
                Some(_) => prop_assert_ne!(renewed(&then), Some(Found::Ours)),
                None => prop_assert!(renewed(&then).is_some()),
            }
        }
    }
}
