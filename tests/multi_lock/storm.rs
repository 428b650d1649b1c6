//! Many threads that take random sets of the same names. A few seconds each by default, or as many as `REDLATCH_LONG`
//! says.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Guard};

use crate::{
    PATIENCE, SOON,
    support::{SECOND, Server, SetOnDrop, long_run, millis, wait_until},
};

const CLIENTS: usize = 4;
const THREADS: usize = 32;

/// How many names there are, and how many of them one takes.
const NAMES: usize = 20;
const SET: usize = 5;

/// Who holds each name, and the newest fencing token of each, as far as this process knows.
#[derive(Default)]
struct Record {
    holders: [AtomicU32; NAMES],
    newest: [Mutex<u64>; NAMES],
}

impl Record {
    fn enter(&self, guard: &Guard) {
        for (name, fencing_token) in names(guard).zip(guard.fencing_tokens()) {
            let others = self.holders[name].fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "{name} is held twice");
            let mut newest = self.newest[name].lock().unwrap();
            assert!(*newest < fencing_token, "a fencing token came again");
            *newest = fencing_token;
        }
    }

    fn leave(&self, guard: &Guard) {
        for name in names(guard) {
            self.holders[name].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn names(guard: &Guard) -> impl Iterator<Item = usize> {
    guard.names().map(|name| str::from_utf8(name).unwrap().parse().unwrap())
}

/// How one thread fared.
#[derive(Debug, Default)]
struct Fared {
    turns: u32,
    longest_wait: Duration,
}

/// Takes random sets until it is `stopped`: with `mixed` one lock alone every other time.
fn take_turns(client: &Client, mixed: bool, record: &Record, stopped: &AtomicBool) -> Fared {
    let mut fared = Fared::default();
    while !stopped.load(Ordering::SeqCst) {
        let asked = Instant::now();
        let guard = if mixed && fared.turns % 2 == 0 {
            client
                .lock(fastrand::usize(..NAMES).to_string())
                .acquire_timeout(PATIENCE)
        } else {
            let set = fastrand::choose_multiple(0..NAMES, SET);
            let locks = client.multi_lock(set.into_iter().map(|name| name.to_string()));
            locks.acquire_timeout(PATIENCE)
        };
        let guard = guard.expect("a deadlock, or it starves");
        fared.longest_wait = fared.longest_wait.max(asked.elapsed());
        record.enter(&guard);
        thread::yield_now();
        record.leave(&guard);
        guard.release().unwrap();
        fared.turns += 1;
    }
    fared
}

fn storm(mixed: bool) {
    let server = Server::start();
    let clients = [(); CLIENTS].map(|()| Client::open(server.url()).unwrap());
    let (record, stopped, start) = (Record::default(), AtomicBool::new(false), Instant::now());
    let fared: Vec<Fared> = thread::scope(|scope| {
        let (record, stopped) = (&record, &stopped);
        let threads: Vec<_> = clients
            .iter()
            .cycle()
            .take(THREADS)
            .map(|client| {
                scope.spawn(move || {
                    // The first that ends, by a failure, ends the others.
                    let _stopped = SetOnDrop(stopped);
                    take_turns(client, mixed, record, stopped)
                })
            })
            .collect();
        let end = start + long_run().unwrap_or(SECOND * 4);
        while Instant::now() < end && !stopped.load(Ordering::SeqCst) {
            thread::sleep(millis(20));
        }
        stopped.store(true, Ordering::SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let turns = || fared.iter().map(|fared| fared.turns);
    let longest_wait = fared.iter().map(|fared| fared.longest_wait).max();
    println!(
        "{THREADS} threads{}: {} turns in {:.1?}, from {} to {} each; longest wait {:.1?}",
        if mixed { ", every other turn one lock alone" } else { "" },
        turns().sum::<u32>(),
        start.elapsed(),
        turns().min().unwrap_or(0),
        turns().max().unwrap_or(0),
        longest_wait.unwrap_or_default(),
    );
    assert!(turns().all(|turns| turns > 0), "one of them has starved: {fared:?}");
    let looker = Client::open(server.url()).unwrap();
    for name in 0..NAMES {
        wait_until("all to be given back", SOON, || {
            let seen = looker.lock(name.to_string()).inspect().unwrap();
            seen.holders.is_empty() && seen.waiters == 0 && seen.reserved == 0
        });
    }
}

#[test]
fn threads_that_take_random_sets_neither_deadlock_nor_starve() {
    storm(false);
}

#[test]
fn random_sets_beside_single_locks_neither_deadlock_nor_starve() {
    storm(true);
}
