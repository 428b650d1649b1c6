//! An audit of a cluster: of one master after the other, until the keys of every slot were looked through.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Cluster, slots::Endpoint};
use crate::{
    Finding,
    keys::SLOTS,
    store::{
        Auditor, Failure, because,
        redis::audit::{MOST_RESTARTS, RedisAuditor},
    },
};

pub(in crate::store::redis) struct ClusterAuditor {
    cluster: Arc<Cluster>,
    pattern: Vec<u8>,
    /// By slot, whether the keys in it were looked through.
    covered: Vec<bool>,
    visit: Option<Visit>,
    /// How often the same master was gone to again, for slots that it was given meanwhile.
    returns: u32,
    visited: Vec<Endpoint>,
}

/// The audit of one master.
struct Visit {
    master: Endpoint,
    /// What it had when the audit began.
    slots: Vec<u16>,
    auditor: RedisAuditor,
}

impl ClusterAuditor {
    pub(in crate::store::redis) fn new(cluster: Arc<Cluster>, pattern: &[u8]) -> Self {
        Self {
            cluster,
            pattern: pattern.to_vec(),
            covered: vec![false; SLOTS.into()],
            visit: None,
            returns: 0,
            visited: Vec::new(),
        }
    }

    /// Begins with a master that has slots which were not looked through; `None` if there is none.
    fn next_visit(&mut self, deadline: Instant) -> Result<Option<Visit>, Failure> {
        self.cluster.learn(Instant::now(), deadline, None)?;
        let map = self.cluster.map();
        let uncovered = (0..SLOTS).filter(|&slot| !self.covered[usize::from(slot)]);
        let Some(master) = uncovered.filter_map(|slot| map.owner(slot)).next().cloned() else {
            return Ok(None);
        };
        if self.visited.contains(&master) {
            self.returns += 1;
        } else {
            self.visited.push(master.clone());
        }
        if self.returns > MOST_RESTARTS {
            return Err(Failure::Refused(because(
                "slots were moved to masters again and again that had been looked through already",
            )));
        }
        Ok(Some(Visit {
            slots: map.slots_of(&master),
            auditor: RedisAuditor::new(self.cluster.node(&master).line(), &self.pattern),
            master,
        }))
    }

    /// Notes which slots were looked through: those that the master has had all the time.
    fn end_visit(&mut self, deadline: Instant) -> Result<(), Failure> {
        self.cluster.learn(Instant::now(), deadline, None)?;
        let map = self.cluster.map();
        let Some(Visit { master, slots, .. }) = self.visit.take() else {
            return Ok(());
        };
        for slot in slots.into_iter().filter(|&slot| map.owner(slot) == Some(&master)) {
            self.covered[usize::from(slot)] = true;
        }
        Ok(())
    }
}

impl Auditor for ClusterAuditor {
    fn next_page(&mut self, timeout: Duration) -> Result<Option<Vec<Finding>>, Failure> {
        let deadline = Instant::now() + timeout;
        if self.visit.is_none() {
            self.visit = self.next_visit(deadline)?;
        }
        let Some(visit) = &mut self.visit else {
            return Ok(None);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let page = visit.auditor.next_page(left);
        self.cluster.note(&visit.master, page.as_ref().err());
        if let Some(findings) = page? {
            return Ok(Some(findings));
        }
        self.end_visit(deadline)?;
        Ok(Some(Vec::new()))
    }
}
