//! The library with the checks of AddressSanitizer in its Rust code, for C programs that have them as well.
//!
//! That takes a nightly compiler, which is not asked for, even in CI: without it only the C side is checked.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use libtest_mimic::Trial;

use crate::toolchain::{in_ci, is_there, missing, repository, run, succeed, trial_unless, with_library, workshop};

/// What turns the checks on, in gcc and clang: the first finding ends the program with a failure.
pub const CHECKS: [&str; 4] = [
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
];

/// What Rust's standard library needs of the system.
const LINKED_WITH: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

pub fn trials() -> Vec<Trial> {
    vec![trial_with_rust_code(
        "a_handle_used_after_its_free_is_found_in_rust_code",
        &[],
        a_handle_used_after_its_free_is_found_in_rust_code,
    )]
}

/// A trial of programs that this compiler builds with the checks, and that needs these programs besides.
pub fn trial(name: &str, compiler: &str, needs: &[&str], test: impl FnOnce() + Send + 'static) -> Trial {
    trial_unless(name, missing_runtime(compiler).or_else(|| missing(needs)), test)
}

/// A trial of programs that are linked with this library.
pub fn trial_with_rust_code(name: &str, needs: &[&str], test: impl FnOnce() + Send + 'static) -> Trial {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing_here = MISSING.get_or_init(|| match host() {
        None => Some("a nightly Rust compiler is missing (rustup toolchain install nightly)".to_owned()),
        Some(_) => missing_runtime("clang"),
    });
    trial_unless(name, missing_here.clone().or_else(|| missing(needs)), test)
}

/// Why this compiler cannot make programs with the checks. `None` if it can, or has to.
fn missing_runtime(compiler: &str) -> Option<String> {
    if in_ci() {
        return None;
    }
    if !is_there(compiler) {
        return Some(format!("{compiler} is missing"));
    }
    let program = workshop(&format!("sanitizer_of_{compiler}")).join("empty.c");
    std::fs::write(&program, "int main(void) { return 0; }\n").expect("a file in an own directory");
    let mut command = Command::new(compiler);
    command.args(CHECKS).arg(&program).arg("-o");
    let built = run(command.arg(program.with_extension("")));
    (!built.status.success()).then(|| format!("the sanitizers of {compiler} are missing"))
}

/// Starts a program that was built with the checks and finds the installed library.
pub fn checked(program: impl AsRef<OsStr>) -> Command {
    let mut command = with_library(program);
    command
        .env("ASAN_OPTIONS", "detect_leaks=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1");
    command
}

/// The static library, built once for this run: link it with [`compile`], or as that does. `None` without a nightly
/// compiler.
pub fn library() -> Option<PathBuf> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| host().map(|host| build(&host)));
    library.clone()
}

/// Builds a C program with the checks, its sources named from the root of the repository, and links it with the
/// sanitized library.
pub fn compile(flags: &[&str], sources: &[&str], program: &Path) {
    let mut clang = Command::new("clang");
    clang
        .current_dir(repository())
        .args(CHECKS)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-Iinclude"])
        .args(flags)
        .args(sources)
        .arg(library().expect("a nightly compiler"))
        .args(LINKED_WITH)
        .arg("-o")
        .arg(program);
    succeed(&mut clang);
}

fn build(host: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sanitized");
    let mut cargo = nightly("cargo");
    cargo
        .current_dir(repository())
        .args([
            "rustc",
            "--lib",
            "--features",
            "capi,tls",
            "--crate-type",
            "staticlib",
            "--target",
            host,
        ])
        .env("CARGO_TARGET_DIR", &target)
        // A report names lines; the rest of it would only take room.
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .env("RUSTFLAGS", "-Zsanitizer=address -Cforce-frame-pointers=yes")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    succeed(&mut cargo);
    target.join(host).join("debug/libredlatch.a")
}

/// What the nightly compiler, if there is one, makes programs for.
fn host() -> Option<String> {
    if !is_there("rustup") {
        return None;
    }
    let version = run(nightly("rustc").arg("-vV"));
    let version = String::from_utf8_lossy(&version.stdout);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
}

/// A program of the nightly toolchain, whichever one these tests were built by. A missing one is not fetched.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", program])
        .env("RUSTUP_AUTO_INSTALL", "0")
        .env_remove("RUSTC");
    command
}

fn a_handle_used_after_its_free_is_found_in_rust_code() {
    let program = workshop("used_after_free").join("program");
    compile(&["-std=c99"], &["tests/capi/programs/used_after_free.c"], &program);
    let found = run(&mut Command::new(program));
    let report = String::from_utf8_lossy(&found.stderr);
    assert!(!found.status.success(), "{report}");
    assert!(report.contains("heap-use-after-free"), "{report}");
    let by = report.lines().find(|line| line.trim_start().starts_with("#0"));
    assert!(by.is_some_and(|line| !line.contains("used_after_free.c")), "{report}");
}
