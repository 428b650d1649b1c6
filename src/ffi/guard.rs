//! `redlatch_guard`: a hold of a lock, of permits of a semaphore, or of several locks.

use std::{ffi::c_char, ptr, sync::OnceLock, time::Duration};

use super::{
    boundary::{Lent, Out, answer, as_millis, borrow, copy_out, free, report},
    status::{Failed, REDLATCH_LOST_NOT, reason},
};
use crate::{Error, Guard, Lost};

/// A hold of a lock, of permits of a semaphore, or of several locks. It is released by redlatch_guard_release() or, at
/// the latest, by redlatch_guard_free(), from any thread.
///
/// One of several locks is held as long as all of them are: what is said of the lock is true of the first that is lost,
/// and the name and tokens are those of the first in the order of redlatch_multi_lock_name(). Extending and releasing
/// it is one round trip if they are on one server.
pub struct redlatch_guard {
    guard: Guard,
    /// One at least.
    names: Box<[Lent]>,
    token: Lent,
    /// What was lost, as the release found.
    lost_by_release: OnceLock<Option<Lost>>,
}

impl redlatch_guard {
    pub(super) fn hand_out(guard: Guard, out: Out<*mut Self>) {
        out.hand_out(Self {
            names: guard.names().map(Lent::new).collect(),
            token: Lent::new(guard.token().as_bytes()),
            guard,
            lost_by_release: OnceLock::new(),
        });
    }

    /// What the guard tells, unless it was released: looked at afterwards, since the lease may be the next holder's
    /// from that moment on.
    fn tell<T>(&self, tell: impl FnOnce(&Guard) -> T) -> Result<T, Failed> {
        let told = tell(&self.guard);
        if self.guard.is_released()? {
            return Err(released_before());
        }
        Ok(told)
    }

    fn extend(&self, lease: Duration) -> Result<(), Failed> {
        if self.guard.is_released()? {
            return Err(released_before());
        }
        Ok(self.tell(|guard| guard.extend(lease))??)
    }

    /// What was lost, if anything was.
    fn lost(&self) -> Option<Lost> {
        match self.tell(Guard::check) {
            Ok(Err(Error::Lost(lost))) => Some(lost),
            Ok(_) => None,
            Err(_) => self.lost_by_release.get().cloned().flatten(),
        }
    }

    fn lost_name(&self) -> Option<&Lent> {
        let lost = self.lost()?;
        self.guard
            .names()
            .zip(&self.names)
            .find_map(|(name, lent)| (name == lost.name()).then_some(lent))
    }

    fn release(&self) -> Result<(), Failed> {
        let outcome = self.guard.release_once().ok_or_else(released_before)?;
        self.lost_by_release.get_or_init(|| match &outcome {
            Err(Error::Lost(lost)) => Some(lost.clone()),
            _ => None,
        });
        Ok(outcome?)
    }
}

fn released_before() -> Failed {
    Failed::invalid_state("the guard was released before")
}

/// Tells whether the lock or permit is certainly still held. False once it was lost or released, for NULL, and in a
/// forked child. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_is_held(guard: *const redlatch_guard) -> bool {
    answer(false, || {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        Ok(guard.tell(Guard::is_held).unwrap_or(false))
    })
}

/// Returns how long it is certainly held from now on if nothing renews it, in milliseconds, rounded down; 0 once it was
/// lost or released, for NULL, and in a forked child. No I/O.
///
/// Counted on the machine's boot-time clock from before the granted request was sent, less 1 % of the lease and 2 ms
/// for clocks that run apart. The server frees the lock only after that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_remaining_ms(guard: *const redlatch_guard) -> u64 {
    answer(0, || {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        Ok(guard.tell(Guard::remaining).map_or(0, as_millis))
    })
}

/// Returns the grant's fencing token: larger than that of every earlier grant of this name, and never 0. It stays when
/// the guard was lost or released, and in a forked child. 0 for NULL. No I/O.
///
/// Send it along with each write, and let the resource refuse a token smaller than the largest that it has seen; then a
/// holder that does not know yet that it lost the lock can do no harm. Those of a semaphore tell its holders apart, but
/// keep none of them off: several hold permits at once by rights.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_fencing_token(guard: *const redlatch_guard) -> u64 {
    answer(0, || {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        Ok(guard.guard.fencing_token())
    })
}

/// Writes the fencing tokens of a guard of several locks to `tokens`, in the order of redlatch_multi_lock_name(), but
/// no more than `capacity`; `count` gets how many there are. One for any other guard. `tokens` may be NULL if
/// `capacity` is 0. They stay when the guard was lost or released, and in a forked child. No I/O.
///
/// Errors: REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_fencing_tokens(
    guard: *const redlatch_guard,
    tokens: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (guard, count) = unsafe { (borrow(guard, "guard")?, Out::new(count, "count")?) };
        let fencing_tokens = guard.guard.fencing_tokens();
        // SAFETY: see the module.
        unsafe { copy_out(&fencing_tokens, tokens, capacity, "tokens") }?;
        count.set(fencing_tokens.len());
        Ok(())
    })
}

