//! The background work in a cluster: chores go to the nodes that have their keys, in one batch for each.

use std::{
    collections::HashMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Cluster,
    course::MOST_HOPS,
    redirect::{self, Next},
    slots::Endpoint,
    unserved,
};
use crate::store::{
    Chore, Failure, Found, Kind, Upkeep,
    redis::{
        connection::Connection,
        replicas, reply,
        script::{self, Call, Scripts},
    },
};

/// One lane's own connections to the nodes. Usually it needs but one: each node has a lane.
pub(in crate::store::redis) struct ClusterLine {
    cluster: Arc<Cluster>,
    connections: HashMap<Endpoint, Connection>,
    scripts: Arc<Scripts>,
}

/// A chore under way.
struct Errand<'a> {
    /// Where its answer belongs.
    at: usize,
    chore: &'a Chore,
    call: Call<'a>,
    /// What is sent instead while the keys of `call` are at two nodes.
    while_split: Option<Call<'a>>,
    /// Where it was sent on to, and whether by an ASK.
    redirected: Option<(Endpoint, bool)>,
}

impl ClusterLine {
    pub(in crate::store::redis) fn new(cluster: Arc<Cluster>, scripts: Arc<Scripts>) -> Self {
        Self {
            cluster,
            connections: HashMap::new(),
            scripts,
        }
    }
}

impl Upkeep for ClusterLine {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let deadline = Instant::now() + timeout;
        self.cluster.refresh(deadline);
        self.connections.retain(|address, _| self.cluster.has(address));
        let mut round = Round {
            cluster: &self.cluster,
            connections: &mut self.connections,
            answers: vec![Err(Failure::too_late()); chores.len()],
            errands: chores
                .iter()
                .enumerate()
                .map(|(at, chore)| errand(&self.scripts, at, chore))
                .collect(),
        };
        if round.errands.iter().any(|errand| round.target(errand).is_none())
            && let Err(failure) = self.cluster.learn_unless_fresh(deadline)
        {
            return vec![Err(failure); chores.len()];
        }
        // The way there, and as many redirections as are followed at once.
        for _ in 0..=MOST_HOPS {
            round.send_all(deadline);
        }
        round.answers
    }
}

fn errand<'a>(scripts: &'a Scripts, at: usize, chore: &'a Chore) -> Errand<'a> {
    let while_split = match chore {
        Chore::Renew(hold, lease, replicas) if hold.resource.kind != Kind::Lock => {
            Some(scripts.renewing_alone(hold, *lease, *replicas))
        }
        _ => None,
    };
    Errand {
        at,
        chore,
        call: scripts.doing(chore),
        while_split,
        redirected: None,
    }
}

impl Errand<'_> {
    /// The same on its way to where it goes on to, if anywhere, when the node at `address` did not do it.
    fn redirect(mut self, cluster: &Cluster, address: &Endpoint, next: Next) -> Option<Self> {
        match next {
            Next::Done => return None,
            Next::Moved(to) => {
                cluster.learn_owner(self.call.slot(), &to);
                self.redirected = Some((to, false));
            }
            Next::Ask(to) => self.redirected = Some((to, true)),
            Next::Later => {
                self.call = self.while_split.take()?;
                let asking = matches!(self.redirected, Some((_, true)));
                self.redirected = Some((address.clone(), asking));
            }
            Next::Relearn => {
                cluster.doubt();
                return None;
            }
        }
        Some(self)
    }
}

/// One performance of chores.
struct Round<'a> {
    cluster: &'a Cluster,
    connections: &'a mut HashMap<Endpoint, Connection>,
    answers: Vec<Result<Found, Failure>>,
    /// Those that have no answer yet and can be sent.
    errands: Vec<Errand<'a>>,
}

impl<'a> Round<'a> {
    fn target(&self, errand: &Errand) -> Option<Endpoint> {
        match &errand.redirected {
            Some((address, _)) => Some(address.clone()),
            None => self.cluster.map().owner(errand.call.slot()).cloned(),
        }
    }

    /// Sends each errand to its node. The nodes share the time, so that a silent one leaves some for the others.
    fn send_all(&mut self, deadline: Instant) {
        let mut by_node: HashMap<Endpoint, Vec<Errand>> = HashMap::new();
        for errand in mem::take(&mut self.errands) {
            match self.target(&errand) {
                Some(address) => by_node.entry(address).or_default().push(errand),
                None => self.answers[errand.at] = Err(unserved(errand.call.slot())),
            }
        }
        let mut nodes_left = by_node.len() as u32;
        for (address, errands) in by_node {
            let now = Instant::now();
            let share = deadline.saturating_duration_since(now) / nodes_left;
            nodes_left -= 1;
            self.send(&address, errands, now + share);
        }
    }

    fn send(&mut self, address: &Endpoint, mut errands: Vec<Errand<'a>>, deadline: Instant) {
        let line = || self.cluster.node(address).line();
        let connection = self.connections.entry(address.clone()).or_insert_with(line);
        for errand in &mut errands {
            errand.call.set_asking(matches!(errand.redirected, Some((_, true))));
        }
        let calls: Vec<&Call> = errands.iter().map(|errand| &errand.call).collect();
        let outcome = script::run(connection, &calls, deadline);
        self.cluster.note(address, outcome.as_ref().err());
        let replies = match outcome {
            Ok(replies) => replies,
            Err(failure) => {
                for errand in errands {
                    self.answers[errand.at] = Err(failure.clone());
                }
                return;
            }
        };
        let mut answered = Vec::new();
        for (errand, reply) in errands.into_iter().zip(replies) {
            match Next::after(&reply, address) {
                Next::Done => answered.push((errand, reply.and_then(reply::found))),
                next => {
                    // Unless it finds another one in time, and by then another performance does.
                    self.answers[errand.at] = Err(redirect::gave_up(reply));
                    self.errands.extend(errand.redirect(self.cluster, address, next));
                }
            }
        }
        let renewals = answered.iter_mut().map(|(errand, answer)| (errand.chore, answer));
        replicas::confirm_renewals(connection, renewals, deadline);
        for (errand, answer) in answered {
            self.answers[errand.at] = answer;
        }
    }
}
