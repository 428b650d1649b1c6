//! That no more permits of a semaphore are held than there are, whatever its holders do: a test at random.
//!
//! Processes whose wall clocks are hours apart, each with several threads, take permits of a few semaphores: several at
//! once, for short and long leases, fair or not, and keep them for longer than those at times. Meanwhile they are
//! killed and paused, and their requests reach the server late. All that they are granted is recorded; a sweep over the
//! record finds out whether too many permits were ever held at the same time.
//!
//! A test like this is worth what it notices: see `mistakes`, each of which is made on the way to the server, in a run
//! of the same kind.
//!
//! A run takes 10 s by default, or as many as `REDLATCH_LONG` says:
//!
//! ```sh
//! REDLATCH_LONG=600 cargo test --release --test limit -- the_limit_holds
//! ```
//!
//! This program is also the processes: see `worker`.

mod clock;
mod mistakes;
mod record;
mod seat;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod terms;
mod worker;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use mistakes::MISTAKES;
use storm::Storm;
use support::{SECOND, long_run};
use sweep::Figures;
use terms::NAMES;

/// How many storms go on at once, at most: each keeps a processor busy.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    if let Some(url) = support::worker_url() {
        worker::run(&url);
        return ExitCode::SUCCESS;
    }
    let mut trials = vec![
        trial("the_limit_holds", || the_limit_holds(false)),
        trial("the_limit_holds_while_it_is_changed", || the_limit_holds(true)),
    ];
    for mistake in MISTAKES {
        let name = format!("mistakes::{}", mistake.name);
        trials.push(trial(&name, || mistakes::is_noticed(mistake)));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(arguments.test_threads.unwrap_or(AT_ONCE).min(AT_ONCE));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// One that is ignored, and said to be, where wall clocks cannot be faked in this way.
fn trial(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    let trial = Trial::test(name, || {
        run();
        Ok(())
    });
    trial.with_ignored_flag(!cfg!(target_os = "linux"))
}

fn the_limit_holds(changes_limits: bool) {
    let mut storm = Storm::begin(changes_limits, None);
    let found = storm.rage(long_run().unwrap_or(SECOND * 10), |_| true);
    assert!(found.is_none(), "{}", found.unwrap());
    let outcome = storm.end();
    assert!(outcome.findings.is_empty(), "{}", outcome.findings[0]);

    let (figures, struck, peaks) = (Figures::of(&outcome.record), outcome.struck, outcome.peaks);
    println!("{figures:?}, {struck:?}, peaks of {peaks:?}");
    // A test in which nothing happens passes. Busy machines get by with a fraction of what is usual.
    assert!(figures.grants > 100, "hardly anything was granted");
    assert!(figures.of_several_permits > 5, "hardly ever several at once");
    assert!(figures.handed_on > 0, "nothing was handed on");
    assert!(figures.lost > 0, "nothing was lost");
    assert!(figures.never_released > 0, "nobody died with permits");
    assert!(struck.kills > 0 && struck.pauses > 0 && struck.late_requests > 0);
    assert_eq!(changes_limits, struck.limits > 0);
    for (name, peak) in NAMES.iter().zip(peaks) {
        assert!(peak >= name.limit, "{:?} was never used up: at most {peak}", name.name);
    }
}
