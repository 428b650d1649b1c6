//! Redlock: a lock is held when a majority of independent servers has granted it.
//!
//! After the algorithm in <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>, with what it
//! leaves open: a server that may have lost its memory has no vote, fencing tokens rise over all servers together,
//! locks are put on the servers that were away, and one that does not answer costs its time once and not every time.
//!
//! Those who wait look again and again: the servers' queues of waiters could leave a lock to different ones.

mod audit;
mod fencing;
mod ledger;
mod members;
mod mender;
mod panel;
mod tally;
mod upkeep;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    audit::QuorumAuditor,
    fencing::Clocks,
    ledger::Held,
    members::{Member, Nodes},
    mender::Mender,
    panel::{Panel, complete, outcomes, where_it_is},
    tally::{Outcome, Verdict, Vote},
    upkeep::QuorumUpkeep,
};
use super::{
    Abilities, Acquired, Ask, Auditor, Channel, Failure, Found, Hold, Knock, Listener, Replicas, Resource, Sequel,
    Spent, Store, Turn, Upkeep, Wishes, because,
    redis::{
        Settings,
        parts::{Call, Node, Opener, RedisAuditor, Scripts, Urgency},
        reply, url,
    },
};
use crate::{
    Error, Inspection,
    clock::{Clock, Moment},
    lease::Doubt,
    sync::Mutex,
};

/// With fewer none may be missing.
const FEWEST: usize = 3;

/// What holds for a Redlock besides what holds for each of its servers.
#[derive(Clone, Copy)]
pub(crate) struct QuorumSettings {
    /// The longest lease that may be asked for.
    pub(crate) max_lease: Duration,
    /// How long the answer of one server may take.
    pub(crate) node_timeout: Duration,
}

/// For how many answers of one server there is time in a command: to the attempt, to the write-back of the fencing
/// token, and to the taking back should that fail. A server that is silent uses up the time for each.
const ANSWERS: u32 = 3;

pub(crate) struct QuorumStore {
    inner: Arc<Inner>,
}

struct Inner {
    panel: Arc<Panel>,
    mender: Mender,
    clocks: Mutex<Clocks>,
    max_lease: Duration,
}

impl QuorumStore {
    pub(crate) fn new(
        url: &str,
        settings: &Settings,
        quorum: QuorumSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let mut members: Vec<Member> = Vec::new();
        for url in url::one_by_one(url, url::SERVER_PORT)? {
            let info = url::parse(&url)?;
            let name = info.addr().to_string();
            if members.iter().any(|member| member.name == name) {
                return Err(Error::invalid(
                    "the URL names a server twice: each has one vote, and must be another one",
                ));
            }
            members.push(Member::new(
                Node::new(Opener::new(&info, settings), settings.pool_size),
                name,
                quorum.max_lease,
            ));
        }
        if !(FEWEST..=members::MOST).contains(&members.len()) {
            return Err(Error::invalid(format!(
                "a Redlock of {} servers cannot work: there must be from {FEWEST} to {}",
                members.len(),
                members::MOST
            )));
        }
        let clocks = Mutex::new(Clocks::new(members.len()));
        let panel = Arc::new(Panel {
            members,
            scripts: Scripts::new(settings.command_timeout, false),
            clock,
            node_timeout: quorum.node_timeout.min(settings.command_timeout / ANSWERS),
        });
        Ok(Self {
            inner: Arc::new(Inner {
                mender: Mender::new(panel.clone()),
                panel,
                clocks,
                max_lease: quorum.max_lease,
            }),
        })
    }
}

impl Drop for QuorumStore {
    fn drop(&mut self) {
        self.inner.mender.close(self.inner.panel.node_timeout);
    }
}

impl Inner {
    /// Asks the servers that are worth it, as a holder does; the others too if those do not decide it.
    fn ask_as_holder(
        &self,
        call: Call,
        timeout: Duration,
        decides: impl Fn(&[Outcome<Found>]) -> bool,
    ) -> Result<Vec<Outcome<Found>>, Failure> {
        let (panel, calls, end) = (&self.panel, [call], Instant::now() + timeout);
        let asked = panel.to_be_asked();
        let mut answers = panel.ask(asked, Urgency::First, &calls, end)?;
        let left_out = panel.all() - asked;
        if !left_out.is_empty()
            && !decides(&outcomes(&answers, 0, reply::found))
            && let Ok(others) = panel.ask(left_out, Urgency::First, &calls, end)
        {
            complete(&mut answers, others);
        }
        Ok(outcomes(&answers, 0, reply::found))
    }

