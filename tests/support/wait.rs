use std::thread;
use std::time::{Duration, Instant};

/// Looks at `cond` until it is true, and panics naming `what` once `within` has passed.
///
/// For conditions that only a look can tell (a key at the server, a process). What happens in this
/// process signals by itself and needs no looking: see `FaultHandle::wait_hit`.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut cond: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !cond() {
        assert!(Instant::now() < deadline, "gave up after {within:?} waiting for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
