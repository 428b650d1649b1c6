//! `redlatch_audit`: looking for locks that nobody will ever free.

use std::{ffi::c_char, ptr};

use super::{
    boundary::{Lent, Out, borrow, borrow_mut, bytes, free, report},
    client::redlatch_client,
};
use crate::{Audit, DataType};

/// The value is a string: what SET NX leaves, and most libraries use.
pub const REDLATCH_TYPE_STRING: i32 = 1;
/// The value is a hash: what reentrant locks use, such as Redisson's.
pub const REDLATCH_TYPE_HASH: i32 = 2;

/// A search for locks that nobody will ever free. For one thread at a time.
pub struct redlatch_audit {
    audit: Audit,
    /// What the caller looks at.
    key: Option<Lent>,
}

/// Looks through the server's database for locks that nobody will ever free: keys that match `pattern`, look like a
/// lock (a string, or a hash as Redisson has) and have no TTL. Not redlatch's own: all of those have one. The search
/// has to be freed by redlatch_audit_free(). No I/O before the first redlatch_audit_next().
///
/// The pattern is a glob over whole keys as SCAN takes it, such as "lock:*": `len` bytes, or what stands before the
/// first NUL with REDLATCH_NUL_TERMINATED. Prefixes are not put before it.
///
/// Errors: REDLATCH_INVALID_ARGUMENT for an empty pattern, REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_client_audit(
    client: *const redlatch_client,
    pattern: *const c_char,
    len: usize,
    out: *mut *mut redlatch_audit,
) -> i32 {
    report(|| {
        // SAFETY: see the module.
        let (client, pattern, out) = unsafe {
            (
                borrow(client, "client")?,
                bytes(pattern, len, "pattern")?,
                Out::new(out, "out")?,
            )
        };
        out.hand_out(redlatch_audit {
            audit: client.client.audit(pattern)?,
            key: None,
        });
        Ok(())
    })
}

/// Goes on to the next key: `key` gets it, followed by a NUL, and NULL when there is none. It belongs to the search
/// until the next call. `key_len` gets its length and `data_type` the type of its value, REDLATCH_TYPE_STRING or
/// REDLATCH_TYPE_HASH; both may be NULL.
///
/// A key that is there from beginning to end is found; while the server grows or shrinks its table a key can come
/// twice. Blocks for at most one command timeout for each page of some 1000 keys that it has to look through.
///
/// Errors: REDLATCH_CONNECTION, REDLATCH_UNCONFIRMED or REDLATCH_SERVER if the server cannot be reached, does not
/// answer, or refuses: then the search is over; REDLATCH_FORKED, REDLATCH_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_audit_next(
    audit: *mut redlatch_audit,
    key: *mut *const c_char,
    key_len: *mut usize,
    data_type: *mut i32,
) -> i32 {
    report(|| {
        // SAFETY: see the module; the header says that no other thread uses it meanwhile.
        let (audit, key) = unsafe { (borrow_mut(audit, "audit")?, Out::new(key, "key")?) };
        let Some(finding) = audit.audit.next().transpose()? else {
            audit.key = None;
            key.set(ptr::null());
            return Ok(());
        };
        let lent = audit.key.insert(Lent::new(&finding.key));
        // SAFETY: see the module.
        unsafe {
            key.set(lent.with_length(key_len));
            if let Ok(place) = Out::new(data_type, "data_type") {
                place.set(code(finding.data_type));
            }
        }
        Ok(())
    })
}

fn code(data_type: DataType) -> i32 {
    match data_type {
        DataType::String => REDLATCH_TYPE_STRING,
        DataType::Hash => REDLATCH_TYPE_HASH,
    }
}

/// Ends a search. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redlatch_audit_free(audit: *mut redlatch_audit) {
    // SAFETY: see the module.
    unsafe { free(audit) }
}
