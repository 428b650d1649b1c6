//! A Redis Cluster: its nodes, what is known of which has which slot, and the way of a request to the right one.

mod audit;
mod batch;
mod course;
mod redirect;
mod slots;
mod upkeep;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{ConnectionInfo, Value};

pub(super) use self::{audit::ClusterAuditor, slots::Endpoint, upkeep::ClusterLine};
use self::{course::Course, redirect::Next, slots::SlotMap};
use super::{
    Settings,
    connection::{Connection, Opener},
    node::Node,
    permission,
    pool::Urgency,
    reply,
};
use crate::{
    Error,
    error::Source,
    interrupt::Interrupt,
    store::{Failure, because},
    sync::{Condvar, Mutex},
};

/// How old what is known of the slots must be, at least, to be asked for again.
const FRESH: Duration = Duration::from_millis(50);

pub(super) struct Cluster {
    /// The first node of the URL, whose log-in is good for all.
    model: ConnectionInfo,
    seeds: Vec<Endpoint>,
    settings: Settings,
    state: Mutex<State>,
    /// Whoever learned the map is done with it.
    learned: Condvar,
}

#[derive(Default)]
struct State {
    map: Arc<SlotMap>,
    /// When the map was told by a node.
    told_at: Option<Instant>,
    /// Whether something does not fit the map.
    doubtful: bool,
    /// Whether a thread is asking for the map.
    learning: bool,
    nodes: HashMap<Endpoint, Entry>,
    /// The lanes of nodes that were forgotten, and when: what is done there may still wait for such a node to answer.
    retired: HashMap<usize, Instant>,
}

struct Entry {
    node: Arc<Node>,
    /// The number of its lane for the background work.
    lane: usize,
    /// Whether the last request to it got no answer.
    suspect: bool,
}

/// Where the background work is done whose node is not known.
const LANE_OF_THE_UNKNOWN: usize = 0;

/// No node of the cluster could be asked.
#[derive(Debug, thiserror::Error)]
#[error("none of the cluster's nodes could be asked which of them has the key, {tried} of {tried} tried")]
struct NobodyAsked {
    tried: usize,
    source: Source,
}

/// What a request is made on: a connection; whether the node is to be told that it was named by an ASK; by when it must
/// be answered.
pub(super) type Attempt<'a> = &'a mut dyn FnMut(&mut Connection, bool, Instant) -> Result<Value, Failure>;

impl Cluster {
    pub(super) fn new(seeds: &[ConnectionInfo], settings: &Settings) -> Result<Self, Error> {
        let addresses = seeds.iter().filter_map(|seed| Endpoint::of(seed.addr())).collect();
        let model = seeds.first().ok_or_else(|| Error::invalid("a cluster of no nodes"))?;
        Ok(Self {
            model: model.clone(),
            seeds: addresses,
            settings: settings.clone(),
            state: Mutex::default(),
            learned: Condvar::default(),
        })
    }

    /// Makes a request about the keys in `slot`, at whichever node has them, within `timeout`; at most half of which
    /// goes into waiting for a connection. Redirections are followed, and while the cluster is in the middle of a
    /// change the request is made again; one that may have run is not.
    pub(super) fn ask(
        &self,
        slot: u16,
        urgency: Urgency,
        timeout: Duration,
        interrupt: Option<&Interrupt>,
        attempt: Attempt,
    ) -> Result<Value, Failure> {
        let mut course = Course::new(timeout, interrupt);
        self.refresh(course.deadline);
        let outcome = self.follow(slot, urgency, &mut course, attempt);
        match (outcome, course.begun) {
            // What was seen last says that nothing ran, but an attempt before it may have begun.
            (Err(failure), Some(begun)) if !failure.is_unanswered() => Err(begun),
            (outcome, _) => outcome,
        }
    }

