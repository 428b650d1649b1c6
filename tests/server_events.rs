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
use support::{Proxy, SECOND, SLACK, Server, SetOnDrop, is_acquire, lost, millis, wait_until};

/// Where the fencing counter of the lock `x` stands.
const COUNTER: &str = "{lock:x}:redlatch:fencing:lock:x";

fn client(server: &Server) -> Client {
    client_at(&server.url())
}

fn client_at(url: &str) -> Client {
    Client::builder().url(url).command_timeout(SECOND).build().unwrap()
}

/// Somebody who waits for the lock `x`, behind a proxy that shows what they do.
struct Waiter {
    thread: thread::JoinHandle<()>,
    _proxy: Proxy,
}

impl Waiter {
    /// Starts to wait, and returns once `server` has answered some attempts with whatever it answers now.
    fn start(server: &Server) -> Self {
        let proxy = Proxy::to(server);
        let attempts = proxy.on(is_acquire).watch();
        let lock = client_at(proxy.url()).lock("x");
        let thread = thread::spawn(move || lock.acquire_timeout(SECOND * 30).unwrap().release().unwrap());
        // There is no third before the second has its answer.
        attempts.wait_seen(3, SECOND * 10);
        Self { thread, _proxy: proxy }
    }

    fn gets_the_lock(self) {
        self.thread.join().unwrap();
    }
}

#[test]
fn a_flushed_lock_is_lost_at_once_and_tokens_go_on_rising() {
    let server = Server::start();
    let (sender, losses) = mpsc::channel();
    let lock = client(&server).lock("x").lease(SECOND * 3).on_lost(move |lost| {
        sender.send(lost.reason).unwrap();
    });
    let guard = lock.acquire().unwrap();
    server.run("FLUSHALL");
    assert_eq!(losses.recv_timeout(SECOND * 10).unwrap(), LostReason::Deleted);
    assert_eq!(lost(guard.check().unwrap_err()), LostReason::Deleted);
    assert_eq!(server.get("lock:x"), None, "a renewal re-created the key");

    let next = client(&server).lock("x").acquire().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    next.check().unwrap();
    assert_eq!(server.get("lock:x").as_deref(), Some(next.token()));
}

#[test]
fn a_release_tells_deleted_from_taken() {
    let server = Server::start();
    let lock = client(&server).lock("x");

    let guard = lock.acquire().unwrap();
    server.run("DEL lock:x");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);

    let guard = lock.acquire().unwrap();
    server.run("SET lock:x another PX 60000");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken);
    assert_eq!(server.get("lock:x").as_deref(), Some("another"));
}

#[test]
fn a_release_after_a_restart_without_data_tells_the_loss() {
    type Event = fn(&Server);
    let events: [(&str, Event); 2] = [
        ("an empty restart", |server| server.restart_empty()),
        ("a flush, and connections cut", |server| {
            server.run("FLUSHALL");
            server.run("CLIENT KILL TYPE normal");
        }),
    ];
    for (what, event) in events {
        let server = Server::start();
        let lock = client(&server).lock("x");
        // The connection that the release would use dies while it is idle.
        let guard = lock.acquire().unwrap();
        event(&server);
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted, "{what}");

        let guard = lock.acquire().unwrap();
        event(&server);
        let next = client(&server).lock("x").acquire().unwrap();
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken, "{what}");
        assert_eq!(server.get("lock:x").as_deref(), Some(next.token()));
        next.release().unwrap();

        let outcome = lock.with_lock(|| event(&server));
        assert_eq!(lost(outcome.unwrap_err()), LostReason::Deleted, "{what}");
    }
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
        server.run(meddle);
        assert_eq!(lost(guard.extend(SECOND * 120).unwrap_err()), reason);
        assert_eq!(lost(guard.check().unwrap_err()), reason);
        assert!(!guard.is_held());
    }
}

#[test]
fn a_renewal_never_re_creates_a_lock_that_another_had_meanwhile() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(SECOND * 2);
    let guard = lock.acquire().unwrap();
    server.run("DEL lock:x");
    client(&server).lock("x").acquire().unwrap().release().unwrap();
    assert!(guard.wait_lost(SECOND * 10));
    drop(guard);
    assert_eq!(server.get("lock:x"), None);
}

