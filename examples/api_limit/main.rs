//! One account may make five calls at a time to an external API, and many processes call it.
//!
//! The API here is a little server that counts the calls inside, and refuses a sixth. Several processes, each with
//! several threads, call it for the same account under one semaphore: some skip a call when five are under way, some
//! wait, some make calls that count as two. One streams, far longer than its lease, and one is killed in the middle of
//! a call.
//!
//! ```text
//! cargo run --example api_limit -- --seconds 5
//! ```
//!
//! Reading order: [`calls`] is how they keep to the limit (the point of it all), [`worker`] the processes that do it
//! for some seconds, [`crash`] what follows when one is killed, [`api`] the API that counts, [`report`] the table and
//! what must be true of it.

mod api;
mod calls;
mod crash;
mod report;
#[path = "../server/mod.rs"]
mod server;
mod traces;
mod worker;

use std::{
    ffi::OsString,
    ops::RangeInclusive,
    panic::resume_unwind,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use calls::{LEASE, LIMIT, account_limit};
use crash::crash;
use report::{Outcome, Process};
use traces::Traces;
use worker::{CRASHES, Role, Run, STREAMS, Worker};

/// Threads pass these on, hence `Send + Sync`.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "\
An API that takes five calls at a time, and many processes that call it.

Usage: [REDIS_URL=redis://HOST/] api_limit [--seconds N] [--workers N]

  --seconds N   how long they call it (default 5, from 4 to 60)
  --workers N   how many processes there are besides the one that streams (default 6, from 5 to 50)
  --help        this text

Without REDIS_URL it starts a server of its own. Everything it writes lies under one prefix of its own and is removed
at the end. It fails if the API ever saw six calls at a time, or if something else was not as it should be.";

struct Options {
    seconds: u64,
    workers: u64,
}

fn main() -> Result<ExitCode, Failure> {
    if worker::was_one()? {
        return Ok(ExitCode::SUCCESS);
    }
    let Some(options) = options()? else {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    let outcome = run(&options)?;
    println!("{}", report::table(&outcome));
    println!("{}", report::summary(&outcome));

    let failures = report::failures(&outcome);
    for failure in &failures {
        eprintln!("CHECK FAILED: {failure}");
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

const HEADING: &str = "\
Many processes call an API that takes five calls at a time for their account. One of them streams: it holds one of the
five places all the time. Those that try skip a call when none is free. One process is killed in the middle of a call.";

const TO_CLEAN_UP: &str = "\
What it writes is removed at the end. Should you stop it before:
    redis-cli --scan --pattern '*redlatch-api-limit:*' | xargs redis-cli del";

fn run(options: &Options) -> Result<Outcome, Failure> {
    let server = server::Server::from_env_or_start().map_err(|error| error.to_string())?;
    let traces = Traces::new(server.url())?;
    println!("{HEADING}");
    if std::env::var_os("REDIS_URL").is_some() {
        println!("{TO_CLEAN_UP}");
    }
    let api = api::Server::start(LIMIT)?;
    let run = Run {
        url: server.url().to_owned(),
        prefix: traces.prefix().to_owned(),
        api: api.address(),
        seconds: options.seconds,
    };
    let length = Duration::from_secs(options.seconds);
    let limit = account_limit(&run.url, &run.prefix, LEASE)?;

    let mut stream = Worker::start(&run, "stream", &STREAMS)?;
    stream.line()?; // it has begun
    let mut victim = Worker::start(&run, "victim", &CRASHES)?;
    let others = (1..options.workers).zip(Role::of_the_others());
    let others = others.map(|(nth, role)| Worker::start(&run, format!("worker{nth}"), role));
    let others = others.collect::<Result<Vec<_>, _>>()?;

    let crash = thread::scope(|scope| {
        let crash = scope.spawn(|| crash(&mut victim, length / 4, &api, &limit));
        show_progress(length, &api);
        crash.join().unwrap_or_else(|panic| resume_unwind(panic))
    })?;
    let (processes, failed) = those_that_ended(others.into_iter().chain([stream]));
    // What a wait that timed out may have left behind is cleaned up in the background.
    wait_until("all permits to be free", || Ok(limit.inspect()?.is_free()))?;
    Ok(Outcome {
        processes,
        failed,
        crash,
        books: api.books(),
        free: limit.available()?,
    })
}

/// Waits for the workers to end; returns what they told, and why the others failed.
fn those_that_ended(workers: impl Iterator<Item = Worker>) -> (Vec<Process>, Vec<Failure>) {
    let (mut processes, mut failed) = (Vec::new(), Vec::new());
    for mut worker in workers {
        match worker.notes() {
            Ok(notes) => processes.push(Process {
                name: worker.name.clone(),
                role: worker.role.name,
                notes,
            }),
            Err(failure) => failed.push(failure),
        }
    }
    (processes, failed)
}

/// Shows a bar until the time is over; one line at the end where there is no terminal.
fn show_progress(length: Duration, api: &api::Server) {
    const TICK: Duration = Duration::from_millis(100);

    let bar = ProgressBar::new(length.as_millis() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30}  {msg}").expect("the template is valid"));
    let message = || {
        let books = api.books();
        let calls: u64 = books.calls.values().sum();
        format!("{} of {LIMIT} calls under way, {calls} so far", books.inside)
    };
    let start = Instant::now();
    while start.elapsed() < length {
        bar.set_position(start.elapsed().as_millis() as u64);
        bar.set_message(message());
        thread::sleep(TICK.min(length.saturating_sub(start.elapsed())));
    }
    if bar.is_hidden() {
        eprintln!("{}", message());
    }
    bar.finish_and_clear();
}

/// Looks again and again; an error if it takes far longer than it should.
fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    const PATIENCE: Duration = Duration::from_secs(30);

    let start = Instant::now();
    while !holds()? {
        if start.elapsed() > PATIENCE {
            return Err(format!("waited {PATIENCE:?} in vain for {what}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// `None`: only `--help` was wanted.
fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;

    let mut options = Options { seconds: 5, workers: 6 };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("seconds") => options.seconds = number(arguments.value()?, 4..=60)?,
            Long("workers") => options.workers = number(arguments.value()?, 5..=50)?,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(Some(options))
}

fn number(value: OsString, range: RangeInclusive<u64>) -> Result<u64, lexopt::Error> {
    lexopt::ValueExt::parse_with(&value, |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected {} to {}", range.start(), range.end()))
    })
}
