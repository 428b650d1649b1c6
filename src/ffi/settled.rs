//! Settings that stand from the first acquire on.

use std::{mem, sync::OnceLock};

use super::status::Failed;
use crate::{Error, Lock, Semaphore, fork::ProcessBound, sync::Mutex};

/// A lock or semaphore that is set first and acquired then, by any threads.
pub(super) struct Settled<T>(ProcessBound<State<T>>);

struct State<T> {
    draft: Mutex<T>,
    /// The draft as it was at the first acquire, to be read without a mutex.
    settled: OnceLock<T>,
}

/// A lock or semaphore, which can tell if its settings can work.
pub(super) trait Settings: Clone {
    fn check(&self) -> Result<(), Error>;
}

impl Settings for Lock {
    fn check(&self) -> Result<(), Error> {
        self.check()
    }
}

impl Settings for Semaphore {
    fn check(&self) -> Result<(), Error> {
        self.check()
    }
}

impl<T: Settings> Settled<T> {
    pub(super) fn new(draft: T) -> Result<Self, Failed> {
        draft.check()?;
        Ok(Self(ProcessBound::new(State {
            draft: Mutex::new(draft),
            settled: OnceLock::new(),
        })))
    }

    /// Changes a setting, if it was not acquired yet and the new setting can work.
    pub(super) fn set(&self, change: impl FnOnce(T) -> T) -> Result<(), Failed> {
        // The process first: in a forked child the mutex may never be unlocked.
        let state = self.0.get()?;
        let mut draft = state.draft.lock();
        if state.settled.get().is_some() {
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

    /// What is to be acquired; from now on nothing can be set.
    pub(super) fn settle(&self) -> Result<&T, Failed> {
        let state = self.0.get()?;
        if let Some(settled) = state.settled.get() {
            return Ok(settled);
        }
        let draft = state.draft.lock();
        Ok(state.settled.get_or_init(|| draft.clone()))
    }

    /// What is to be looked at, by calls for which the settings do not matter.
    pub(super) fn look(&self) -> Result<T, Failed> {
        Ok(self.0.get()?.draft.lock().clone())
    }
}
