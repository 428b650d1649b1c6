//! Status codes, one for each thing that a caller does differently. A number is never used again for anything else.

use std::{any::Any, ffi::c_char, fmt::Write, mem};

use crate::{Error, LostReason};

/// It worked.
pub const REDLATCH_OK: i32 = 0;
/// Somebody else has it, or too few permits are free, and the call was not to wait. Do something else, or try later.
pub const REDLATCH_BUSY: i32 = -1;
/// The wait ended before it could be had. Try later, or wait longer. The message says if attempts failed meanwhile.
pub const REDLATCH_TIMEOUT: i32 = -2;
/// The wait was ended by its redlatch_cancel.
pub const REDLATCH_CANCELLED: i32 = -3;
/// The lease ended before its holder released it. Work done since was not protected: undo it, or let the resource
/// refuse it by its fencing token. redlatch_guard_lost_reason() tells why it ended.
pub const REDLATCH_LOST: i32 = -4;
/// The server did not confirm the request in time, so its outcome is unknown. What it may have left behind is cleaned
/// up in the background, and ends with the lease in any case.
pub const REDLATCH_UNCONFIRMED: i32 = -5;
/// Too few servers of a Redlock granted it, or could be asked. Nothing is held. Try later; a wait goes on trying.
pub const REDLATCH_NO_QUORUM: i32 = -6;
/// Too few replicas confirmed the grant, or the renewal, in the time that was set for them. A grant was given back.
pub const REDLATCH_NOT_REPLICATED: i32 = -7;
/// Others declare another limit for the semaphore of this name: the message has both. Nothing was granted or changed.
pub const REDLATCH_LIMIT_MISMATCH: i32 = -8;
/// The key holds something that no lock or semaphore can be; it was left as it is. Use another name or prefix.
pub const REDLATCH_KEY_CONFLICT: i32 = -9;
/// This version cannot do what was asked. Nothing was sent.
pub const REDLATCH_UNSUPPORTED: i32 = -10;
/// The server could not be reached, or no connection to it was free in time. The request was not sent.
pub const REDLATCH_CONNECTION: i32 = -11;
/// The server answered with an error: it is not ready, or it does not permit the request.
pub const REDLATCH_SERVER: i32 = -12;
/// An argument or setting cannot work. Nothing was sent or changed.
pub const REDLATCH_INVALID_ARGUMENT: i32 = -13;
/// The handle cannot do this any more: a lock or semaphore is to be set that was used already, or a guard is to be used
/// that was released. Nothing was sent or changed.
pub const REDLATCH_INVALID_STATE: i32 = -14;
/// A pointer was NULL that must not be. Nothing was sent or changed.
pub const REDLATCH_NULL_POINTER: i32 = -15;
/// The handle was made before a fork(), by the parent. Open a new client in this process.
pub const REDLATCH_FORKED: i32 = -16;
/// Something went wrong inside redlatch, which is a bug in it: please report it with the message. The outcome is
/// unknown.
pub const REDLATCH_PANIC: i32 = -17;
/// The operating system gave no thread for the background work. Nothing was sent.
pub const REDLATCH_THREAD: i32 = -18;

/// The lease was not lost, as far as is known here.
pub const REDLATCH_LOST_NOT: i32 = 0;
/// It ran out before it was renewed: the server was away, the process was paused, or the lease is a timed one.
pub const REDLATCH_LOST_EXPIRED: i32 = 1;
/// The key, or the permit in it, is gone from the server: deleted, flushed, evicted, forced out, or lost in a restart.
pub const REDLATCH_LOST_DELETED: i32 = 2;
/// Another holder's token stands at the key.
pub const REDLATCH_LOST_TAKEN: i32 = 3;
/// The grant reached its longest hold.
pub const REDLATCH_LOST_MAX_HOLD: i32 = 4;

/// Why a call did not succeed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) status: i32,
    pub(super) message: String,
    /// `REDLATCH_LOST_NOT` unless the status is `REDLATCH_LOST`.
    pub(super) lost: i32,
}

