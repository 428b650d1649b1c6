//! What happens to locks when something happens to their server. Each test has a server of its own.

mod support;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, LostReason};
use support::{Server, wait_until};

const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn client(server: &Server) -> Client {
    Client::builder()
        .url(server.url())
        .command_timeout(SECOND)
        .build()
        .unwrap()
}

fn run(server: &Server, command: &str) -> redis::Value {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        cmd.arg(word);
    });
    cmd.query(&mut server.connection()).unwrap()
}

fn get(server: &Server, key: &str) -> Option<String> {
    redis::cmd("GET").arg(key).query(&mut server.connection()).unwrap()
}

fn ttl(server: &Server, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(&mut server.connection()).unwrap()
}

fn lost(error: Error) -> LostReason {
    match error {
        Error::Lost(lost) => lost.reason,
        other => panic!("expected a loss, got {other:?}"),
    }
}

#[test]
fn a_flushed_lock_is_lost_at_once_and_tokens_go_on_rising() {
    let server = Server::start();
    let (sender, losses) = mpsc::channel();
    let lock = client(&server).lock("x").lease(millis(900)).on_lost(move |lost| {
        sender.send(lost.reason).unwrap();
    });
    let guard = lock.acquire().unwrap();
    run(&server, "FLUSHALL");
    assert_eq!(losses.recv_timeout(SECOND * 10).unwrap(), LostReason::Deleted);
    assert_eq!(lost(guard.check().unwrap_err()), LostReason::Deleted);
    assert_eq!(get(&server, "lock:x"), None, "a renewal re-created the key");

    let next = client(&server).lock("x").acquire().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    next.check().unwrap();
    assert_eq!(get(&server, "lock:x").as_deref(), Some(next.token()));
}

#[test]
fn a_release_tells_deleted_from_taken() {
    let server = Server::start();
    let lock = client(&server).lock("x");

    let guard = lock.acquire().unwrap();
    run(&server, "DEL lock:x");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);

    let guard = lock.acquire().unwrap();
    run(&server, "SET lock:x another PX 60000");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken);
    assert_eq!(get(&server, "lock:x").as_deref(), Some("another"));
}

#[test]
fn an_extension_tells_deleted_from_taken() {
    let server = Server::start();
    let lock = client(&server).timed_lock("x", SECOND * 60);
    for (meddle, reason) in [
        ("DEL lock:x", LostReason::Deleted),
        ("SET lock:x another PX 900", LostReason::Taken),
    ] {
        let guard = lock.acquire_timeout(SECOND * 10).unwrap();
        run(&server, meddle);
        assert_eq!(lost(guard.extend(SECOND * 120).unwrap_err()), reason);
        assert_eq!(lost(guard.check().unwrap_err()), reason);
        assert!(!guard.is_held());
    }
}

#[test]
fn a_renewal_never_re_creates_a_lock_that_another_had_meanwhile() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(millis(900));
    let guard = lock.acquire().unwrap();
    run(&server, "DEL lock:x");
    client(&server).lock("x").acquire().unwrap().release().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    drop(guard);
    assert_eq!(get(&server, "lock:x"), None);
}

#[test]
fn scripts_may_be_flushed_between_any_two_operations() {
    let server = Server::start();
    let flush = || run(&server, "SCRIPT FLUSH");
    let lock = client(&server).lock("x").lease(millis(600));
    for _ in 0..3 {
        flush();
        let guard = lock.acquire().unwrap();
        flush();
        assert!(!guard.wait_lost(millis(900)), "a renewal met an unknown script");
        flush();
        guard.extend(SECOND * 2).unwrap();
        flush();
        guard.release().unwrap();
    }
}

#[test]
fn killed_connections_cost_nothing() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(millis(600));
    let mut last = 0;
    for _ in 0..5 {
        let guard = lock.acquire().unwrap();
        run(&server, "CLIENT KILL TYPE normal");
        assert!(!guard.wait_lost(millis(500)));
        run(&server, "CLIENT KILL TYPE normal");
        guard.extend(SECOND).unwrap();
        run(&server, "CLIENT KILL TYPE normal");
        let fencing_token = guard.fencing_token();
        assert!(fencing_token > last);
        last = fencing_token;
        guard.release().unwrap();
        run(&server, "CLIENT KILL TYPE normal");
        lock.try_acquire().unwrap().expect("free").release().unwrap();
    }
}

#[test]
fn a_server_that_restarts_empty_ends_the_holds_and_tokens_go_on_rising() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(SECOND * 2);
    let mut last = 0;
    for _ in 0..3 {
        let guard = lock.acquire().unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        server.restart_empty();
        assert!(guard.wait_lost(SECOND * 10));
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    }
}

