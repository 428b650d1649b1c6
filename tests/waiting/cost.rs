//! What waiting costs the server, and what it leaves there.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Wait};

use crate::{
    corner::Corner,
    support::{SECOND, SetOnDrop, millis, wait_until},
    terms::{LIMIT, PROMPT},
    worker::hammer,
};

/// All keys of redlatch's and how long they stay, in milliseconds: -1 is for ever, -2 gone meanwhile.
fn ttls(connection: &mut redis::Connection) -> Vec<(String, i64)> {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
    keys.retain(|key| !key.starts_with("record:"));
    if keys.is_empty() {
        return Vec::new();
    }
    let mut ask = redis::pipe();
    for key in &keys {
        ask.cmd("PTTL").arg(key);
    }
    let ttls: Vec<i64> = ask.query(connection).unwrap();
    keys.into_iter().zip(ttls).collect()
}

pub fn no_key_is_without_a_ttl_under_contention(corner: &Corner) {
    let (poll_interval, terms, stopped) = (SECOND, corner.terms(), AtomicBool::new(false));
    let clients = [(); 2].map(|()| corner.builder().poll_interval(poll_interval).build().unwrap());
    let mut worker = corner.worker_polling(poll_interval);
    let (mut looks, mut queues) = (0, 0);
    thread::scope(|scope| {
        let _stopped = SetOnDrop(&stopped);
        let (terms, stopped) = (&terms, &stopped);
        for client in &clients {
            let url = corner.server.url();
            scope.spawn(move || hammer(client, &url, terms, "thread", 3, usize::MAX, stopped));
            // Some who give up.
            scope.spawn(move || {
                while !stopped.load(Ordering::SeqCst) {
                    drop(terms.clone().limit(millis(1)).acquire(client));
                }
            });
        }
        worker.send(format_args!("hammer process 2 {} {terms}", usize::MAX));
        let (start, mut connection) = (Instant::now(), corner.server.connection());
        while start.elapsed() < SECOND * 3 / 2 {
            for (key, ttl) in ttls(&mut connection) {
                assert_ne!(ttl, -1, "{key} stays for ever");
                if key.contains(":redlatch:queue:") || key.contains(":redlatch:waiters:") {
                    queues += 1;
                    let longest = poll_interval * 5 / 2;
                    assert!(ttl <= longest.as_millis() as i64, "{key} stays for {ttl} ms");
                }
            }
            looks += 1;
            thread::sleep(millis(1));
        }
        stopped.store(true, Ordering::SeqCst);
        worker.send("stop");
        assert_eq!(worker.receive_within(PROMPT), "hammered");
    });
    assert!(looks > 50 && queues > 50, "{queues} keys of queues in {looks} looks");
    corner.wait_until_all_is_gone();
}

pub fn nothing_is_left_once_nobody_waits(corner: &Corner) {
    let (client, cancel) = (corner.client(), CancelToken::new());
    let (terms, guard) = (corner.terms(), corner.hold());
    // It takes its place back after it has told of the timeout, so it must live on.
    let mut worker = corner.worker();
    thread::scope(|scope| {
        let timed_out = scope.spawn(|| terms.clone().limit(SECOND).acquire(&client).map(drop));
        worker.send(format_args!("pass {}", terms.clone().limit(SECOND)));
        let wait = Wait::at_most(LIMIT).cancelled_by(&cancel);
        let cancelled = scope.spawn(|| terms.target(&client).acquire_with(wait).map(drop));
        wait_until("somebody to be registered", PROMPT, || corner.registered() > 0);
        assert!(!corner.traces_of_waiting().is_empty());
        assert!(worker.receive_within(PROMPT).starts_with("timeout"));
        assert!(timed_out.join().unwrap().is_err());
        cancel.cancel();
        assert!(cancelled.join().unwrap().is_err());
    });
    wait_until("all registrations to go", PROMPT, || {
        corner.traces_of_waiting().is_empty()
    });

    // And after those who are served.
    let mut workers = [corner.worker(), corner.worker()];
    workers
        .iter_mut()
        .for_each(|worker| worker.send(format_args!("pass {terms}")));
    corner.wait_for_registered(2);
    guard.release().unwrap();
    for worker in &mut workers {
        assert_eq!(worker.receive_within(PROMPT), "passed");
    }
    corner.wait_until_all_is_gone();
    assert!(corner.holder().is_none());
}

pub fn nothing_is_published_while_nobody_waits(corner: &Corner) {
    let target = corner.terms().target(&corner.client());
    for _ in 0..100 {
        target.acquire_with(Wait::forever()).unwrap().release().unwrap();
        drop(target.try_acquire().unwrap().unwrap());
    }
    assert_eq!(corner.server.command_calls("publish"), 0);
    assert_eq!(corner.subscribers(), 0);
    assert_eq!(corner.traces_of_waiting(), Vec::<String>::new());
}

pub fn a_try_registers_nobody(corner: &Corner) {
    let (guard, lock) = (corner.hold(), corner.terms().lock(&corner.client()));
    for wait in [Wait::none(), Wait::at_most(Duration::ZERO), Wait::until(Instant::now())] {
        for _ in 0..20 {
            assert!(lock.try_acquire().unwrap().is_none());
            assert!(lock.acquire_with(wait.clone()).is_err());
            assert!(lock.try_with_lock(|| unreachable!("it is taken")).unwrap().is_none());
        }
    }
    assert_eq!(corner.traces_of_waiting(), Vec::<String>::new());
    guard.release().unwrap();
    assert_eq!(corner.server.command_calls("publish"), 0);
    assert_eq!(corner.subscribers(), 0);
    assert_eq!(corner.holder(), None);
}
