//! `redlatch_cancel`: ending waits from elsewhere.

use super::boundary::{Out, answer, borrow, free, report};
use crate::{CancelToken, fork::ProcessBound};

/// A switch that ends waits, from any thread: pass it to redlatch_lock_acquire() or redlatch_semaphore_acquire().
///
/// One may end many waits, those that begin later included; there is no way back. Free it when the acquires that it was
/// passed to have returned.
pub struct redlatch_cancel {
    pub(super) token: ProcessBound<CancelToken>,
}

/// Makes a switch that is not cancelled. No I/O.
///
/// Errors: REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_cancel_new(out: *mut *mut redlatch_cancel) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let out = unsafe { Out::new(out, "out") }?;
        out.hand_out(redlatch_cancel {
            token: ProcessBound::new(CancelToken::new()),
        });
        Ok(())
    })
}

/// Ends all waits that it was passed to, now and later, with REDLATCH_CANCELLED. Does not wait for them to return.
///
/// From any thread, but not from a signal handler: it takes mutexes. A program that is to stop at a signal has a thread
/// that waits for it (sigwait), or that reads what the handler wrote into a pipe.
///
/// Errors: REDLATCH_NULL_POINTER, REDLATCH_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_cancel_cancel(cancel: *const redlatch_cancel) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let cancel = unsafe { borrow(cancel, "cancel") }?;
        cancel.token.get()?.cancel();
        Ok(())
    })
}

/// Tells whether redlatch_cancel_cancel() was called. False for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_cancel_is_cancelled(cancel: *const redlatch_cancel) -> bool {
    answer(false, || {
        // SAFETY: see the module.
        let cancel = unsafe { borrow(cancel, "cancel") }?;
        Ok(cancel.token.in_any_process().is_cancelled())
    })
}

/// Frees a switch, without cancelling anything. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_cancel_free(cancel: *mut redlatch_cancel) {
    // SAFETY: see the module.
    unsafe { free(cancel) }
}
