//! What the handles of locks, semaphores and several locks have in common.

use std::{ffi::c_void, mem, sync::OnceLock};

use super::{
    boundary::{self, Lent, Out},
    callback::{LostCallback, redlatch_destroy_fn, redlatch_lost_fn},
    cancel::redlatch_cancel,
    guard::redlatch_guard,
    inspection::redlatch_inspection,
    status::Failed,
};
use crate::{Error, Guard, Lock, Lost, MultiLock, Semaphore, Wait, fork::ProcessBound, named::Named, sync::Mutex};

/// A lock, semaphore or several locks, set first and acquired then, by any threads. Its settings stand from the first
/// acquire on.
pub(super) struct Handle<T> {
    /// One at least.
    pub(super) names: Box<[Lent]>,
    settings: ProcessBound<Settings<T>>,
}

struct Settings<T> {
    draft: Mutex<T>,
    /// The draft as it was at the first acquire, to be read without a mutex.
    settled: OnceLock<T>,
}

/// What can be acquired.
pub(super) trait Acquirable: Clone {
    /// Refuses names and settings that cannot work.
    fn check(&self) -> Result<(), Error>;
    fn names(&self) -> Box<[Lent]>;
    fn acquire(&self, wait: Wait) -> Result<Guard, Error>;
    fn on_lost(self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self;
}

/// What has one name: a lock or a semaphore.
pub(super) trait OfOneName: Acquirable {
    fn named(&self) -> &Named;
}

macro_rules! of_one_name {
    ($($kind:ty)*) => {
        $(impl OfOneName for $kind {
            fn named(&self) -> &Named {
                &self.named
            }
        }

        impl Acquirable for $kind {
            fn check(&self) -> Result<(), Error> {
                self.named.check()
            }

            fn names(&self) -> Box<[Lent]> {
                [Lent::new(&self.named.name)].into()
            }

            fn acquire(&self, wait: Wait) -> Result<Guard, Error> {
                self.named.acquire(wait)
            }

            fn on_lost(self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
                self.on_lost(callback)
            }
        })*
    };
}

of_one_name! { Lock Semaphore }

impl Acquirable for MultiLock {
    fn check(&self) -> Result<(), Error> {
        self.check()
    }

    fn names(&self) -> Box<[Lent]> {
        self.names().map(Lent::new).collect()
    }

    fn acquire(&self, wait: Wait) -> Result<Guard, Error> {
        self.acquire_with(wait)
    }

    fn on_lost(self, callback: impl Fn(&Lost) + Send + Sync + 'static) -> Self {
        self.on_lost(callback)
    }
}

impl<T: Acquirable> Handle<T> {
    pub(super) fn new(draft: T) -> Result<Self, Failed> {
        draft.check()?;
        Ok(Self {
            names: draft.names(),
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
        let outcome = changed.check();
        let done_with = match outcome {
            Ok(()) => mem::replace(&mut *draft, changed),
            Err(_) => changed,
        };
        // What goes with it may be the program's to destroy, which is not to happen under a mutex.
        drop(draft);
        drop(done_with);
        Ok(outcome?)
    }

    /// Sets what is told of losses. If that fails, nothing is destroyed: a draft that could work still can.
    ///
    /// # Safety
    ///
    /// As [`LostCallback::new`] asks for.
    pub(super) unsafe fn set_on_lost(
        &self,
        callback: redlatch_lost_fn,
        user_data: *mut c_void,
        destroy: redlatch_destroy_fn,
    ) -> Result<(), Failed> {
        let callback = callback.ok_or_else(|| Failed::null("callback"))?;
        self.set(|draft| {
            // SAFETY: as this function asks for.
            let callback = unsafe { LostCallback::new(callback, user_data, destroy) };
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
        let acquired = self.settle()?.acquire(wait);
        redlatch_guard::hand_out(acquired.map_err(|error| Failed::of_a_wait(error, wait_ms > 0))?, out);
        Ok(())
    }

    pub(super) fn with(&self, wait_ms: u64, work: impl FnOnce()) -> Result<(), Failed> {
        let acquired = self.settle()?.acquire(boundary::wait(wait_ms));
        let guard = acquired.map_err(|error| Failed::of_a_wait(error, wait_ms > 0))?;
        Ok(guard.run(|_| work())?)
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
    pub(super) fn draft(&self) -> Result<T, Failed> {
        Ok(self.settings.get()?.draft.lock().clone())
    }
}

impl<T: OfOneName> Handle<T> {
    pub(super) fn name(&self) -> &Lent {
        &self.names[0]
    }

    pub(super) fn inspect(&self, out: Out<*mut redlatch_inspection>) -> Result<(), Failed> {
        redlatch_inspection::hand_out(self.draft()?.named().inspect()?, out);
        Ok(())
    }

    pub(super) fn force_release(&self, held: Option<Out<bool>>) -> Result<(), Failed> {
        let was_held = self.draft()?.named().force_release()?;
        if let Some(held) = held {
            held.set(was_held);
        }
        Ok(())
    }
}
