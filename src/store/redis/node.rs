//! One server, and the connections to it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    connection::{Connection, Opener},
    pool::{Lent, Pool, Urgency},
};
use crate::store::Failure;

pub(in crate::store) struct Node {
    opener: Arc<Opener>,
    pool: Pool,
}

impl Node {
    pub(in crate::store) fn new(opener: Opener, pool_size: u32) -> Self {
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
    pub(in crate::store) fn line(&self) -> Connection {
        Connection::closed(self.opener.clone())
    }

    /// A pooled connection, which is waited for until `deadline` if all are in use.
    pub(in crate::store) fn check_out(&self, urgency: Urgency, deadline: Instant) -> Result<Lent<'_>, Failure> {
        self.pool.check_out(urgency, deadline)
    }

    /// A pooled connection, and by when `timeout` is over. At most half of it goes into waiting for a free one: with
    /// next to nothing left, a request would only look like one to a server that is silent or away.
    pub(super) fn connection(&self, urgency: Urgency, timeout: Duration) -> Result<(Lent<'_>, Instant), Failure> {
        let now = Instant::now();
        let connection = self.pool.check_out(urgency, now + timeout / 2)?;
        Ok((connection, now + timeout))
    }
}
