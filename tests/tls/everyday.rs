//! What works in the clear works over TLS.

use std::{sync::Barrier, thread, time::Instant};

use redlatch::{Client, Error};

use super::{
    relay::Relay,
    support::{SECOND, millis, tls::TlsServer, wait_until},
};

/// Row 41 of what users of other libraries reported: a URL with user, password and database, over TLS.
#[test]
fn user_password_and_database_of_a_url_hold_over_tls() {
    let Some(server) = TlsServer::start() else { return };
    server.plain().run("ACL SETUSER alice on >s3cret ~* &* +@all");
    server.plain().run("CONFIG SET requirepass elsewhere-unknown");
    for scheme in ["rediss", "valkeys"] {
        let url = format!("{scheme}://alice:s3cret@127.0.0.1:{}/3", server.port());
        let client = server.builder().url(url).build().unwrap();
        let guard = client.lock("x").acquire().unwrap();
        let plain = format!("redis://alice:s3cret@127.0.0.1:{}/", server.plain().port());
        let key = |database: u8| -> Option<String> {
            let mut connection = redis::Client::open(format!("{plain}{database}"))
                .unwrap()
                .get_connection()
                .unwrap();
            redis::cmd("GET").arg("lock:x").query(&mut connection).unwrap()
        };
        assert_eq!(key(3).as_deref(), Some(guard.token()));
        assert_eq!(key(0), None);
        guard.release().unwrap();
    }
    let url = format!("rediss://alice:wrong@127.0.0.1:{}/3", server.port());
    let client = server.builder().url(url).build().unwrap();
    let error = client.lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
}

#[test]
fn a_lease_is_renewed_and_looked_at_over_tls() {
    let Some(server) = TlsServer::start() else { return };
    let client = server.client();
    let lock = client.lock("x").lease(SECOND);
    let guard = lock.acquire().unwrap();
    assert!(!guard.wait_lost(SECOND * 5 / 2));
    guard.extend(SECOND * 60).unwrap();
    assert_eq!(lock.inspect().unwrap().holders.len(), 1);
    server.plain().run("SET lock:eternal x");
    assert_eq!(client.audit("lock:*").unwrap().count(), 1);
    guard.release().unwrap();
    assert_eq!(server.plain().get("lock:x"), None);
}

#[test]
fn waiters_are_woken_over_tls() {
    let Some(server) = TlsServer::start() else { return };
    let minute = SECOND * 60;
    let [holder, waiter] = [(); 2].map(|()| server.builder().poll_interval(minute).build().unwrap());
    for fair in [false, true] {
        let guard = holder.lock("x").lease(minute).fair(fair).acquire().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock("x").lease(minute).fair(fair).acquire_timeout(minute));
            wait_until("a waiter", SECOND * 30, || {
                holder.lock("x").inspect().unwrap().waiters == 1
            });
            let released = Instant::now();
            guard.release().unwrap();
            waiting.join().unwrap().unwrap().release().unwrap();
            assert!(released.elapsed() < SECOND * 20, "{:?}", released.elapsed());
        });
    }
}

#[test]
fn many_threads_share_the_connections() {
    let Some(server) = TlsServer::start() else { return };
    let client = server.builder().pool_size(2).build().unwrap();
    let together = Barrier::new(8);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (lock, together) = (client.lock(format!("x-{}", thread % 4)), &together);
            scope.spawn(move || {
                together.wait();
                for _ in 0..20 {
                    lock.acquire().unwrap().release().unwrap();
                }
            });
        }
    });
}

/// A renewal of many leases is longer than a record of TLS, and than what is buffered of one.
#[test]
fn a_batch_may_be_longer_than_a_record() {
    let Some(server) = TlsServer::start() else { return };
    let client = server.client();
    let name = "x".repeat(200);
    let guards: Vec<_> = (0..400)
        .map(|nth| {
            client
                .lock(format!("{name}-{nth}"))
                .lease(SECOND * 6)
                .acquire()
                .unwrap()
        })
        .collect();
    let renewed = |name: &str| server.plain().ttl(name).is_some_and(|ttl| ttl > SECOND * 4);
    let start = Instant::now();
    while start.elapsed() < SECOND * 8 {
        assert!(guards.iter().all(|guard| guard.is_held()));
        thread::sleep(millis(50));
    }
    assert!(renewed(&format!("lock:{name}-0")) || renewed(&format!("lock:{name}-399")));
    for guard in guards {
        guard.release().unwrap();
    }
}

/// Tickets for another session come unasked once the handshake is over: that is no reason to open another connection.
#[test]
fn a_connection_is_used_again() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let Some(server) = TlsServer::start_with(&["--tls-protocols", version]) else {
            return;
        };
        let client = server.client();
        client.lock("x").acquire().unwrap().release().unwrap();
        let connected = || -> String {
            let stats = server.plain().run("CLIENT LIST");
            let list: String = redis::from_redis_value(stats).unwrap();
            // All but the one that asks.
            let ids = list.lines().filter(|line| !line.contains("cmd=client"));
            ids.map(|line| line.split(' ').next().unwrap().to_owned() + " ")
                .collect()
        };
        let first = connected();
        assert!(!first.is_empty());
        for _ in 0..20 {
            client.lock("x").acquire().unwrap().release().unwrap();
        }
        assert_eq!(connected(), first, "{version}");
    }
}

/// The time for connecting is not that for what comes after.
#[test]
fn a_connection_outlives_the_time_that_it_had_to_be_opened() {
    let Some(server) = TlsServer::start() else { return };
    let relay = Relay::to(server.port());
    let timeout = SECOND * 2;
    let builder = server.builder().url(server.url_at("127.0.0.1", relay.port()));
    let client = builder.connect_timeout(timeout).build().unwrap();
    // Not to be renewed meanwhile, which is done on another connection.
    let lease = SECOND * 3600;
    let guard = client.lock("x").lease(lease).acquire().unwrap();
    thread::sleep(timeout + millis(100));
    guard.extend(lease * 2).unwrap();
    guard.release().unwrap();
    assert_eq!(relay.opened(), 1);
}

#[test]
fn an_uncontended_acquire_and_release_are_two_commands_over_tls_too() {
    let Some(server) = TlsServer::start() else { return };
    let lock = server.client().lock("x");
    lock.acquire().unwrap().release().unwrap();
    let evals = || server.plain().command_calls("evalsha");
    let (first, pings) = (evals(), server.plain().command_calls("ping"));
    for _ in 0..50 {
        lock.acquire().unwrap().release().unwrap();
    }
    assert_eq!(evals() - first, 100);
    assert_eq!(server.plain().command_calls("ping"), pings);
}

#[test]
fn a_host_may_be_a_name_or_an_address() {
    let Some(server) = TlsServer::start() else { return };
    for host in super::support::tls::HOSTS {
        let client: Client = server
            .builder()
            .url(server.url_at(host, server.port()))
            .build()
            .unwrap();
        client.lock("x").with_lock(|| ()).unwrap();
    }
}

/// `tls` does for other URLs what `rediss://` says.
#[test]
fn tls_may_be_set_beside_the_url() {
    let Some(server) = TlsServer::start() else { return };
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let client = server.builder().url(url).tls(true).build().unwrap();
    client.lock("x").with_lock(|| ()).unwrap();
}
