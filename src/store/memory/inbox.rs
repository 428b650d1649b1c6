//! Where knocks are left for a client of this process.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    store::{Failure, Knock, Listener, because},
    sync::{Condvar, Mutex},
};

#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    knocks: VecDeque<Knock>,
    stopped: bool,
}

impl Inbox {
    pub(super) fn leave(&self, knock: Knock) {
        self.state.lock().knocks.push_back(knock);
        self.changed.notify_one();
    }
}

/// Takes the knocks out of an inbox, which lasts as long as this.
pub(super) struct InboxListener(pub(super) Arc<Inbox>);

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
