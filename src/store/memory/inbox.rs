//! Where knocks are left for a client of this process.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::{
    store::{Channel, Failure, Knock, Listener, because},
    sync::{Condvar, Mutex},
};

/// Those of the clients that listen.
#[derive(Default)]
pub(super) struct Inboxes(HashMap<Channel, Weak<Inbox>>);

impl Inboxes {
    pub(super) fn open(&mut self, channel: &Channel) -> InboxListener {
        let inbox = Arc::new(Inbox::default());
        self.0.retain(|_, inbox| inbox.strong_count() > 0);
        self.0.insert(channel.clone(), Arc::downgrade(&inbox));
        InboxListener(inbox)
    }

    /// Tells whether anybody hears it.
    pub(super) fn leave(&mut self, channel: &Channel, knock: Knock) -> bool {
        let Some(inbox) = self.0.get(channel).and_then(Weak::upgrade) else {
            self.0.remove(channel);
            return false;
        };
        inbox.leave(knock);
        true
    }
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    knocks: VecDeque<Knock>,
    stopped: bool,
}

impl Inbox {
    fn leave(&self, knock: Knock) {
        self.state.lock().knocks.push_back(knock);
        self.changed.notify_one();
    }
}

/// Takes the knocks out of an inbox, which lasts as long as this.
pub(super) struct InboxListener(Arc<Inbox>);

impl Listener for InboxListener {
    fn open(&mut self, _: Duration) -> Result<(), Failure> {
        Ok(())
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Knock>, Failure> {
        let start = Instant::now();
        let mut state = self.0.state.lock();
        loop {
            if state.stopped {
                return Err(Failure::Cut(because("it was stopped")));
            }
            if let Some(knock) = state.knocks.pop_front() {
                return Ok(Some(knock));
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.0.changed.wait_for(state, left);
        }
    }

    fn stopper(&self) -> Box<dyn Fn() + Send + Sync> {
        let inbox = self.0.clone();
        Box::new(move || {
            inbox.state.lock().stopped = true;
            inbox.changed.notify_one();
        })
    }
}
