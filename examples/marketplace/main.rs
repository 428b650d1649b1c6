//! A marketplace under load: the case for locks, measured.
//!
//! Listers put items on a market, buyers buy them, all at full speed, and no item may be sold twice and no coin may
//! get lost. Three ways to ensure that take turns on the same server: `WATCH`/`MULTI`/`EXEC` with retries, one lock
//! for the whole market, and one lock an item.
//!
//! The experiment is Josiah Carlson's, from *Redis in Action* (Manning, 2013): section 4.4 builds the marketplace on
//! `WATCH`, section 6.2 rebuilds it on locks and compares. As there, nobody pauses between two moves. That is what
//! makes `WATCH` slow, since every move of anybody breaks it: on a market where little happens, it is as good as locks.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1/ cargo run --release --example marketplace -- --seconds 5
//! ```
//!
//! Reading order: [`world`] is what lies in Redis and what must be true of it, [`moves`] what a lister and a buyer do,
//! [`ways`] how they keep out of each other's way (the point of it all), [`session`] the threads that do it for some
//! seconds, [`report`] the table.

mod moves;
mod report;
mod session;
mod ways;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use session::Mix;
use ways::Way;

/// Threads pass these on, hence `Send + Sync`.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "\
A marketplace on Redis three ways: WATCH, one lock for the market, one lock an item.

Usage: REDIS_URL=redis://HOST/ marketplace [--seconds N]

  --seconds N   how long each of the 9 runs lasts (default 5, at most 60)
  --help        this text

Everything it writes lies under one prefix of its own and is removed at the end of each run.";

const MIXES: [Mix; 3] = [mix(1, 1), mix(5, 1), mix(5, 5)];

const fn mix(listers: usize, buyers: usize) -> Mix {
    Mix { listers, buyers }
}

fn main() -> Result<ExitCode, Failure> {
    let Some(seconds) = seconds_to_run()? else {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    let url = std::env::var("REDIS_URL").unwrap_or_default();
    if url.is_empty() {
        eprintln!("set REDIS_URL to the server to run against, or run scripts/demo, which starts one of its own");
        return Ok(ExitCode::from(2));
    };

    let mut runs = Vec::new();
    for mix in MIXES {
        for way in Way::ALL {
            runs.push(session::run(&url, way, mix, seconds)?);
        }
    }

    println!("{}", report::table(&runs));
    println!("{}", report::verdict(&runs).unwrap_or_default());

    let failures = report::failures(&runs);
    for failure in &failures {
        eprintln!("CHECK FAILED: {failure}");
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// `None`: only `--help` was wanted.
fn seconds_to_run() -> Result<Option<Duration>, lexopt::Error> {
    use lexopt::prelude::*;

    let mut seconds = 5;
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("seconds") => {
                seconds = arguments.value()?.parse_with(|text| {
                    text.parse()
                        .ok()
                        .filter(|seconds| (1..=60).contains(seconds))
                        .ok_or("expected 1 to 60")
                })?;
            }
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(Some(Duration::from_secs(seconds)))
}