    fn follow(&self, slot: u16, urgency: Urgency, course: &mut Course, attempt: Attempt) -> Result<Value, Failure> {
        let mut redirected = None;
        loop {
            let (address, asking) = match redirected.take() {
                Some(hop) => hop,
                None => (self.owner(slot, course)?, false),
            };
            let node = self.node(&address);
            let outcome = {
                let (mut connection, _) = node.connection(urgency, course.left())?;
                attempt(&mut connection, asking, course.deadline)
            };
            course.note(&outcome);
            if outcome.is_err() && course.is_cancelled() {
                // That may be why, so it says nothing about the node.
                return outcome;
            }
            self.note(&address, outcome.as_ref().err());
            let next = Next::after(&outcome, &address);
            let goes_on = match &next {
                Next::Done => return outcome,
                Next::Moved(to) => {
                    self.learn_owner(slot, to);
                    redirected = Some((to.clone(), false));
                    course.hop()?
                }
                Next::Ask(to) => {
                    redirected = Some((to.clone(), true));
                    course.hop()?
                }
                Next::Later | Next::Relearn => course.pause()?,
            };
            if !goes_on {
                // Nodes have answered: the cluster is there, whatever became of this one.
                return Err(match redirect::gave_up(outcome) {
                    Failure::Unreachable(source) => Failure::NotSent(source),
                    other => other,
                });
            }
            if next == Next::Relearn {
                self.learn(Instant::now(), course.share(), Some(&address))?;
            }
        }
    }

    /// The master of `slot`, once there is one.
    fn owner(&self, slot: u16, course: &mut Course) -> Result<Endpoint, Failure> {
        loop {
            if let Some(owner) = self.map().owner(slot) {
                return Ok(owner.clone());
            }
            self.learn_unless_fresh(course.deadline)?;
            if self.map().owner(slot).is_none() && !course.pause()? {
                return Err(unserved(slot));
            }
        }
    }

    fn map(&self) -> Arc<SlotMap> {
        self.state.lock().map.clone()
    }

    /// Takes in that a node gave another as the one that has `slot`: others may have changed hands as well.
    fn learn_owner(&self, slot: u16, owner: &Endpoint) {
        let mut state = self.state.lock();
        Arc::make_mut(&mut state.map).give(slot, owner.clone());
        state.doubtful = true;
    }

    /// Takes in how a request to a node has ended.
    pub(super) fn note(&self, address: &Endpoint, failure: Option<&Failure>) {
        let unanswered = match failure {
            None => false,
            Some(Failure::Unreachable(_) | Failure::NotSent(_) | Failure::Cut(_) | Failure::Silent(_)) => true,
            Some(_) => return,
        };
        let mut state = self.state.lock();
        state.doubtful |= unanswered;
        if let Some(entry) = state.nodes.get_mut(address) {
            entry.suspect = unanswered;
        }
    }

    /// Takes in that something does not fit the map.
    fn doubt(&self) {
        self.state.lock().doubtful = true;
    }

    /// Brings the map up to date if it is doubtful or there is none, and nobody does so already. It goes on with what
    /// there is if that fails.
    fn refresh(&self, deadline: Instant) {
        let now = Instant::now();
        let is_due = {
            let state = self.state.lock();
            let is_fresh = state.told_at.is_some_and(|at| now < at + FRESH);
            state.doubtful && !state.learning && !is_fresh
        };
        if is_due {
            let _ = self.learn(now, now + deadline.saturating_duration_since(now) / 2, None);
        }
    }

    /// Sees to it that the map was told at `since` or later, by any node that can be reached, and not by the one to
    /// `avoid` if there is another.
    fn learn(&self, since: Instant, deadline: Instant, avoid: Option<&Endpoint>) -> Result<(), Failure> {
        let mut state = self.state.lock();
        loop {
            if state.told_at.is_some_and(|at| at >= since) {
                return Ok(());
            }
            if !state.learning {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = "which node of the cluster has the key could not be learned in time";
                return Err(Failure::NotSent(because(why)));
            }
            state = self.learned.wait_for(state, left);
        }
        (state.learning, state.doubtful) = (true, false);
        drop(state);
        let told = self.ask_around(deadline, avoid);
        let mut state = self.state.lock();
        state.learning = false;
        let outcome = told.map(|map| state.take_in(map, &self.seeds));
        state.doubtful |= outcome.is_err();
        drop(state);
        self.learned.notify_all();
        // The connections of nodes that are gone are closed here, not under the mutex.
        outcome.map(drop)
    }

    /// As [`learn`](Self::learn), unless the map was told a moment ago.
    fn learn_unless_fresh(&self, deadline: Instant) -> Result<(), Failure> {
        let now = Instant::now();
        self.learn(now.checked_sub(FRESH).unwrap_or(now), deadline, None)
    }

