//! The clock that all processes share, and wall clocks that are wrong.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};

/// An instant, as the time since the machine was started.
pub type Moment = Duration;

// Only where this is so do the tests run: elsewhere it has to compile.
#[cfg(target_os = "linux")]
const BOOT_TIME: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const BOOT_TIME: ClockId = ClockId::Monotonic;

/// The instant on the clock that nobody sets, which is the same in all processes.
pub fn now() -> Moment {
    let now = clock_gettime(BOOT_TIME);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// How far a wall clock is ahead, in seconds; negative if it is behind.
pub type Skew = i64;

/// Tells `skewed_clock.c` the skew.
const SKEW: &str = "SKEWED_CLOCK_SECONDS";

/// Tells a process with a skewed clock what time it was when it was started.
const TRUE_TIME: &str = "REDLATCH_TRUE_TIME";

/// How long a process may take to start.
const PATIENCE: Skew = 600;

/// The library that has processes see another time.
pub struct SkewedClock(PathBuf);

impl SkewedClock {
    /// Builds it in `dir`.
    pub fn build(dir: &Path) -> Self {
        let library = dir.join("skewed_clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/limit/skewed_clock.c");
        let mut compiler = Command::new("cc");
        let compiled = compiler.args(["-shared", "-fPIC", "-Wall", "-o"]);
        let compiled = compiled.args([&library, Path::new(source)]).status();
        assert!(compiled.expect("a C compiler, cc").success(), "cc failed: see above");
        Self(library)
    }

    /// Has `command` run with a clock that is that much ahead.
    pub fn put_on(&self, command: &mut Command, skew: Skew) {
        let environment = [(SKEW, skew.to_string()), (TRUE_TIME, wall_clock().to_string())];
        command.envs(environment).env("LD_PRELOAD", &self.0);
    }
}

/// Asserts that the clock of this process is as wrong as it was to be: one that tells the time would test nothing.
pub fn assert_skewed() {
    let told = |name| env::var(name).ok().and_then(|told| told.parse::<Skew>().ok());
    let (skew, true_time) = (told(SKEW).expect("a skew"), told(TRUE_TIME).expect("the time"));
    let ahead = wall_clock() - true_time;
    assert!(
        (skew..skew + PATIENCE).contains(&ahead) && skew.abs() > PATIENCE,
        "the clock was to be {skew} s ahead and is {ahead} s"
    );
}

/// What this process takes for the time, in seconds since 1970.
fn wall_clock() -> Skew {
    since_1970().as_secs() as Skew
}

/// What this process takes for the time since 1970.
fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a time after 1970")
}

/// What a process with such a skew takes for the time: seconds since 1970, and microseconds.
pub fn skewed_time(skew: Skew) -> (Skew, u32) {
    let now = since_1970();
    (now.as_secs() as Skew + skew, now.subsec_micros())
}
