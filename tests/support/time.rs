use std::thread;
use std::time::{Duration, Instant};

pub const SECOND: Duration = Duration::from_secs(1);

pub const MINUTE: Duration = SECOND.saturating_mul(60);

/// How long anything may take on a busy machine that happens at once, or because somebody was woken.
pub const PROMPT: Duration = SECOND.saturating_mul(10);

/// What a busy machine may add to an upper bound. Lower bounds need no slack.
pub const SLACK: Duration = SECOND;

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Looks at `cond` until it is true, and panics naming `what` once `within` has passed.
///
/// For conditions that only a look can tell (a key at the server, a process). What happens in this
/// process signals by itself and needs no looking: see `FaultHandle::wait_hit`.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, cond: impl FnMut() -> bool) {
    look_until(what, within, millis(2), cond);
}

/// As [`wait_until`], for what takes seconds, and costs several servers some work to look at.
#[track_caller]
pub fn wait_patiently_until(what: &str, within: Duration, cond: impl FnMut() -> bool) {
    look_until(what, within, millis(50), cond);
}

#[track_caller]
fn look_until(what: &str, within: Duration, pause: Duration, mut cond: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !cond() {
        assert!(Instant::now() < deadline, "gave up after {within:?} waiting for {what}");
        thread::sleep(pause);
    }
}
