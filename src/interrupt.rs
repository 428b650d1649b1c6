//! Ending a request that is under way, from another thread.

use std::mem;

use crate::sync::Mutex;

/// Tripped once; from then on whatever runs under it ends at once, as far as it can.
#[derive(Default)]
pub(crate) struct Interrupt(Mutex<State>);

#[derive(Default)]
struct State {
    tripped: bool,
    /// What ends the request that is under way.
    hook: Option<Box<dyn Fn() + Send>>,
}

impl Interrupt {
    pub(crate) fn trip(&self) {
        let mut state = self.0.lock();
        state.tripped = true;
        // Under the mutex, so that it never runs after the request was over and the connection is somebody else's.
        if let Some(hook) = &state.hook {
            hook();
        }
    }

    pub(crate) fn is_tripped(&self) -> bool {
        self.0.lock().tripped
    }

    /// Has `hook` called when it is tripped, until what this returns is dropped; `None` if it was tripped already. The
    /// hook must not block.
    pub(crate) fn arm(&self, hook: impl Fn() + Send + 'static) -> Option<Armed<'_>> {
        let mut state = self.0.lock();
        if state.tripped {
            return None;
        }
        state.hook = Some(Box::new(hook));
        Some(Armed(self))
    }
}

pub(crate) struct Armed<'a>(&'a Interrupt);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        drop(mem::take(&mut self.0.0.lock().hook));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    #[test]
    fn it_ends_what_is_under_way_lets_nothing_begin_and_leaves_alone_what_is_over() {
        let (interrupt, calls) = (Interrupt::default(), Arc::new(AtomicU32::new(0)));
        let hook = || {
            let calls = calls.clone();
            move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        drop(interrupt.arm(hook()));
        let armed = interrupt.arm(hook());
        interrupt.trip();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(armed);
        assert!(interrupt.arm(hook()).is_none());
    }
}
