//! The processes that call the API: this very program, started again with a job as its arguments.

use std::{
    env,
    io::{self, BufRead, BufReader},
    iter,
    net::SocketAddr,
    ops::Range,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Failure,
    api::Api,
    calls::{Caller, LEASE, STREAM_LEASE, Waited, account_limit},
};

/// The first argument of a worker.
const WORKER: &str = "worker";

/// How long a thread does something else between two calls, in ms.
const PAUSE: Range<u64> = 50..200;

/// What a worker does, again and again until its time is over, on so many threads.
pub struct Role {
    pub name: &'static str,
    way: fn(&Caller) -> Result<Waited, Failure>,
    threads: usize,
    lease: Duration,
}

pub static SKIPS: Role = role("try_with_permit", Caller::skip_when_busy, 3, LEASE);
pub static WAITS: Role = role("with_permit", Caller::wait, 3, LEASE);
pub static WAITS_A_LITTLE: Role = role("acquire_timeout", Caller::wait_a_little, 3, LEASE);
pub static CALLS_IN_BULK: Role = role("permits(2)", Caller::call_in_bulk, 2, LEASE);
pub static STREAMS: Role = role("stream", Caller::stream, 1, STREAM_LEASE);
pub static CRASHES: Role = role("killed", Caller::crash, 1, LEASE);

const fn role(
    name: &'static str,
    way: fn(&Caller) -> Result<Waited, Failure>,
    threads: usize,
    lease: Duration,
) -> Role {
    Role {
        name,
        way,
        threads,
        lease,
    }
}

impl Role {
    /// Of the workers that neither stream nor crash: the first calls in bulk, the others in turn in the common ways.
    pub fn of_the_others() -> impl Iterator<Item = &'static Role> {
        let common = [&SKIPS, &WAITS, &WAITS_A_LITTLE];
        iter::once(&CALLS_IN_BULK).chain(common.into_iter().cycle())
    }

    fn named(name: &str) -> Option<&'static Role> {
        let all = [&SKIPS, &WAITS, &WAITS_A_LITTLE, &CALLS_IN_BULK, &STREAMS, &CRASHES];
        all.into_iter().find(|role| role.name == name)
    }
}

/// What a worker has to tell at the end.
#[derive(Clone, Copy, Default)]
pub struct Notes {
    pub made: u64,
    pub skipped: u64,
    pub longest_wait: Duration,
    /// The longest time for which it held a permit.
    pub longest_hold: Duration,
}

/// Does the job if this process was started as a worker; tells whether it was.
pub fn was_one() -> Result<bool, Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [WORKER, name, role, prefix, api, seconds] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        return Ok(false);
    };
    let role = Role::named(role).ok_or("no such role")?;
    let caller = Caller {
        limit: account_limit(&env::var("REDIS_URL")?, prefix, role.lease)?,
        api: Api {
            address: api.parse()?,
            caller: name.to_owned(),
        },
        end: Instant::now() + Duration::from_secs(seconds.parse()?),
    };
    println!("{}", work(&caller, role)?.to_line());
    Ok(true)
}

fn work(caller: &Caller, role: &Role) -> Result<Notes, Failure> {
    thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| call_again_and_again(caller, role.way));
        let threads: Vec<_> = (0..role.threads).map(spawn).collect();
        let mut notes = Notes::default();
        for thread in threads {
            notes.add(&thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(notes)
    })
}

fn call_again_and_again(caller: &Caller, way: fn(&Caller) -> Result<Waited, Failure>) -> Result<Notes, Failure> {
    let mut notes = Notes::default();
    while Instant::now() < caller.end {
        let start = Instant::now();
        match way(caller)? {
            Some(waited) => notes.add(&Notes {
                made: 1,
                skipped: 0,
                longest_wait: waited,
                longest_hold: start.elapsed() - waited,
            }),
            None => notes.skipped += 1,
        }
        thread::sleep(Duration::from_millis(fastrand::u64(PAUSE)));
    }
    Ok(notes)
}

impl Notes {
    fn add(&mut self, other: &Notes) {
        self.made += other.made;
        self.skipped += other.skipped;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.longest_hold = self.longest_hold.max(other.longest_hold);
    }

    fn to_line(self) -> String {
        let [wait, hold] = [self.longest_wait, self.longest_hold].map(|time| time.as_micros());
        format!("{} {} {wait} {hold}", self.made, self.skipped)
    }

    fn from_line(line: &str) -> Option<Self> {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [made, skipped, wait, hold] = numbers[..] else {
            return None;
        };
        Some(Notes {
            made,
            skipped,
            longest_wait: Duration::from_micros(wait),
            longest_hold: Duration::from_micros(hold),
        })
    }
}

/// What all workers of a run have in common.
pub struct Run {
    pub url: String,
    pub prefix: String,
    pub api: SocketAddr,
    pub seconds: u64,
}

/// A worker as its parent sees it. Killed on drop.
pub struct Worker {
    pub name: String,
    pub role: &'static Role,
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    pub fn start(run: &Run, name: impl Into<String>, role: &'static Role) -> Result<Self, Failure> {
        let name = name.into();
        let mut process = Command::new(env::current_exe()?)
            .args([WORKER, &name, role.name, &run.prefix])
            .args([run.api.to_string(), run.seconds.to_string()])
            .env("REDIS_URL", &run.url) // not an argument, which everybody can read: it may hold a password
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("its output is piped")?;
        Ok(Worker {
            name,
            role,
            process,
            output: BufReader::new(output),
        })
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("{} failed: its own message is above", self.name).into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits until it has ended.
    pub fn notes(&mut self) -> Result<Notes, Failure> {
        let line = self.line()?;
        self.process.wait()?;
        Notes::from_line(&line).ok_or_else(|| format!("{} told {line:?}", self.name).into())
    }

    /// SIGKILL: it gets to do nothing more.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
