//! Finding the server, being let in, and what is said when that fails.

mod support;

use std::{
    error::Error as _,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    ptr,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use tempfile::TempDir;

use redlatch::{Client, Error};
use support::{
    Fault, Proxy, SECOND, SLACK, Server, SetOnDrop, chain, everything_said, is_acquire, is_release, millis, wait_until,
};

const SECRET: &str = "correcthorsebatterystaple";

/// The address of somebody who answers whatever is said with `reply`, and hangs up.
fn answering(reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The listener stays until the process ends.
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(reply);
        }
    });
    address
}

fn works(url: impl Into<String>) {
    let client = Client::open(url).unwrap();
    let guard = client.lock("x").try_acquire().unwrap().expect("free");
    assert!(client.lock("x").try_acquire().unwrap().is_none());
    guard.extend(SECOND * 60).unwrap();
    guard.release().unwrap();
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
    locked.run(&format!("ACL SETUSER bob on >{SECRET} ~* +@all"));
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
    server.run("ACL SETUSER eve on >p@ss:w/rd% ~* +@all");
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
fn a_log_in_that_fails_is_explained() {
    let open = Server::start();
    let locked = Server::start_with(&["--requirepass", "another"]);
    let odd = answering(b"-ODD correcthorsebatterystaple is wrong\r\n");
    let banner = answering(b"+hello\r\n-ERR what is correcthorsebatterystaple?\r\n");
    let (open, locked) = (open.url(), locked.url());
    for (url, explanation) in [
        (
            locked.replace("another", SECRET),
            "the user name or the password is wrong",
        ),
        (locked.replace(":another@", ""), "the server wants a password"),
        (locked.replace(":another@", "") + "5", "the server wants a password"),
        (open.replace("//", &format!("//:{SECRET}@")), "no password set"),
        (format!("redis://:{SECRET}@{odd}"), "AUTH failed"),
        (format!("redis://:{SECRET}@{banner}"), "neither OK nor an error"),
    ] {
        let error = Client::open(url).unwrap().lock("x").acquire().unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{error:?}");
        assert!(chain(&error).contains(explanation), "{}", chain(&error));
        assert!(!everything_said(&error).contains(SECRET));
    }
}

#[test]
fn a_password_that_changes_during_a_wait_ends_it() {
    let server = Server::start_with(&["--requirepass", SECRET]);
    let holder = Client::open(server.url()).unwrap().lock("x").acquire().unwrap();
    let waiter = Client::open(server.url()).unwrap().lock("x");
    let waiting = thread::spawn(move || waiter.acquire_timeout(SECOND * 60));
    wait_until("the waiter to wait", SECOND * 10, || server.command_calls("pttl") > 2);
    // On one connection: a new one would need the new password.
    redis::pipe()
        .cmd("CONFIG")
        .arg(&["SET", "requirepass", "changed"])
        .cmd("CLIENT")
        .arg(&["KILL", "TYPE", "normal"])
        .exec(&mut server.connection())
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
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
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
    assert!(start.elapsed() < SECOND + SLACK);
}

#[test]
fn a_port_where_nobody_answers_costs_one_timeout() {
    // Connections are accepted by the system, and nobody ever reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let timeout = millis(300);
    for login in ["", "user:secret@"] {
        let url = format!("redis://{login}127.0.0.1:{port}/3");
        let client = Client::builder()
            .url(url)
            .connect_timeout(timeout)
            .command_timeout(timeout)
            .build()
            .unwrap();
        let start = Instant::now();
        let error = client.lock("x").try_acquire().unwrap_err();
        assert!(chain(&error).ends_with(": no answer in time"), "{}", chain(&error));
        assert!(
            start.elapsed() >= timeout && start.elapsed() < timeout + SLACK,
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_reply_that_trickles_in_costs_one_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Its threads end with the clients' connections; the listener stays until the process ends.
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            thread::spawn(move || {
                // Answers once it is asked: with ten seconds of a string, a byte at a time.
                let asked = client.read(&mut [0; 4096]);
                let mut reply = b"$200\r\n".iter().chain([b'x'; 200].iter());
                while asked.is_ok() && reply.next().is_some_and(|byte| client.write_all(&[*byte]).is_ok()) {
                    thread::sleep(millis(50));
                }
            });
        }
    });
    let timeout = millis(300);
    for login in ["", "user:secret@"] {
        let client = Client::builder()
            .url(format!("redis://{login}{address}/"))
            .connect_timeout(timeout)
            .command_timeout(timeout)
            .build()
            .unwrap();
        let start = Instant::now();
        let error = client.lock("x").try_acquire().unwrap_err();
        let took = start.elapsed();
        assert!(took >= timeout && took <= timeout + SLACK, "{took:?}");
        if login.is_empty() {
            assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
        }
    }
}

