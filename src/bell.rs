//! What wakes a thread that waits for the lock.

use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex};

/// Rings once and is heard from then on.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub(crate) fn is_rung(&self) -> bool {
        *self.rung.lock()
    }

    /// Waits until it rings, for at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        let start = Instant::now();
        let mut rung = self.rung.lock();
        while !*rung {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            rung = self.changed.wait_for(rung, left);
        }
    }
}
