//! One server, and the connections to it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{ConnectionInfo, Value};

use super::{
    Settings,
    connection::{Connection, Opener},
    pool::{Lent, Pool, Urgency},
    script::{self, Call},
};
use crate::store::Failure;

pub(in crate::store) struct Node {
    opener: Arc<Opener>,
    pool: Pool,
}

impl Node {
    pub(in crate::store) fn new(info: &ConnectionInfo, settings: &Settings) -> Self {
        let opener = Arc::new(Opener::new(info, settings.connect_timeout));
        Self {
            pool: Pool::new(opener.clone(), settings.pool_size),
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
