//! Handles that know which process made them.
//!
//! After `fork()` a child has copies of its parent's handles, but not of its threads, and it shares the
//! parent's sockets: using or freeing anything through such a copy could block on a mutex that no thread
//! will ever unlock, or speak into the parent's connection.

use std::{mem, process};

use crate::Error;

/// A value that only the process that made it can reach, or drop.
pub(crate) struct ProcessBound<T> {
    // Always `Some` until the drop.
    value: Option<T>,
    owner: u32,
}

impl<T> ProcessBound<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Some(value),
            owner: process::id(),
        }
    }

    /// Returns the value, or `Forked` in any process but the one that made it. Takes no lock.
    pub(crate) fn get(&self) -> Result<&T, Error> {
        if self.owner == process::id() {
            Ok(self.in_any_process())
        } else {
            Err(Error::Forked)
        }
    }

    /// Returns the value in a forked child too. Only for what neither locks nor does I/O.
    pub(crate) fn in_any_process(&self) -> &T {
        self.value.as_ref().expect("present until dropped")
    }
}

impl<T: Clone> Clone for ProcessBound<T> {
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            owner: self.owner,
        }
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        if self.owner != process::id() {
            mem::forget(self.value.take());
        }
    }
}
