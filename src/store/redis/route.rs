//! The way to the server that has a key: there is one server, or a cluster.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{
    cluster::{Attempt, Cluster},
    node::Node,
    pool::Urgency,
    script::{self, Call},
};
use crate::{interrupt::Interrupt, store::Failure};

pub(super) enum Route {
    One(Node),
    Cluster(Arc<Cluster>),
}

impl Route {
    /// Makes a request about the keys in `slot` on a pooled connection; all of it, from check-out to reply, within
    /// `timeout`.
    pub(super) fn ask(
        &self,
        slot: u16,
        urgency: Urgency,
        timeout: Duration,
        interrupt: Option<&Interrupt>,
        attempt: Attempt,
    ) -> Result<Value, Failure> {
        match self {
            Self::One(node) => {
                let (mut connection, deadline) = node.connection(urgency, timeout)?;
                attempt(&mut connection, false, deadline)
            }
            Self::Cluster(cluster) => cluster.ask(slot, urgency, timeout, interrupt, attempt),
        }
    }

    /// Runs one script.
    pub(super) fn call(&self, mut call: Call, urgency: Urgency, timeout: Duration) -> Result<Value, Failure> {
        let slot = call.slot();
        self.ask(slot, urgency, timeout, None, &mut |connection, asking, deadline| {
            call.set_asking(asking);
            script::run(connection, &[&call], deadline)?.remove(0)
        })
    }
}
