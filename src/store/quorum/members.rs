//! The servers of a Redlock, and what is known of each: whether it answers, and whether its word counts.

use std::{
    ops::{BitAnd, BitOr, Sub},
    sync::Arc,
    time::Duration,
};

use super::tally::{Mute, majority};
use crate::{
    clock::Moment,
    store::redis::parts::{Node, Sighting},
    sync::Mutex,
};

/// How long a server is left out that did not answer.
const LEFT_OUT: Duration = Duration::from_secs(1);

/// The most servers of one Redlock.
pub(super) const MOST: usize = 64;

/// Some of the servers, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes(u64);

impl Nodes {
    pub(super) fn all(count: usize) -> Self {
        (0..count).collect()
    }

    pub(super) fn only(at: usize) -> Self {
        Self(1 << at)
    }

    pub(super) fn contains(self, at: usize) -> bool {
        self.0 & 1 << at != 0
    }

    pub(super) fn insert(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.0 &= !(1 << at);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MOST).filter(move |&at| self.contains(at))
    }
}

impl BitOr for Nodes {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl BitAnd for Nodes {
    type Output = Self;

    fn bitand(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }
}

impl Sub for Nodes {
    type Output = Self;

    fn sub(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

impl FromIterator<usize> for Nodes {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        numbers.into_iter().fold(Self::default(), |mut nodes, at| {
            nodes.insert(at);
            nodes
        })
    }
}

/// One server.
pub(super) struct Member {
    pub(super) node: Node,
    /// Its address.
    pub(super) name: String,
    /// The longest lease that anybody may have had of it before it lost its memory.
    max_lease: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when it is left out, if it did not answer.
    out_until: Option<Moment>,
    /// The process that answered last.
    process: Option<Arc<Sighting>>,
}

impl Member {
    pub(super) fn new(node: Node, name: String, max_lease: Duration) -> Self {
        Self {
            node,
            name,
            max_lease,
            state: Mutex::default(),
        }
    }

    /// Whether it is worth asking now. One that was left out long enough is, by one request: for the others it stays
    /// left out until that is answered, or for as long again.
    pub(super) fn admits(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        let admits = state.out_until.is_none_or(|until| until <= now);
        if admits && state.out_until.is_some() {
            state.out_until = Some(now + LEFT_OUT);
        }
        admits
    }

    /// From when on it is worth asking.
    pub(super) fn asked_from(&self) -> Option<Moment> {
        self.state.lock().out_until
    }

    /// Takes in whether it has answered.
    pub(super) fn note_answer(&self, answered: bool, now: Moment) {
        let mut state = self.state.lock();
        if !answered {
            state.out_until = Some(now + LEFT_OUT);
        } else if state.out_until.is_some() {
            state.out_until = None;
        }
    }

    /// Takes in who answers on a connection that was just opened: the process as it was first seen.
    pub(super) fn recognise(&self, seen: Sighting) -> Arc<Sighting> {
        let mut state = self.state.lock();
        let known = state
            .process
            .take()
            .filter(|known| match (&known.identity, &seen.identity) {
                (Ok(known_process), Ok(process)) => {
                    known_process.run_id == process.run_id && self.votes_from(known) <= self.votes_from(&seen)
                }
                _ => false,
            });
        let process = known.unwrap_or_else(|| Arc::new(seen));
        state.process = Some(process.clone());
        process
    }

    /// From when on the word of a process counts: nothing that was granted before it started, and lost with its memory,
    /// can be held any more by then. Either it has been up for so long, or it was seen so long ago.
    fn votes_from(&self, process: &Sighting) -> Option<Moment> {
        let uptime = process.identity.as_ref().ok()?.uptime;
        Some(process.at + self.max_lease.saturating_sub(uptime))
    }

    /// Why the word of the process does not count at `now`, if so.
    pub(super) fn mute(&self, process: Option<&Sighting>, now: Moment) -> Option<Mute> {
        let Some(process) = process else {
            return Some(Mute::Young(self.max_lease));
        };
        match (self.votes_from(process), &process.identity) {
            (Some(from), _) => (now <= from).then(|| Mute::Young(now.until(from))),
            (None, Err(why)) => Some(Mute::Unknown(why.clone())),
            (None, Ok(_)) => None,
        }
    }