impl Failed {
    fn new(status: i32, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            lost: REDLATCH_LOST_NOT,
        }
    }

    pub(super) fn null(what: &str) -> Self {
        Self::new(REDLATCH_NULL_POINTER, format!("the pointer `{what}` is NULL"))
    }

    pub(super) fn invalid(why: impl Into<String>) -> Self {
        Error::InvalidArgument(why.into()).into()
    }

    pub(super) fn too_long(what: &str, length: usize) -> Self {
        Self::invalid(format!(
            "`{what}` is said to have {length} bytes: it may have REDLATCH_MAX_LENGTH (1 MiB) at most"
        ))
    }

    pub(super) fn invalid_state(why: &str) -> Self {
        Self::new(REDLATCH_INVALID_STATE, why)
    }

    pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Self {
        let why = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        let failed = Self::new(
            REDLATCH_PANIC,
            format!("redlatch panicked: {}", why.unwrap_or("for an unknown reason")),
        );
        // Not dropped: that might panic again.
        mem::forget(panic);
        failed
    }

    /// What an acquire that failed has to say: without a wait there was no timeout.
    pub(super) fn of_a_wait(error: Error, waits: bool) -> Self {
        match (&error, waits) {
            (Error::Timeout { name, .. }, false) => {
                Self::new(REDLATCH_BUSY, format!("`{}` is taken", name.escape_ascii()))
            }
            _ => error.into(),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        for cause in error.causes() {
            let _ = write!(message, ": {cause}");
        }
        Self {
            status: status(&error),
            message,
            lost: match &error {
                Error::Lost(lost) => reason(lost.reason),
                _ => REDLATCH_LOST_NOT,
            },
        }
    }
}

fn status(error: &Error) -> i32 {
    match error {
        Error::Timeout { .. } => REDLATCH_TIMEOUT,
        Error::Cancelled => REDLATCH_CANCELLED,
        Error::Lost(_) => REDLATCH_LOST,
        Error::Unconfirmed(_) => REDLATCH_UNCONFIRMED,
        Error::NoQuorum(_) => REDLATCH_NO_QUORUM,
        Error::NotReplicated { .. } => REDLATCH_NOT_REPLICATED,
        Error::KeyConflict { .. } => REDLATCH_KEY_CONFLICT,
        Error::LimitMismatch { .. } => REDLATCH_LIMIT_MISMATCH,
        Error::Unsupported(_) => REDLATCH_UNSUPPORTED,
        Error::InvalidArgument(_) => REDLATCH_INVALID_ARGUMENT,
        Error::Forked => REDLATCH_FORKED,
        Error::Connection(_) => REDLATCH_CONNECTION,
        Error::Server(_) => REDLATCH_SERVER,
        Error::Thread(_) => REDLATCH_THREAD,
    }
}

pub(super) fn reason(reason: LostReason) -> i32 {
    match reason {
        LostReason::Expired => REDLATCH_LOST_EXPIRED,
        LostReason::Deleted => REDLATCH_LOST_DELETED,
        LostReason::Taken => REDLATCH_LOST_TAKEN,
        LostReason::MaxHold => REDLATCH_LOST_MAX_HOLD,
    }
}

/// Returns what a status code means, in a few words: "the wait ended before it could be had" for REDLATCH_TIMEOUT. For
/// a number that is no code, it says so. Never NULL; the text is never freed. No I/O.
#[unsafe(no_mangle)]
pub extern "C" fn redlatch_status_str(status: i32) -> *const c_char {
    let text = match status {
        REDLATCH_OK => c"it worked",
        REDLATCH_BUSY => c"it is taken",
        REDLATCH_TIMEOUT => c"the wait ended before it could be had",
        REDLATCH_CANCELLED => c"the wait was cancelled",
        REDLATCH_LOST => c"the lease was lost",
        REDLATCH_UNCONFIRMED => c"the server did not confirm the outcome",
        REDLATCH_NO_QUORUM => c"too few servers could be had",
        REDLATCH_NOT_REPLICATED => c"too few replicas confirmed it",
        REDLATCH_LIMIT_MISMATCH => c"others declare another limit",
        REDLATCH_KEY_CONFLICT => c"the key holds something else",
        REDLATCH_UNSUPPORTED => c"this version cannot do it",
        REDLATCH_CONNECTION => c"the server could not be reached",
        REDLATCH_SERVER => c"the server refused the request",
        REDLATCH_INVALID_ARGUMENT => c"an argument cannot work",
        REDLATCH_INVALID_STATE => c"the handle cannot do this any more",
        REDLATCH_NULL_POINTER => c"a pointer is NULL",
        REDLATCH_FORKED => c"the handle belongs to the parent process",
        REDLATCH_PANIC => c"a bug in redlatch",
        REDLATCH_THREAD => c"no background thread could be started",
        _ => c"not a status code of this version",
    };
    text.as_ptr()
}
