//! `redlatch_semaphore`.

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
};
use crate::Semaphore;

/// A named number of permits, of which each guard holds one, or several: at most so many at a time, whoever asks:
/// threads, processes, machines.
///
/// It is a description, not a hold: many threads may acquire through one, and each acquire takes permits of its own.
/// Its settings stand from the first acquire on.
pub struct redlatch_semaphore {
    handle: Handle<Semaphore>,
}

/// Names a semaphore of `limit` permits, whose leases (30 s unless set) are renewed in the background until they are
/// released, unless they are timed. No I/O.
///
/// All programs declare the same limit, at least 1: it is kept on the server from the first grant, or change, on, until
/// two days after the last lease has ended, and whoever comes with another gets REDLATCH_LIMIT_MISMATCH.
/// redlatch_semaphore_set_limit() changes the number of permits for all.
///
/// The name is `len` bytes, or what stands before the first NUL with REDLATCH_NUL_TERMINATED; any bytes, at least one.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for a name or a limit that cannot be used, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_new(
    client: *const redlatch_client,
    name: *const c_char,
    len: usize,
    limit: u32,
    out: *mut *mut redlatch_semaphore,
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
        out.hand_out(redlatch_semaphore {
            handle: Handle::new(client.client.semaphore(name, limit))?,
        });
        Ok(())
    })
}

/// Sets how many permits one acquire takes: all of them at once, or none. From 1 to the declared limit, and at most
/// 1000; defaults to 1.
///
/// Those who want several are passed over while fewer are free, and may starve among those who want one; not if all are
/// fair.
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_permits(semaphore: *mut redlatch_semaphore, permits: u32) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore.handle.set(|semaphore| semaphore.permits(permits))
    })
}

/// Makes the lease a fixed one of `lease_ms` milliseconds (10 to 10 years), which is never renewed: extend it by
/// redlatch_guard_extend_ms(), to show that the holder is alive. For work that must not run on unnoticed. Without it
/// the lease is renewed in the background until the permit is released.
///
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_timed_ms(semaphore: *mut redlatch_semaphore, lease_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore
            .handle
            .set(|semaphore| semaphore.timed(Duration::from_millis(lease_ms)))
    })
}

/// Sets how long a permit stays taken after its holder was last heard of: what a crash costs the others. After
/// redlatch_semaphore_set_timed_ms() it sets the fixed length. In milliseconds, from 10 ms to 10 years; defaults to
/// 30000. Each holder's is its own: a short one never shortens another's.
///
/// A lease that is renewed should be several times the command timeout, so that a renewal can fail and be made again in
/// time; any lease should be many round trips.
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_lease_ms(semaphore: *mut redlatch_semaphore, lease_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore
            .handle
            .set(|semaphore| semaphore.lease(Duration::from_millis(lease_ms)))
    })
}

/// Sets how long one grant may last in all: then it is lost, with REDLATCH_LOST_MAX_HOLD. Leases are asked for, and
/// renewed, so that it ends by then. In milliseconds, at least 10; defaults to no limit.
///
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_max_hold_ms(
    semaphore: *mut redlatch_semaphore,
    max_hold_ms: u64,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore
            .handle
            .set(|semaphore| semaphore.max_hold(Duration::from_millis(max_hold_ms)))
    })
}

/// Sets whether those who wait are served strictly in the order in which they came: all threads of all processes, each
/// with a place of its own at the server. Defaults to false.
///
/// One that wants several permits is then waited for: until they are free, nobody that came later gets one. The order
/// holds among those who set it. A waiter that was killed or stopped holds up those behind it for two and a half poll
/// intervals at most: 2.5 s unless set.
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_fair(semaphore: *mut redlatch_semaphore, fair: bool) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore.handle.set(|semaphore| semaphore.fair(fair))
    })
}

/// Sets how often in a row a permit may be handed on to another thread of this client that waits for it although other
/// clients wait as well; then another client gets it if one waits. 0 is never; defaults to 64.
///
/// Each hand-over is a grant of its own, with a fencing token of its own. However many there may be, after 20 ms others
/// get their turn. Only renewed ones that are not fair are handed on, to those who wait with equal settings.
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_handoffs(semaphore: *mut redlatch_semaphore, handoffs: u32) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore.handle.set(|semaphore| semaphore.handoffs(handoffs))
    })
}

