//! Processes in C, C++, Python and Rust, and redis-py, on one name: each of them keeps all others out.
//!
//! Every process takes the lock and releases it at orders, and what the lock protects is done here on its behalf: a
//! counter on the server, counted up as nobody should without a lock.

use std::{
    env, io,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use libtest_mimic::Trial;
use redlatch::Client;

use crate::{
    support::{SECOND, Server, Worker, wait_until},
    toolchain::{compile, in_ci, repository, trial, trial_unless, with_library, workshop},
};

/// How long anybody waits for a lock that is about to be free.
const PATIENCE: Duration = SECOND.saturating_mul(60);

/// A language, and what starts a process in it that works as `programs/exclusion_worker.c` does: for a server's URL,
/// and still without its last argument, the lock's name.
type Language = (&'static str, fn(&str) -> Command);

const LANGUAGES: [Language; 5] = [
    ("C", c),
    ("C++", cpp),
    ("Python", python),
    ("Rust", Worker::command),
    ("redis-py", redis_py),
];

fn c(url: &str) -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    compiled(&PROGRAM, "cc", "-std=c99", "c", url)
}

fn cpp(url: &str) -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    compiled(&PROGRAM, "c++", "-std=c++17", "cpp", url)
}

fn compiled(program: &OnceLock<PathBuf>, compiler: &str, standard: &str, extension: &str, url: &str) -> Command {
    let program = program.get_or_init(|| {
        let program = workshop(&format!("exclusion-{extension}")).join("worker");
        let source = format!("tests/capi/programs/exclusion_worker.{extension}");
        compile(compiler, &[standard], &[&source], &program);
        program
    });
    let mut command = with_library(program);
    command.arg(url);
    command
}

fn python(url: &str) -> Command {
    let script = repository().join("tests/capi/python/exclusion_worker.py");
    let mut command = with_library("python3");
    command
        .arg(script)
        .arg(url)
        .env("PYTHONPATH", repository().join("ffi-examples/python"));
    command
}