    /// Asks one node after the other for the map, those first that are likely to answer.
    fn ask_around(&self, deadline: Instant, avoid: Option<&Endpoint>) -> Result<SlotMap, Failure> {
        let mut worst = None;
        let candidates = self.candidates(avoid);
        for address in &candidates {
            // Half of what is left, so that a silent one leaves some for the others.
            let share = deadline.saturating_duration_since(Instant::now()) / 2;
            let told = self.ask_for_map(address, share);
            self.note(address, told.as_ref().err());
            match told {
                Ok(map) => return Ok(map),
                Err(failure) if worst.as_ref().is_none_or(|worst| weight(&failure) > weight(worst)) => {
                    worst = Some(failure);
                }
                Err(_) => {}
            }
        }
        let tried = candidates.len();
        let nobody = |source| -> Source { Arc::new(NobodyAsked { tried, source }) };
        Err(match worst.map(Failure::before_the_request) {
            Some(Failure::Unreachable(source)) => Failure::Unreachable(nobody(source)),
            Some(Failure::NotSent(source)) => Failure::NotSent(nobody(source)),
            Some(answer) => answer,
            None => Failure::Unreachable(because("the cluster has no nodes")),
        })
    }

    fn ask_for_map(&self, address: &Endpoint, timeout: Duration) -> Result<SlotMap, Failure> {
        let node = self.node(address);
        let (mut connection, deadline) = node.connection(Urgency::First, timeout)?;
        connection.open(deadline)?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = connection.exchange([&command], deadline)?.remove(0);
        match permission::checked_command("cluster|slots", answer)? {
            Value::ServerError(error) => Err(reply::failure(error)),
            answer => match SlotMap::read(&answer, address) {
                Some(map) if map.is_empty() => {
                    Err(Failure::Unready(because(format!("{address} is a node of no cluster"))))
                }
                Some(map) => Ok(map),
                None => Err(reply::unexpected(&answer)),
            },
        }
    }

    /// The nodes that can be asked anything, those first that are likely to answer.
    fn candidates(&self, avoid: Option<&Endpoint>) -> Vec<Endpoint> {
        let state = self.state.lock();
        let mut known: Vec<&Endpoint> = state.map.nodes().collect();
        // Not all at the same one.
        fastrand::shuffle(&mut known);
        let mut likely: Vec<Endpoint> = Vec::new();
        let mut suspects = Vec::new();
        for address in known.into_iter().chain(&self.seeds) {
            let is_suspect = state.nodes.get(address).is_some_and(|entry| entry.suspect);
            let those = if is_suspect { &mut suspects } else { &mut likely };
            if !those.contains(address) {
                those.push(address.clone());
            }
        }
        // If all are silent, the last gets next to no time: it must not be the same each time.
        fastrand::shuffle(&mut suspects);
        let mut all = likely;
        all.append(&mut suspects);
        all.sort_by_key(|address| Some(address) == avoid);
        all
    }

    /// A node to hear knocks at, if possible none of those `tried`: they are told at every node.
    pub(super) fn listening_post(&self, tried: &[Endpoint]) -> (Endpoint, Arc<Node>) {
        let candidates = self.candidates(None);
        let post = candidates.iter().find(|address| !tried.contains(address));
        // There is at least one seed.
        let post = post.unwrap_or(&candidates[0]).clone();
        let node = self.node(&post);
        (post, node)
    }

    /// Whether a node is part of the cluster, as far as is known.
    pub(super) fn has(&self, address: &Endpoint) -> bool {
        let map = self.map();
        map.nodes().any(|node| node == address) || self.seeds.contains(address)
    }

    /// Whether a node is part of the cluster, as the others say, and not longer than `age` ago. One that was taken out
    /// of it hangs up on nobody, and a request that it can serve no more is not what finds out if it had no slots.
    pub(super) fn still_has(&self, address: &Endpoint, age: Duration) -> bool {
        let now = Instant::now();
        // If that fails, what was known goes on.
        let _ = self.learn(now.checked_sub(age).unwrap_or(now), now + age / 4, Some(address));
        let map = self.map();
        // Not even if it stands in the URL.
        map.is_empty() || map.nodes().any(|node| node == address)
    }

    pub(super) fn node(&self, address: &Endpoint) -> Arc<Node> {
        let mut state = self.state.lock();
        if let Some(entry) = state.nodes.get(address) {
            return entry.node.clone();
        }
        let info = self.model.clone().set_addr(address.to_addr());
        let node = Arc::new(Node::new(Opener::new(&info, &self.settings), self.settings.pool_size));
        let entry = Entry {
            node: node.clone(),
            lane: state.free_lane(self.settings.command_timeout),
            suspect: false,
        };
        state.nodes.insert(address.clone(), entry);
        node
    }

