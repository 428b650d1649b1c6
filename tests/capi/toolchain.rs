//! The library as it is installed, and the compilers and tools of its users.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use libtest_mimic::{Failed, Trial};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether this is a run in CI, where what a trial needs has to be there.
pub fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|ci| !ci.is_empty())
}

/// A trial that needs these programs on the PATH. In CI all of them have to be there.
pub fn trial(name: &str, needs: &[&str], test: impl FnOnce() + Send + 'static) -> Trial {
    trial_unless(name, missing(needs), test)
}

/// Which of these programs is not on the PATH, if that is a reason to leave a trial out.
pub fn missing(needs: &[&str]) -> Option<String> {
    let missing = needs.iter().find(|program| !in_ci() && !is_there(program));
    missing.map(|program| format!("{program} is missing"))
}

/// A trial that is ignored, and says why, if there is a reason to.
pub fn trial_unless(name: &str, missing: Option<String>, test: impl FnOnce() + Send + 'static) -> Trial {
    if let Some(missing) = &missing {
        eprintln!("not run: {name}: {missing}");
    }
    let trial = Trial::test(name, || -> Result<(), Failed> {
        test();
        Ok(())
    });
    trial.with_ignored_flag(missing.is_some())
}

pub fn is_there(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|path| path.join(program).is_file())
}

/// Where `scripts/install` has put the library, once for this run.
pub fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        // What an older version has left there is not this one's.
        let _ = fs::remove_dir_all(&prefix);
        succeed(
            Command::new(repository().join("scripts/install"))
                .arg("--prefix")
                .arg(&prefix),
        );
        prefix
    })
}

/// An empty directory for what a trial builds.
pub fn workshop(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workshops").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory under target/");
    directory
}

/// What pkg-config says about the installed library.
pub fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let flags = succeed(pkg_config.args(arguments).arg("redlatch"));
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Compiles sources, named from the root of the repository, against the installed library, with warnings as errors.
pub fn compile(compiler: &str, flags: &[&str], sources: &[&str], program: &Path) {
    let mut command = Command::new(compiler);
    command
        .current_dir(repository())
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"])
        .args(flags)
        .args(sources)
        .args(pkg_config(&["--cflags", "--libs"]))
        .arg("-o")
        .arg(program);
    succeed(&mut command);
}

/// Starts a program that finds the installed library.
pub fn with_library(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib"));
    command
}

/// Starts a program that finds the installed library under valgrind, which ends it with a failure if it finds anything.
pub fn under_valgrind(program: impl AsRef<OsStr>) -> Command {
    let mut valgrind = with_library("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    // Leaks that are possible are Rust's statics: it points into the middle of an allocation.
    valgrind.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]);
    valgrind.arg(program);
    valgrind
}

/// The blocks of code in a README or in a part of one, each with its language.
pub fn blocks(readme: &str) -> Vec<(&str, &str)> {
    let parts = readme.split("```").skip(1).step_by(2);
    let blocks = parts.map(|part| part.split_once('\n').expect("a block begins with its language"));
    blocks.collect()
}

/// Those of one language.
pub fn blocks_in<'a>(readme: &'a str, language: &str) -> Vec<&'a str> {
    let blocks = blocks(readme).into_iter().filter(|(of, _)| *of == language);
    blocks.map(|(_, block)| block).collect()
}

/// Runs a command, which has to succeed; returns what it wrote to its standard output.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[track_caller]
pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
}