#[test]
fn scripts_may_be_flushed_between_any_two_operations() {
    let server = Server::start();
    let flush = || server.run("SCRIPT FLUSH");
    let lock = client(&server).lock("x").lease(SECOND * 3 / 2);
    for _ in 0..2 {
        flush();
        let guard = lock.acquire().unwrap();
        flush();
        assert!(!guard.wait_lost(SECOND * 2), "a renewal met an unknown script");
        flush();
        guard.extend(SECOND * 3).unwrap();
        flush();
        guard.release().unwrap();
    }
}

#[test]
fn killed_connections_cost_nothing() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(SECOND * 3 / 2);
    let mut last = 0;
    for _ in 0..4 {
        let guard = lock.acquire().unwrap();
        server.run("CLIENT KILL TYPE normal");
        assert!(!guard.wait_lost(millis(700)));
        server.run("CLIENT KILL TYPE normal");
        guard.extend(SECOND * 2).unwrap();
        server.run("CLIENT KILL TYPE normal");
        let fencing_token = guard.fencing_token();
        assert!(fencing_token > last);
        last = fencing_token;
        guard.release().unwrap();
        server.run("CLIENT KILL TYPE normal");
        lock.try_acquire().unwrap().expect("free").release().unwrap();
    }
}

#[test]
fn a_server_that_restarts_empty_ends_the_holds_and_tokens_go_on_rising() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(SECOND * 10);
    let mut last = 0;
    for _ in 0..2 {
        let guard = lock.acquire().unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        server.restart_empty();
        assert!(guard.wait_lost(SECOND * 20));
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
    let old: Vec<u8> = redis::cmd("DUMP").arg(COUNTER).query(&mut server.connection()).unwrap();
    let last = (0..50).map(|_| lock.acquire().unwrap().fencing_token()).max().unwrap();
    let mut restore = redis::cmd("RESTORE");
    restore.arg(COUNTER).arg(60_000).arg(&old).arg("REPLACE");
    restore.exec(&mut server.connection()).unwrap();
    assert!(lock.acquire().unwrap().fencing_token() > last);
}

#[test]
fn a_counter_ahead_of_the_clock_goes_on_rising() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    // What a clock leaves that was stepped back by a day.
    let ahead = lock.acquire().unwrap().fencing_token() + 24 * 3600 * 1_000_000;
    server.run(&format!("SET {{lock:x}}:redlatch:fencing:lock:x {ahead} EX 60"));
    assert_eq!(lock.acquire().unwrap().fencing_token(), ahead + 1);
    assert_eq!(lock.acquire().unwrap().fencing_token(), ahead + 2);
}

#[test]
fn a_snapshot_may_bring_back_a_hold_but_not_for_longer_than_its_lease() {
    let server = Server::start();
    let lease = SECOND * 3;
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
    let client = Client::builder().url(server.url()).command_timeout(SECOND * 5).build();
    let lock = client.unwrap().lock("x").lease(lease).on_lost(move |lost| {
        sender.send((lost.reason, Instant::now())).unwrap();
    });
    let start = Instant::now();
    let guard = lock.acquire().unwrap();
    server.stop_process();
    let (reason, told) = losses.recv_timeout(SECOND * 20).unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(told - start <= lease + SLACK, "told only after {:?}", told - start);
    let asked = Instant::now();
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(asked.elapsed() < SLACK, "is_held() waited for the server");
    server.continue_process();
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
}