    /// Asks for the lock, at all servers at once.
    fn ask_for(&self, ask: &Ask, end: Instant) -> Result<Vec<Outcome<Vote>>, Failure> {
        let panel = &self.panel;
        let floor = self.clocks.lock().floor(panel.clock.now());
        let calls = [panel.scripts.granting(ask.hold, ask.lease, floor)];
        let nodes = panel.to_be_asked();
        let sent = panel.clock.now();
        let answers = panel.ask(nodes, Urgency::CanWait, &calls, end)?;
        let received = panel.clock.now();
        let parts = outcomes(&answers, 0, |reply| reply::part(reply, &ask.hold.resource));
        // The time that was spent on one that did not answer says nothing about those that did.
        if !parts.iter().any(|part| part.failure().is_some()) {
            let mut clocks = self.clocks.lock();
            for (at, part) in parts.iter().enumerate() {
                if let Some(part) = part.said() {
                    clocks.note(at, part.clock, sent, received);
                }
            }
        }
        let vote = |(at, part): (usize, Outcome<reply::Part>)| {
            part.try_map(|part| {
                let process = answers[at].as_ref()?.as_ref().ok()?.process.as_deref();
                let vote = match part.outcome {
                    Acquired::Granted { fencing_token } => Vote::Granted { drawn: fencing_token },
                    Acquired::Busy { ttl, .. } => Vote::Busy { ttl },
                };
                Some((vote, panel.members[at].mute(process, received)))
            })
        };
        Ok(parts.into_iter().enumerate().map(vote).collect())
    }

    /// The fencing token of a grant, once a majority will draw none below it.
    fn fencing_token(&self, hold: &Hold, votes: &[Outcome<Vote>], end: Instant) -> Result<u64, Failure> {
        let drawn = fencing::drawn(votes);
        let token = drawn.fencing_token;
        if fencing::stands(votes, &drawn, Nodes::default()) {
            return Ok(token);
        }
        let raising = [self.panel.scripts.raising(hold, token)];
        let answers = self.panel.ask(drawn.behind, Urgency::First, &raising, end)?;
        let raised = where_it_is(&outcomes(&answers, 0, reply::found), |raised| raised.said().is_some());
        if fencing::stands(votes, &drawn, raised) {
            return Ok(token);
        }
        Err(Failure::NoQuorum {
            source: because("too few of the servers confirmed the fencing token in time"),
            unanswered: false,
        })
    }

    /// Takes in that `hold` was granted, by an attempt that was sent at `sent`.
    fn note_granted(&self, ask: &Ask, votes: &[Outcome<Vote>], fencing_token: u64, sent: Moment) {
        let missing = where_it_is(votes, |vote| !matches!(vote.said(), Some(Vote::Granted { .. })));
        let mut doubt = Doubt::default();
        let mut doubtful = Nodes::default();
        for (at, failure) in votes
            .iter()
            .enumerate()
            .filter_map(|(at, vote)| Some((at, vote.failure()?)))
        {
            if failure.may_have_run() {
                doubt.add(sent, ask.lease, failure);
                doubtful.insert(at);
            }
        }
        self.mender.note(|ledger, now| {
            let mut held = Held::new(ask.hold, fencing_token, sent + ask.lease, missing, now);
            (held.doubtful, held.doubt) = (doubtful, doubt);
            ledger.granted(held, now);
        });
    }

