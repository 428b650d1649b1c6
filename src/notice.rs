//! What operators should know although no call fails of it: a warning of the crate `tracing`, behind the feature of
//! that name. Without it nothing is said.

use crate::Error;

/// Warns that `what` is so, and why. The program's subscriber may panic: that costs the warning, and not the thread
/// that has something else to do.
#[cfg(feature = "tracing")]
pub(crate) fn warn(what: &str, why: &Error) {
    use std::{
        fmt::Write,
        mem,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    let mut reason = why.to_string();
    for cause in why.causes() {
        let _ = write!(reason, ": {cause}");
    }
    // The panic hook has told of it, and the payload may panic too when it is dropped.
    let said = catch_unwind(AssertUnwindSafe(
        || tracing::warn!(target: "redlatch", reason, "{what}"),
    ));
    said.unwrap_or_else(mem::forget);
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn warn(_what: &str, _why: &Error) {}
