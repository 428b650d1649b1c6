//! Ending waits from elsewhere.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
};

use crate::{
    fork::ProcessBound,
    interrupt::Interrupt,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    waiting::{Bell, Ring},
};

/// A switch that ends waits, from any thread: pass it to [`Wait::cancelled_by`](crate::Wait::cancelled_by).
///
/// Its clones are the same switch. One token may end many waits, those that begin later included; there is no way back.
/// It takes mutexes, so a signal handler must not call it. After a `fork()` make a new one in the child: a token of the
/// parent's works there only with delay.
///
/// ```
/// # let client = redlatch::Client::open("memory://")?;
/// use redlatch::{CancelToken, Error, Wait};
///
/// let lock = client.lock("item:42");
/// let guard = lock.acquire()?;
/// let stop = CancelToken::new();
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| lock.acquire_with(Wait::forever().cancelled_by(&stop)).map(drop));
///     stop.cancel();
///     assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled)));
/// });
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Default)]
pub struct CancelToken {
    shared: Arc<Shared>,
}

struct Shared {
    cancelled: AtomicBool,
    /// The waits that are under way.
    waits: ProcessBound<Mutex<Vec<Arc<Cancellable>>>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            cancelled: AtomicBool::new(false),
            waits: ProcessBound::new(Mutex::default()),
        }
    }
}

impl CancelToken {
    /// Makes a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all waits that this token was passed to, now and later. Does not wait for them to return.
    pub fn cancel(&self) {
        // Before the waits: one that is not among them yet looks at this once it is.
        self.shared.cancelled.store(true, Ordering::SeqCst);
        if let Ok(waits) = self.shared.waits.get() {
            waits.lock().iter().for_each(|wait| wait.cancel());
        }
    }

    /// Tells whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::SeqCst)
    }

    /// Has `bell` rung, and the request of that wait broken off, when the token is cancelled, or at once if it is,
    /// until what this returns is dropped.
    pub(crate) fn watch(&self, bell: &Arc<Bell>) -> Watch {
        let wait = Arc::new(Cancellable {
            bell: bell.clone(),
            interrupt: Interrupt::default(),
        });
        if let Ok(waits) = self.shared.waits.get() {
            waits.lock().push(wait.clone());
        }
        if self.is_cancelled() {
            wait.cancel();
        }
        Watch {
            token: self.clone(),
            wait,
        }
    }
}

/// A wait that a token ends.
struct Cancellable {
    bell: Arc<Bell>,
    interrupt: Interrupt,
}

impl Cancellable {
    fn cancel(&self) {
        self.interrupt.trip();
        self.bell.ring(Ring::News);
    }
}

/// As long as it lives, the token ends a wait.
pub(crate) struct Watch {
    token: CancelToken,
    wait: Arc<Cancellable>,
}

impl Watch {
    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.wait.interrupt
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(waits) = self.token.shared.waits.get() {
            waits.lock().retain(|wait| !Arc::ptr_eq(wait, &self.wait));
        }
    }
}

// No user code runs while anything inside is half changed, so a panic in it leaves nothing broken.
impl UnwindSafe for CancelToken {}
impl RefUnwindSafe for CancelToken {}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::{BootClock, Moment};

    #[test]
    fn it_wakes_those_that_wait_and_those_that_come_later() {
        let token = CancelToken::new();
        let bells: [Arc<Bell>; 3] = Default::default();
        thread::scope(|scope| {
            for bell in &bells[..2] {
                scope.spawn(|| {
                    let _watch = token.watch(bell);
                    bell.wait(&BootClock, Moment::NEVER);
                });
            }
            token.clone().cancel();
        });
        let _watch = token.watch(&bells[2]);
        bells[2].wait(&BootClock, Moment::NEVER);
    }

    #[test]
    fn it_lets_go_of_what_no_longer_waits() {
        let token = CancelToken::new();
        let (gone, waiting) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let _watch = token.watch(&waiting);
        drop(token.watch(&gone));
        token.cancel();
        assert!(waiting.is_rung() && !gone.is_rung());
        assert_eq!(Arc::strong_count(&gone), 1);
    }
}
