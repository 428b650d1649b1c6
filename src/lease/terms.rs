//! What a lease is to be, before it is asked for.

use std::{sync::Arc, time::Duration};

use super::Lost;
use crate::{
    Error,
    store::{Replicas, Wishes},
};

/// The shortest lease: what is left of it after the drift allowance still spans a round trip on a local network.
const SHORTEST: Duration = Duration::from_millis(10);

/// The longest lease: beyond it a mistake is likelier than a need.
const LONGEST: Duration = Duration::from_secs(LONGEST_YEARS * 365 * 24 * 60 * 60);
const LONGEST_YEARS: u64 = 10;

/// Refuses lengths of leases that cannot work.
pub(crate) fn check_length(length: Duration) -> Result<(), Error> {
    if (SHORTEST..=LONGEST).contains(&length) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a lease of {length:?} cannot work: it must last from {SHORTEST:?} to {LONGEST_YEARS} years"
    )))
}

/// How much time replicas may have.
const SHORTEST_CONFIRMATION: Duration = Duration::from_millis(1);
const LONGEST_CONFIRMATION: Duration = Duration::from_secs(60 * 60);

/// How often in a row a lease is handed on. By measurement: more do not make it faster, and with as many a thread of
/// another process waits less than 5 ms for a lock.
const DEFAULT_HANDOFFS: u32 = 64;

/// A callback for lost leases.
pub(crate) type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

/// What a lease is to be, before it is asked for.
#[derive(Clone)]
pub(crate) struct Terms {
    /// How long each grant or renewal lasts.
    pub(crate) length: Duration,
    /// Whether it is renewed in the background.
    pub(crate) renewed: bool,
    /// How long the whole grant may last, renewals and extensions included.
    pub(crate) max_hold: Duration,
    /// How often in a row it may be handed on within this process while another one waits.
    pub(crate) handoffs: u32,
    /// Whether those who came earlier, anywhere, have it first.
    pub(crate) fair: bool,
    /// Who has to confirm each grant or renewal.
    pub(crate) replicas: Option<Replicas>,
    pub(crate) on_lost: Option<OnLost>,
}

impl Terms {
    pub(crate) fn new(length: Duration, renewed: bool) -> Self {
        Self {
            length,
            renewed,
            max_hold: Duration::MAX,
            handoffs: DEFAULT_HANDOFFS,
            fair: false,
            replicas: None,
            on_lost: None,
        }
    }

    /// Refuses terms that cannot work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_length(self.length)?;
        if self.max_hold < SHORTEST {
            return Err(Error::invalid(format!(
                "a longest hold of {:?} cannot work: it must be at least {SHORTEST:?}",
                self.max_hold
            )));
        }
        if let Some(Replicas { count, timeout }) = self.replicas {
            if count == 0 {
                return Err(Error::invalid(
                    "a confirmation by 0 replicas cannot work: it must be by at least 1",
                ));
            }
            if !(SHORTEST_CONFIRMATION..=LONGEST_CONFIRMATION).contains(&timeout) {
                return Err(Error::invalid(format!(
                    "{timeout:?} for replicas to confirm a grant cannot work: it must be from {SHORTEST_CONFIRMATION:?} to \
                     {LONGEST_CONFIRMATION:?}"
                )));
            }
        }
        Ok(())
    }

    /// Whether a grant on these terms may be followed by one on the terms `to` without asking the server.
    pub(super) fn may_be_handed_on(&self, to: &Terms) -> bool {
        let essence = |terms: &Self| (terms.length, terms.renewed, terms.max_hold, terms.handoffs, terms.fair);
        self.hands_on() && essence(self) == essence(to)
    }

    /// Whether a grant may be followed by others without asking the server at all. Not if replicas have to confirm
    /// each.
    pub(crate) fn hands_on(&self) -> bool {
        self.renewed && !self.fair && self.replicas.is_none() && self.handoffs > 0
    }

    /// What not every store has.
    pub(crate) fn wishes(&self) -> Wishes {
        Wishes {
            lease: self.first_length(),
            fair: self.fair,
            hand_overs: self.handoffs > 0,
            replicas: self.replicas.is_some(),
        }
    }

    /// How much longer than others a request may take that replicas have to confirm.
    pub(crate) fn time_for_replicas(&self) -> Duration {
        self.replicas.map_or(Duration::ZERO, |replicas| replicas.timeout)
    }

    /// The length to ask for in the first place.
    pub(crate) fn first_length(&self) -> Duration {
        self.length.min(self.max_hold)
    }
}
