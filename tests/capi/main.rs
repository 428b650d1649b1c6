//! The C API as its users have it: `scripts/install` into a prefix, and programs in C, C++ and Python that are built
//! against that and run.
//!
//! What a trial needs (compilers, valgrind, Python) is installed by `scripts/setup --all-servers`. Where something is
//! missing, the trial is ignored and says so; in CI that is a failure.

mod boundary;
mod fuzz;
mod sanitized;
#[path = "../support/mod.rs"]
mod support;
mod toolchain;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut trials = vec![];
    trials.extend(boundary::trials());
    trials.extend(fuzz::trials());
    trials.extend(sanitized::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