    /// Takes back what single servers have granted to an attempt that a majority has not. Nothing is granted to its
    /// token afterwards, but by what runs late.
    fn take_back(&self, ask: &Ask, votes: &[Outcome<Vote>], sent: Moment, end: Instant) {
        let granted = where_it_is(votes, |vote| matches!(vote.said(), Some(Vote::Granted { .. })));
        let mut left = granted;
        if !granted.is_empty() {
            let evicting = [self.panel.scripts.evicting(ask.hold)];
            if let Ok(answers) = self.panel.ask(granted, Urgency::First, &evicting, end) {
                let gone = where_it_is(&outcomes(&answers, 0, reply::found), |found| found.said().is_some());
                left = left - gone;
            }
        }
        let doubts = votes.iter().enumerate().filter_map(|(at, vote)| {
            let failure = vote.failure().filter(|failure| failure.may_have_run())?;
            let mut doubt = Doubt::default();
            doubt.add(sent, ask.lease, failure);
            Some((at, doubt))
        });
        let doubts: Vec<(usize, Doubt)> = doubts.collect();
        if !left.is_empty() || !doubts.is_empty() {
            self.mender.note(|ledger, now| {
                ledger.leave(left, ask.hold, Doubt::default(), ask.lease, now);
                for (at, doubt) in doubts {
                    ledger.leave(Nodes::only(at), ask.hold, doubt, ask.lease, now);
                }
            });
        }
    }

    /// What a renewal came to that lets the lock last until `until`.
    fn conclude_renewal(&self, hold: &Hold, until: Moment, found: &[Outcome<Found>]) -> Result<Found, Failure> {
        let Some(verdict) = tally::renewed(found) else {
            self.mender.note(|ledger, _| ledger.may_last(hold, until));
            return Err(tally::failure(&self.panel.names(), found));
        };
        let ours = where_it_is(found, |found| found.said() == Some(&Found::Ours));
        let answered = where_it_is(found, |found| found.said().is_some());
        self.mender.note(|ledger, now| {
            if verdict == Found::Ours {
                ledger.renewed(hold, until, ours, answered - ours, now);
            } else if let Some(held) = ledger.ended(hold) {
                // What is left of it at a minority stands in the way of others.
                let gone = answered - ours;
                let length = now.until(until.max(held.gone_at));
                ledger.leave(held.may_be_at(found.len()) - gone, hold, held.doubt, length, now);
            }
        });
        Ok(verdict)
    }

    /// Has the servers release `hold` by `call`.
    fn give_back(&self, hold: &Hold, call: Call, timeout: Duration) -> Result<Found, Failure> {
        // Before anything is sent: nothing is filled in from here on.
        let held = self.mender.note(|ledger, _| ledger.ended(hold));
        let found = self.ask_as_holder(call, timeout, |found| tally::released(found).is_some())?;
        self.conclude_release(hold, held, &found)
    }

    /// What the release of `hold` came to, which was `held` for all that was known here.
    fn conclude_release(&self, hold: &Hold, held: Option<Held>, found: &[Outcome<Found>]) -> Result<Found, Failure> {
        let verdict = tally::released(found);
        let unanswered = where_it_is(found, |found| found.said().is_none());
        self.mender.note(|ledger, now| {
            let (at, doubtful, doubt, length) = match &held {
                Some(held) => {
                    let late = held.doubt.may_still_run(now);
                    let doubtful = if late { held.doubtful } else { Nodes::default() };
                    (
                        held.may_be_at(found.len()),
                        doubtful,
                        held.doubt,
                        now.until(held.gone_at),
                    )
                }
                None => (
                    Nodes::all(found.len()),
                    Nodes::default(),
                    Doubt::default(),
                    self.max_lease,
                ),
            };
            // One that was not confirmed is asked for again, and has to find then what it did itself.
            let left = if verdict.is_some() {
                unanswered & at
            } else {
                Nodes::default()
            };
            ledger.leave(left | doubtful, hold, doubt, length, now);
        });
        verdict.ok_or_else(|| tally::failure(&self.panel.names(), found))
    }
}

impl Store for QuorumStore {
    fn abilities(&self) -> Abilities {
        Abilities {
            knocks: false,
            hand_overs: false,
            tokens_last: false,
            longest_lease: self.inner.max_lease,
        }
    }

    fn admit(&self, resource: &Resource, wishes: &Wishes) -> Result<(), Error> {
        let why = if !resource.is_exclusive() {
            "a semaphore on a Redlock: the servers could grant the same permit to different holders"
        } else if wishes.fair {
            "a fair lock on a Redlock: each server would have an order of its own"
        } else if wishes.hand_overs {
            "hand-overs of a lock on a Redlock: whether others wait elsewhere is not known there"
        } else if wishes.replicas {
            "replicas that confirm a lock on a Redlock: its servers are independent, and have none"
        } else if wishes.lease > self.inner.max_lease {
            return Err(Error::invalid(format!(
                "a lease of {:?} cannot work on this Redlock: its longest (`max_lease`) is {:?}",
                wishes.lease, self.inner.max_lease
            )));
        } else {
            return Ok(());
        };
        Err(Error::Unsupported(why.to_owned()))
    }

