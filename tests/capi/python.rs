//! The package for Python, as its users have it: against the installed library.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Trial;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use redlatch::{Client, Lock};

use crate::{
    support::{Redlock, SECOND, Server, Worker, shared, wait_until},
    toolchain::{self, blocks_in, in_ci, repository, succeed, workshop},
};

/// For what takes no time on a machine that is not busy.
const PATIENCE: Duration = SECOND.saturating_mul(30);

pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| toolchain::trial(&format!("python::{name}"), &["python3"], test);
    let mut trials = vec![
        trial("guards_tell_about_their_hold_and_with_statements_end_it", || {
            suite("guards")
        }),
        trial("locks_are_acquired_waited_for_and_decorate_functions", || {
            suite("acquiring")
        }),
        trial("arguments_are_rounded_up_or_refused", || suite("arguments")),
        trial("each_setting_is_acted_on", each_setting_is_acted_on),
        trial("losses_call_back_until_the_interpreter_ends", || suite("losses")),
        trial("semaphores_keep_their_limit", || suite("semaphores")),
        trial("several_locks_are_held_as_one", || suite("multi_locks")),
        trial(
            "waits_on_a_redlock_go_on_until_a_majority_grants_it",
            waits_on_a_redlock_go_on_until_a_majority_grants_it,
        ),
        trial("operators_inspect_force_out_and_audit", || suite("operators")),
        trial("forks_and_multiprocessing_leave_the_parent_alone", || {
            suite("processes")
        }),
        trial("the_library_is_found_and_declared_as_it_is", || suite("loading")),
        trial(
            "ctrl_c_ends_a_wait_at_once_and_leaves_nothing_in_the_queue",
            ctrl_c_ends_a_wait_at_once_and_leaves_nothing_in_the_queue,
        ),
        trial(
            "a_storm_of_signals_costs_no_place_in_the_queue",
            a_storm_of_signals_costs_no_place_in_the_queue,
        ),
        trial("examples_do_as_they_say", examples_do_as_they_say),
        trial("the_readme_runs_as_it_stands", the_readme_runs_as_it_stands),
    ];
    trials.push(toolchain::trial_unless(
        "python::pip_installs_the_package",
        missing_tools(),
        pip_installs_the_package,
    ));
    trials.push(toolchain::trial_unless(
        "python::types_are_sound",
        missing_tools(),
        types_are_sound,
    ));
    trials
}

/// The interpreter itself: a wrapper in its place would get the signals that are sent to it.
fn interpreter() -> &'static str {
    static INTERPRETER: OnceLock<String> = OnceLock::new();
    INTERPRETER.get_or_init(|| {
        let path = succeed(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]));
        path.trim().to_owned()
    })
}

/// Where `scripts/setup --all-servers` puts what checks and builds the package.
fn tools() -> PathBuf {
    repository().join(".servers/python-tools")
}

fn missing_tools() -> Option<String> {
    let there = in_ci() || tools().is_dir();
    (!there).then(|| "mypy and setuptools are missing: run scripts/setup --all-servers".to_owned())
}

fn package() -> PathBuf {
    repository().join("ffi-examples/python")
}

/// Python with the package, and with the library where the system's loader finds it.
fn python() -> Command {
    let mut python = toolchain::with_library(interpreter());
    python
        .env("PYTHONPATH", package())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("REDLATCH_LIBRARY");
    python
}

fn script(name: &str) -> PathBuf {
    repository().join("tests/capi/python").join(name)
}

/// Runs a file of Python's own tests, on a server of its own, since some of them hold that up.
fn suite(name: &str) {
    suite_on(&Server::start(), name);
}

fn each_setting_is_acted_on() {
    let server = Server::start();
    let _replica = server.start_replica();
    suite_on(&server, "settings");
}

fn waits_on_a_redlock_go_on_until_a_majority_grants_it() {
    let redlock = Redlock::start();
    succeed(&mut suite_at(&redlock.url(), "redlock"));
}

