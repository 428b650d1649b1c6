//! The primitives of the check by interleaving: shuttle's, which runs the threads of a program one at a time and
//! decides by chance at each step which one goes on. When none can, that is a deadlock, and the check fails.
//!
//! Time stands still until the check lets it [pass](time::pass): so a wake-up that was lost is not made up for by the
//! end of a wait.

use std::{
    ops::{Deref, DerefMut},
    sync::PoisonError,
    time::Duration,
};

use shuttle::rand::{Rng, thread_rng};
pub(crate) use shuttle::{
    sync::{atomic, mpsc},
    thread,
};

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    locked: shuttle::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: self,
            locked: self.0.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.locked
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.locked
    }
}

/// Not shuttle's condition variable, which knows no time. No wait ends for no reason: that would hide lost wake-ups.
#[derive(Default)]
pub(crate) struct Condvar(std::sync::Mutex<Vec<Sleeper>>);

/// A thread that waits. Whatever is sent wakes it; nobody minds when it is awake already.
#[derive(Clone)]
struct Sleeper {
    id: u64,
    wake: mpsc::Sender<()>,
}

impl Condvar {
    /// Waits to be notified, or until `limit` has passed.
    pub(crate) fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        let (wake, woken) = mpsc::channel();
        let id = time::id();
        let sleeper = Sleeper { id, wake };
        self.sleepers().push(sleeper.clone());
        let timer = time::wake_in(limit, sleeper);
        drop(guard);
        // The condition variable may have let go of it.
        let _ = woken.recv();
        time::forget(timer);
        self.sleepers().retain(|sleeper| sleeper.id != id);
        mutex.lock()
    }

    pub(crate) fn notify_one(&self) {
        switch();
        let woken = {
            let mut sleepers = self.sleepers();
            let count = sleepers.len();
            (count > 0).then(|| sleepers.swap_remove(thread_rng().gen_range(0..count)))
        };
        wake(woken);
    }

    pub(crate) fn notify_all(&self) {
        switch();
        let woken: Vec<_> = self.sleepers().drain(..).collect();
        wake(woken);
    }

    /// Not to be held when other threads get their turn.
    fn sleepers(&self) -> std::sync::MutexGuard<'_, Vec<Sleeper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(sleepers: impl IntoIterator<Item = Sleeper>) {
    for sleeper in sleepers {
        let _ = sleeper.wake.send(());
    }
}

/// Gives other threads a turn.
fn switch() {
    thread::sleep(Duration::ZERO);
}

/// Time as the check makes it pass.
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) mod time {
    use std::{cell::RefCell, collections::BTreeMap, mem, time::Duration};

    use super::{Sleeper, wake};

    #[derive(Default)]
    struct Time {
        elapsed: Duration,
        ids: u64,
        /// Whom to wake when, by time and number.
        timers: BTreeMap<Timer, Sleeper>,
    }

    const AGE: Duration = Duration::from_secs(1_000_000_000);

    pub(super) type Timer = (Duration, u64);

    // Shuttle runs all threads of an execution on one of the system's.
    thread_local! {
        static TIME: RefCell<Time> = RefCell::default();
    }

    /// Begins anew. What an execution that failed has left behind must not be dropped outside of it.
    pub(crate) fn begin() {
        let time = TIME.take();
        mem::forget(time.timers);
    }

    pub(crate) fn elapsed() -> Duration {
        TIME.with_borrow(|time| time.elapsed)
    }

    /// Lets time pass, and wakes those whose waits are over.
    pub(crate) fn pass(duration: Duration) {
        let due = TIME.with_borrow_mut(|time| {
            time.elapsed += duration;
            let later = time.timers.split_off(&(time.elapsed, u64::MAX));
            mem::replace(&mut time.timers, later)
        });
        wake(due.into_values());
    }

    /// How long it is until a wait ends by itself, if that is not in another age.
    pub(crate) fn to_next_end() -> Option<Duration> {
        TIME.with_borrow(|time| {
            let (end, _) = *time.timers.first_key_value()?.0;
            Some(end - time.elapsed).filter(|left| *left < AGE)
        })
    }

    pub(super) fn id() -> u64 {
        TIME.with_borrow_mut(|time| {
            time.ids += 1;
            time.ids
        })
    }

    /// Wakes the sleeper in `limit`.
    pub(super) fn wake_in(limit: Duration, sleeper: Sleeper) -> Timer {
        TIME.with_borrow_mut(|time| {
            let timer = (time.elapsed.saturating_add(limit), sleeper.id);
            time.timers.insert(timer, sleeper);
            timer
        })
    }

    pub(super) fn forget(timer: Timer) {
        let forgotten = TIME.with_borrow_mut(|time| time.timers.remove(&timer));
        drop(forgotten);
    }
}
