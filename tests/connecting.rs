//! Finding the server, being let in, and what is said when that fails.

mod support;

use std::{
    error::Error as _,
    net::TcpListener,
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error};
use support::{Proxy, Server, wait_until};

const SECOND: Duration = Duration::from_secs(1);
const SECRET: &str = "correcthorsebatterystaple";

/// Everything that an error says, its causes included.
fn everything_said(error: &Error) -> String {
    let mut said = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(cause) = source {
        said += &format!(" {cause} {cause:?}");
        source = cause.source();
    }
    said
}

fn works(url: impl Into<String>) {
    let client = Client::open(url).unwrap();
    let guard = client.lock("x").try_acquire().unwrap().expect("free");
    assert!(client.lock("x").try_acquire().unwrap().is_none());
    guard.extend(SECOND * 60).unwrap();
    guard.release().unwrap();
}

fn run(server: &Server, words: &[&str]) {
    redis::cmd(words[0])
        .arg(&words[1..])
        .exec(&mut server.connection())
        .unwrap();
}

#[test]
fn tcp_and_unix_sockets_work_with_and_without_password_user_and_database() {
    let open = Server::start();
    works(open.url());
    works(open.unix_url());
    works(format!("{}5", open.url()));
    works(format!("{}?db=5", open.unix_url()));
    works(open.url().replace("127.0.0.1", "localhost"));
    works(open.url().replace("redis://", "valkey://"));

    let locked = Server::start_with(&["--requirepass", SECRET]);
    works(locked.url());
    works(locked.unix_url());
    run(
        &locked,
        &["ACL", "SETUSER", "bob", "on", &format!(">{SECRET}"), "~*", "+@all"],
    );
    works(locked.url().replace("redis://:", "redis://bob:"));
    works(format!("{}&user=bob&db=3", locked.unix_url()));
}

#[test]
fn databases_are_apart() {
    let server = Server::start();
    let (one, two) = (
        Client::open(format!("{}1", server.url())).unwrap(),
        Client::open(format!("{}2", server.url())).unwrap(),
    );
    let _one = one.lock("x").try_acquire().unwrap().expect("free");
    let _two = two.lock("x").try_acquire().unwrap().expect("another database");
}

#[test]
fn a_password_with_special_characters_is_decoded() {
    let server = Server::start();
    run(&server, &["ACL", "SETUSER", "eve", "on", ">p@ss:w/rd%", "~*", "+@all"]);
    works(server.url().replace("redis://", "redis://eve:p%40ss%3Aw%2Frd%25@"));
}

#[test]
fn whoever_is_not_let_in_is_told_so_at_once_and_without_the_password() {
    let server = Server::start_with(&["--requirepass", "another"]);
    let wrong = server.url().replace("another", SECRET);
    let missing = server.url().replace(":another@", "");
    let database = format!("{}99999", server.url());
    for url in [wrong, missing, database] {
        let lock = Client::open(url).unwrap().lock("x");
        for result in [lock.acquire(), lock.acquire_timeout(SECOND * 60)] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Server(_)), "{error:?}");
            assert!(!everything_said(&error).contains(SECRET));
            assert!(!everything_said(&error).contains("another"));
        }
    }
}

#[test]
fn a_password_that_changes_during_a_wait_ends_it() {
    let server = Server::start_with(&["--requirepass", SECRET]);
    let holder = Client::open(server.url()).unwrap().lock("x").acquire().unwrap();
    let waiter = Client::open(server.url()).unwrap().lock("x");
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 60));
    wait_until("the waiter to wait", SECOND * 10, || server.command_calls("pttl") > 2);
    let mut connection = server.connection();
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("changed")
        .exec(&mut connection)
        .unwrap();
    redis::cmd("CLIENT")
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .exec(&mut connection)
        .unwrap();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    drop(holder);
}

#[test]
fn a_server_that_is_not_there_is_told_at_once_and_with_the_cause() {
    let server = Server::start();
    let (tcp, unix) = (server.url(), server.unix_url());
    server.kill();
    for url in [tcp, unix, "unix:///nowhere/to/be/found.sock".to_owned()] {
        let lock = Client::open(url).unwrap().lock("x");
        let start = Instant::now();
        for result in [
            lock.acquire().map(Some),
            lock.try_acquire(),
            lock.acquire_timeout(SECOND * 60).map(Some),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Connection(_)), "{error:?}");
            assert!(error.source().is_some(), "the cause is kept");
        }
        assert!(start.elapsed() < SECOND * 2, "{:?}", start.elapsed());
    }
}

#[test]
fn a_host_that_nobody_knows_is_a_connection_error() {
    let client = Client::builder()
        .url("redis://no-such-host.invalid/")
        .connect_timeout(SECOND)
        .build()
        .unwrap();
    let start = Instant::now();
    let error = client.lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(start.elapsed() < SECOND * 3);
}

