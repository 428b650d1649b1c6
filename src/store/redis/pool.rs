//! Connections to share: as many as are needed at once, up to a limit.
//!
//! Not r2d2: it rests on parking_lot, which is not safe to use after `fork()` (see [`crate::sync`]), and it opens
//! connections on threads of its own, where the thread that waits learns neither of a refusal in time nor of its cause.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};

use super::connection::{Connection, Opener};
use crate::{
    store::{Failure, because},
    sync::{Condvar, Mutex},
};

/// Connections that nobody needed for so long are closed when another one comes back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

pub(super) struct Pool {
    opener: Arc<Opener>,
    size: u32,
    state: Mutex<State>,
    /// One for each urgency.
    returned: [Condvar; 2],
}

/// Who gets the next connection that comes free.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::store) enum Urgency {
    /// The holders, who release and extend: their time is running.
    First,
    /// Those who want to become holders.
    CanWait,
}

#[derive(Default)]
struct State {
    in_use: u32,
    /// How many wait with [`Urgency::First`].
    urgent: u32,
    /// Open connections with the time of their last use, the latest last.
    idle: Vec<(Connection, Instant)>,
}

impl Pool {
    pub(super) fn new(opener: Arc<Opener>, size: u32) -> Self {
        Self {
            opener,
            size,
            state: Mutex::default(),
            returned: Default::default(),
        }
    }

    /// Lends a connection, the one used last if one is idle. If all are in use, waits for one until `deadline`. One
    /// that is not open yet is opened by its first request: by the thread that needs it, within that thread's time.
    pub(super) fn check_out(&self, urgency: Urgency, deadline: Instant) -> Result<Lent<'_>, Failure> {
        let mut state = self.state.lock();
        while state.in_use >= self.size || (urgency == Urgency::CanWait && state.urgent > 0) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!(
                    "all {} connections of the pool were in use by other requests",
                    self.size
                );
                return Err(Failure::NotSent(because(why)));
            }
            let urgent = u32::from(urgency == Urgency::First);
            state.urgent += urgent;
            state = self.returned[urgency as usize].wait_for(state, left);
            state.urgent -= urgent;
        }
        state.in_use += 1;
        if state.in_use < self.size && state.urgent == 0 {
            // There is one more, for somebody who may have had to let this request pass.
            self.returned[Urgency::CanWait as usize].notify_one();
        }
        let idle = state.idle.pop();
        let connection = idle.map_or_else(|| Connection::closed(self.opener.clone()), |(connection, _)| connection);
        Ok(Lent { pool: self, connection })
    }

    fn take_back(&self, connection: Connection) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.in_use -= 1;
        let stale = state
            .idle
            .iter()
            .take_while(|(_, used)| now - *used >= IDLE_TIMEOUT)
            .count();
        let stale: Vec<_> = state.idle.drain(..stale).collect();
        if connection.is_open() {
            state.idle.push((connection, now));
        }
        let next = if state.urgent > 0 {
            Urgency::First
        } else {
            Urgency::CanWait
        };
        drop(state);
        self.returned[next as usize].notify_one();
        // Closed here, not under the mutex.
        drop(stale);
    }
}

/// A connection that goes back to its pool when it is dropped, if it is still open then.
pub(in crate::store) struct Lent<'a> {
    pool: &'a Pool,
    connection: Connection,
}

impl Deref for Lent<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let closed = Connection::closed(self.pool.opener.clone());
        self.pool.take_back(mem::replace(&mut self.connection, closed));
    }
}
