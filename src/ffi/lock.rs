//! `redlatch_lock`.

use std::{
    ffi::{c_char, c_void},
    ptr,
    time::Duration,
};

use super::{
    boundary::{Out, answer, borrow, bytes, free, report},
    callback::{self, redlatch_destroy_fn, redlatch_lost_fn, redlatch_work_fn},
    cancel::redlatch_cancel,
    client::redlatch_client,
    guard::redlatch_guard,
    handle::Handle,
    inspection::redlatch_inspection,
    status::Failed,
};
use crate::Lock;

/// A named lock that at most one guard holds at a time, whoever asks for it: threads, processes, machines.
///
/// It is a description, not a hold: many threads may acquire through one. It is not reentrant: a thread that already
/// holds the lock and acquires it again waits for itself. Its settings stand from the first acquire on.
pub struct redlatch_lock {
    handle: Handle<Lock>,
}

impl redlatch_lock {
    fn hand_out(lock: Lock, out: Out<*mut Self>) -> Result<(), Failed> {
        out.hand_out(Self {
            handle: Handle::new(lock)?,
        });
        Ok(())
    }
}

/// Names a lock whose lease (30 s unless set) is renewed in the background until it is released. No I/O.
///
/// The name is `len` bytes, or what stands before the first NUL with REDLATCH_NUL_TERMINATED; any bytes, at least one.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a name that cannot be used, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_new(
    client: *const redlatch_client,
    name: *const c_char,
    len: usize,
    out: *mut *mut redlatch_lock,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (client, name, out) = unsafe {
            (
                borrow(client, "client")?,
                bytes(name, len, "name")?,
                Out::new(out, "out")?,
            )
        };
        redlatch_lock::hand_out(client.client.lock(name), out)
    })
}

/// Names a lock with a fixed lease of `lease_ms` milliseconds (10 to 10 years), which is never renewed: extend it by
/// redlatch_guard_extend_ms(). No I/O. For work that must not run on unnoticed. Size the lease to the slow tail of the
/// work, not the median.
///
/// The name is `len` bytes, or what stands before the first NUL with REDLATCH_NUL_TERMINATED; any bytes, at least one.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a name or a lease that cannot be used, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_timed_lock_new(
    client: *const redlatch_client,
    name: *const c_char,
    len: usize,
    lease_ms: u64,
    out: *mut *mut redlatch_lock,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (client, name, out) = unsafe {
            (
                borrow(client, "client")?,
                bytes(name, len, "name")?,
                Out::new(out, "out")?,
            )
        };
        redlatch_lock::hand_out(client.client.timed_lock(name, Duration::from_millis(lease_ms)), out)
    })
}

/// Sets how long the lock stays taken after its holder was last heard of: what a crash costs the others. In
/// milliseconds, from 10 ms to 10 years; defaults to 30000, or what redlatch_timed_lock_new() was given.
///
/// A lease that is renewed should be several times the command timeout, so that a renewal can fail and be made again in
/// time; any lease should be many round trips.
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_lease_ms(lock: *mut redlatch_lock, lease_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let lock = unsafe { borrow(lock, "lock") }?;
        lock.handle.set(|lock| lock.lease(Duration::from_millis(lease_ms)))
    })
}

/// Sets how long one grant may last in all: then it is lost, with REDLATCH_LOST_MAX_HOLD. Leases are asked for, and
/// renewed, so that it ends by then. In milliseconds, at least 10; defaults to no limit.
///
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_max_hold_ms(lock: *mut redlatch_lock, max_hold_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let lock = unsafe { borrow(lock, "lock") }?;
        lock.handle
            .set(|lock| lock.max_hold(Duration::from_millis(max_hold_ms)))
    })
}

/// Sets whether those who wait are served strictly in the order in which they came: all threads of all processes, each
/// with a place of its own at the server. Defaults to false.
///
/// The order holds among those who set it. Each grant costs round trips, where threads of one client otherwise hand the
/// lock on to each other. A waiter that was killed or stopped holds up those behind it for two and a half poll
/// intervals at most: 2.5 s unless set.
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_fair(lock: *mut redlatch_lock, fair: bool) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let lock = unsafe { borrow(lock, "lock") }?;
        lock.handle.set(|lock| lock.fair(fair))
    })
}

