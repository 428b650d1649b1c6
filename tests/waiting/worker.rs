//! A process that waits for locks: this program again, told what to do line by line. Waits run on threads of their own,
//! and answer when they are over.

use std::{
    io, process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use redlatch::{Client, Error, Guard};

use crate::{
    record::note,
    support::millis,
    terms::{MINUTE, Terms},
};

/// Does what it is told until its orders end.
pub fn run(url: &str) {
    // Whoever waits for an answer is to hear of a thread that panics.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        process::exit(101);
    }));
    let mut client = None;
    let held = Arc::new(Mutex::new(None));
    let stopped = Arc::new(AtomicBool::new(false));
    for order in io::stdin().lines() {
        let order = order.unwrap();
        let words: Vec<&str> = order.split(' ').collect();
        if let ["open", poll_interval] = words[..] {
            let poll_interval = millis(poll_interval.parse().unwrap());
            client = Some(Client::builder().url(url).poll_interval(poll_interval).build().unwrap());
            println!("open");
            continue;
        }
        let client = client.clone().expect("an order to open a client comes first");
        match words[..] {
            // Takes the lock and keeps it.
            ["take", terms] => {
                let (terms, held): (Terms, _) = (terms.parse().unwrap(), held.clone());
                thread::spawn(move || {
                    *held.lock().unwrap() = Some(terms.acquire(&client).unwrap());
                    println!("took");
                });
            }
            ["release"] => {
                let guard: Guard = held.lock().unwrap().take().unwrap();
                guard.release().unwrap();
                println!("released");
            }
            // Takes the lock and releases it.
            ["pass", terms] => {
                let terms: Terms = terms.parse().unwrap();
                thread::spawn(move || println!("{}", pass(&client, &terms)));
            }
            // Does so on some threads, each a number of times or until it is told to stop, and notes it.
            ["hammer", who, threads, turns, terms] => {
                let (who, threads, turns) = (who.to_owned(), threads.parse().unwrap(), turns.parse().unwrap());
                let (terms, url, stopped): (Terms, _, _) = (terms.parse().unwrap(), url.to_owned(), stopped.clone());
                thread::spawn(move || {
                    hammer(&client, &url, &terms, &who, threads, turns, &stopped);
                    println!("hammered");
                });
            }
            ["stop"] => stopped.store(true, Ordering::SeqCst),
            // Waits for many names at once, with a small pool.
            ["crowd", names, terms] => {
                let (names, terms, url): (usize, Terms, _) =
                    (names.parse().unwrap(), terms.parse().unwrap(), url.to_owned());
                thread::spawn(move || {
                    crowd(&url, &terms, names);
                    println!("passed");
                });
            }
            _ => panic!("unknown order {order:?}"),
        }
    }
}

/// Takes the lock and releases it; tells how that went.
fn pass(client: &Client, terms: &Terms) -> String {
    let start = Instant::now();
    match terms.acquire(client) {
        Ok(guard) => {
            // It may have been overwritten meanwhile, by the test.
            drop(guard);
            "passed".into()
        }
        Err(Error::Timeout { .. }) => format!("timeout {}", start.elapsed().as_micros()),
        Err(error) => panic!("{error:?}"),
    }
}

/// Has each of some threads take the lock a number of times, or until `stopped`, and note it as `who`.
pub fn hammer(
    client: &Client,
    url: &str,
    terms: &Terms,
    who: &str,
    threads: usize,
    turns: usize,
    stopped: &AtomicBool,
) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
                for _ in (0..turns).take_while(|_| !stopped.load(Ordering::SeqCst)) {
                    let guard = terms.acquire(client).unwrap();
                    note(&mut connection, terms.kind, &guard, who);
                    if !terms.work.is_zero() {
                        thread::sleep(terms.work);
                    }
                    guard.release().unwrap();
                }
            });
        }
    });
}

/// Waits for many names at once: those of the terms, with a number after it.
fn crowd(url: &str, terms: &Terms, names: usize) {
    // With so many threads, a request may wait long for its turn.
    let client = Client::builder().url(url).pool_size(2).command_timeout(MINUTE / 2);
    let client = client.poll_interval(MINUTE).build().unwrap();
    let wait = |nth| {
        let (client, terms) = (client.clone(), terms.clone().named(format!("{}-{nth}", terms.name)));
        let thread = thread::Builder::new().stack_size(128 * 1024);
        let pass = move || terms.acquire(&client).unwrap().release().unwrap();
        thread.spawn(pass).unwrap()
    };
    let waiting: Vec<_> = (0..names).map(wait).collect();
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}
