//! Looking through the keys of several servers.

use std::{collections::HashSet, time::Duration};

use crate::{
    Finding,
    store::{Auditor, Failure, redis::parts::RedisAuditor},
};

/// An audit of one server after the other. A key is told once, however many servers have it.
pub(super) struct QuorumAuditor {
    /// Those that are still to be looked through, the last one first.
    servers: Vec<RedisAuditor>,
    told: HashSet<Vec<u8>>,
}

impl QuorumAuditor {
    pub(super) fn new(servers: Vec<RedisAuditor>) -> Self {
        Self {
            servers,
            told: HashSet::new(),
        }
    }
}

impl Auditor for QuorumAuditor {
    fn next_page(&mut self, timeout: Duration) -> Result<Option<Vec<Finding>>, Failure> {
        let Some(server) = self.servers.last_mut() else {
            return Ok(None);
        };
        let Some(mut page) = server.next_page(timeout)? else {
            self.servers.pop();
            return Ok(Some(Vec::new()));
        };
        page.retain(|finding| self.told.insert(finding.key.clone()));
        Ok(Some(page))
    }
}