/// Sets how often in a row the lock may be handed on to another thread of this client that waits for it without a round
/// trip; then another client gets it if one waits. 0 is never; defaults to 64.
///
/// Each hand-over is a grant of its own, with a fencing token of its own. However many there may be, after 20 ms others
/// get their turn. Only renewed ones that are not fair are handed on, to those who wait with equal settings.
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_handoffs(lock: *mut redlatch_lock, handoffs: u32) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let lock = unsafe { borrow(lock, "lock") }?;
        lock.handle.set(|lock| lock.handoffs(handoffs))
    })
}

/// Sets how many replicas of the server have to confirm each grant, renewal and extension, and for how long that is
/// waited for: at least 1 replica, and `timeout_ms` milliseconds, from 1 to 3600000 (1 hour). Defaults to none.
///
/// It makes it unlikely that a failover loses the lock, and not impossible: fencing tokens are what helps then. A grant
/// that too few confirm is given back, and the acquire ends with REDLATCH_NOT_REPLICATED, whatever it would still have
/// waited; a renewal is made again until the lease ends. One round trip more, which counts into the lease; the time
/// that replicas take comes on top of the command timeout. A lock with this set is not handed on.
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_UNSUPPORTED where there are no replicas that could confirm it
/// ("memory://", Redlock), REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_replicas(lock: *mut redlatch_lock, count: u32, timeout_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let lock = unsafe { borrow(lock, "lock") }?;
        lock.handle
            .set(|lock| lock.replicas(count, Duration::from_millis(timeout_ms)))
    })
}

/// Sets a function that is told when a lease is lost: when it ends here, which is before the server frees the lock, or
/// as soon as a request finds the lock gone. Once for each lost lease.
///
/// It is called on a thread of the client's own, with all signals blocked but those of the thread's own faults; the
/// client's callbacks run one after the other. So it may come late while an earlier one is running, or after the
/// process was paused; work that must stop in time asks redlatch_guard_check() before each write. It may call anything
/// of redlatch, and must return: no longjmp, no C++ exception and no pthread_exit may leave it.
///
/// `user_data` is passed on to it, and must be fit for that until the lock and all its guards were freed, and a
/// callback that is under way then has returned: with redlatch_lock_set_on_lost_owned() you are told when.
///
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER for `callback`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_on_lost(
    lock: *mut redlatch_lock,
    callback: redlatch_lost_fn,
    user_data: *mut c_void,
) -> i32 {
    // SAFETY: nothing is destroyed; otherwise the same.
    unsafe { redlatch_lock_set_on_lost_owned(lock, callback, user_data, None) }
}

/// The same as redlatch_lock_set_on_lost() for a `user_data` that belongs to redlatch from now on: `destroy` is called
/// with it, on any thread, once the callback cannot be called any more. (Not in a forked child, and not if this call
/// fails.)
///
/// Errors: those of redlatch_lock_set_on_lost(). `destroy` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_set_on_lost_owned(
    lock: *mut redlatch_lock,
    callback: redlatch_lost_fn,
    user_data: *mut c_void,
    destroy: redlatch_destroy_fn,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        unsafe { borrow(lock, "lock")?.handle.set_on_lost(callback, user_data, destroy) }
    })
}

