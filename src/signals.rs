//! Keeping the program's signals off redlatch's own threads.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Signals by which the system tells a thread of a fault of its own. While blocked they would end the process without
/// the handler that the program has for them, or that tells of a stack overflow.
const FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

/// Runs `spawn` with all signals blocked that others can send, so that the threads which it starts never get one: the
/// program's handlers run in the program's threads, and its `sigwait` misses nothing.
pub(crate) fn blocked<T>(spawn: impl FnOnce() -> T) -> T {
    let mut blocked = SigSet::all();
    FAULTS.iter().for_each(|fault| blocked.remove(*fault));
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let spawned = spawn();
    if let Ok(before) = before {
        // It was in place a moment ago.
        let _ = before.thread_set_mask();
    }
    spawned
}
