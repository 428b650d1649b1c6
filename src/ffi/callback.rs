//! Calls from redlatch into the program.

use std::ffi::{c_char, c_void};

use super::{
    boundary::Lent,
    status::{Failed, reason},
};
use crate::Lost;

/// A lease that ended before its holder released it, as an on-lost callback gets it: valid until that returns. Later
/// versions may add fields at its end.
#[repr(C)]
pub struct redlatch_lost {
    /// Why it ended: REDLATCH_LOST_EXPIRED, ...
    pub reason: i32,
    /// The fencing token of the grant that was lost.
    pub fencing_token: u64,
    /// The name of the lock or semaphore: `name_len` bytes, followed by a NUL.
    pub name: *const c_char,
    /// The length of the name.
    pub name_len: usize,
    /// The loss in words: one line of UTF-8, ended by a NUL.
    pub message: *const c_char,
}

/// Is told that a lease was lost: see redlatch_lock_set_on_lost().
pub type redlatch_lost_fn = Option<unsafe extern "C" fn(lost: *const redlatch_lost, user_data: *mut c_void)>;

/// Runs while a lock or permits are held: see redlatch_lock_with().
pub type redlatch_work_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Frees what a callback was to be passed, once it cannot be called any more.
pub type redlatch_destroy_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// What the program gave for losses.
pub(super) struct LostCallback {
    call: unsafe extern "C" fn(*const redlatch_lost, *mut c_void),
    user_data: *mut c_void,
    destroy: redlatch_destroy_fn,
}

// SAFETY: `new` asks for functions that may be called on any thread.
unsafe impl Send for LostCallback {}
// SAFETY: as above.
unsafe impl Sync for LostCallback {}

impl LostCallback {
    /// # Safety
    ///
    /// Both functions may be called with this `user_data` on any thread, `call` until `destroy` is, which is called
    /// last and once, and both return without unwinding.
    pub(super) unsafe fn new(
        call: unsafe extern "C" fn(*const redlatch_lost, *mut c_void),
        user_data: *mut c_void,
        destroy: redlatch_destroy_fn,
    ) -> Self {
        Self {
            call,
            user_data,
            destroy,
        }
    }

    pub(super) fn call(&self, lost: &Lost) {
        let name = Lent::new(lost.name());
        let message = Lent::new(lost.to_string().as_bytes());
        let lost = redlatch_lost {
            reason: reason(lost.reason),
            fencing_token: lost.fencing_token,
            name: name.as_ptr(),
            name_len: lost.name().len(),
            message: message.as_ptr(),
        };
        // SAFETY: as `new` asks for; it was not destroyed, for that takes `self`.
        unsafe { (self.call)(&lost, self.user_data) }
    }
}

impl Drop for LostCallback {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: as `new` asks for; this is the last that is done with `user_data`.
            unsafe { destroy(self.user_data) }
        }
    }
}

/// What the program gave to run under a lock.
///
/// # Safety
///
/// The function may be called with this `user_data` on this thread, and returns without unwinding.
pub(super) unsafe fn work(work: redlatch_work_fn, user_data: *mut c_void) -> Result<impl FnOnce(), Failed> {
    let work = work.ok_or_else(|| Failed::null("fn"))?;
    // SAFETY: as this function asks for.
    Ok(move || unsafe { work(user_data) })
}