#[test]
fn a_server_that_restarts_from_an_old_snapshot_repeats_no_token() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    let mut last = 0;
    lock.acquire().unwrap().release().unwrap();
    server.save_snapshot();
    for _ in 0..3 {
        for _ in 0..50 {
            let guard = lock.acquire().unwrap();
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            guard.release().unwrap();
        }
        server.restart_from_snapshot();
    }
}

#[test]
fn an_old_dataset_under_a_living_connection_repeats_no_token() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    let counter = "{lock:x}:redlatch:fencing:lock:x";
    let old: Vec<u8> = redis::cmd("DUMP").arg(counter).query(&mut server.connection()).unwrap();
    let last = (0..50).map(|_| lock.acquire().unwrap().fencing_token()).max().unwrap();
    let mut restore = redis::cmd("RESTORE");
    restore.arg(counter).arg(60_000).arg(&old).arg("REPLACE");
    restore.exec(&mut server.connection()).unwrap();
    assert!(lock.acquire().unwrap().fencing_token() > last);
}

#[test]
fn a_counter_ahead_of_the_clock_goes_on_rising() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    // What a clock leaves that was stepped back by a day.
    let ahead = lock.acquire().unwrap().fencing_token() + 24 * 3600 * 1_000_000;
    run(
        &server,
        &format!("SET {{lock:x}}:redlatch:fencing:lock:x {ahead} EX 60"),
    );
    assert_eq!(lock.acquire().unwrap().fencing_token(), ahead + 1);
    assert_eq!(lock.acquire().unwrap().fencing_token(), ahead + 2);
}

#[test]
fn a_snapshot_may_bring_back_a_hold_but_not_for_longer_than_its_lease() {
    let server = Server::start();
    let lease = SECOND * 2;
    let guard = client(&server).timed_lock("x", lease).acquire().unwrap();
    server.save_snapshot();
    let fencing_token = guard.fencing_token();
    guard.release().unwrap();
    server.restart_from_snapshot();
    let next = client(&server).lock("x").acquire_timeout(lease * 5).unwrap();
    assert!(next.fencing_token() > fencing_token);
}

#[test]
fn a_lease_survives_an_outage_shorter_than_itself() {
    let server = Server::start();
    let guard = client(&server).lock("x").lease(SECOND * 3).acquire().unwrap();
    server.stop_process();
    assert!(!guard.wait_lost(millis(1_800)));
    server.continue_process();
    assert!(!guard.wait_lost(SECOND * 3));
    guard.release().unwrap();
}

#[test]
fn a_lease_ends_here_before_it_ends_at_a_server_that_is_gone() {
    let server = Server::start();
    let lease = millis(1_200);
    let (sender, losses) = mpsc::channel();
    let lock = client(&server).lock("x").lease(lease).on_lost(move |lost| {
        sender.send((lost.reason, Instant::now())).unwrap();
    });
    let start = Instant::now();
    let guard = lock.acquire().unwrap();
    server.stop_process();
    let (reason, told) = losses.recv_timeout(SECOND * 20).unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(
        told - start <= lease + millis(900),
        "told only after {:?}",
        told - start
    );
    let asked = Instant::now();
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(asked.elapsed() < millis(500), "is_held() waited for the server");
    server.continue_process();
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
}

#[test]
fn renewal_resumes_after_an_outage_longer_than_a_lease() {
    let server = Server::start();
    let lease = millis(900);
    let lock = client(&server).lock("x").lease(lease);
    let guard = lock.acquire().unwrap();
    server.stop_process();
    assert!(guard.wait_lost(SECOND * 10));
    server.continue_process();
    drop(guard);
    let guard = lock.acquire_timeout(SECOND * 10).unwrap();
    assert!(!guard.wait_lost(lease * 3));
    guard.release().unwrap();
}

#[test]
fn a_waiter_rides_out_a_restart() {
    let server = Server::start();
    let guard = client(&server).lock("x").acquire().unwrap();
    let waiter = client(&server).lock("x");
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 30).unwrap().fencing_token());
    let waits = || server.command_calls("pttl") > 3;
    wait_until("the waiter to wait", SECOND * 10, waits);
    server.kill();
    thread::sleep(millis(300));
    server.restart();
    assert!(waiting.join().unwrap() > guard.fencing_token());
}

