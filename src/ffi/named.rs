//! What the handles of locks and semaphores have in common.

use std::{ffi::c_void, mem, sync::OnceLock};

use super::{
    boundary::{self, Lent, Out},
    callback::{LostCallback, redlatch_destroy_fn, redlatch_lost_fn},
    cancel::redlatch_cancel,
    guard::redlatch_guard,
    inspection::redlatch_inspection,
    status::Failed,
};
use crate::{Error, Guard, Inspection, Lock, Lost, Semaphore, Wait, fork::ProcessBound, sync::Mutex};

/// A lock or semaphore that is set first and acquired then, by any threads. Its settings stand from the first acquire
/// on.
pub(super) struct Named<T> {
    pub(super) name: Lent,
    settings: ProcessBound<Settings<T>>,
}

struct Settings<T> {
    draft: Mutex<T>,
    /// The draft as it was at the first acquire, to be read without a mutex.
    settled: OnceLock<T>,
}

/// What `Named` needs of a lock and of a semaphore.
pub(super) trait Acquirable: Clone {
    fn name(&self) -> &[u8];
    fn check(&self) -> Result<(), Error>;
    fn on_lost(self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self;
    fn acquire_with(&self, wait: Wait) -> Result<Guard, Error>;
    fn with(&self, wait: Wait, work: impl FnOnce()) -> Result<(), Error>;
    fn inspect(&self) -> Result<Inspection, Error>;
    fn force_release(&self) -> Result<bool, Error>;
}

macro_rules! acquirable {
    ($type:ident, $with:ident) => {
        impl Acquirable for $type {
            fn name(&self) -> &[u8] {
                self.name()
            }

            fn check(&self) -> Result<(), Error> {
                self.check()
            }

            fn on_lost(self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
                self.on_lost(callback)
            }

            fn acquire_with(&self, wait: Wait) -> Result<Guard, Error> {
                self.acquire_with(wait)
            }

            fn with(&self, wait: Wait, work: impl FnOnce()) -> Result<(), Error> {
                self.$with(wait, work)
            }

            fn inspect(&self) -> Result<Inspection, Error> {
                self.inspect()
            }

            fn force_release(&self) -> Result<bool, Error> {
                self.force_release()
            }
        }
    };
}
acquirable!(Lock, with_lock_wait);
acquirable!(Semaphore, with_permit_wait);

impl<T: Acquirable> Named<T> {
    pub(super) fn new(draft: T) -> Result<Self, Failed> {
        draft.check()?;
        Ok(Self {
            name: Lent::new(draft.name()),
            settings: ProcessBound::new(Settings {
                draft: Mutex::new(draft),
                settled: OnceLock::new(),
            }),
        })
    }

    /// Changes a setting, if it was not acquired yet and the new setting can work.
    pub(super) fn set(&self, change: impl FnOnce(T) -> T) -> Result<(), Failed> {
        // The process first: in a forked child the mutex may never be unlocked.
        let settings = self.settings.get()?;
        let mut draft = settings.draft.lock();
        if settings.settled.get().is_some() {
            return Err(Failed::invalid_state(
                "its settings cannot be changed any more because it was acquired before",
            ));
        }
        let changed = change(draft.clone());
        changed.check()?;
        let before = mem::replace(&mut *draft, changed);
        // What goes with it may be the program's to destroy, which is not to happen under a mutex.
        drop(draft);
        drop(before);
        Ok(())
    }

    /// Sets what is told of losses. If that fails, nothing is destroyed.
    pub(super) fn set_on_lost(
        &self,
        callback: redlatch_lost_fn,
        user_data: *mut c_void,
        destroy: redlatch_destroy_fn,
    ) -> Result<(), Failed> {
        let callback = callback.ok_or_else(|| Failed::null("callback"))?;
        self.set(|draft| {
            let callback = LostCallback::new(callback, user_data, destroy);
            draft.on_lost(move |lost| callback.call(lost))
        })
    }

    pub(super) fn acquire(
        &self,
        wait_ms: u64,
        cancel: Option<&redlatch_cancel>,
        out: Out<*mut redlatch_guard>,
    ) -> Result<(), Failed> {
        let mut wait = boundary::wait(wait_ms);
        if let Some(cancel) = cancel {
            wait = wait.cancelled_by(cancel.token.get()?);
        }
        let acquired = self.settle()?.acquire_with(wait);
        redlatch_guard::hand_out(acquired.map_err(|error| Failed::of_a_wait(error, wait_ms > 0))?, out);
        Ok(())
    }

    pub(super) fn with(&self, wait_ms: u64, work: impl FnOnce()) -> Result<(), Failed> {
        let done = self.settle()?.with(boundary::wait(wait_ms), work);
        done.map_err(|error| Failed::of_a_wait(error, wait_ms > 0))
    }

    pub(super) fn inspect(&self, out: Out<*mut redlatch_inspection>) -> Result<(), Failed> {
        redlatch_inspection::hand_out(self.look()?.inspect()?, out);
        Ok(())
    }

    pub(super) fn force_release(&self, held: Option<Out<bool>>) -> Result<(), Failed> {
        let was_held = self.look()?.force_release()?;
        if let Some(held) = held {
            held.set(was_held);
        }
        Ok(())
    }

    /// What is to be acquired; from now on nothing can be set.
    fn settle(&self) -> Result<&T, Failed> {
        let settings = self.settings.get()?;
        if let Some(settled) = settings.settled.get() {
            return Ok(settled);
        }
        let draft = settings.draft.lock();
        Ok(settings.settled.get_or_init(|| draft.clone()))
    }

    /// What is to be looked at, by calls for which the settings do not matter.
    pub(super) fn look(&self) -> Result<T, Failed> {
        Ok(self.settings.get()?.draft.lock().clone())
    }
}