fn suite_on(server: &Server, name: &str) {
    succeed(suite_at(&server.url(), name).env("REDLATCH_TEST_SERVER_PID", server.pid().to_string()));
}

/// What runs such a file.
pub fn suite_at(url: &str, name: &str) -> Command {
    let library = toolchain::prefix().join("lib").join(library_file());
    let mut suite = python();
    suite
        .arg(script(&format!("{name}.py")))
        .env("REDLATCH_TEST_URL", url)
        .env("REDLATCH_TEST_LIBRARY", library);
    suite
}

fn library_file() -> &'static str {
    if cfg!(target_os = "macos") {
        concat!("libredlatch.", env!("CARGO_PKG_VERSION"), ".dylib")
    } else {
        concat!("libredlatch.so.", env!("CARGO_PKG_VERSION"))
    }
}

/// A fair lock whose waiters look so rarely by themselves that whoever waits for one that is gone is found out.
fn fair_lock(server: &Server, name: &str) -> Lock {
    let client = Client::builder().url(server.url()).poll_interval(20 * SECOND).build();
    client.expect("a client").lock(name).fair(true)
}

#[track_caller]
fn wait_until_waiters_are(lock: &Lock, count: usize) {
    wait_until(&format!("{count} to wait"), PATIENCE, || waiters(lock) == count);
}

fn waiters(lock: &Lock) -> usize {
    lock.inspect().expect("an inspection").waiters
}

