//! The background work's own line to the servers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Inner,
    panel::{complete, outcomes},
    tally,
};
use crate::store::{
    Chore, Failure, Found, Upkeep,
    redis::{
        parts::{Call, Connection},
        reply,
    },
};

/// How many chores the servers are given at once, for an answer within the time that they have for one.
const BATCH: usize = 64;

pub(super) struct QuorumUpkeep {
    inner: Arc<Inner>,
    lines: Vec<Connection>,
}

impl QuorumUpkeep {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        let lines = inner.panel.lines();
        Self { inner, lines }
    }

    fn perform_batch(&mut self, chores: &[Chore], end: Instant) -> Vec<Result<Found, Failure>> {
        let Inner { panel, .. } = &*self.inner;
        let calls = chores.iter().map(|chore| match chore {
            Chore::Renew(hold, lease, _) => panel.scripts.renewing(hold, *lease, None),
            // Nobody has a place here: what is left to take back is what it may hold.
            Chore::Evict(hold) | Chore::Withdraw(hold) => panel.scripts.evicting(hold),
        });
        let calls: Vec<Call> = calls.collect();
        let sent = panel.clock.now();
        let asked = panel.to_be_asked();
        let mut answers = panel.ask_on(&mut self.lines, asked, &calls, end);
        let left_out = panel.all() - asked;
        let is_open = |(nth, chore): (usize, &Chore)| {
            let found = outcomes(&answers, nth, reply::found);
            matches!(chore, Chore::Renew(..)) && tally::renewed(&found).is_none()
        };
        if !left_out.is_empty() && chores.iter().enumerate().any(is_open) {
            complete(&mut answers, panel.ask_on(&mut self.lines, left_out, &calls, end));
        }
        let conclude = |(nth, chore): (usize, &Chore)| {
            let found = outcomes(&answers, nth, reply::found);
            match chore {
                Chore::Renew(hold, lease, _) => self.inner.conclude_renewal(hold, sent + *lease, &found),
                Chore::Evict(hold) | Chore::Withdraw(hold) => {
                    let held = self.inner.mender.note(|ledger, _| ledger.ended(hold));
                    self.inner.conclude_release(hold, held, &found)
                }
            }
        };
        chores.iter().enumerate().map(conclude).collect()
    }
}

impl Upkeep for QuorumUpkeep {
    fn perform(&mut self, chores: &[Chore], timeout: Duration) -> Vec<Result<Found, Failure>> {
        let end = Instant::now() + timeout;
        let mut answers = Vec::with_capacity(chores.len());
        for batch in chores.chunks(BATCH) {
            if Instant::now() < end {
                answers.extend(self.perform_batch(batch, end));
            } else {
                answers.extend(batch.iter().map(|_| Err(Failure::too_late())));
            }
        }
        answers
    }
}