#[test]
fn renewal_resumes_after_an_outage_longer_than_a_lease() {
    type Meddle = fn(&Server, &Proxy);
    let partitions: [(&str, Meddle, Meddle); 3] = [
        (
            "stopped",
            |server, _| server.stop_process(),
            |server, _| server.continue_process(),
        ),
        ("cut off", |_, proxy| proxy.go_down(), |_, proxy| proxy.go_up()),
        (
            "swallowed",
            |_, proxy| proxy.black_hole(true),
            |_, proxy| proxy.black_hole(false),
        ),
    ];
    thread::scope(|scope| {
        for (what, begin, end) in partitions {
            scope.spawn(move || {
                let server = Server::start();
                let proxy = Proxy::to(&server);
                let lock = client_at(proxy.url()).lock("x").lease(SECOND);
                let guard = lock.acquire().unwrap();
                begin(&server, &proxy);
                assert!(guard.wait_lost(SECOND * 10), "{what}");
                end(&server, &proxy);
                drop(guard);
                let guard = lock.acquire_timeout(SECOND * 10).unwrap();
                assert!(!guard.wait_lost(SECOND * 3), "{what}");
                guard.release().unwrap();
            });
        }
    });
}

#[test]
fn a_wait_that_begins_in_a_silence_rides_out_what_follows() {
    // Several attempts meet the silence before they are refused, or the first one is broken off.
    for command_timeout in [millis(300), SECOND * 2] {
        let server = Server::start();
        server.stop_process();
        let client = Client::builder().url(server.url()).command_timeout(command_timeout);
        let client = client.build().unwrap();
        let waiting = thread::spawn(move || client.lock("x").acquire_timeout(SECOND * 30).map(drop));
        thread::sleep(command_timeout.max(SECOND) * 5 / 4);
        server.kill();
        thread::sleep(SECOND / 2);
        assert!(!waiting.is_finished());
        server.restart();
        waiting.join().unwrap().unwrap();
    }
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
    // It tries at least every 50 ms, so it meets this. (Through a proxy it would be hung up on, not refused.)
    thread::sleep(millis(300));
    server.restart();
    assert!(waiting.join().unwrap() > guard.fencing_token());
}

#[test]
fn dropping_a_guard_without_a_server_takes_one_command_timeout_at_most() {
    let server = Server::start();
    let timeout = millis(1_500);
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
        assert!(took <= timeout + SLACK, "{outage}: {took:?}");
        if outage == "stopped" {
            server.continue_process();
            // The janitor's work: long before the lease of 30 s ends.
            let free = || server.get("lock:stopped").is_none();
            wait_until("the key to be cleaned up", SECOND * 10, free);
        }
    }
}

#[test]
fn dropping_the_last_handle_without_a_server_takes_two_command_timeouts_at_most() {
    let server = Server::start();
    let timeout = millis(1_200);
    let client = Client::builder().url(server.url()).command_timeout(timeout).build();
    let guard = client.unwrap().lock("x").acquire().unwrap();
    server.stop_process();
    let start = Instant::now();
    // One for the release, one for what the background work still tries.
    drop(guard);
    assert!(start.elapsed() <= timeout * 2 + SLACK, "{:?}", start.elapsed());
    server.continue_process();
}

#[test]
fn an_explicit_release_without_a_server_is_unconfirmed_and_bounded() {
    let server = Server::start();
    let timeout = millis(1_200);
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
    assert!(start.elapsed() <= timeout * 2 + SLACK);
    server.continue_process();
    wait_until("the key to be cleaned up", SECOND * 10, || {
        server.get("lock:x").is_none()
    });
    // A closure's caller is not bothered with it.
    let value = client.lock("z").with_lock(|| {
        server.stop_process();
        42
    });
    assert_eq!(value.unwrap(), 42);
    server.continue_process();
    wait_until("the key to be cleaned up", SECOND * 10, || {
        server.get("lock:z").is_none()
    });
}

#[test]
fn a_client_that_goes_away_cleans_up_first_if_it_can() {
    let server = Server::start();
    let client = client(&server);
    let guard = client.lock("x").acquire().unwrap();
    server.stop_process();
    drop(guard);
    server.continue_process();
    drop(client);
    assert_eq!(server.get("lock:x"), None);
}