    /// Whether its word may count at `now`, for all that is known before it is asked.
    fn may_vote(&self, now: Moment) -> bool {
        let process = self.state.lock().process.clone();
        process.is_none_or(|process| self.mute(Some(&process), now).is_none())
    }
}

/// Whom to ask: all but those that did not answer of late, unless the rest is no majority.
pub(super) fn to_be_asked(members: &[Member], now: Moment) -> Nodes {
    let admitted: Nodes = (0..members.len()).filter(|&at| members[at].admits(now)).collect();
    if admitted.len() == members.len() {
        return admitted;
    }
    let voters = admitted.iter().filter(|&at| members[at].may_vote(now)).count();
    if voters >= majority(members.len()) {
        admitted
    } else {
        Nodes::all(members.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Clock, ManualClock},
        store::{
            because,
            redis::{
                Settings,
                parts::{Node, Opener, Sighting},
                process::Process,
                url,
            },
        },
    };

    const MAX_LEASE: Duration = Duration::from_secs(60);

    fn member() -> Member {
        let settings = Settings {
            pool_size: 1,
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_secs(1),
            sentinel_login: None,
            tls: None,
        };
        let info = url::parse("redis://nowhere/").unwrap();
        let node = Node::new(Opener::new(&info, &settings), settings.pool_size);
        Member::new(node, "nowhere".into(), MAX_LEASE)
    }

    fn seen(run_id: &str, uptime: u64, at: Moment) -> Sighting {
        let identity = Ok(Process {
            run_id: run_id.into(),
            uptime: Duration::from_secs(uptime),
        });
        Sighting { identity, at }
    }

    #[test]
    fn a_process_votes_once_it_has_been_up_or_seen_for_longer_than_the_longest_lease() {
        let (member, clock) = (member(), ManualClock::default());
        for (uptime, mute_for) in [(100, 0), (60, 0), (59, 1), (20, 40), (0, 60)] {
            let process = member.recognise(seen(&format!("run {uptime}"), uptime, clock.now()));
            let mute = |now| member.mute(Some(&process), now).is_some();
            assert!(mute(clock.now()), "not before it exceeds it");
            clock.advance(Duration::from_secs(mute_for));
            assert!(mute(clock.now()));
            clock.advance(Duration::from_nanos(1));
            assert!(!mute(clock.now()), "up for {uptime} s");
        }
    }

    #[test]
    fn a_process_that_was_seen_before_is_known_again_and_another_is_not() {
        let (member, clock) = (member(), ManualClock::default());
        let first = member.recognise(seen("one", 0, clock.now()));
        clock.advance(MAX_LEASE / 2);
        // As if its clock had been stepped back.
        let again = member.recognise(seen("one", 0, clock.now()));
        assert!(Arc::ptr_eq(&first, &again));
        let other = member.recognise(seen("two", 0, clock.now()));
        clock.advance(MAX_LEASE / 2 + Duration::from_nanos(1));
        assert!(member.mute(Some(&first), clock.now()).is_none());
        assert!(member.mute(Some(&other), clock.now()).is_some());
    }

    #[test]
    fn one_that_does_not_tell_has_no_vote() {
        let (member, clock) = (member(), ManualClock::default());
        let process = member.recognise(Sighting {
            identity: Err(because("no permission")),
            at: clock.now(),
        });
        clock.advance(MAX_LEASE * 2);
        assert!(matches!(
            member.mute(Some(&process), clock.now()),
            Some(Mute::Unknown(_))
        ));
        assert!(matches!(member.mute(None, clock.now()), Some(Mute::Young(_))));
    }

    #[test]
    fn one_that_did_not_answer_is_left_out_and_then_asked_by_one_request_at_a_time() {
        let clock = ManualClock::default();
        let members = [member(), member(), member()];
        clock.advance(Duration::from_secs(5));
        let asked = || to_be_asked(&members, clock.now());
        assert_eq!(asked(), Nodes::all(3));
        members[1].note_answer(false, clock.now());
        assert_eq!(asked(), [0, 2].into_iter().collect());
        clock.advance(LEFT_OUT);
        assert_eq!(asked(), Nodes::all(3));
        assert_eq!(
            asked(),
            [0, 2].into_iter().collect(),
            "the first has not been answered yet"
        );
        members[1].note_answer(true, clock.now());
        assert_eq!(asked(), Nodes::all(3));
    }

    #[test]
    fn nobody_is_left_out_if_the_rest_is_no_majority() {
        let clock = ManualClock::default();
        let members = [member(), member(), member()];
        members[0].note_answer(false, clock.now());
        members[1].note_answer(false, clock.now());
        assert_eq!(to_be_asked(&members, clock.now()), Nodes::all(3));
        // Two would be one, but one of them has no vote.
        members[1].note_answer(true, clock.now());
        members[2].recognise(seen("new", 0, clock.now()));
        assert_eq!(to_be_asked(&members, clock.now()), Nodes::all(3));
    }
}
