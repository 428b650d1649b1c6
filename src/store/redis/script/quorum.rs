//! The scripts by which one of several servers takes part in a grant that a majority makes.

use std::time::Duration;

use super::{Call, Script, Scripts, helper};
use crate::store::{Hold, KEPT, millis_rounded_up};

pub(super) struct Kit {
    grant: Script,
    raise: Script,
}

impl Kit {
    pub(super) fn new() -> Self {
        Self {
            grant: Script::new(text!("quorum_grant.lua"), false),
            raise: Script::new(text!("quorum_raise.lua"), false),
        }
    }

    #[cfg(test)]
    pub(super) fn scripts(&self) -> [&Script; 2] {
        [&self.grant, &self.raise]
    }
}

impl Scripts {
    /// One server's part in a grant, with a fencing token of at least `floor`.
    pub(in crate::store) fn granting(&self, hold: &Hold, lease: Duration, floor: u64) -> Call<'_> {
        self.on(&self.quorum.grant, hold)
            .arg(millis_rounded_up(lease))
            .arg(KEPT.as_millis() as u64)
            .arg(floor)
    }

    /// Raises the fencing counter to what the grant of `hold` has drawn elsewhere.
    pub(in crate::store) fn raising(&self, hold: &Hold, fencing_token: u64) -> Call<'_> {
        self.on(&self.quorum.raise, hold)
            .arg(fencing_token)
            .arg(KEPT.as_millis() as u64)
    }

    /// The same, and puts the lock there for the rest of its lease if it is missing.
    pub(in crate::store) fn filling_in(&self, hold: &Hold, fencing_token: u64, rest: Duration) -> Call<'_> {
        self.raising(hold, fencing_token).arg(millis_rounded_up(rest))
    }

    fn on<'a>(&self, script: &'a Script, Hold { resource, token }: &Hold) -> Call<'a> {
        script.on(resource, &[&helper::counter(resource)]).arg(token.as_bytes())
    }
}
