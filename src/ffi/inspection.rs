//! `redlatch_inspection`: what stood on the server for a name.

use std::{ffi::c_char, ptr};

use super::{
    boundary::{Lent, Out, REDLATCH_FOREVER, answer, as_millis, borrow, free},
    status::Failed,
};
use crate::{Expiry, Inspection};

/// What stood on the server for a name when it was looked at. For operators and tests: it may be outdated by the time
/// it is read. It belongs to no client, and is usable in a forked child.
pub struct redlatch_inspection {
    inspection: Inspection,
    tokens: Vec<Lent>,
    text: Lent,
}

impl redlatch_inspection {
    pub(super) fn hand_out(inspection: Inspection, out: Out<*mut Self>) {
        out.hand_out(Self {
            tokens: inspection
                .holders
                .iter()
                .map(|holder| Lent::new(&holder.token))
                .collect(),
            text: Lent::new(inspection.to_string().as_bytes()),
            inspection,
        });
    }
}

/// What a function tells about an inspection.
///
/// # Safety
///
/// The pointer is null or points to an inspection.
unsafe fn look<T>(
    inspection: *const redlatch_inspection,
    otherwise: T,
    tell: impl FnOnce(&redlatch_inspection) -> Option<T>,
) -> T {
    answer(otherwise, || {
        // SAFETY: as this function asks for.
        let inspection = unsafe { borrow(inspection, "inspection") }?;
        tell(inspection).ok_or_else(|| Failed::invalid("there is no holder of this index"))
    })
}

/// Returns the whole of it in words: one line, ended by a NUL, that belongs to the inspection. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_str(inspection: *const redlatch_inspection) -> *const c_char {
    // SAFETY: see the module.
    unsafe { look(inspection, ptr::null(), |seen| Some(seen.text.as_ptr())) }
}

/// Returns how many held it: 0 or 1 for a lock. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_holders(inspection: *const redlatch_inspection) -> usize {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.tokens.len())) }
}

/// Returns the token of holder number `index`, counted from 0: what redlatch_guard_token() is there, or what another
/// library put there. It is followed by a NUL, and belongs to the inspection. Its length is written to `len` unless
/// that is NULL. NULL if there is no such holder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_holder_token(
    inspection: *const redlatch_inspection,
    index: usize,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: see the module.
    unsafe {
        look(inspection, ptr::null(), |seen| {
            seen.tokens.get(index).map(|token| token.with_length(len))
        })
    }
}

/// Returns in how many milliseconds the hold of holder number `index` ended by itself, unless it was renewed.
/// REDLATCH_FOREVER: never, because another library put it there without a TTL; if its holder has crashed, it stays
/// until somebody deletes it (redlatch_lock_force_release()). 0 if there is no such holder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_holder_expiry_ms(
    inspection: *const redlatch_inspection,
    index: usize,
) -> u64 {
    // SAFETY: see the module.
    unsafe {
        look(inspection, 0, |seen| {
            let holder = seen.inspection.holders.get(index)?;
            Some(match holder.expiry {
                Expiry::In(left) => as_millis(left),
                Expiry::Never => REDLATCH_FOREVER,
            })
        })
    }
}

/// Returns how many permits holder number `index` had: 1 for a lock. 0 if there is no such holder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_holder_permits(
    inspection: *const redlatch_inspection,
    index: usize,
) -> u32 {
    // SAFETY: see the module.
    unsafe {
        look(inspection, 0, |seen| {
            seen.inspection.holders.get(index).map(|holder| holder.permits)
        })
    }
}

/// Returns the fencing token that was drawn last: a holder's, or one that was drawn with it for those to whom the lock
/// may be handed on. 0 when nobody held it, if redlatch had not granted it in the last two days, or for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_fencing_token(inspection: *const redlatch_inspection) -> u64 {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.inspection.fencing_token.unwrap_or(0))) }
}

/// Returns how many waited for it, as far as the server knew: threads where they are fair, otherwise clients (without
/// one whose threads wait for a lock that the client itself has). 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_waiters(inspection: *const redlatch_inspection) -> usize {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.inspection.waiters)) }
}

/// Returns how many permits were left to waiters that were woken and had not come for them yet: 0 or 1 for a lock. 0
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_reserved(inspection: *const redlatch_inspection) -> u32 {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.inspection.reserved)) }
}

/// Returns how many permits there were: 1 for a lock. What was set by redlatch_semaphore_set_limit(), or else what is
/// declared. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_limit(inspection: *const redlatch_inspection) -> u32 {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.inspection.limit)) }
}

/// Returns how many permits its users declare: 1 for a lock. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_declared_limit(inspection: *const redlatch_inspection) -> u32 {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.inspection.declared_limit)) }
}

/// Returns how many permits were free: neither held nor reserved. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_available(inspection: *const redlatch_inspection) -> u32 {
    // SAFETY: see the module.
    unsafe { look(inspection, 0, |seen| Some(seen.inspection.available())) }
}

/// Tells whether nobody held it and nothing was reserved. False for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_is_free(inspection: *const redlatch_inspection) -> bool {
    // SAFETY: see the module.
    unsafe { look(inspection, false, |seen| Some(seen.inspection.is_free())) }
}

/// Frees it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_inspection_free(inspection: *mut redlatch_inspection) {
    // SAFETY: see the module.
    unsafe { free(inspection) }
}
