//! Calls in random order with random arguments, under the sanitizers: see `programs/fuzz.c`.
//!
//! `REDLATCH_FUZZ_SECONDS` says for how long each trial makes them, 3 if unset; `REDLATCH_FUZZ_SEED` makes the calls of
//! an earlier run again, as far as several threads can: its seed is in its output.

use std::{
    env::{self, VarError},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use libtest_mimic::Trial;

use crate::{
    sanitized,
    support::{self, Server},
    toolchain::{compile, succeed, workshop},
};

const THREADS: &str = "4";

pub fn trials() -> Vec<Trial> {
    // The C side can have the checks without a nightly compiler, and then finds what is freed twice, and what it was
    // given that does not last.
    let c_side = |name: &str, test: fn()| sanitized::trial(name, "gcc", &["pkg-config", "timeout"], test);
    let both_sides = |name: &str, test: fn()| sanitized::trial_with_rust_code(name, &["timeout"], test);
    vec![
        c_side("random_calls_on_a_server", || {
            make_calls(checked_in_c(), &server_with_abandoned_locks().url());
        }),
        c_side("random_calls_in_memory", || make_calls(checked_in_c(), "memory://")),
        both_sides("random_calls_on_a_server_with_rust_code_checked", || {
            make_calls(checked_in_both(), &server_with_abandoned_locks().url());
        }),
        both_sides("random_calls_in_memory_with_rust_code_checked", || {
            make_calls(checked_in_both(), "memory://");
        }),
    ]
}

/// For audits to find.
fn server_with_abandoned_locks() -> Arc<Server> {
    let server = support::shared();
    server.run("SET fuzz:abandoned x");
    server.run("HSET fuzz:abandoned:hash x 1");
    server
}

fn make_calls(program: PathBuf, url: &str) {
    let seconds = number_in("REDLATCH_FUZZ_SECONDS").unwrap_or(3);
    let seed = seed();
    let mut command = sanitized::checked("timeout");
    command
        .arg("--kill-after=5")
        .arg((seconds + 120).to_string())
        .arg(program)
        .args([url, &seed.to_string(), &seconds.to_string(), THREADS]);
    let done = succeed(&mut command);
    // So many at the least, or nothing was tested.
    let counts: Vec<u64> = done.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [calls, grants, _losses] = counts[..] else {
        panic!("{done}");
    };
    assert!(calls > 100 && grants > 0, "{done}");
    println!(
        "random calls on {url} with REDLATCH_FUZZ_SEED={seed}: {}",
        done.trim_end()
    );
}

/// One for all trials of a run, so that it can be given again.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = number_in("REDLATCH_FUZZ_SEED").unwrap_or_else(|| {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("a clock that is set");
            u64::from(now.subsec_nanos()) ^ now.as_secs()
        });
        println!("random calls: REDLATCH_FUZZ_SEED={seed}");
        seed
    })
}

fn number_in(variable: &str) -> Option<u64> {
    match env::var(variable) {
        Ok(number) => Some(
            number
                .parse()
                .unwrap_or_else(|_| panic!("{variable} is no number: {number}")),
        ),
        Err(VarError::NotPresent) => None,
        Err(error) => panic!("{variable}: {error}"),
    }
}

fn checked_in_c() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let program = workshop("fuzz_c").join("fuzz");
        let flags = [&["-std=c99"], &sanitized::CHECKS[..]].concat();
        compile("gcc", &flags, &["tests/capi/programs/fuzz.c"], &program);
        program
    };
    BUILT.get_or_init(build).clone()
}

fn checked_in_both() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let program = workshop("fuzz_both").join("fuzz");
        sanitized::compile(&["-std=c99"], &["tests/capi/programs/fuzz.c"], &program);
        program
    };
    BUILT.get_or_init(build).clone()
}
