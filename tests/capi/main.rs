//! The C API as its users have it: `scripts/install` into a prefix, and programs in C, C++ and Python that are built
//! against that and run.
//!
//! What a trial needs (compilers, valgrind, Python) is installed by `scripts/setup --all-servers`. Where something is
//! missing, the trial is ignored and says so; in CI that is a failure.

mod boundary;
mod c_examples;
mod cpp;
mod exclusion;
mod fuzz;
mod header;
mod install;
mod python;
mod readme;
mod sanitized;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;
mod toolchain;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(url) = support::worker_url() {
        return exclusion::work(&url);
    }
    let trials = [
        boundary::trials(),
        c_examples::trials(),
        cpp::trials(),
        exclusion::trials(),
        fuzz::trials(),
        header::trials(),
        install::trials(),
        python::trials(),
        readme::trials(),
        sanitized::trials(),
        #[cfg(feature = "tls")]
        tls::trials(),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials.into_iter().flatten().collect()).exit_code()
}
