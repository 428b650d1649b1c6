//! What operators should know although no call fails of it: a warning of the crate `tracing`, behind the feature of
//! that name. Without it nothing is said.

use crate::Error;

/// Warns that `what` is so, and why.
#[cfg(feature = "tracing")]
pub(crate) fn warn(what: &str, why: &Error) {
    use std::fmt::Write;

    let mut reason = why.to_string();
    for cause in why.causes() {
        let _ = write!(reason, ": {cause}");
    }
    tracing::warn!(target: "redlatch", reason, "{what}");
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn warn(_what: &str, _why: &Error) {}
