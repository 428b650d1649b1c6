//! What threads share and wait on, from one place, so that the check by interleaving (`src/interleavings`) can put its
//! own in there.
//!
//! The standard library's mutex and condition variable, without poisoning: no user code runs under a mutex here.
//!
//! Not parking_lot's: those keep the queues of all waiting threads in one table for the whole process. A `fork()` in
//! the middle of a change to that table leaves it broken in the child, where a client of the child's own would then
//! hang.

#[cfg(shuttle)]
pub(crate) mod interleaved;

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::{atomic, mpsc},
    thread,
};

#[cfg(shuttle)]
pub(crate) use self::interleaved::{Condvar, Mutex, atomic, mpsc, thread};
#[cfg(not(shuttle))]
pub(crate) use self::plain::{Condvar, Mutex};

#[cfg(not(shuttle))]
mod plain {
    use std::{
        sync::{MutexGuard, PoisonError},
        time::Duration,
    };

    #[derive(Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(std::sync::Condvar);

    impl Condvar {
        /// Waits to be notified, for at most `limit`; may wake early.
        pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
            let waited = self.0.wait_timeout(guard, limit);
            waited.unwrap_or_else(PoisonError::into_inner).0
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
