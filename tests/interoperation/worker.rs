//! The test's end of `worker.py`, a process that takes locks with redis-py.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::Worker;

/// Where `scripts/setup --all-servers` puts redis-py.
fn redis_py() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers/redis-py")
}

/// Why these tests cannot run here. `None` if they can, or have to: in CI, and once setup has put redis-py in its
/// place, a worker that does not start is a failure.
pub fn missing() -> Option<&'static str> {
    let in_ci = env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    (!in_ci && !redis_py().join("redis").exists()).then_some("redis-py is missing: run scripts/setup --all-servers")
}

/// Starts a worker on the server at `url`.
pub fn start(url: &str) -> Worker {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interoperation/worker.py");
    Worker::start(
        Command::new("python3")
            .arg(script)
            .arg(url)
            .env("PYTHONPATH", redis_py()),
    )
}

/// Has the worker go over to the lock at `key`, which it does not take yet.
#[track_caller]
pub fn lock(worker: &mut Worker, key: &[u8], timeout: &str) {
    assert_eq!(worker.ask(format_args!("lock {} {timeout}", hex(key))), "None");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
