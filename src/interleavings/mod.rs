//! The check by randomised interleaving: gate, guard, keeper and the thread that hears knocks, over the memory store,
//! on shuttle's primitives (`sync::interleaved`) and a clock that moves when the check says so.
//!
//! Each scenario runs many times, each time with another interleaving. It fails when something is not as the
//! [world] expects it, or when no thread can go on: a wake-up that was lost is never made up for, since time stands
//! still, or passes only where a scenario wants it to. With each [mistake](crate::mistakes) switched on, some scenario
//! must fail.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test --lib interleavings`, as scripts/test does. The other tests do not
//! run in such a build. An execution that fails is told with its schedule, for `shuttle::replay`; but tokens and hash
//! maps are not shuttle's, so it may go otherwise when it is replayed.

mod recorder;
mod scenarios;
mod world;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use crate::{
    mistakes::{Mistake, make},
    sync::interleaved::time,
};

/// In how many interleavings a scenario runs, unless REDLATCH_INTERLEAVINGS says otherwise.
const EXECUTIONS: usize = 1_000;

/// In how many at most it runs with a mistake.
const MOST_EXECUTIONS: usize = 20_000;

/// How many with one scheduler and seed.
const BATCH: usize = 100;

/// How often the PCT scheduler changes its mind about which thread comes first.
const CHANGES: usize = 4;

/// Runs the scenario in many interleavings.
fn holds(scenario: fn()) {
    let executions = env::var("REDLATCH_INTERLEAVINGS").map_or(EXECUTIONS, |count| count.parse().expect("a number"));
    for batch in 0..executions.div_ceil(BATCH) {
        run(batch, scenario);
    }
}

/// Runs the scenario, which holds without it, with a mistake until that is found: by this complaint.
fn finds(mistake: Mistake, scenario: fn(), complaint: &str) {
    let count = Arc::new(AtomicUsize::new(0));
    make(Some(mistake));
    let found = (0..MOST_EXECUTIONS / BATCH).find_map(|batch| {
        let count = count.clone();
        let counted = move || {
            count.fetch_add(1, Ordering::Relaxed);
            scenario();
        };
        let failure = catch_unwind(AssertUnwindSafe(|| run(batch, counted))).err()?;
        let message = failure.downcast_ref::<String>()?.lines().next()?;
        message.contains(complaint).then(|| message.to_owned())
    });
    make(None);
    // What the failed execution has left behind.
    time::begin();
    let count = count.load(Ordering::Relaxed);
    let Some(found) = found else {
        panic!("{mistake:?} is not found in {count} interleavings");
    };
    println!("{mistake:?} is found in interleaving {count}: {found}");
}

/// Runs the scenario in one batch of interleavings: with every other one by chance alone, or as PCT does it, which
/// keeps to an order of the threads for longer.
fn run(batch: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let seed = batch as u64;
    if batch.is_multiple_of(2) {
        run_by(RandomScheduler::new_from_seed(seed, BATCH), scenario);
    } else {
        run_by(PctScheduler::new_from_seed(seed, CHANGES, BATCH), scenario);
    }
}

fn run_by(scheduler: impl Scheduler + 'static, scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(100_000);
    config.failure_persistence = FailurePersistence::Print;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(scenario);
}