#[test]
fn dropping_a_guard_without_a_server_takes_one_command_timeout_at_most() {
    let server = Server::start();
    let timeout = millis(700);
    let client = Client::builder()
        .url(server.url())
        .command_timeout(timeout)
        .build()
        .unwrap();
    for outage in ["stopped", "killed"] {
        let guard = client.lock(outage).acquire().unwrap();
        match outage {
            "stopped" => server.stop_process(),
            _ => server.kill(),
        }
        let start = Instant::now();
        drop(guard);
        let took = start.elapsed();
        assert!(took <= timeout + millis(250), "{outage}: {took:?}");
        if outage == "stopped" {
            server.continue_process();
            // The janitor's work: long before the lease of 30 s ends.
            let free = || get(&server, "lock:stopped").is_none();
            wait_until("the key to be cleaned up", SECOND * 10, free);
        }
    }
}

#[test]
fn an_explicit_release_without_a_server_is_unconfirmed_and_bounded() {
    let server = Server::start();
    let timeout = millis(400);
    let client = Client::builder()
        .url(server.url())
        .command_timeout(timeout)
        .build()
        .unwrap();
    let guard = client.lock("x").acquire().unwrap();
    server.stop_process();
    let start = Instant::now();
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert!(start.elapsed() <= timeout * 2 + millis(250));
    server.continue_process();
    wait_until("the key to be cleaned up", SECOND * 10, || {
        get(&server, "lock:x").is_none()
    });
    // A closure's caller is not bothered with it.
    let value = client.lock("z").with_lock(|| {
        server.stop_process();
        42
    });
    assert_eq!(value.unwrap(), 42);
    server.continue_process();
    wait_until("the key to be cleaned up", SECOND * 10, || {
        get(&server, "lock:z").is_none()
    });
}

#[test]
fn a_client_that_goes_away_cleans_up_first_if_it_can() {
    let server = Server::start();
    let client = Client::builder()
        .url(server.url())
        .command_timeout(millis(400))
        .build()
        .unwrap();
    let guard = client.lock("x").acquire().unwrap();
    server.stop_process();
    drop(guard);
    server.continue_process();
    drop(client);
    assert_eq!(get(&server, "lock:x"), None);
}

#[test]
fn everything_on_the_server_has_a_ttl_at_every_instant() {
    let server = Server::start();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..3 {
            let (client, done) = (client(&server), &done);
            scope.spawn(move || {
                for round in 0_u32.. {
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                    let lock = client
                        .lock(format!("name-{}", round % 3))
                        .lease(millis(200))
                        .max_hold(millis(500));
                    let guard = lock.acquire().unwrap();
                    if round % 5 == worker {
                        guard.extend(millis(400)).unwrap();
                        guard.wait_lost(millis(150));
                    }
                    if round % 7 == 0 {
                        std::mem::forget(guard);
                    }
                }
            });
        }
        // One script sees one instant.
        let eternal = redis::Script::new(
            "local eternal = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
             if redis.call('PTTL', key) < 0 then table.insert(eternal, key) end end return eternal",
        );
        let mut connection = server.connection();
        let start = Instant::now();
        while start.elapsed() < SECOND * 2 {
            let eternal: Vec<String> = eternal.invoke(&mut connection).unwrap();
            assert!(eternal.is_empty(), "{eternal:?}");
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn no_renewal_or_extension_makes_or_leaves_a_key_persistent() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(millis(900));
    let guard = lock.acquire().unwrap();
    run(&server, "PERSIST lock:x");
    wait_until("a renewal to give the key its TTL back", SECOND * 10, || {
        ttl(&server, "lock:x") > 0
    });
    run(&server, "PERSIST lock:x");
    guard.extend(SECOND * 10).unwrap();
    assert!(ttl(&server, "lock:x") > 9_000);
    guard.release().unwrap();
    assert_eq!(get(&server, "lock:x"), None);
}

#[test]
fn a_foreign_lock_without_a_ttl_is_waited_for_and_never_taken() {
    let server = Server::start();
    run(&server, "SET lock:x foreign");
    let lock = client(&server).lock("x");
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(matches!(lock.acquire_timeout(millis(300)), Err(Error::Timeout { .. })));
    assert_eq!(get(&server, "lock:x").as_deref(), Some("foreign"));
    assert_eq!(ttl(&server, "lock:x"), -1);
    run(&server, "DEL lock:x");
    assert!(lock.try_acquire().unwrap().is_some());
}

#[test]
fn a_key_that_is_no_lock_is_a_conflict_and_stays_untouched() {
    let server = Server::start();
    run(&server, "HSET lock:x field value");
    let before = run(&server, "DUMP lock:x");
    let lock = client(&server).lock("x");
    for result in [
        lock.try_acquire().map(drop),
        lock.acquire().map(drop),
        lock.acquire_timeout(SECOND).map(drop),
    ] {
        assert!(matches!(result, Err(Error::KeyConflict { key }) if key == b"lock:x"));
    }
    assert_eq!(run(&server, "DUMP lock:x"), before);
    assert_eq!(
        run(&server, "KEYS *"),
        redis::Value::Array(vec![redis::Value::BulkString(b"lock:x".to_vec())])
    );
}

#[test]
fn a_fencing_counter_that_is_none_is_a_conflict_before_anything_is_written() {
    let server = Server::start();
    for meddle in [
        "HSET {lock:x}:redlatch:fencing:lock:x f v",
        "SET {lock:x}:redlatch:fencing:lock:x words",
        "SET {lock:x}:redlatch:fencing:lock:x inf",
        "SET {lock:x}:redlatch:fencing:lock:x nan",
        "SET {lock:x}:redlatch:fencing:lock:x 1e300",
        "SET {lock:x}:redlatch:fencing:lock:x -1",
    ] {
        run(&server, "FLUSHALL");
        run(&server, meddle);
        assert!(matches!(
            client(&server).lock("x").try_acquire(),
            Err(Error::KeyConflict { .. })
        ));
        assert_eq!(get(&server, "lock:x"), None);
    }
}

#[test]
fn a_lock_whose_key_becomes_something_else_is_taken() {
    let server = Server::start();
    let guard = client(&server).lock("x").lease(millis(900)).acquire().unwrap();
    run(&server, "DEL lock:x");
    run(&server, "LPUSH lock:x element");
    assert!(guard.wait_lost(SECOND * 10));
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken);
    assert_eq!(run(&server, "LLEN lock:x"), redis::Value::Int(1));
}