    fn acquire(&self, ask: &Ask, timeout: Duration) -> Result<Acquired, Failure> {
        let inner = &*self.inner;
        let (sent, end) = (inner.panel.clock.now(), Instant::now() + timeout);
        let votes = inner.ask_for(ask, end)?;
        let failure = match tally::verdict(&votes) {
            Verdict::Granted => match inner.fencing_token(ask.hold, &votes, end) {
                Ok(fencing_token) => {
                    inner.note_granted(ask, &votes, fencing_token, sent);
                    return Ok(Acquired::Granted { fencing_token });
                }
                Err(failure) => Some(failure),
            },
            Verdict::Busy { ttl } => {
                inner.take_back(ask, &votes, sent, end);
                return Ok(Acquired::Busy { ttl, place: None });
            }
            Verdict::NoQuorum => None,
        };
        inner.take_back(ask, &votes, sent, end);
        Err(failure.unwrap_or_else(|| tally::not_granted(&inner.panel.names(), &votes)))
    }

    fn renew(&self, hold: &Hold, lease: Duration, _: Option<Replicas>, timeout: Duration) -> Result<Found, Failure> {
        let inner = &*self.inner;
        let sent = inner.panel.clock.now();
        let call = inner.panel.scripts.renewing(hold, lease, None);
        let found = inner.ask_as_holder(call, timeout, |found| tally::renewed(found).is_some())?;
        inner.conclude_renewal(hold, sent + lease, &found)
    }

    fn release(&self, spent: &Spent, repeated: bool, timeout: Duration) -> Result<Found, Failure> {
        let inner = &*self.inner;
        inner.give_back(spent.hold, inner.panel.scripts.releasing(spent, repeated), timeout)
    }

    /// A release: nobody knows whether others wait.
    fn turn(&self, spent: &Spent, _: &Sequel, timeout: Duration) -> Result<Turn, Failure> {
        self.release(spent, false, timeout).map(Turn::Left)
    }

    fn evict(&self, hold: &Hold, timeout: Duration) -> Result<Found, Failure> {
        let inner = &*self.inner;
        inner.give_back(hold, inner.panel.scripts.evicting(hold), timeout)
    }

    fn inspect(&self, resource: &Resource, timeout: Duration) -> Result<Inspection, Failure> {
        let panel = &self.inner.panel;
        let calls = [panel.scripts.inspecting(resource)];
        let end = Instant::now() + timeout;
        let answers = panel.ask(panel.to_be_asked(), Urgency::CanWait, &calls, end)?;
        let looks = outcomes(&answers, 0, |reply| reply::inspection(reply, resource));
        tally::seen(&looks).ok_or_else(|| tally::failure(&panel.names(), &looks))
    }

    fn set_limit(&self, _: &Resource, _: u32, _: Duration) -> Result<(), Failure> {
        Err(Failure::Refused(because("a Redlock has no semaphores")))
    }

    fn listener(&self, _: &Channel) -> Box<dyn Listener> {
        Box::new(NoKnocks)
    }

    fn auditor(&self, pattern: &[u8]) -> Box<dyn Auditor> {
        let members = self.inner.panel.members.iter().rev();
        let servers = members.map(|member| RedisAuditor::new(member.node.line(), pattern));
        Box::new(QuorumAuditor::new(servers.collect()))
    }

    fn upkeep(&self) -> Box<dyn Upkeep> {
        Box::new(QuorumUpkeep::new(self.inner.clone()))
    }
}

/// Where nobody knocks, nothing is heard.
struct NoKnocks;

impl Listener for NoKnocks {
    fn open(&mut self, _: Duration) -> Result<(), Failure> {
        Err(Failure::Refused(because("nobody knocks on a Redlock")))
    }

    fn next(&mut self, _: Duration) -> Result<Option<Knock>, Failure> {
        Err(Failure::Refused(because("nobody knocks on a Redlock")))
    }

    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        Box::new(|| {})
    }
}