    /// The lane of the node that has `slot`.
    pub(super) fn lane(&self, slot: u16) -> usize {
        let state = self.state.lock();
        let entry = state.map.owner(slot).and_then(|owner| state.nodes.get(owner));
        entry.map_or(LANE_OF_THE_UNKNOWN, |entry| entry.lane)
    }
}

impl State {
    /// Takes in a map that was just told. Returns the nodes that are not on it, and are forgotten.
    fn take_in(&mut self, map: SlotMap, seeds: &[Endpoint]) -> Vec<Entry> {
        let is_gone = |address: &Endpoint| !map.nodes().any(|node| node == address) && !seeds.contains(address);
        let gone: Vec<Endpoint> = self.nodes.keys().filter(|address| is_gone(address)).cloned().collect();
        self.map = Arc::new(map);
        let now = Instant::now();
        self.told_at = Some(now);
        let gone: Vec<Entry> = gone.iter().filter_map(|address| self.nodes.remove(address)).collect();
        self.retired.extend(gone.iter().map(|entry| (entry.lane, now)));
        gone
    }

    /// The least number of a lane that no node has, so that they do not grow as nodes come and go; nor had within
    /// `rest`, which is how long a request may wait there for a node that is forgotten meanwhile.
    fn free_lane(&mut self, rest: Duration) -> usize {
        self.retired.retain(|_, since| since.elapsed() < rest);
        let is_taken = |lane: usize| self.nodes.values().any(|entry| entry.lane == lane);
        let is_free = |lane: &usize| !self.retired.contains_key(lane) && !is_taken(*lane);
        (LANE_OF_THE_UNKNOWN + 1..).find(is_free).unwrap_or(LANE_OF_THE_UNKNOWN)
    }
}

fn unserved(slot: u16) -> Failure {
    let why = format!("no node of the cluster serves slot {slot}, which the key is in");
    Failure::Unready(because(why))
}

/// How much a failure to be told the map says about the cluster: an answer more than silence, and that more than
/// nobody.
fn weight(failure: &Failure) -> u8 {
    match failure {
        Failure::Unreachable(_) | Failure::Cut(_) => 0,
        Failure::NotSent(_) | Failure::Silent(_) => 1,
        Failure::Unready(_) => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3600);

    fn at(port: u16) -> Endpoint {
        let host = "127.0.0.1".to_owned();
        Endpoint { host, port }
    }

    /// A cluster of which one node is in the URL.
    fn cluster() -> Cluster {
        let settings = Settings {
            pool_size: 1,
            connect_timeout: TIMEOUT,
            command_timeout: TIMEOUT,
            sentinel_login: None,
            tls: None,
        };
        let seed = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1:1").unwrap();
        Cluster::new(&[seed], &settings).unwrap()
    }

    /// Takes in that the slots 1, 2, … have these owners, and returns their lanes.
    fn lanes_of(cluster: &Cluster, owners: &[u16]) -> Vec<usize> {
        let mut map = SlotMap::default();
        for (slot, &port) in (1..).zip(owners) {
            map.give(slot, at(port));
        }
        drop(cluster.state.lock().take_in(map, &cluster.seeds));
        let lane = |(slot, &port)| {
            cluster.node(&at(port));
            cluster.lane(slot)
        };
        (1..).zip(owners).map(lane).collect()
    }

    #[test]
    fn each_node_has_a_lane_of_its_own_and_none_gets_one_where_another_may_still_be_waited_for() {
        let cluster = cluster();
        assert_eq!(cluster.lane(1), LANE_OF_THE_UNKNOWN);
        let lanes = lanes_of(&cluster, &[1, 2, 3]);
        assert_eq!(lanes, [1, 2, 3]);
        assert_eq!(lanes_of(&cluster, &[1, 4, 3]), [1, 4, 3]);
        // Later it is free again.
        assert_eq!(cluster.state.lock().free_lane(Duration::ZERO), 2);
    }

    #[test]
    fn nodes_that_did_not_answer_are_asked_last_and_those_of_the_url_are_not_forgotten() {
        let cluster = cluster();
        lanes_of(&cluster, &[11, 12, 13]);
        cluster.note(&at(11), Some(&Failure::Silent(because("silent"))));
        let order = cluster.candidates(Some(&at(13)));
        assert_eq!(order.len(), 4);
        assert_eq!(order[2..], [at(11), at(13)]);
        assert!(order.contains(&at(1)));
        cluster.note(&at(11), None);
        assert_eq!(cluster.candidates(Some(&at(13))).pop(), Some(at(13)));
    }
}
