//! A place for a worker: a process with a clock and a line to the server, followed by another one when it is killed.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    clock::{Skew, SkewedClock},
    mistakes::Mistake,
    support::{Fault, FaultHandle, Proxy, Server, Worker, is_acquire, is_release, is_renew, is_turn},
    worker,
};

pub struct Seat {
    skew: Skew,
    worker: Worker,
    proxy: Proxy,
    paused_until: Option<Instant>,
    /// A request, or one that is still to come, and how long it is kept from the server.
    kept_back: Option<(FaultHandle, Instant)>,
}

impl Seat {
    /// Starts a worker, whose requests are not rewritten unless there is a mistake to make.
    pub fn new(
        server: &Server,
        clock: &SkewedClock,
        skew: Skew,
        record: &Path,
        mistake: Option<&'static Mistake>,
    ) -> Self {
        let proxy = match mistake {
            None => Proxy::to(server),
            Some(mistake) => Proxy::rewriting(server, mistake.rewriting(skew)),
        };
        Self {
            skew,
            worker: worker::start(proxy.url(), clock, skew, record),
            proxy,
            paused_until: None,
            kept_back: None,
        }
    }

    /// Kills the worker and starts another one.
    pub fn kill(&mut self, clock: &SkewedClock, record: &Path) {
        self.worker.kill();
        self.worker = worker::start(self.proxy.url(), clock, self.skew, record);
        self.paused_until = None;
    }

    pub fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    pub fn pause(&mut self, time: Duration) {
        self.worker.stop();
        self.paused_until = Some(Instant::now() + time);
    }

    /// Keeps the next request of some kind from the server for so long, whatever becomes of the worker.
    pub fn keep_back_a_request(&mut self, time: Duration) {
        let kind = [is_acquire, is_renew, is_renew, is_release, is_turn][fastrand::usize(..5)];
        let handle = self.proxy.on(kind).may_miss().apply(Fault::HoldRequest);
        self.kept_back = Some((handle, Instant::now() + time));
    }

    /// Ends the pause if it is due, and lets the request pass that was kept back for long enough; tells how many such
    /// requests there were.
    pub fn let_go_on(&mut self, now: Instant) -> usize {
        if self.paused_until.take_if(|until| *until <= now).is_some() {
            self.worker.resume();
        }
        let Some((handle, _)) = self.kept_back.take_if(|(_, until)| *until <= now) else {
            return 0;
        };
        handle.end();
        self.proxy.release_held().len()
    }

    pub fn keeps_back(&self) -> bool {
        self.kept_back.is_some()
    }

    /// Kills the worker after all its requests have reached the server.
    pub fn clear(self) {
        self.proxy.release_held();
        // One after the other: the worker ends, and then its line with all that is still on it.
        drop(self.worker);
        drop(self.proxy);
    }
}
