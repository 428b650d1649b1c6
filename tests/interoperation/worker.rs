//! The test's end of `worker.py`, a process that takes locks with redis-py.

use std::{
    env, fmt,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::support::SECOND;

/// How long a worker may take to answer, unless it was told to wait.
const PATIENCE: Duration = SECOND.saturating_mul(30);

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

pub struct Worker {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn start(url: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interoperation/worker.py");
        let mut process = Command::new("python3")
            .arg(script)
            .arg(url)
            .env("PYTHONPATH", redis_py())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("python3 does not start, which redis-py needs: {error}"));
        let orders = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, answers) = mpsc::channel();
        // Reads on a thread of its own, so that waiting for an answer has a bound.
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            process,
            orders,
            answers,
            reader: Some(reader),
        }
    }

    #[track_caller]
    pub fn send(&mut self, order: impl fmt::Display) {
        // If it has died, its answer will be missed, and the message for that says more.
        let _ = writeln!(self.orders, "{order}");
    }

    #[track_caller]
    pub fn receive(&mut self) -> String {
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => panic!("the redis-py worker did not answer within {PATIENCE:?}"),
            RecvTimeoutError::Disconnected => panic!(
                "the redis-py worker died (its own message is above; if redis-py or python3 is missing or broken: \
                 scripts/setup --all-servers)"
            ),
        })
    }

    /// Whether an answer has come that was not received yet.
    pub fn has_answered(&mut self) -> bool {
        self.answers.try_recv().is_ok()
    }

    #[track_caller]
    pub fn ask(&mut self, order: impl fmt::Display) -> String {
        self.send(order);
        self.receive()
    }

    /// Goes over to the lock at `key`, which it does not take yet.
    #[track_caller]
    pub fn lock(&mut self, key: &[u8], timeout: &str) {
        assert_eq!(self.ask(format_args!("lock {} {timeout}", hex(key))), "None");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
