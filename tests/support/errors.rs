use std::error::Error as _;
use std::iter;

use redlatch::{Error, LostReason};

/// The reason of a loss. Panics if the error is any other.
#[track_caller]
pub fn lost(error: Error) -> LostReason {
    match error {
        Error::Lost(lost) => lost.reason,
        other => panic!("expected a loss, got {other:?}"),
    }
}

/// What an error and its causes say, in one line. Panics if that repeats itself.
#[track_caller]
pub fn chain(error: &Error) -> String {
    let links = iter::successors(Some(error as &dyn std::error::Error), |&error| error.source());
    let links: Vec<String> = links.map(ToString::to_string).collect();
    for (nth, link) in links.iter().enumerate() {
        assert!(!link.contains('\n') && !link.is_empty(), "{links:?}");
        assert!(!links[..nth].contains(link), "each link adds something: {links:?}");
    }
    links.join(": ")
}

/// Everything that can be got out of an error, its causes included.
#[track_caller]
pub fn everything_said(error: &Error) -> String {
    let links = iter::successors(error.source(), |&error| error.source());
    let causes: String = links.map(|cause| format!(" {cause:?}")).collect();
    format!("{} {error:?}{causes}", chain(error))
}