/// Returns the random token that stands for the grant at the key on the server, ended by a NUL. It belongs to the
/// guard. A guard to which the lock was handed on within its client has that of the one before. NULL for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_token(guard: *const redlatch_guard) -> *const c_char {
    answer(ptr::null(), || {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        Ok(guard.token.as_ptr())
    })
}

/// Returns the name of the lock or semaphore, which may have NULs inside, followed by a NUL. It belongs to the guard.
/// Its length is written to `len` unless that is NULL. NULL for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_name(guard: *const redlatch_guard, len: *mut usize) -> *const c_char {
    answer(ptr::null(), || {
        // SAFETY: see the module.
        unsafe { Ok(borrow(guard, "guard")?.names[0].with_length(len)) }
    })
}

/// Returns REDLATCH_OK if it is still held: the line to put before each write. No I/O.
///
/// Errors: REDLATCH_LOST once it was lost, REDLATCH_INVALID_STATE after redlatch_guard_release(), REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_check(guard: *const redlatch_guard) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        Ok(guard.tell(Guard::check)??)
    })
}

/// Blocks until it is lost, for at most `limit_ms` milliseconds (REDLATCH_FOREVER: as long as it takes). REDLATCH_OK if
/// it is still held then. No I/O.
///
/// Errors: those of redlatch_guard_check(). REDLATCH_INVALID_STATE at once when another thread releases it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_wait_lost_ms(guard: *const redlatch_guard, limit_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        guard.guard.wait_lost(Duration::from_millis(limit_ms));
        Ok(guard.tell(Guard::check)??)
    })
}

/// Returns why the lease was lost, one of the REDLATCH_LOST_... reasons; REDLATCH_LOST_NOT if it was not, and for NULL.
/// After redlatch_guard_release() it is what that found; in a forked child, what a release before the fork found. No
/// I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_lost_reason(guard: *const redlatch_guard) -> i32 {
    answer(REDLATCH_LOST_NOT, || {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        Ok(guard.lost().map_or(REDLATCH_LOST_NOT, |lost| reason(lost.reason)))
    })
}

/// Returns the name of the lock or semaphore that was lost, of which redlatch_guard_lost_reason() tells why: of several
/// locks, the first that was. It may have NULs inside, is followed by a NUL, and belongs to the guard. Its length is
/// written to `len` unless that is NULL. NULL if nothing was lost, and for NULL. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_lost_name(guard: *const redlatch_guard, len: *mut usize) -> *const c_char {
    answer(ptr::null(), || {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        // SAFETY: see the module.
        let with_length = |name: &Lent| unsafe { name.with_length(len) };
        Ok(guard.lost_name().map_or(ptr::null(), with_length))
    })
}

/// Makes the lease end `lease_ms` milliseconds from now, unless it lasts longer already: set, not added, never
/// shortened. One round trip, at most one command timeout.
///
/// A lock that is renewed goes on being renewed; that does not shorten what was extended.
///
/// Errors: REDLATCH_LOST if it is no longer held; REDLATCH_INVALID_ARGUMENT outside 10 ms to 10 years, or beyond the
/// longest hold; REDLATCH_UNCONFIRMED, REDLATCH_CONNECTION or REDLATCH_SERVER if the server did not confirm it,
/// REDLATCH_NOT_REPLICATED if too few replicas did, and REDLATCH_NO_QUORUM if too few servers of a Redlock did: the
/// lease holds as long as it did before; REDLATCH_INVALID_STATE after redlatch_guard_release(), REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_extend_ms(guard: *mut redlatch_guard, lease_ms: u64) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let guard = unsafe { borrow(guard, "guard") }?;
        guard.extend(Duration::from_millis(lease_ms))
    })
}

/// Releases it and reports how that went. At most two command timeouts; what the server did not confirm by then is
/// completed in the background. The handle remains, to be asked and to be freed.
///
/// Errors: REDLATCH_LOST if the lease had been lost before; REDLATCH_UNCONFIRMED if it was held until now, but the
/// server did not confirm the release; REDLATCH_INVALID_STATE if it was released before, REDLATCH_FORKED,
/// REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_release(guard: *mut redlatch_guard) -> i32 {
    report(|| {
        // SAFETY: see the module.
        unsafe { borrow(guard, "guard") }?.release()
    })
}

/// Frees a guard, and releases it before if that was not done: for at most one command timeout, then in the background.
/// How that went is not told. If it is the last handle of its client, the client goes with it: up to one command
/// timeout more. Does nothing for NULL.
///
/// In a forked child no I/O, and no waiting: the parent's hold is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_guard_free(guard: *mut redlatch_guard) {
    // SAFETY: see the module.
    unsafe { free(guard) }
}