#[test]
fn everything_on_the_server_has_a_ttl_at_every_instant() {
    let server = Server::start();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for worker in 0..3 {
            let (client, done) = (client(&server), &done);
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                for round in 0_u32.. {
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                    let lock = client.lock(format!("name-{}", round % 3)).lease(SECOND);
                    if round % 7 == 0 {
                        // A crash, as far as the server can see.
                        let crashing = lock.max_hold(millis(300)).acquire_timeout(SECOND * 10);
                        std::mem::forget(crashing.unwrap());
                        continue;
                    }
                    let guard = lock.acquire_timeout(SECOND * 10).unwrap();
                    if round % 5 == worker {
                        // Long enough for a renewal.
                        guard.wait_lost(millis(400));
                        guard.extend(SECOND * 5).unwrap();
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
        while start.elapsed() < SECOND * 3 {
            let eternal: Vec<String> = eternal.invoke(&mut connection).unwrap();
            assert!(eternal.is_empty(), "{eternal:?}");
        }
    });
}

#[test]
fn no_renewal_or_extension_makes_or_leaves_a_key_persistent() {
    let server = Server::start();
    let lock = client(&server).lock("x").lease(SECOND * 2);
    let guard = lock.acquire().unwrap();
    server.run("PERSIST lock:x");
    wait_until("a renewal to give the key its TTL back", SECOND * 10, || {
        server.ttl("lock:x").is_some()
    });
    server.run("PERSIST lock:x");
    guard.extend(SECOND * 10).unwrap();
    assert!(server.ttl("lock:x").unwrap() > SECOND * 5);
    guard.release().unwrap();
    assert_eq!(server.get("lock:x"), None);
}

#[test]
fn a_foreign_lock_without_a_ttl_is_waited_for_and_never_taken() {
    let server = Server::start();
    server.run("SET lock:x foreign");
    let lock = client(&server).lock("x");
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(matches!(lock.acquire_timeout(millis(300)), Err(Error::Timeout { .. })));
    assert_eq!(server.get("lock:x").as_deref(), Some("foreign"));
    assert_eq!(server.ttl("lock:x"), None);
    server.run("DEL lock:x");
    assert!(lock.try_acquire().unwrap().is_some());
}

#[test]
fn a_key_that_is_no_lock_is_a_conflict_and_stays_untouched() {
    let server = Server::start();
    server.run("HSET lock:x field value");
    let before = server.run("DUMP lock:x");
    let lock = client(&server).lock("x");
    for result in [
        lock.try_acquire().map(drop),
        lock.acquire().map(drop),
        lock.acquire_timeout(SECOND).map(drop),
    ] {
        assert!(matches!(result, Err(Error::KeyConflict { key, .. }) if key == b"lock:x"));
    }
    assert_eq!(server.run("DUMP lock:x"), before);
    assert_eq!(
        server.run("KEYS *"),
        redis::Value::Array(vec![redis::Value::BulkString(b"lock:x".to_vec())])
    );
}

#[test]
fn a_fencing_counter_that_is_none_is_a_conflict_before_anything_is_written() {
    let server = Server::start();
    for meddle in [
        "HSET COUNTER field value",
        "SET COUNTER words",
        "SET COUNTER inf",
        "SET COUNTER nan",
        "SET COUNTER 1e300",
        "SET COUNTER -1",
        "SET COUNTER 1.5",
        "SET COUNTER 0x10",
        "SET COUNTER 1e3",
        "SET COUNTER 9007199254740993",
    ] {
        server.run("FLUSHALL");
        server.run(&meddle.replace("COUNTER", COUNTER));
        let before = server.run(&format!("DUMP {COUNTER}"));
        let error = client(&server).lock("x").try_acquire().unwrap_err();
        assert!(
            matches!(&error, Error::KeyConflict { key, .. } if key == COUNTER.as_bytes()),
            "{meddle}: {error:?}"
        );
        assert_eq!(server.get("lock:x"), None);
        assert_eq!(server.run(&format!("DUMP {COUNTER}")), before);
    }
}

#[test]
fn what_is_no_mark_of_a_release_stays_and_hinders_none() {
    let server = Server::start();
    let lock = client(&server).lock("x");
    for meddle in [
        "LPUSH {lock:x}:redlatch:released:lock:x element",
        "SET {lock:x}:redlatch:released:lock:x words",
    ] {
        server.run("FLUSHALL");
        server.run(meddle);
        lock.acquire().unwrap().release().unwrap();
        assert_eq!(server.get("lock:x"), None);
        if meddle.starts_with("LPUSH") {
            assert_eq!(
                server.run("LLEN {lock:x}:redlatch:released:lock:x"),
                redis::Value::Int(1)
            );
        }
        let guard = lock.acquire().unwrap();
        server.run("DEL lock:x");
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    }
}

#[test]
fn a_lock_whose_key_becomes_something_else_is_taken() {
    let server = Server::start();
    let guard = client(&server).lock("x").lease(SECOND * 2).acquire().unwrap();
    server.run("LPUSH list element");
    // In one step, so that no renewal finds nothing there.
    server.run("RENAME list lock:x");
    assert!(guard.wait_lost(SECOND * 10));
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Taken);
    assert_eq!(server.run("LLEN lock:x"), redis::Value::Int(1));
}