/// A system call that has a timeout is broken off by every signal whose handler ran, and a process may get many.
#[test]
fn a_storm_of_signals_breaks_nothing_off() {
    extern "C" fn do_nothing(_signal: libc::c_int) {}

    // SAFETY: all zeroes are a valid sigaction: no flags, so no restarting of system calls, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: `action` outlives the call, and its handler may run at any time since it does nothing.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) }, 0);

    let server = Server::start();
    let proxy = Proxy::to(&server);
    let _struck = proxy.on(|_| true).every().apply(Fault::DelayReply(millis(40)));
    let done = AtomicBool::new(false);
    // SAFETY: takes nothing.
    let target = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                // SAFETY: the target outlives this scope, and SIGUSR1 has its handler.
                assert_eq!(unsafe { libc::pthread_kill(target, libc::SIGUSR1) }, 0);
                thread::sleep(millis(2));
            }
        });
        // Connections are opened in the storm too.
        for url in [proxy.url(), proxy.url(), &format!("{}5", proxy.url())] {
            let lock = Client::open(url).unwrap().lock("x");
            for _ in 0..5 {
                let guard = lock.try_acquire().unwrap().expect("free");
                guard.release().unwrap();
            }
        }
    });
}

/// A Unix socket where connecting blocks.
struct FullBacklog {
    dir: TempDir,
    _listener: UnixListener,
    _first: UnixStream,
}

impl FullBacklog {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("full.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: listen() takes two numbers; the descriptor is open. It makes the backlog as short as can be.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let first = UnixStream::connect(&path).unwrap();
        Self {
            dir,
            _listener: listener,
            _first: first,
        }
    }

    fn url(&self) -> String {
        format!("unix://{}", self.dir.path().join("full.sock").display())
    }
}

#[test]
fn a_unix_socket_with_a_full_backlog_costs_one_timeout() {
    let full = FullBacklog::new();
    let timeout = millis(300);
    let client = Client::builder()
        .url(full.url())
        .command_timeout(timeout)
        .build()
        .unwrap();
    let start = Instant::now();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(
        start.elapsed() >= timeout && start.elapsed() < timeout + SLACK,
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
        "redis://correcthorsebatterystaple@host/",
        "redis://h/#correcthorsebatterystaple",
        "redis://h/?correcthorsebatterystaple",
        "redis://user:1?correcthorsebatterystaple=x@h/",
        "unix:///s?user=correcthorsebatterystaple",
        "unix:///s?pass=a&correcthorsebatterystaple=b",
        "unix://:correcthorsebatterystaple@localhost/s",
        "redis-sentinel://user:correcthorsebatterystaple@h/",
        "redis-sentinel://user:correcthorse#batterystaple@h/#master",
        "redis-sentinel://h/?correcthorsebatterystaple#master",
        "redis-sentinel://h/#correcthorsebatterystaple?",
        "redlock://a,b,c?correcthorsebatterystaple",
    ] {
        let error = Client::open(url).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{url}: {error:?}");
        assert!(!everything_said(&error).contains(SECRET), "{error}");
        assert!(!error.to_string().contains("InvalidClientConfig"), "{error}");
    }
    // A build without TLS says so, and one with it that the parameter is not acted on.
    for url in ["rediss://h/", "valkeys://h/"] {
        let error = Client::open(format!("{url}?{SECRET}")).unwrap_err();
        match error {
            Error::InvalidArgument(_) if cfg!(feature = "tls") => {}
            Error::Unsupported(_) if !cfg!(feature = "tls") => assert!(error.to_string().contains("`tls`"), "{error}"),
            _ => panic!("{url}: {error:?}"),
        }
        assert!(!everything_said(&error).contains(SECRET), "{error}");
    }
    let builder = Client::builder().url(format!("redis://:{SECRET}@127.0.0.1/"));
    assert!(!format!("{builder:?}").contains(SECRET));
    assert!(!format!("{:?}", builder.build().unwrap()).contains(SECRET));
}

