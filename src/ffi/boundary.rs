//! What crosses the boundary, and what must not: pointers are checked, panics stay on this side.

use std::{
    ffi::{CStr, OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    ptr::NonNull,
    slice,
    time::Duration,
};

use super::{
    last_error,
    status::{Failed, REDLATCH_OK},
};
use crate::Wait;

/// In place of the length of a name or pattern: it ends before its first NUL. (In the header by way of build.rs.)
pub const REDLATCH_NUL_TERMINATED: usize = usize::MAX;

/// In place of a time to wait: as long as it takes. As a remaining time: without end.
pub const REDLATCH_FOREVER: u64 = u64::MAX;

/// The most bytes that a name, a prefix or a pattern may have.
pub const REDLATCH_MAX_LENGTH: usize = 1048576;

/// Makes a call, and keeps what it has to say if it fails.
pub(super) fn report(call: impl FnOnce() -> Result<(), Failed>) -> i32 {
    match contain(call) {
        Ok(()) => REDLATCH_OK,
        Err(failed) => last_error::keep(failed),
    }
}

/// The same for functions that have no code to return: `otherwise` stands for a failure.
pub(super) fn answer<T>(otherwise: T, call: impl FnOnce() -> Result<T, Failed>) -> T {
    contain(call).unwrap_or_else(|failed| {
        last_error::keep(failed);
        otherwise
    })
}

fn contain<T>(call: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
    let _uncancelled = Uncancelled::begin();
    // Nothing that the caller can reach is left half changed: all of it is as unwind-safe as the Rust API.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failed::panicked(panic)))
}

/// While it lives, the thread does not act on a `pthread_cancel`: that would unwind through code of ours, which ends
/// the process.
struct Uncancelled {
    before: c_int,
}

unsafe extern "C" {
    // Not in the crate libc for every system.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = if cfg!(target_vendor = "apple") { 0 } else { 1 };

impl Uncancelled {
    fn begin() -> Self {
        let mut before = CANCEL_DISABLE;
        // SAFETY: the place for the former state is there. It cannot fail with this state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: as above; the state is one that the system gave.
        unsafe { pthread_setcancelstate(self.before, &mut ours) };
    }
}

/// Looks at what a caller's pointer points to.
///
/// # Safety
///
/// It is null, or points to a `T` that lives on for `'a`.
pub(super) unsafe fn borrow<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failed> {
    // SAFETY: as this function asks for.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failed::null(what))
}

/// The same, to be changed.
///
/// # Safety
///
/// It is null, or points to a `T` that lives on for `'a` and that nothing else refers to meanwhile.
pub(super) unsafe fn borrow_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failed> {
    // SAFETY: as this function asks for.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failed::null(what))
}

/// A place for a result, which is written to only if the call succeeds.
pub(super) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// The pointer is null, or may be written to as long as the call lasts.
    pub(super) unsafe fn new(pointer: *mut T, what: &str) -> Result<Self, Failed> {
        NonNull::new(pointer).map(Self).ok_or_else(|| Failed::null(what))
    }

    pub(super) fn set(self, value: T) {
        // SAFETY: `new` asks for it. What was there before is the caller's, and not for us to drop.
        unsafe { self.0.write(value) }
    }
}

/// Copies as many values as there is room for to the caller.
///
/// # Safety
///
/// The pointer is null, or may be written to in so many places as long as the call lasts.
pub(super) unsafe fn copy_out<T: Copy>(values: &[T], to: *mut T, room: usize, what: &str) -> Result<(), Failed> {
    let count = values.len().min(room);
    if count > 0 {
        let to = NonNull::new(to).ok_or_else(|| Failed::null(what))?;
        // SAFETY: as this function asks for.
        unsafe { to.as_ptr().copy_from_nonoverlapping(values.as_ptr(), count) };
    }
    Ok(())
}

impl<T> Out<*mut T> {
    /// Gives the caller a handle, to be freed by `free`.
    pub(super) fn hand_out(self, value: T) {
        self.set(Box::into_raw(Box::new(value)));
    }
}

/// Frees a handle; does nothing for null.
///
/// # Safety
///
/// It is null, or was handed out by [`Out::hand_out`] and not freed before.
pub(super) unsafe fn free<T>(handle: *mut T) {
    answer((), || {
        if !handle.is_null() {
            // SAFETY: as this function asks for.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}

/// Looks at bytes of the caller's.
///
/// # Safety
///
/// The pointer is null, or points to so many bytes that live on for `'a`, or to ones that end with a NUL if the length
/// is [`REDLATCH_NUL_TERMINATED`].
pub(super) unsafe fn bytes<'a>(pointer: *const c_char, length: usize, what: &str) -> Result<&'a [u8], Failed> {
    if pointer.is_null() {
        return Err(Failed::null(what));
    }
    let found = if length == REDLATCH_NUL_TERMINATED {
        // SAFETY: as this function asks for.
        unsafe { CStr::from_ptr(pointer) }.to_bytes()
    } else if length <= REDLATCH_MAX_LENGTH {
        // SAFETY: as this function asks for.
        unsafe { slice::from_raw_parts(pointer.cast(), length) }
    } else {
        // Not looked at: it may well be no length at all.
        return Err(Failed::too_long(what, length));
    };
    if found.len() > REDLATCH_MAX_LENGTH {
        return Err(Failed::too_long(what, found.len()));
    }
    Ok(found)
}

/// Looks at a path of the caller's, which ends with a NUL.
///
/// # Safety
///
/// As [`bytes`] asks for.
pub(super) unsafe fn path<'a>(pointer: *const c_char, what: &str) -> Result<&'a Path, Failed> {
    // SAFETY: as this function asks for.
    let path = unsafe { bytes(pointer, REDLATCH_NUL_TERMINATED, what) }?;
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// Looks at so many names of the caller's.
///
/// # Safety
///
/// `pointers` is null, or points to so many pointers as [`bytes`] asks for, which live on for `'a`; `lengths` is null
/// for ones that end with a NUL, or points to as many lengths.
pub(super) unsafe fn several_bytes<'a>(
    pointers: *const *const c_char,
    lengths: *const usize,
    count: usize,
    what: &str,
) -> Result<Vec<&'a [u8]>, Failed> {
    if pointers.is_null() {
        return Err(Failed::null(what));
    }
    let one = |at: usize| {
        // SAFETY: as this function asks for.
        unsafe {
            let length = if lengths.is_null() {
                REDLATCH_NUL_TERMINATED
            } else {
                *lengths.add(at)
            };
            bytes(*pointers.add(at), length, what)
        }
    };
    (0..count).map(one).collect()
}

/// Looks at text of the caller's, which ends with a NUL.
///
/// # Safety
///
/// The pointer is null, or points to such text, which lives on for `'a`.
pub(super) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failed> {
    // SAFETY: as this function asks for.
    let bytes = unsafe { bytes(pointer, REDLATCH_NUL_TERMINATED, what) }?;
    str::from_utf8(bytes).map_err(|_| Failed::invalid(format!("`{what}` is not UTF-8")))
}

/// Bytes of ours for the caller to look at, as long as what owns them lives. They are followed by a NUL, so that they
/// can be taken for a string if they have none inside.
pub(super) struct Lent(Box<[u8]>);

impl Lent {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self([bytes, b"\0"].concat().into())
    }

    pub(super) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// With the length, for which there may be a place.
    ///
    /// # Safety
    ///
    /// The pointer is null, or may be written to.
    pub(super) unsafe fn with_length(&self, length: *mut usize) -> *const c_char {
        if let Some(length) = NonNull::new(length) {
            // SAFETY: as this function asks for.
            unsafe { length.write(self.0.len() - 1) };
        }
        self.as_ptr()
    }
}

/// How long `wait_ms` says an acquire may wait.
pub(super) fn wait(wait_ms: u64) -> Wait {
    match wait_ms {
        0 => Wait::none(),
        REDLATCH_FOREVER => Wait::forever(),
        _ => Wait::at_most(Duration::from_millis(wait_ms)),
    }
}

/// A duration in whole milliseconds, rounded down.
pub(super) fn as_millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(REDLATCH_FOREVER)
}

#[cfg(test)]
mod tests {
    use std::{panic, thread};

    use super::*;
    use crate::ffi::status::REDLATCH_PANIC;

    fn message() -> String {
        let mut text = [0_u8; 256];
        // SAFETY: there is as much room as is said.
        let length = unsafe { last_error::redlatch_last_error_message(text.as_mut_ptr().cast(), text.len()) };
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        assert_eq!(report(|| panic!("of {}", "a test")), REDLATCH_PANIC);
        assert_eq!(message(), "redlatch panicked: of a test");
        assert_eq!(report(|| panic!("in one piece")), REDLATCH_PANIC);
        assert_eq!(message(), "redlatch panicked: in one piece");
        assert_eq!(answer(7, || panic!("without a status")), 7);
        assert_eq!(message(), "redlatch panicked: without a status");
        assert_eq!(report(|| Ok(())), REDLATCH_OK);
    }

    #[test]
    fn what_is_thrown_may_not_even_be_dropped() {
        struct Mine;
        impl Drop for Mine {
            fn drop(&mut self) {
                panic!("once more");
            }
        }
        assert_eq!(report(|| panic::panic_any(Mine)), REDLATCH_PANIC);
        assert_eq!(message(), "redlatch panicked: for an unknown reason");
    }

    #[test]
    fn a_handle_that_panics_when_it_is_freed_leaves_its_thread_in_peace() {
        struct Handle;
        impl Drop for Handle {
            fn drop(&mut self) {
                panic!("while it is freed");
            }
        }
        let freed = thread::spawn(|| {
            // SAFETY: it was just made, and is used by nobody else.
            unsafe { free(Box::into_raw(Box::new(Handle))) };
            message()
        });
        assert_eq!(freed.join().unwrap(), "redlatch panicked: while it is freed");
    }
}
