//! Threads that can be waited for with a bound.

use std::{convert::Infallible, io, time::Duration};

use crate::{
    signals,
    sync::{
        mpsc,
        thread::{self, JoinHandle},
    },
};

/// A named thread of redlatch's own, which gets no signals.
pub(crate) struct Background {
    thread: JoinHandle<()>,
    /// Nothing is ever sent: the other end is dropped when the thread's work ends.
    ended: mpsc::Receiver<Infallible>,
}

impl Background {
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (running, ended) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = signals::blocked(|| {
            thread.spawn(move || {
                let _running: mpsc::Sender<Infallible> = running;
                work();
            })
        })?;
        Ok(Self { thread, ended })
    }

    /// Waits for the thread to end, for at most `bound`; on the thread itself returns at once.
    pub(crate) fn join_within(self, bound: Duration) {
        if self.thread.thread().id() == thread::current().id() {
            return;
        }
        if self.ended.recv_timeout(bound) == Err(mpsc::RecvTimeoutError::Disconnected) {
            // A panic was already told by the panic hook.
            let _ = self.thread.join();
        }
    }
}
