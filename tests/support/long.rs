use std::env;
use std::time::Duration;

/// How long a soak lasts if this is a long run: what `scripts/test --long` sets `REDLATCH_LONG` to.
pub fn long_run() -> Option<Duration> {
    let seconds = env::var("REDLATCH_LONG").ok()?;
    Some(Duration::from_secs(
        seconds.parse().expect("REDLATCH_LONG to be a number of seconds"),
    ))
}
