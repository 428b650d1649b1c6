//! One server, and the connections to it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use super::{
    connection::{Connection, Opener},
    pool::{Lent, Pool, Urgency},
    script::{self, Call},
};
use crate::store::Failure;

pub(super) struct Node {
    opener: Arc<Opener>,
    pool: Pool,
}

impl Node {
    pub(super) fn new(opener: Opener, pool_size: u32) -> Self {
        let opener = Arc::new(opener);
        Self {
            pool: Pool::new(opener.clone(), pool_size),
            opener,
        }
    }

    pub(super) fn opener(&self) -> &Arc<Opener> {
        &self.opener
    }

    /// A connection of its own, not opened yet.
    pub(super) fn line(&self) -> Connection {
        Connection::closed(self.opener.clone())
    }

    /// A pooled connection, and by when `timeout` is over. At most half of it goes into waiting for a free one: with next
    /// to nothing left, a request would only look like one to a server that is silent or away.
    pub(super) fn connection(&self, urgency: Urgency, timeout: Duration) -> Result<(Lent<'_>, Instant), Failure> {
        let now = Instant::now();
        let connection = self.pool.check_out(urgency, now + timeout / 2)?;
        Ok((connection, now + timeout))
    }

    /// Runs one script on a pooled connection; all of it, from check-out to reply, within `timeout`.
    pub(super) fn call(&self, call: Call, urgency: Urgency, timeout: Duration) -> Result<Value, Failure> {
        let (mut connection, deadline) = self.connection(urgency, timeout)?;
        script::run(&mut connection, &[call], deadline)?.remove(0)
    }
}