#[test]
fn a_port_where_nobody_answers_costs_one_timeout() {
    // Connections are accepted by the system, and nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let timeout = Duration::from_millis(300);
    for login in ["", "user:secret@"] {
        let url = format!("redis://{login}127.0.0.1:{port}/3");
        let client = Client::builder()
            .url(url)
            .connect_timeout(timeout)
            .command_timeout(timeout)
            .build()
            .unwrap();
        let start = Instant::now();
        client.lock("x").try_acquire().unwrap_err();
        assert!(
            start.elapsed() >= timeout && start.elapsed() < timeout + SECOND,
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_unix_socket_with_a_full_backlog_costs_one_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full.sock");
    let full = UnixListener::bind(&path).unwrap();
    // SAFETY: listen() takes two numbers; the descriptor is open. It makes the backlog as short as can be.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let _first = UnixStream::connect(&path).unwrap();
    let timeout = Duration::from_millis(300);
    let url = format!("unix://{}", path.display());
    let client = Client::builder().url(url).command_timeout(timeout).build().unwrap();
    let start = Instant::now();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(
        start.elapsed() >= timeout && start.elapsed() < timeout + SECOND,
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn urls_that_cannot_work_are_refused_before_anything_is_sent() {
    for url in [
        "",
        "localhost",
        "redis:/127.0.0.1",
        "redis://",
        "redis://host:port/",
        "redis://127.0.0.1/database",
        "redis://127.0.0.1/-1",
        "unix://relative/path",
        "http://127.0.0.1/",
        "correcthorsebatterystaple://",
        "redis://user:correcthorsebatterystaple@/",
        "redis://user:correcthorsebatterystaple@host:99999/",
    ] {
        let error = Client::open(url).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{url}: {error:?}");
        assert!(!everything_said(&error).contains(SECRET), "{error}");
    }
    for url in [
        "rediss://h/",
        "redis-sentinel://h/0#master",
        "redis-cluster://h",
        "redlock://a,b,c",
    ] {
        let error = Client::open(format!("{url}?{SECRET}")).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{url}: {error:?}");
        assert!(!everything_said(&error).contains(SECRET), "{error}");
    }
    let builder = Client::builder().url(format!("redis://:{SECRET}@127.0.0.1/"));
    assert!(!format!("{builder:?}").contains(SECRET));
    assert!(!format!("{:?}", builder.build().unwrap()).contains(SECRET));
}

/// The permissions that the README names.
const LEAST: [&str; 8] = [
    "+evalsha", "+eval", "+get", "+set", "+del", "+pttl", "+pexpire", "+time",
];

fn restricted(server: &Server, permissions: &[&str], keys: &[&str]) -> String {
    let password = format!(">{SECRET}");
    let user = [
        &["ACL", "SETUSER", "app", "reset", "on", &password][..],
        keys,
        permissions,
    ]
    .concat();
    run(server, &user);
    server.url().replace("redis://", &format!("redis://app:{SECRET}@"))
}

#[test]
fn the_least_permissions_suffice() {
    let server = Server::start();
    works(restricted(&server, &LEAST, &["~lock:*", "~{lock:*}:redlatch:*"]));
    // A key whose TTL has become too short is renewed under them too.
    let client = Client::open(restricted(&server, &LEAST, &["~lock:*", "~{lock:*}:redlatch:*"])).unwrap();
    let guard = client.lock("y").lease(SECOND / 2).acquire().unwrap();
    assert!(!guard.wait_lost(SECOND));
    let log: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut server.connection()).unwrap();
    assert!(log.is_empty(), "{log:?}");
}

#[test]
fn a_missing_permission_is_refused_at_once_and_changes_nothing() {
    let server = Server::start();
    let all_keys = ["~lock:*", "~{lock:*}:redlatch:*"];
    let lacking: Vec<Vec<&str>> = ["+evalsha", "+get", "+set", "+time"]
        .map(|lacking| LEAST.into_iter().filter(|one| *one != lacking).collect())
        .into();
    let users = lacking.iter().map(|permissions| (&permissions[..], &all_keys[..]));
    for (permissions, keys) in users.chain([(&LEAST[..], &all_keys[..1]), (&LEAST[..], &all_keys[1..])]) {
        let lock = Client::open(restricted(&server, permissions, keys)).unwrap().lock("x");
        for result in [lock.acquire(), lock.acquire_timeout(SECOND * 60)] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::Server(_)), "{permissions:?} {keys:?}: {error:?}");
            assert!(!everything_said(&error).contains(SECRET));
        }
        let held: bool = redis::cmd("EXISTS")
            .arg("lock:x")
            .query(&mut server.connection())
            .unwrap();
        assert!(!held);
    }
}

#[test]
fn an_uncontended_acquire_and_release_are_two_commands() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let all = proxy.on(|_| true).watch();
    let lock = Client::open(proxy.url()).unwrap().lock("x");
    // At first the server has to be given the two scripts; each is asked for in vain, then sent.
    lock.acquire().unwrap().release().unwrap();
    assert_eq!(server.command_calls("eval"), 2);
    let first = all.seen();
    for _ in 0..100 {
        lock.acquire().unwrap().release().unwrap();
    }
    assert_eq!(all.seen() - first, 200);
}

#[test]
fn more_threads_than_connections_share_them() {
    let server = Server::start();
    let client = Client::builder().url(server.url()).pool_size(2).build().unwrap();
    let together = Barrier::new(16);
    thread::scope(|scope| {
        for thread in 0..16 {
            let (lock, together) = (client.lock(format!("x-{thread}")), &together);
            scope.spawn(move || {
                together.wait();
                for _ in 0..20 {
                    lock.acquire().unwrap().release().unwrap();
                }
            });
        }
    });
    let connected: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut server.connection())
        .unwrap();
    // Two of the pool, perhaps the background's, and the one that asks.
    assert!(connected.lines().count() <= 4, "{connected}");
}

#[test]
fn connections_are_opened_when_needed_and_closed_with_the_client() {
    let server = Server::start();
    let connected = || -> usize {
        let list: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query(&mut server.connection())
            .unwrap();
        list.lines().count() - 1
    };
    let client = Client::open(server.url()).unwrap();
    assert_eq!(connected(), 0);
    client.lock("x").acquire().unwrap().release().unwrap();
    assert_eq!(connected(), 1);
    drop(client);
    wait_until("the connections to be closed", SECOND * 10, || connected() == 0);
}
