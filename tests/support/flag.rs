use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when dropped: at the end of its scope, and also when a panic ends that early.
///
/// [`std::thread::scope`] joins its threads before it lets a panic out, so workers that go on until
/// a flag is set would turn a failed assertion into a test that hangs. Whoever may be waited for, or
/// may panic, creates one first: the scope's main part and every worker.
///
/// ```ignore
/// let done = AtomicBool::new(false);
/// thread::scope(|scope| {
///     let _done = SetOnDrop(&done);
///     scope.spawn(|| {
///         let _done = SetOnDrop(&done);
///         while !done.load(Ordering::SeqCst) { /* nothing that waits without a bound */ }
///     });
///     assert!(/* … */);
/// });
/// ```
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