/// Sets how many replicas of the server have to confirm each grant, renewal and extension, and for how long that is
/// waited for: at least 1 replica, and `timeout_ms` milliseconds, from 1 to 3600000 (1 hour). Defaults to none.
///
/// It makes it unlikely that a failover loses the permits, and not impossible: fencing tokens are what helps then. A
/// grant that too few confirm is given back, and the acquire ends with REDLATCH_NOT_REPLICATED, whatever it would still
/// have waited; a renewal is made again until the lease ends. One round trip more, which counts into the lease; the
/// time that replicas take comes on top of the command timeout. A permit with this set is not handed on.
/// Errors: REDLATCH_INVALID_ARGUMENT, REDLATCH_UNSUPPORTED where there are no replicas that could confirm it
/// ("memory://", Redlock), REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_replicas(
    semaphore: *mut redlatch_semaphore,
    count: u32,
    timeout_ms: u64,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        semaphore
            .handle
            .set(|semaphore| semaphore.replicas(count, Duration::from_millis(timeout_ms)))
    })
}

/// Sets a function that is told when a lease is lost: when it ends here, which is before the server frees the permit,
/// or as soon as a request finds it gone. Once for each lost lease, and in all as redlatch_lock_set_on_lost().
///
/// Errors: REDLATCH_INVALID_STATE after the first acquire, REDLATCH_FORKED, REDLATCH_NULL_POINTER for `callback`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_on_lost(
    semaphore: *mut redlatch_semaphore,
    callback: redlatch_lost_fn,
    user_data: *mut c_void,
) -> i32 {
    // SAFETY: nothing is destroyed; otherwise the same.
    unsafe { redlatch_semaphore_set_on_lost_owned(semaphore, callback, user_data, None) }
}

/// The same as redlatch_semaphore_set_on_lost() for a `user_data` that belongs to redlatch from now on: `destroy` is
/// called with it, on any thread, once the callback cannot be called any more. (Not in a forked child, and not if this
/// call fails.)
///
/// Errors: those of redlatch_semaphore_set_on_lost(). `destroy` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_on_lost_owned(
    semaphore: *mut redlatch_semaphore,
    callback: redlatch_lost_fn,
    user_data: *mut c_void,
    destroy: redlatch_destroy_fn,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        unsafe {
            borrow(semaphore, "semaphore")?
                .handle
                .set_on_lost(callback, user_data, destroy)
        }
    })
}

/// Acquires its permits, waiting for at most `wait_ms` milliseconds: 0 tries once and never waits, REDLATCH_FOREVER
/// waits as long as it takes. `cancel` ends the wait; it may be NULL. The guard has to be freed by
/// redlatch_guard_free().
///
/// A wait ends at most one command timeout after `wait_ms`. The lease counts from before the request that was granted,
/// however long the wait was.
///
/// Errors:
/// - REDLATCH_BUSY if too few are free, with a `wait_ms` of 0; REDLATCH_TIMEOUT with any other.
/// - REDLATCH_CANCELLED when `cancel` was.
/// - REDLATCH_CONNECTION at once if the server cannot be reached. Once it has answered, or taken a request and been
///   silent, outages are ridden out until the wait is over.
/// - REDLATCH_UNCONFIRMED if the attempt of a `wait_ms` of 0 got no answer, if the server hung up on the first attempts
///   of a wait, or if grants take longer to arrive than their lease holds.
/// - REDLATCH_SERVER if the server refuses the request for good, or with a `wait_ms` of 0 for now.
/// - REDLATCH_NOT_REPLICATED if too few replicas confirm the grant: see redlatch_semaphore_set_replicas().
/// - REDLATCH_KEY_CONFLICT if the key, or one of its helper keys, holds something else.
/// - REDLATCH_LIMIT_MISMATCH if others declare another limit for this name.
/// - REDLATCH_THREAD, REDLATCH_FORKED, REDLATCH_NULL_POINTER: nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_acquire(
    semaphore: *const redlatch_semaphore,
    wait_ms: u64,
    cancel: *const redlatch_cancel,
    out: *mut *mut redlatch_guard,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (semaphore, cancel, out) =
            unsafe { (borrow(semaphore, "semaphore")?, cancel.as_ref(), Out::new(out, "out")?) };
        semaphore.handle.acquire(wait_ms, cancel, out)
    })
}