#[test]
fn a_demoted_server_is_waited_for_and_used_again_when_promoted() {
    let (server, other) = (Server::start(), Server::start());
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    run(&server, &format!("REPLICAOF 127.0.0.1 {}", other.port()));
    let error = lock.try_acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    let waiter = lock.clone();
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 30));
    thread::sleep(millis(100));
    run(&server, "REPLICAOF NO ONE");
    drop(waiting.join().unwrap().unwrap());
    lock.acquire().unwrap().release().unwrap();
}

#[test]
fn a_busy_server_is_waited_for() {
    let server = Server::start_with(&["--lua-time-limit", "20"]);
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    let mut hog = server.connection();
    let hogging = thread::spawn(move || {
        // Ends when it is killed below.
        let _: Result<(), _> = redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut hog);
    });
    let refused = || matches!(lock.try_acquire(), Err(Error::Server(_)));
    wait_until("the server to be busy", SECOND * 10, refused);
    let waiter = lock.clone();
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 30).map(drop));
    thread::sleep(millis(100));
    redis::cmd("SCRIPT").arg("KILL").exec(&mut server.connection()).unwrap();
    waiting.join().unwrap().unwrap();
    hogging.join().unwrap();
}

#[test]
fn a_loading_server_is_waited_for() {
    let server = Server::start_with(&[
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let mut fill = redis::pipe();
    (0..1_500).for_each(|n| {
        fill.set(format!("key-{n}"), "value").ignore();
    });
    fill.exec(&mut server.connection()).unwrap();
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    run(&server, "SAVE");
    server.kill();
    let restarting = thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart());
        let refused = Mutex::new(None);
        wait_until("the server to answer that it is loading", SECOND * 10, || {
            match lock.try_acquire() {
                Err(error @ Error::Server(_)) => refused.lock().unwrap().replace(error).is_none(),
                _ => false,
            }
        });
        lock.acquire_timeout(SECOND * 30).unwrap().release().unwrap();
        restart.join()
    });
    restarting.unwrap();
}

#[test]
fn a_server_out_of_memory_is_waited_for() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    run(&server, "CONFIG SET maxmemory 1");
    assert!(matches!(lock.try_acquire(), Err(Error::Server(_))));
    let waiter = lock.clone();
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 30).map(drop));
    thread::sleep(millis(100));
    run(&server, "CONFIG SET maxmemory 0");
    waiting.join().unwrap().unwrap();
}

#[test]
fn what_stays_on_the_server_is_the_counter_and_it_expires() {
    let server = Server::start();
    client(&server).lock("x").acquire().unwrap().release().unwrap();
    let counter = "{lock:x}:redlatch:fencing:lock:x";
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connection()).unwrap();
    assert_eq!(keys, [counter]);
    let left = Duration::from_millis(ttl(&server, counter) as u64);
    assert!(left > SECOND * 47 * 3600 && left <= SECOND * 48 * 3600, "{left:?}");
}
