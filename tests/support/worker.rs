use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::process;
use super::time::SECOND;

/// Names the server to a program that is to be a worker.
const URL: &str = "REDLATCH_WORKER_URL";

/// How long a worker may take to answer, whatever it was told to do.
const PATIENCE: Duration = SECOND.saturating_mul(60);

/// The server to work on, if this process was started by [`Worker::of_this_program`].
pub fn worker_url() -> Option<String> {
    env::var(URL).ok()
}

/// A process that is told what to do line by line, and answers each order by one line. It is killed on drop.
pub struct Worker {
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Worker {
    /// Starts this very program, as a worker on the server at `url`.
    pub fn of_this_program(url: &str) -> Self {
        Self::start(&mut Self::command(url))
    }

    /// What starts this very program as such a worker, for those that have something to add.
    pub fn command(url: &str) -> Command {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.env(URL, url);
        command
    }

    pub fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let orders = process.stdin.take().expect("a piped stdin");
        let lines = BufReader::new(process.stdout.take().expect("a piped stdout")).lines();
        let (sender, answers) = mpsc::channel();
        // Reads on a thread of its own, so that waiting for an answer has a bound. It ends with the pipe, which a
        // child of the worker may hold open longer.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            process,
            orders,
            answers,
        }
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        process::signal(self.process.id(), libc::SIGKILL);
    }

    /// Stops it (SIGSTOP), and waits until it has stopped.
    pub fn stop(&self) {
        process::stop(self.process.id());
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        process::resume(self.process.id());
    }

    #[track_caller]
    pub fn send(&mut self, order: impl fmt::Display) {
        // If it has died, its answer will be missed, and the message for that says more.
        let _ = writeln!(self.orders, "{order}");
    }

    #[track_caller]
    pub fn receive(&mut self) -> String {
        self.receive_within(PATIENCE)
    }

    #[track_caller]
    pub fn receive_within(&mut self, limit: Duration) -> String {
        self.answers.recv_timeout(limit).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => panic!("the worker did not answer within {limit:?}"),
            RecvTimeoutError::Disconnected => panic!("the worker died; its own message is above"),
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
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have been killed already, or be stopped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
