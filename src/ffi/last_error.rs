//! What the last call that failed on a thread had to say.

use std::{
    cell::{Cell, RefCell},
    ffi::c_char,
    ptr,
};

use super::status::{Failed, REDLATCH_LOST_NOT};

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
    // There until the very end of the thread, since it needs no destructor.
    static LOST: Cell<i32> = const { Cell::new(REDLATCH_LOST_NOT) };
}

/// Keeps it until the next failure on this thread; returns its code.
pub(super) fn keep(failed: Failed) -> i32 {
    // One line, and a string to C, whatever a server put into its error.
    let message = failed.message.replace(|character: char| character.is_control(), " ");
    // A thread that is ending has no place for it any more.
    let _ = MESSAGE.try_with(|place| place.replace(message));
    LOST.set(failed.lost);
    failed.status
}

/// Copies the message of the last call that failed on this thread into `buf`: one line of UTF-8 with the causes and
/// without any password, cut at `cap` - 1 bytes (never within a character) and ended by a NUL. Returns its full length
/// without the NUL, whatever was cut: 0 if no call has failed. A call that succeeds leaves it as it is. It may be gone
/// when the last destructors of a thread run.
///
/// `buf` may be NULL if `cap` is 0, to learn the length. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_last_error_message(buf: *mut c_char, cap: usize) -> usize {
    let message = MESSAGE.try_with(|message| message.borrow().clone()).unwrap_or_default();
    if !buf.is_null() && cap > 0 {
        let mut length = message.len().min(cap - 1);
        while !message.is_char_boundary(length) {
            length -= 1;
        }
        // SAFETY: the caller says that `cap` bytes may be written, and `length` + 1 are no more.
        unsafe {
            ptr::copy_nonoverlapping(message.as_ptr(), buf.cast(), length);
            buf.add(length).write(0);
        }
    }
    message.len()
}

/// Returns why the lease was lost, if the last call that failed on this thread returned REDLATCH_LOST: one of the
/// REDLATCH_LOST_... reasons; else REDLATCH_LOST_NOT. For calls that have no guard to ask, such as
/// redlatch_lock_with(). No I/O.
#[unsafe(no_mangle)]
pub extern "C" fn redlatch_last_lost_reason() -> i32 {
    LOST.get()
}