/// Acquires the lock, waiting for at most `wait_ms` milliseconds: 0 tries once and never waits, REDLATCH_FOREVER waits
/// as long as it takes. `cancel` ends the wait; it may be NULL. The guard has to be freed by redlatch_guard_free().
///
/// A wait ends at most one command timeout after `wait_ms`. The lease counts from before the request that was granted,
/// however long the wait was.
///
/// Errors:
/// - REDLATCH_BUSY if somebody holds it, with a `wait_ms` of 0; REDLATCH_TIMEOUT with any other.
/// - REDLATCH_CANCELLED when `cancel` was.
/// - REDLATCH_CONNECTION at once if the server cannot be reached. Once it has answered, or taken a request and been
///   silent, outages are ridden out until the wait is over.
/// - REDLATCH_UNCONFIRMED if the attempt of a `wait_ms` of 0 got no answer, if the server hung up on the first attempts
///   of a wait, or if grants take longer to arrive than their lease holds.
/// - REDLATCH_SERVER if the server refuses the request for good, or with a `wait_ms` of 0 for now.
/// - REDLATCH_NO_QUORUM with a `wait_ms` of 0 if too few servers of a Redlock grant it, or can be asked.
/// - REDLATCH_NOT_REPLICATED if too few replicas confirm the grant: see redlatch_lock_set_replicas().
/// - REDLATCH_KEY_CONFLICT if the key, or one of its helper keys, holds something else.
/// - REDLATCH_THREAD, REDLATCH_FORKED, REDLATCH_NULL_POINTER: nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_acquire(
    lock: *const redlatch_lock,
    wait_ms: u64,
    cancel: *const redlatch_cancel,
    out: *mut *mut redlatch_guard,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (lock, cancel, out) = unsafe { (borrow(lock, "lock")?, cancel.as_ref(), Out::new(out, "out")?) };
        lock.handle.acquire(wait_ms, cancel, out)
    })
}

/// Calls `fn` with `user_data` while the lock is held, on this thread, after waiting as redlatch_lock_acquire() does.
///
/// `fn` must return: no longjmp, no C++ exception and no pthread_exit may leave it.
///
/// Errors: REDLATCH_LOST if the lease was lost before `fn` ended: it did run, and redlatch_last_lost_reason() tells why
/// it was lost. Otherwise the errors of redlatch_lock_acquire(), and `fn` did not run. A release that the server does
/// not confirm is no error: it is completed in the background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_with(
    lock: *const redlatch_lock,
    wait_ms: u64,
    r#fn: redlatch_work_fn,
    user_data: *mut c_void,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (lock, work) = unsafe { (borrow(lock, "lock")?, callback::work(r#fn, user_data)?) };
        lock.handle.with(wait_ms, work)
    })
}

/// Looks at what stands on the server for this name. One round trip, at most one command timeout; waits for nobody and
/// changes nothing. What was seen has to be freed by redlatch_inspection_free().
///
/// Errors: REDLATCH_CONNECTION, REDLATCH_UNCONFIRMED or REDLATCH_SERVER if the server cannot be reached, does not
/// answer, or refuses; REDLATCH_KEY_CONFLICT if the key holds something else; REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_inspect(lock: *const redlatch_lock, out: *mut *mut redlatch_inspection) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (lock, out) = unsafe { (borrow(lock, "lock")?, Out::new(out, "out")?) };
        lock.handle.inspect(out)
    })
}

/// Throws out whoever holds the lock, of redlatch or not. `held` gets whether somebody did; it may be NULL. Two round
/// trips, at most three command timeouts.
///
/// For operators, when the holder is known to be gone. It breaks the first guarantee: a holder that lives is told at
/// its next renewal, extension or release, and believes until then that it holds the lock.
///
/// Errors: those of redlatch_lock_inspect(). After REDLATCH_UNCONFIRMED a holder may have been thrown out: do it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_force_release(lock: *const redlatch_lock, held: *mut bool) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (lock, held) = unsafe { (borrow(lock, "lock")?, Out::new(held, "held").ok()) };
        lock.handle.force_release(held)
    })
}

/// Returns the name, which may have NULs inside, followed by a NUL. It belongs to the lock. Its length is written to
/// `len` unless that is NULL. NULL for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_name(lock: *const redlatch_lock, len: *mut usize) -> *const c_char {
    answer(ptr::null(), || {
        // SAFETY: see the module.
        unsafe { Ok(borrow(lock, "lock")?.handle.name().with_length(len)) }
    })
}

/// Frees a lock. Guards acquired through it go on holding. Does nothing for NULL.
///
/// Blocks for at most one command timeout if it was the last handle of its client. In a forked child no I/O, and no
/// waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_lock_free(lock: *mut redlatch_lock) {
    // SAFETY: see the module.
    unsafe { free(lock) }
}
