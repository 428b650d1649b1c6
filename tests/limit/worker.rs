//! A process with a wrong wall clock whose threads take permits at random and record it, until it is killed.

use std::{env, io, mem, path::Path, process, thread, time::Instant};

use redlatch::{Client, Error, Guard};

use crate::{
    clock,
    record::{Line, Log},
    support::{Worker, millis},
    terms::{End, NAMES, Terms, up_to},
};

const THREADS: usize = 4;

/// Names the record to a worker.
const RECORD: &str = "REDLATCH_RECORD";

/// Starts a worker on the server at `url`; it has seen by now that its clock is wrong.
pub fn start(url: &str, clock: &clock::SkewedClock, skew: clock::Skew, record: &Path) -> Worker {
    let mut command = Worker::command(url);
    clock.put_on(&mut command, skew);
    let mut worker = Worker::start(command.env(RECORD, record));
    assert_eq!(worker.receive(), "ready");
    worker
}

/// Takes permits until the parent goes.
pub fn run(url: &str) {
    die_with_parent();
    clock::assert_skewed();
    let log = Log::append_to(env::var_os(RECORD).expect("a record").as_ref());
    record_panics(log.clone());
    // What is left to waiters that are dead by now, and requests that are kept back, must not hold up all others long.
    let client = Client::builder().url(url).command_timeout(millis(100));
    let client = client.poll_interval(millis(100)).build().unwrap();
    let usual = fastrand::usize(..NAMES.len());
    for _ in 0..THREADS {
        let (client, log) = (client.clone(), log.clone());
        thread::spawn(move || {
            loop {
                take(&client, usual, &log);
                thread::sleep(up_to(millis(3)));
            }
        });
    }
    println!("ready");
    io::stdin().lines().for_each(drop);
}

/// Has this process killed with its parent, even while it is stopped.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is involved.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

fn record_panics(log: Log) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        log.write(&Line::Trouble(panic.to_string()));
        process::exit(101);
    }));
}

/// Takes permits on random terms, if they can be had, and gives them back.
fn take(client: &Client, usual: usize, log: &Log) {
    let (terms, asked) = (Terms::random(usual), clock::now());
    match terms.acquire(client) {
        Ok(Some(guard)) => hold(guard, &terms, asked, log),
        Ok(None) | Err(Error::Timeout { .. } | Error::Unconfirmed(_) | Error::Connection(_)) => {}
        Err(error) => log.write(&Line::Trouble(format!("{error:?}"))),
    }
}

/// Keeps the permits for a while and gives them back.
fn hold(guard: Guard, terms: &Terms, asked: clock::Moment, log: &Log) {
    let mut entry = log.granted(&guard, terms, asked);
    let start = Instant::now();
    while start.elapsed() < terms.work {
        let look = terms.work.saturating_sub(start.elapsed()).min(millis(25));
        if guard.wait_lost(look) {
            entry.lost();
            break;
        }
        if let Some(lease) = terms.extension() {
            // What comes of it is seen in how long the permits last.
            let _ = guard.extend(lease);
        }
        entry.lasts(&guard);
    }
    if terms.end == End::Forget {
        return mem::forget(guard);
    }
    entry.about_to_release();
    match terms.end {
        End::Release => match guard.release() {
            Ok(()) | Err(Error::Lost(_) | Error::Unconfirmed(_)) => {}
            Err(error) => log.write(&Line::Trouble(format!("{error:?}"))),
        },
        _ => drop(guard),
    }
}
