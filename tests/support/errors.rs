use std::error::Error as _;

use redlatch::{Error, LostReason};

/// The reason of a loss. Panics if the error is any other.
#[track_caller]
pub fn lost(error: Error) -> LostReason {
    match error {
        Error::Lost(lost) => lost.reason,
        other => panic!("expected a loss, got {other:?}"),
    }
}

/// Everything that an error says, its causes included.
pub fn everything_said(error: &Error) -> String {
    let mut said = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        said += &format!(" {cause} {cause:?}");
        source = cause.source();
    }
    said
}
