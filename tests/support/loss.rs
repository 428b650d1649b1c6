use redlatch::{Error, LostReason};

/// The reason of a loss. Panics if the error is any other.
#[track_caller]
pub fn lost(error: Error) -> LostReason {
    match error {
        Error::Lost(lost) => lost.reason,
        other => panic!("expected a loss, got {other:?}"),
    }
}
