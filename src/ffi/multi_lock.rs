//! `redlatch_multi_lock`.

use std::{
    ffi::{c_char, c_void},
    ptr,
    time::Duration,
};

use super::{
    boundary::{Out, answer, borrow, free, report, several_bytes},
    callback::{self, redlatch_destroy_fn, redlatch_lost_fn, redlatch_work_fn},
    cancel::redlatch_cancel,
    client::redlatch_client,
    guard::redlatch_guard,
    handle::Handle,
    status::Failed,
};
use crate::{MultiLock, multi_lock::check_count};

/// Several named locks that are held as one, by one guard. They are the very locks of those names that
/// redlatch_lock_new() gives: who holds several keeps out who wants one of them, and the other way round.
///
/// Whoever waits takes the locks one after the other, in one order that is the same everywhere, and keeps those that it
/// has meanwhile; so no two can wait for each other, and one that wants many does not starve. It is a description, not
/// a hold: many threads may acquire through one. Its settings stand from the first acquire on.
pub struct redlatch_multi_lock {
    handle: Handle<MultiLock>,
}

/// Names `count` locks, from 1 to 1000, that are held as one. Their leases (30 s unless set) are renewed in the
/// background until they are released. No I/O.
///
/// Each name is as many bytes as `lens` says, or what stands before the first NUL with REDLATCH_NUL_TERMINATED, or for
/// all of them if `lens` is NULL; any bytes, at least one. They may come in any order; one that comes twice counts
/// once.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a name or a `count` that cannot be used, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_new(
    client: *const redlatch_client,
    names: *const *const c_char,
    lens: *const usize,
    count: usize,
    out: *mut *mut redlatch_multi_lock,
) -> i32 {
    report(|| {
        // Before they are looked at: it may well be no number at all.
        check_count(count)?;
        // SAFETY: see the module.
        let (client, names, out) = unsafe {
            (
                borrow(client, "client")?,
                several_bytes(names, lens, count, "names")?,
                Out::new(out, "out")?,
            )
        };
        let handle = Handle::new(client.client.multi_lock(names))?;
        out.hand_out(redlatch_multi_lock { handle });
        Ok(())
    })
}

/// Sets how long the locks stay taken after their holder was last heard of: what a crash costs the others. In
/// milliseconds, from 10 ms to 10 years; defaults to 30000.
///
/// It should be several times the command timeout, so that a renewal can fail and be made again in time.
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_set_lease_ms(locks: *mut redlatch_multi_lock, lease_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let locks = unsafe { borrow(locks, "locks") }?;
        locks.handle.set(|locks| locks.lease(Duration::from_millis(lease_ms)))
    })
}

/// Sets how long the locks may be held in all, counted from when all of them are: then they are lost, with
/// REDLATCH_LOST_MAX_HOLD. In milliseconds, at least 10; defaults to no limit.
///
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_set_max_hold_ms(locks: *mut redlatch_multi_lock, max_hold_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let locks = unsafe { borrow(locks, "locks") }?;
        let max_hold = Duration::from_millis(max_hold_ms);
        locks.handle.set(|locks| locks.max_hold(max_hold))
    })
}

/// Sets a function that is told of each lock that is lost while the guard exists, by its name: in all as with
/// redlatch_lock_set_on_lost(). The locks that are not lost are still renewed, until the guard is released.
///
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER for `callback`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_set_on_lost(
    locks: *mut redlatch_multi_lock,
    callback: redlatch_lost_fn,
    user_data: *mut c_void,
) -> i32 {
    // SAFETY: nothing is destroyed; otherwise the same.
    unsafe { redlatch_multi_lock_set_on_lost_owned(locks, callback, user_data, None) }
}

/// The same as redlatch_multi_lock_set_on_lost() for a `user_data` that belongs to redlatch from now on: `destroy` is
/// called with it, on any thread, once the callback cannot be called any more. (Not in a forked child, and not if this
/// call fails.)
///
/// Errors: those of redlatch_multi_lock_set_on_lost(). `destroy` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_set_on_lost_owned(
    locks: *mut redlatch_multi_lock,
    callback: redlatch_lost_fn,
    user_data: *mut c_void,
    destroy: redlatch_destroy_fn,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        unsafe { borrow(locks, "locks")?.handle.set_on_lost(callback, user_data, destroy) }
    })
}

/// Acquires all of the locks, waiting for at most `wait_ms` milliseconds in all: 0 tries once and never waits,
/// REDLATCH_FOREVER waits as long as it takes. One round trip if they are free and on one server. `cancel` ends the
/// wait; it may be NULL. The guard has to be freed by redlatch_guard_free(). If it fails, nothing is held.
///
/// A wait ends at most two command timeouts after `wait_ms`.
///
/// Errors: those of redlatch_lock_acquire(): REDLATCH_BUSY or REDLATCH_TIMEOUT if one of them cannot be had, which the
/// message names, REDLATCH_KEY_CONFLICT if the key of one of them, or one of its helper keys, holds something else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_acquire(
    locks: *const redlatch_multi_lock,
    wait_ms: u64,
    cancel: *const redlatch_cancel,
    out: *mut *mut redlatch_guard,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (locks, cancel, out) = unsafe { (borrow(locks, "locks")?, cancel.as_ref(), Out::new(out, "out")?) };
        locks.handle.acquire(wait_ms, cancel, out)
    })
}

/// Calls `fn` with `user_data` while all of the locks are held, on this thread, after waiting as
/// redlatch_multi_lock_acquire() does.
///
/// `fn` must return: no longjmp, no C++ exception and no pthread_exit may leave it.
///
/// Errors: REDLATCH_LOST if one of them was lost before `fn` ended: it did run, and redlatch_last_lost_reason() tells
/// why it was lost. Otherwise the errors of redlatch_multi_lock_acquire(), and `fn` did not run. A release that the
/// server does not confirm is no error: it is completed in the background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_with(
    locks: *const redlatch_multi_lock,
    wait_ms: u64,
    r#fn: redlatch_work_fn,
    user_data: *mut c_void,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (locks, work) = unsafe { (borrow(locks, "locks")?, callback::work(r#fn, user_data)?) };
        locks.handle.with(wait_ms, work)
    })
}

/// Returns how many locks they are, each of them counted once. 0 for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_count(locks: *const redlatch_multi_lock) -> usize {
    answer(0, || {
        // SAFETY: see the module.
        Ok(unsafe { borrow(locks, "locks") }?.handle.names.len())
    })
}

/// Returns the name of one of them, from 0 on in the order in which they are taken; it may have NULs inside and is
/// followed by a NUL. It belongs to the multi-lock. Its length is written to `len` unless that is NULL. NULL for NULL,
/// and if there is none of that index. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_name(
    locks: *const redlatch_multi_lock,
    index: usize,
    len: *mut usize,
) -> *const c_char {
    answer(ptr::null(), || {
        // SAFETY: see the module.
        let locks = unsafe { borrow(locks, "locks") }?;
        let name = locks.handle.names.get(index);
        let name = name.ok_or_else(|| Failed::invalid("there is no name of this index"))?;
        // SAFETY: see the module.
        Ok(unsafe { name.with_length(len) })
    })
}

/// Frees it. Guards acquired through it go on holding. Does nothing for NULL.
///
/// Blocks for at most one command timeout if it was the last handle of its client. In a forked child no I/O, and no
/// waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_multi_lock_free(locks: *mut redlatch_multi_lock) {
    // SAFETY: see the module.
    unsafe { free(locks) }
}