#[test]
fn a_parameter_that_is_not_acted_on_is_refused_with_advice() {
    for (url, advice) in [
        ("redis://h/?db=3", "redis://host/3"),
        ("redis://u:p@h:1/?protocol=SECRET", "none is acted on"),
        ("redis://u:p@h1,h2:7000/", "several hosts"),
        ("valkey://h?pass=SECRET", "none is acted on"),
        ("redis://h/?SECRET", "none is acted on"),
        ("unix:///s?db=1&pass=SECRET&db=2", "each once"),
        ("unix:///s?timeout=SECRET", "`user`, `pass` and `db`"),
    ] {
        let error = Client::open(url.replace("SECRET", SECRET)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{url}: {error:?}");
        assert!(error.to_string().contains(advice), "{url}: {error}");
        assert!(!everything_said(&error).contains(SECRET), "{error}");
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

#[test]
fn a_server_that_repeats_the_password_in_its_refusal_gives_nothing_away() {
    // To such a server AUTH is an unknown command, which it quotes with its arguments.
    let server = Server::start_with(&["--rename-command", "AUTH", ""]);
    let url = server.url().replace("redis://", &format!("redis://alice:{SECRET}@"));
    let error = Client::open(url).unwrap().lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));

    // A greeting that looks like the answer to AUTH makes the answer to AUTH look like that to the request.
    let greets = answering(b"+OK\r\n-ERR unknown command 'AUTH', with args: 'correcthorsebatterystaple'\r\n");
    for database in ["", "3"] {
        let url = format!("redis://:{SECRET}@{greets}/{database}");
        let error = Client::open(url).unwrap().lock("x").try_acquire().unwrap_err();
        assert!(!everything_said(&error).contains(SECRET), "{}", everything_said(&error));
    }
}

#[test]
fn whoever_does_not_speak_the_protocol_is_told_in_a_line() {
    for (login, reply, what) in [
        (
            "",
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "is not in the Redis protocol",
        ),
        (":secret@", b"220 mail ESMTP\r\n", "is not in the Redis protocol"),
        ("", b"", "the connection broke"),
    ] {
        let url = format!("redis://{login}{}/", answering(reply));
        let error = Client::open(url).unwrap().lock("x").acquire().unwrap_err();
        assert!(
            matches!(error, Error::Unconfirmed(_) | Error::Connection(_)),
            "{error:?}"
        );
        assert!(chain(&error).contains(what), "{}", chain(&error));
    }
}

#[test]
fn a_server_that_takes_no_more_clients_costs_no_lease() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let mut admin = server.connection();
    let guard = client.lock("x").lease(SECOND * 2).acquire().unwrap();
    guard.extend(SECOND * 2).unwrap();
    // Every place is taken: by the lease's renewals, a pooled connection and the administrator.
    assert!(!guard.wait_lost(SECOND));
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxclients")
        .arg(3)
        .exec(&mut admin)
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let lock = client.lock(format!("y-{thread}"));
            scope.spawn(move || {
                for _ in 0..20 {
                    match lock.try_acquire() {
                        Ok(_) | Err(Error::Connection(_)) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
    });
    assert!(!guard.wait_lost(SECOND * 3));
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxclients")
        .arg(100)
        .exec(&mut admin)
        .unwrap();
    guard.release().unwrap();
}

#[test]
fn a_full_pool_is_no_outage_and_lets_holders_pass() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::builder()
        .url(proxy.url())
        .pool_size(2)
        .command_timeout(SECOND * 2)
        .build()
        .unwrap();
    client.lock("warm-up").with_lock(|| ()).unwrap();
    let _slow = proxy.on(is_acquire).every().apply(Fault::DelayReply(millis(100)));
    let guard = client.lock("x").acquire().unwrap();
    let together = Barrier::new(61);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..60)
            .map(|_| {
                let (lock, together) = (client.lock("x"), &together);
                scope.spawn(move || {
                    together.wait();
                    lock.acquire_timeout(SECOND * 6).map(drop)
                })
            })
            .collect();
        together.wait();
        // By now everybody's time for a connection has passed: they wait for 60 answers of 100 ms on 2 connections.
        thread::sleep(SECOND * 2);
        guard.release().unwrap();
        for waiter in waiters {
            match waiter.join().unwrap() {
                Ok(()) | Err(Error::Timeout { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
}

#[test]
fn a_connection_that_died_while_it_was_idle_is_sent_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::open(proxy.url()).unwrap();
    client.lock("warm-up").with_lock(|| ()).unwrap();
    proxy.go_down();
    proxy.go_up();
    let releases = proxy.on(is_release).watch();
    client.lock("x").with_lock(|| ()).unwrap();
    // An attempt that was sent and not answered would have to be cleaned up after, when the client goes at the latest.
    drop(client);
    assert_eq!(releases.seen(), 1);
}

#[test]
fn a_full_pool_does_not_make_a_server_that_never_answered_look_alive() {
    let full = FullBacklog::new();
    let client = Client::builder()
        .url(full.url())
        .pool_size(1)
        .connect_timeout(millis(300))
        .command_timeout(millis(400))
        .build()
        .unwrap();
    let (sender, outcomes) = mpsc::channel();
    for _ in 0..4 {
        let (lock, sender) = (client.lock("x"), sender.clone());
        thread::spawn(move || sender.send(lock.acquire().map(drop)).unwrap());
    }
    for _ in 0..4 {
        let error = outcomes
            .recv_timeout(SECOND * 20)
            .expect("no wait for ever")
            .unwrap_err();
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
    }
}

#[test]
fn a_request_that_waited_for_a_connection_still_has_time_for_its_answer() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let client = Client::builder()
        .url(proxy.url())
        .pool_size(1)
        .command_timeout(SECOND * 2)
        .build()
        .unwrap();
    client.lock("warm-up").with_lock(|| ()).unwrap();
    let slow = proxy.on(is_acquire).every().apply(Fault::DelayReply(millis(1_900)));
    thread::scope(|scope| {
        let first = scope.spawn(|| client.lock("x").try_acquire().unwrap().unwrap().release());
        slow.wait_hit(SECOND * 10);
        // It would get the connection with too little time left, and could not tell that from a silent server.
        let error = client.lock("y").try_acquire().unwrap_err();
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
        first.join().unwrap().unwrap();
    });
    assert_eq!(server.get("lock:y"), None);
}
