//! Calls the users' callbacks, on a thread of their own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use crate::{
    background::Background,
    lease::{Lost, OnLost},
    sync::Mutex,
};

type Report = (Lost, OnLost);

/// Runs `on_lost` callbacks one after the other, apart from the renewals: a callback that blocks or panics costs
/// no other lease. The thread starts with the first loss.
#[derive(Default)]
pub(super) struct Reporter(Mutex<Option<(Sender<Report>, Background)>>);

impl Reporter {
    pub(super) fn report(&self, lost: Lost, on_lost: OnLost) {
        let mut running = self.0.lock();
        if running.is_none() {
            let (sender, reports) = mpsc::channel();
            *running = Background::spawn("redlatch-on-lost", move || run(reports))
                .ok()
                .map(|thread| (sender, thread));
        }
        let sender = running.as_ref().map(|(sender, _)| sender.clone());
        // Not under the mutex: without a thread the callback runs here.
        drop(running);
        match sender {
            // The receiver lives as long as the sender that `running` keeps.
            Some(sender) => drop(sender.send((lost, on_lost))),
            None => call((lost, on_lost)),
        }
    }

    /// Lets the thread finish what was reported, and waits for it for at most `bound`.
    pub(super) fn close(&self, bound: Duration) {
        let running = self.0.lock().take();
        if let Some((sender, thread)) = running {
            drop(sender);
            thread.join_within(bound);
        }
    }
}

fn run(reports: Receiver<Report>) {
    reports.into_iter().for_each(call);
}

fn call((lost, on_lost): Report) {
    // The callback is dropped in here as well: what it owns may panic too. The panic hook has told of it.
    let _ = catch_unwind(AssertUnwindSafe(move || on_lost(&lost)));
}