#[test]
fn a_demoted_server_is_waited_for_and_used_again_when_promoted() {
    let (server, other) = (Server::start(), Server::start());
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    server.run(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
    let error = lock.try_acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    let waiter = Waiter::start(&server);
    server.run("REPLICAOF NO ONE");
    waiter.gets_the_lock();
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
    let waiter = Waiter::start(&server);
    server.run("SCRIPT KILL");
    waiter.gets_the_lock();
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
    (0..2_500).for_each(|n| {
        fill.set(format!("key-{n}"), "value").ignore();
    });
    fill.exec(&mut server.connection()).unwrap();
    let lock = client(&server).lock("x");
    lock.acquire().unwrap().release().unwrap();
    server.run("SAVE");
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
    server.run("CONFIG SET maxmemory 1");
    assert!(matches!(lock.try_acquire(), Err(Error::Server(_))));
    let waiter = Waiter::start(&server);
    server.run("CONFIG SET maxmemory 0");
    waiter.gets_the_lock();
}

#[test]
fn what_stays_on_the_server_is_a_counter_for_each_name_and_a_mark_of_its_release_and_they_expire() {
    let server = Server::start();
    let client = client(&server);
    for name in 0..10_000 {
        client.lock(name.to_string()).acquire().unwrap().release().unwrap();
    }
    let mut connection = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let (counters, marks): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key.contains("}:redlatch:fencing:"));
    assert_eq!(counters.len(), 10_000);
    assert!(
        marks.iter().all(|key| key.contains("}:redlatch:released:")),
        "{marks:?}"
    );
    let mut ttls = |keys: Vec<&String>| -> Vec<i64> {
        let mut ttls = redis::pipe();
        keys.iter().for_each(|key| _ = ttls.cmd("PTTL").arg(key));
        ttls.query(&mut connection).unwrap()
    };
    let hour = 3_600_000;
    assert!(ttls(counters).iter().all(|ttl| (47 * hour..=48 * hour).contains(ttl)));
    // Some may have gone meanwhile.
    assert!(ttls(marks).iter().all(|ttl| (-2..=6_000).contains(ttl) && *ttl != -1));
}

#[test]
fn a_key_that_is_no_queue_stays_and_hinders_no_release() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("x");
    server.run("SET {lock:x}:redlatch:queue:lock:x foreign");
    for _ in 0..2 {
        lock.acquire().unwrap().release().unwrap();
        assert_eq!(server.get("lock:x"), None);
        // With a thread that waits the server is asked whether anybody else does.
        let guard = lock.acquire().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.acquire_timeout(SECOND * 10).map(drop));
            assert!(!guard.wait_lost(millis(100)));
            guard.release().unwrap();
            waiting.join().unwrap().unwrap();
        });
        drop(lock.try_acquire().unwrap().unwrap());
    }
    // It is left alone, and told by whoever needs a queue.
    let guard = lock.acquire().unwrap();
    let other = Client::open(server.url()).unwrap().lock("x").fair(true);
    let error = other.acquire_timeout(SECOND).unwrap_err();
    assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
    guard.release().unwrap();
    assert_eq!(server.get("{lock:x}:redlatch:queue:lock:x").as_deref(), Some("foreign"));
}