fn ctrl_c_ends_a_wait_at_once_and_leaves_nothing_in_the_queue() {
    let server = shared();
    let name = "python:ctrl-c";
    let lock = fair_lock(&server, name);
    let guard = lock.acquire().expect("a lock that is free");
    let mut waiter = python()
        .arg(script("waiter.py"))
        .args([&server.url(), name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python");
    wait_until_waiters_are(&lock, 1);
    let next = fair_lock(&server, name);
    let next = thread::spawn(move || next.acquire_timeout(120 * SECOND).map(|guard| (guard, Instant::now())));
    wait_until_waiters_are(&lock, 2);

    kill(Pid::from_raw(waiter.id() as i32), Signal::SIGINT).expect("a process to interrupt");
    // It would wait for a minute.
    wait_until("Ctrl-C to end it", PATIENCE, || {
        waiter.try_wait().expect("a child").is_some()
    });
    // Its place would last for 50 s.
    wait_until_waiters_are(&lock, 1);
    let status = waiter.wait().expect("a child");
    let mut said = String::new();
    let errors = waiter.stderr.take().expect("a piped stderr");
    BufReader::new(errors).read_to_string(&mut said).expect("what it said");
    assert!(said.trim_end().ends_with("KeyboardInterrupt"), "{said}");
    assert_eq!(status.signal(), Some(Signal::SIGINT as i32), "{status}");
    let output = BufReader::new(waiter.stdout.take().expect("a piped stdout")).lines();
    assert_eq!(output.count(), 1, "it was not granted");

    let released = Instant::now();
    guard.release().expect("a release");
    let (_guard, granted) = next.join().expect("no panic").expect("the lock");
    let took = granted.duration_since(released);
    assert!(took < 15 * SECOND, "the next in line was served after {took:?}");
}

fn a_storm_of_signals_costs_no_place_in_the_queue() {
    let server = shared();
    let name = "python:storm";
    let lock = fair_lock(&server, name);
    let guard = lock.acquire().expect("a lock that is free");
    let start = || Worker::start(python().arg(script("waiter.py")).args([&server.url(), name]));
    let pid = |waiter: &mut Worker| {
        let waiting = waiter.receive();
        let pid = waiting.strip_prefix("waiting as ").expect("its process id");
        Pid::from_raw(pid.parse().expect("a process id"))
    };

    let mut first = start();
    let first_pid = pid(&mut first);
    wait_until_waiters_are(&lock, 1);
    let mut last = start();
    pid(&mut last);
    wait_until_waiters_are(&lock, 2);
    wait_until("the first to handle signals", PATIENCE, || {
        kill(first_pid, Signal::SIGUSR1).expect("a process to signal");
        first.has_answered()
    });
    assert_eq!(waiters(&lock), 2);
    guard.release().expect("a release");
    let token = |waiter: &mut Worker| {
        let granted = waiter.receive();
        let token = granted.strip_prefix("granted ").expect("a fencing token");
        token.parse::<u64>().expect("a fencing token")
    };
    let first = token(&mut first);
    assert!(first < token(&mut last), "the first was served first");
}

fn examples_do_as_they_say() {
    let server = shared();
    let example = |name: &str| {
        let mut python = python();
        python
            .arg(package().join("examples").join(name))
            .env_remove("REDIS_URL");
        python
    };
    for (name, says) in [
        ("lock.py", "a second holder is refused"),
        ("semaphore.py", "12 calls, 3 at a time at most"),
        ("decorator.py", "100 deposits of 1: 100"),
    ] {
        for said in [
            succeed(&mut example(name)),
            succeed(example(name).arg(server.url())),
            succeed(example(name).env("REDIS_URL", server.url())),
        ] {
            assert!(said.contains(says), "{name}: {said}");
        }
    }
    let said = succeed(example("multiprocessing_pool.py").arg(server.url()));
    for method in ["fork", "spawn"] {
        let says = format!("{method}: 100 counted by 4 processes: 100");
        assert!(said.contains(&says), "{said}");
    }
}

fn the_readme_runs_as_it_stands() {
    let server = shared();
    let readme = fs::read_to_string(package().join("README.md")).expect("a README");
    let code = blocks_in(&readme, "python")[0].replace("redis://127.0.0.1/", &server.url());
    let said = succeed(python().arg("-c").arg(code));
    assert!(said.trim().parse::<u64>().is_ok_and(|token| token > 0), "{said}");
}

fn pip_installs_the_package() {
    let directory = workshop("python-pip");
    // A copy, since a build leaves its traces beside the sources.
    succeed(
        Command::new("cp")
            .arg("-R")
            .arg(package())
            .arg(directory.join("python")),
    );
    let site = directory.join("site");
    let mut pip = Command::new(interpreter());
    pip.env("PYTHONPATH", tools())
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--root-user-action=ignore",
        ])
        .args(["--no-index", "--no-build-isolation", "--target"])
        .arg(&site)
        .arg(directory.join("python"));
    succeed(&mut pip);
    assert!(site.join("redlatch/py.typed").is_file());
    let said = succeed(python().env("PYTHONPATH", &site).args([
        "-c",
        "import redlatch; print(redlatch.__file__, redlatch.library_version())",
    ]));
    assert!(said.starts_with(site.to_str().expect("UTF-8")), "{said}");
    assert!(said.trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{said}");
}

fn types_are_sound() {
    let workshop = workshop("python-mypy");
    let readme = fs::read_to_string(package().join("README.md")).expect("a README");
    // Its servers are not there, so this is all that can be tried of it.
    let settings = blocks_in(&readme, "python")[1];
    assert!(settings.contains("redlatch.Client("), "{settings}");
    let lines = workshop.join("settings.py");
    fs::write(&lines, format!("import redlatch\n{settings}")).expect("a copy");
    let examples = ["lock", "semaphore", "decorator", "multiprocessing_pool"];
    succeed(
        Command::new(interpreter())
            .current_dir(package())
            .env("PYTHONPATH", tools())
            .args(["-m", "mypy", "--cache-dir"])
            .arg(workshop.join("cache"))
            .arg("redlatch")
            .arg(lines)
            .args(examples.map(|example| format!("examples/{example}.py"))),
    );
}