fn redis_py(url: &str) -> Command {
    let script = repository().join("tests/capi/programs/exclusion_worker.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(url).env("PYTHONPATH", redis_py_package());
    command
}

/// Where `scripts/setup --all-servers` puts redis-py.
fn redis_py_package() -> PathBuf {
    repository().join(".servers/redis-py")
}

/// The Rust process: this very program, as a worker.
pub fn work(url: &str) -> ExitCode {
    let name = env::args().next_back().expect("a name");
    let lock = Client::open(url).unwrap().lock(name);
    let mut guard = None;
    for order in io::stdin().lines().map_while(Result::ok) {
        match order.as_str() {
            "acquire" => guard = Some(lock.acquire_timeout(PATIENCE).unwrap()),
            "try" => guard = lock.try_acquire().unwrap(),
            "release" => {
                guard.take().expect("a guard to release").release().unwrap();
                println!("ok");
                continue;
            }
            _ => panic!("not understood: {order}"),
        }
        match &guard {
            Some(guard) => println!("{}", guard.fencing_token()),
            None => println!("busy"),
        }
    }
    ExitCode::SUCCESS
}

pub fn trials() -> Vec<Trial> {
    let exclude = |name: &str, test: fn()| {
        // In CI, and once setup has put it in its place, a redis-py that does not start is a failure.
        if in_ci() || redis_py_package().join("redis").exists() {
            trial(name, &["cc", "c++", "pkg-config", "python3"], test)
        } else {
            let missing = "redis-py is missing: run scripts/setup --all-servers";
            trial_unless(name, Some(missing.to_owned()), test)
        }
    };
    vec![
        exclude(
            "a_holder_in_each_language_is_refused_to_all_others",
            a_holder_in_each_language_is_refused_to_all_others,
        ),
        exclude(
            "a_waiter_in_each_language_gets_the_lock_from_each_other_one",
            a_waiter_in_each_language_gets_the_lock_from_each_other_one,
        ),
        exclude(
            "processes_in_all_languages_lose_no_update",
            processes_in_all_languages_lose_no_update,
        ),
    ]
}

/// A process that takes the lock and releases it.
struct Holder {
    language: &'static str,
    worker: Worker,
}

impl Holder {
    /// One for each language.
    fn all(server: &Server, name: &str) -> Vec<Self> {
        let start = |(language, command): Language| Self {
            language,
            worker: Worker::start(command(&server.url()).arg(name)),
        };
        LANGUAGES.into_iter().map(start).collect()
    }

    fn is_refused(&mut self) -> bool {
        self.worker.ask("try") == "busy"
    }

    fn starts_to_wait(&mut self) {
        self.worker.send("acquire");
    }

    /// Receives the answer to an acquire, which has to be a grant: its fencing token, if the language has one.
    #[track_caller]
    fn gets_it(&mut self) -> Option<u64> {
        let answer = self.worker.receive_within(PATIENCE + SECOND * 10);
        let token = answer.parse().unwrap_or_else(|_| panic!("{}: {answer}", self.language));
        (token > 0).then_some(token)
    }

    #[track_caller]
    fn releases(&mut self) {
        assert_eq!(self.worker.ask("release"), "ok", "{}", self.language);
    }
}

/// Shows each of the things, and all others beside it.
fn each<T>(things: &mut [T], mut visit: impl FnMut(&mut T, &mut [T])) {
    for _ in 0..things.len() {
        let (first, others) = things.split_first_mut().expect("at least one");
        visit(first, others);
        things.rotate_left(1);
    }
}

fn a_holder_in_each_language_is_refused_to_all_others() {
    let server = Server::start();
    let mut holders = Holder::all(&server, "one at a time");
    let mut tokens = Vec::new();
    for _ in 0..3 {
        each(&mut holders, |holder, others| {
            holder.worker.send("try");
            tokens.extend(holder.gets_it());
            for other in others.iter_mut() {
                assert!(other.is_refused(), "{} beside {}", other.language, holder.language);
            }
            holder.releases();
        });
    }
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    assert_eq!(server.get("lock:one at a time"), None);
}

fn a_waiter_in_each_language_gets_the_lock_from_each_other_one() {
    let server = Server::start();
    let mut holders = Holder::all(&server, "handed on");
    let lock = Client::open(server.url()).unwrap().lock("handed on");
    each(&mut holders, |holder, others| {
        for waiter in others {
            holder.starts_to_wait();
            holder.gets_it();
            // What a redlatch waiter leaves on the server; redis-py leaves nothing, but sends a SET at each attempt.
            let sets = server.command_calls("set");
            waiter.starts_to_wait();
            wait_until("the next one to wait", PATIENCE, || {
                lock.inspect().unwrap().waiters == 1 || server.command_calls("set") >= sets + 2
            });
            assert!(
                !waiter.worker.has_answered(),
                "{} beside {}",
                waiter.language,
                holder.language
            );
            holder.releases();
            waiter.gets_it();
            assert!(holder.is_refused(), "{} beside {}", holder.language, waiter.language);
            waiter.releases();
        }
    });
}

/// Two processes in each language take the lock as soon as they can get it, each so many times. Who gets it is a matter
/// of luck, since redis-py polls, so a language that had the last few turns lets another one in.
fn processes_in_all_languages_lose_no_update() {
    const TURNS: usize = 25;
    const COUNTER: &str = "count";
    let server = Server::start();
    let name = "free for all";
    let mut holders = Holder::all(&server, name);
    holders.extend(Holder::all(&server, name));
    let turns = Turns {
        enough: TURNS * 2,
        ..Turns::default()
    };

    // The first turn is this test's, until all processes are there and have been refused.
    let first = Client::open(server.url()).unwrap().lock(name).acquire().unwrap();
    for holder in &mut holders {
        assert!(holder.is_refused(), "{}", holder.language);
    }
    first.release().unwrap();
    let somebody_inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for holder in &mut holders {
            scope.spawn(|| {
                let mut connection = server.connection();
                for _ in 0..TURNS {
                    turns.let_others_in(holder.language);
                    holder.starts_to_wait();
                    let token = holder.gets_it();
                    assert!(!somebody_inside.swap(true, Ordering::SeqCst), "{}", holder.language);
                    let before: Option<usize> = redis::cmd("GET").arg(COUNTER).query(&mut connection).unwrap();
                    let mut set = redis::cmd("SET");
                    set.arg(COUNTER).arg(before.unwrap_or(0) + 1);
                    set.exec(&mut connection).unwrap();
                    turns.add(holder.language, token);
                    assert!(somebody_inside.swap(false, Ordering::SeqCst), "{}", holder.language);
                    holder.releases();
                }
            });
        }
    });
    let turns = turns.taken.into_inner();
    assert_eq!(turns.len(), TURNS * holders.len());
    assert_eq!(server.get(COUNTER), Some(turns.len().to_string()), "an update was lost");
    let tokens: Vec<u64> = turns.iter().filter_map(|(_, token)| *token).collect();
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    for (language, _) in LANGUAGES {
        let has_tokens = turns.iter().any(|turn| turn.0 == language && turn.1.is_some());
        assert_eq!(has_tokens, language != "redis-py", "{language}");
    }
}

/// Who had the lock, one after the other, and with which fencing token.
#[derive(Default)]
struct Turns {
    taken: parking_lot::Mutex<Vec<(&'static str, Option<u64>)>>,
    one_more: parking_lot::Condvar,
    /// How many turns each language takes in all.
    enough: usize,
}

impl Turns {
    fn add(&self, language: &'static str, token: Option<u64>) {
        self.taken.lock().push((language, token));
        self.one_more.notify_all();
    }

    /// Blocks while this language had the last few turns and others have not had all of theirs.
    fn let_others_in(&self, language: &str) {
        const IN_A_ROW: usize = 5;
        let mut taken = self.taken.lock();
        let had_the_last = |taken: &mut Vec<(&str, _)>| {
            let in_a_row = taken.iter().rev().take_while(|turn| turn.0 == language).count();
            let others = taken.iter().filter(|turn| turn.0 != language).count();
            in_a_row >= IN_A_ROW && others < self.enough * (LANGUAGES.len() - 1)
        };
        let waited = self.one_more.wait_while_for(&mut taken, had_the_last, PATIENCE);
        assert!(
            !waited.timed_out(),
            "{language} had the last turns, and nobody else comes"
        );
    }
}