/// Calls `fn` with `user_data` while its permits are held, on this thread, after waiting as
/// redlatch_semaphore_acquire() does.
///
/// `fn` must return: no longjmp, no C++ exception and no pthread_exit may leave it.
///
/// Errors: REDLATCH_LOST if the lease was lost before `fn` ended: it did run, and redlatch_last_lost_reason() tells why
/// it was lost. Otherwise the errors of redlatch_semaphore_acquire(), and `fn` did not run. A release that the server
/// does not confirm is no error: it is completed in the background.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_with(
    semaphore: *const redlatch_semaphore,
    wait_ms: u64,
    r#fn: redlatch_work_fn,
    user_data: *mut c_void,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (semaphore, work) = unsafe { (borrow(semaphore, "semaphore")?, callback::work(r#fn, user_data)?) };
        semaphore.handle.with(wait_ms, work)
    })
}

/// Makes `limit` the number of permits for all clients, from the next grant on. One round trip, at most two command
/// timeouts.
///
/// More permits go to those who wait, at once. With fewer nobody is thrown out; who comes later waits until enough have
/// been released. 0 lets nobody in. What programs declare stays, and this one governs. It is kept for two days after
/// the last lease has ended.
///
/// Errors: REDLATCH_LIMIT_MISMATCH if others declare another limit for this name, otherwise those of
/// redlatch_semaphore_inspect(). After REDLATCH_UNCONFIRMED set it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_set_limit(semaphore: *const redlatch_semaphore, limit: u32) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let semaphore = unsafe { borrow(semaphore, "semaphore") }?;
        Ok(semaphore.handle.draft()?.set_limit(limit)?)
    })
}

/// Looks how many permits are free: neither held nor left to a waiter that was woken. For monitoring: it may be
/// outdated by the time it is read. One round trip, at most one command timeout.
///
/// Errors: those of redlatch_semaphore_inspect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_available(semaphore: *const redlatch_semaphore, out: *mut u32) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (semaphore, out) = unsafe { (borrow(semaphore, "semaphore")?, Out::new(out, "out")?) };
        out.set(semaphore.handle.draft()?.available()?);
        Ok(())
    })
}

/// Looks how many hold permits now, each of them one or several. Who they are, and until when, tells
/// redlatch_semaphore_inspect(). One round trip, at most one command timeout.
///
/// Errors: those of redlatch_semaphore_inspect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_holders(semaphore: *const redlatch_semaphore, out: *mut usize) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (semaphore, out) = unsafe { (borrow(semaphore, "semaphore")?, Out::new(out, "out")?) };
        out.set(semaphore.handle.draft()?.holders()?.len());
        Ok(())
    })
}

/// Looks at what stands on the server for this name. One round trip, at most one command timeout; waits for nobody and
/// changes nothing. What was seen has to be freed by redlatch_inspection_free().
///
/// Errors: REDLATCH_CONNECTION, REDLATCH_UNCONFIRMED or REDLATCH_SERVER if the server cannot be reached, does not
/// answer, or refuses; REDLATCH_KEY_CONFLICT if the key holds something else; REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_inspect(
    semaphore: *const redlatch_semaphore,
    out: *mut *mut redlatch_inspection,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (semaphore, out) = unsafe { (borrow(semaphore, "semaphore")?, Out::new(out, "out")?) };
        semaphore.handle.inspect(out)
    })
}

/// Throws out all who hold permits, of redlatch or not. `held` gets whether somebody did; it may be NULL. Two round
/// trips and one more for each further holder; at most one command timeout, and two more for each holder.
///
/// For operators, when the holder is known to be gone. It breaks the first guarantee: a holder that lives is told at
/// its next renewal, extension or release, and believes until then that it holds its permits.
///
/// Errors: those of redlatch_semaphore_inspect(). After REDLATCH_UNCONFIRMED a holder may have been thrown out: do it
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_force_release(
    semaphore: *const redlatch_semaphore,
    held: *mut bool,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (semaphore, held) = unsafe { (borrow(semaphore, "semaphore")?, Out::new(held, "held").ok()) };
        semaphore.handle.force_release(held)
    })
}

/// Returns the name, which may have NULs inside, followed by a NUL. It belongs to the semaphore. Its length is written
/// to `len` unless that is NULL. NULL for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_name(
    semaphore: *const redlatch_semaphore,
    len: *mut usize,
) -> *const c_char {
    answer(ptr::null(), || {
        // SAFETY: see the module.
        unsafe { Ok(borrow(semaphore, "semaphore")?.handle.name().with_length(len)) }
    })
}

/// Frees a semaphore. Guards acquired through it go on holding. Does nothing for NULL.
///
/// Blocks for at most one command timeout if it was the last handle of its client. In a forked child no I/O, and no
/// waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_semaphore_free(semaphore: *mut redlatch_semaphore) {
    // SAFETY: see the module.
    unsafe { free(semaphore) }
}
