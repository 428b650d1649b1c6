//! What happens to locks when Redis Sentinel replaces their master. Each test has a deployment of its own: a master,
//! two replicas, three Sentinels.

mod support;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, ClientBuilder, Error, Guard, LostReason};
use support::{SECOND, Sentinels, Server, chain, millis, wait_until};

/// How long a failover may take on a busy machine, and what waits for one.
const FAILOVER: Duration = SECOND.saturating_mul(60);

fn builder(url: impl Into<String>) -> ClientBuilder {
    Client::builder().url(url).command_timeout(SECOND)
}

fn client(sentinels: &Sentinels) -> Client {
    builder(sentinels.url()).build().unwrap()
}

/// Has the lock `x` acquired, held and released by several threads of several clients until it is stopped.
struct Load<'a> {
    /// The fencing tokens of the lock, in the order of its grants.
    tokens: &'a Mutex<Vec<u64>>,
    grants: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Load<'_> {
    fn run(&self, client: &Client) {
        let lock = client.lock("x").lease(SECOND * 3);
        while !self.stop.load(Ordering::SeqCst) {
            let guard = lock.acquire_timeout(FAILOVER).unwrap();
            // Not while two may hold it, as they may after a failover that lost the lock.
            if guard.is_held() {
                self.tokens.lock().unwrap().push(guard.fencing_token());
                self.grants.fetch_add(1, Ordering::SeqCst);
            }
            // However it ends: the failover may have taken it.
            let _ = guard.release();
        }
    }
}

#[test]
fn waits_ride_out_the_death_of_the_master_and_fencing_tokens_go_on_rising() {
    let sentinels = Sentinels::start();
    let (tokens, grants, stop) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
    let load = Load {
        tokens: &tokens,
        grants: &grants,
        stop: &stop,
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            let (client, load) = (client(&sentinels), &load);
            for _ in 0..4 {
                let client = client.clone();
                scope.spawn(move || load.run(&client));
            }
        }
        wait_until("grants by the first master", SECOND * 30, || {
            grants.load(Ordering::SeqCst) > 100
        });
        let former = sentinels.kill_master();
        let killed = Instant::now();
        // Whatever was on its way when it was killed has been answered by then.
        thread::sleep(millis(100));
        let before = grants.load(Ordering::SeqCst);
        wait_until("a grant by the new master", FAILOVER, || {
            grants.load(Ordering::SeqCst) > before
        });
        println!(
            "the first grant came {:.1?} after the master was killed",
            killed.elapsed()
        );
        sentinels.wait_for_new_master(former);
        let now = grants.load(Ordering::SeqCst);
        wait_until("many grants by the new master", SECOND * 30, || {
            grants.load(Ordering::SeqCst) > now + 100
        });
        stop.store(true, Ordering::SeqCst);
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn a_held_lock_lives_through_an_ordered_failover_and_its_waiter_is_woken() {
    let sentinels = Sentinels::start();
    let holder = client(&sentinels);
    // Its waiter looks by itself once a minute only.
    let waiter = builder(sentinels.url()).poll_interval(SECOND * 60).build().unwrap();
    let guard = holder.lock("x").lease(SECOND * 20).acquire().unwrap();
    let lock = waiter.lock("x").lease(SECOND * 20);
    let waiting = thread::spawn({
        let lock = lock.clone();
        move || {
            lock.acquire_timeout(FAILOVER)
                .map(|guard| (guard.fencing_token(), Instant::now()))
        }
    });
    wait_until("the waiter to wait", SECOND * 10, || {
        lock.inspect().unwrap().waiters == 1
    });
    let new = sentinels.failover();
    assert_eq!(new.get("lock:x").as_deref(), Some(guard.token()));
    // Long enough that it was renewed by the new master.
    thread::sleep(SECOND * 20);
    guard.check().unwrap();
    // It has looked for the new master by itself.
    wait_until("the waiter to wait at the new master", SECOND * 30, || {
        lock.inspect().unwrap().waiters == 1
    });
    let token = guard.fencing_token();
    let released = Instant::now();
    guard.release().unwrap();
    let (next, granted) = waiting.join().unwrap().unwrap();
    assert!(next > token);
    assert!(granted - released < SECOND * 10);
}

/// Has the master lose what it grants from here on when it dies: nothing reaches the replicas any more.
fn cut_off_replicas(sentinels: &Sentinels) -> Vec<&Server> {
    let replicas = sentinels.replicas();
    for replica in &replicas {
        replica.stop_process();
    }
    sentinels.master().run("CLIENT KILL TYPE replica");
    replicas
}

#[test]
fn the_holder_is_told_when_its_lock_did_not_survive_and_the_next_has_a_larger_fencing_token() {
    let sentinels = Sentinels::start();
    let (sender, losses) = mpsc::channel();
    let holder = client(&sentinels);
    let lock = holder.lock("x").lease(SECOND * 20);
    // The replicas know an old fencing counter.
    lock.acquire().unwrap().release().unwrap();
    let lock = lock.on_lost(move |lost| sender.send(lost.reason).unwrap());
    let replicas = cut_off_replicas(&sentinels);
    let guard = lock.acquire().unwrap();
    let former = sentinels.kill_master();
    for replica in replicas {
        replica.continue_process();
    }
    sentinels.wait_for_new_master(former);
    let next = client(&sentinels).lock("x").acquire_timeout(FAILOVER).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(losses.recv_timeout(SECOND * 20), Ok(LostReason::Taken));
    assert!(matches!(guard.check(), Err(Error::Lost(_))));
    next.release().unwrap();
}

#[test]
fn what_replicas_confirmed_survives_the_masters_death() {
    let sentinels = Sentinels::start();
    let lock = client(&sentinels).lock("x").lease(SECOND * 60).replicas(2, SECOND * 20);
    let guard = lock.acquire().unwrap();
    let former = sentinels.kill_master();
    sentinels.wait_for_new_master(former);
    let other = client(&sentinels).lock("x");
    wait_until("the new master to answer", FAILOVER, || other.inspect().is_ok());
    assert!(other.try_acquire().unwrap().is_none());
    guard.check().unwrap();
    guard.release().unwrap();
    other.acquire_timeout(SECOND * 20).unwrap().release().unwrap();
}

/// Row 37 of the reported faults: READONLY that sticks after a failover.
#[test]
fn a_demoted_master_is_left_by_all_connections_at_once() {
    let sentinels = Sentinels::start();
    let client = client(&sentinels);
    // Ten connections, idle.
    let guards: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|nth| {
                let lock = client.lock(format!("{nth}")).lease(SECOND * 60);
                scope.spawn(move || lock.acquire().unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    sentinels.failover();
    let lock = client.lock("x");
    wait_until("the new master to be found", SECOND * 30, || lock.inspect().is_ok());
    for guard in guards {
        guard.extend(SECOND * 120).unwrap();
        guard.release().unwrap();
    }
}

#[test]
fn a_master_that_falls_silent_is_replaced_and_not_believed_when_it_speaks_again() {
    let sentinels = Sentinels::start();
    let client = client(&sentinels);
    let lock = client.lock("x").lease(SECOND * 3);
    let first = lock.acquire().unwrap();
    let former = first.fencing_token();
    let silent = sentinels.master();
    silent.stop_process();
    let second = thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire_timeout(FAILOVER).unwrap());
        sentinels.wait_for_new_master(silent);
        // It has kept its lease if the new master came in time for a renewal.
        drop(first);
        waiter.join().unwrap()
    });
    let new = sentinels.master();
    assert_eq!(new.get("lock:x").as_deref(), Some(second.token()));
    assert!(second.fencing_token() > former);
    silent.continue_process();
    sentinels.wait_until_settled();
    second.check().unwrap();
    assert!(self::client(&sentinels).lock("x").try_acquire().unwrap().is_none());
    second.release().unwrap();
}

/// Has ten threads acquire at once, so that the client has that many connections, which are idle from then on.
fn guards_of_ten_connections(client: &Client) -> Vec<Guard> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|nth| {
                let lock = client.timed_lock(format!("{nth}"), SECOND * 60);
                scope.spawn(move || lock.acquire().unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// How many of them cannot be extended.
fn not_extended(guards: &[Guard]) -> usize {
    guards.iter().filter(|guard| guard.extend(SECOND * 90).is_err()).count()
}

#[test]
fn a_master_that_falls_silent_is_left_by_all_connections_at_once() {
    let sentinels = Sentinels::start();
    let client = client(&sentinels);
    let guards = guards_of_ten_connections(&client);
    let silent = sentinels.master();
    silent.stop_process();
    sentinels.wait_for_new_master(silent);
    let failed = not_extended(&guards);
    assert!(failed <= 1, "{failed}");
    silent.continue_process();
}

#[test]
fn a_master_that_is_demoted_without_hanging_up_is_left_by_all_connections_at_once() {
    let former = Server::start();
    let new = former.start_replica();
    let config = format!("sentinel monitor main 127.0.0.1 {} 1\n", former.port());
    let sentinel = Server::start_with_config(&config, &["--sentinel"]);
    let url = format!("redis-sentinel://127.0.0.1:{}/#main", sentinel.port());
    let client = builder(url).build().unwrap();
    let guards = guards_of_ten_connections(&client);
    wait_until("the replica to have it all", SECOND * 30, || {
        guards
            .iter()
            .enumerate()
            .all(|(nth, guard)| new.get(&format!("lock:{nth}")).as_deref() == Some(guard.token()))
    });
    // An operator does it, not the Sentinels, who would hang up on everybody.
    sentinel.run("SENTINEL REMOVE main");
    new.run("REPLICAOF NO ONE");
    former.run(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    sentinel.run(&format!("SENTINEL MONITOR main 127.0.0.1 {} 1", new.port()));
    let failed = not_extended(&guards);
    assert!(failed <= 1, "{failed}");
}

#[test]
fn what_is_connected_goes_on_without_any_sentinel() {
    let sentinels = Sentinels::start();
    let client = client(&sentinels);
    let guard = client.lock("x").lease(SECOND * 2).acquire().unwrap();
    // By then it has been renewed, and so the connection for that stands.
    thread::sleep(SECOND * 3);
    for sentinel in sentinels.sentinels() {
        sentinel.kill();
    }
    thread::sleep(SECOND * 3);
    guard.check().unwrap();
    client.lock("y").acquire().unwrap().release().unwrap();
    guard.release().unwrap();
    // Who comes anew is told at once that there is none.
    let start = Instant::now();
    let error = self::client(&sentinels).lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(start.elapsed() < SECOND * 10);
}

#[test]
fn sentinels_that_are_away_are_passed_over() {
    let sentinels = Sentinels::start();
    sentinels.sentinels()[0].stop_process();
    sentinels.sentinels()[1].kill();
    let client = client(&sentinels);
    for _ in 0..2 {
        client.lock("x").acquire().unwrap().release().unwrap();
    }
    sentinels.sentinels()[0].continue_process();
}

#[test]
fn a_sentinel_that_has_missed_a_failover_does_not_keep_a_client_from_the_master() {
    let watching = |server: &Server| {
        let config = format!(
            "sentinel monitor main 127.0.0.1 {} 2\nsentinel down-after-milliseconds main 600000\n",
            server.port()
        );
        Server::start_with_config(&config, &["--sentinel"])
    };
    let master = Server::start();
    // Which of its former masters it speaks of: one that is dead, or one that follows the new one.
    let (dead, demoted) = (Server::start(), master.start_replica());
    let current = watching(&master);
    for former in [&dead, &demoted] {
        let stale = watching(former);
        if former.port() == dead.port() {
            former.kill();
        }
        let url = format!(
            "redis-sentinel://127.0.0.1:{},127.0.0.1:{}/#main",
            stale.port(),
            current.port()
        );
        let client = builder(url).build().unwrap();
        for name in ["x", "y"] {
            let lock = client.lock(name);
            lock.acquire_timeout(SECOND * 20).unwrap().release().unwrap();
        }
    }
}

#[test]
fn a_failover_that_has_not_happened_yet_is_waited_for_but_not_by_a_try() {
    // No Sentinel replaces the master: it would have to be away for minutes.
    let server = Server::start();
    let config = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 600000\n",
        server.port()
    );
    let sentinel = Server::start_with_config(&config, &["--sentinel"]);
    let client = builder(format!("redis-sentinel://127.0.0.1:{}/#main", sentinel.port()))
        .build()
        .unwrap();
    server.kill();
    let error = client.lock("x").try_acquire().unwrap_err();
    assert!(matches!(error, Error::Connection(_)), "{error:?}");
    assert!(chain(&error).contains("sentinels"), "{error:?}");
    let waiter = thread::spawn({
        let lock = client.lock("x");
        move || lock.acquire_timeout(SECOND * 30).map(drop)
    });
    thread::sleep(SECOND);
    assert!(!waiter.is_finished());
    server.restart();
    waiter.join().unwrap().unwrap();
}

#[test]
fn what_the_sentinels_cannot_say_is_told_at_once() {
    let sentinels = Sentinels::shared();
    let unknown = sentinels.url().replace("#main", "#other");
    let error = builder(unknown).build().unwrap().lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(chain(&error).contains("do not know a master `other`"), "{error:?}");

    let server = sentinels.master();
    let no_sentinel = format!("redis-sentinel://127.0.0.1:{}/#main", server.port());
    let error = builder(no_sentinel).build().unwrap().lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(chain(&error).contains("is none"), "{error:?}");
}

#[test]
fn sentinels_and_master_may_each_want_a_password() {
    let master = Server::start_with(&["--requirepass", "mastersecret"]);
    let config = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel auth-pass main mastersecret\n",
        master.port()
    );
    let sentinel = Server::start_with_config(&config, &["--sentinel"]);
    sentinel.run("ACL SETUSER default resetpass >sentinelsecret");
    let url = format!("redis-sentinel://:mastersecret@127.0.0.1:{}/#main", sentinel.port());
    let error = builder(&url).build().unwrap().lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    for user in ["", "default"] {
        let client = builder(&url).sentinel_login(user, "sentinelsecret").build().unwrap();
        client.lock("x").acquire().unwrap().release().unwrap();
    }
    let client = builder(&url).sentinel_login("", "wrong").build().unwrap();
    let error = client.lock("x").acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    let said = chain(&error);
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn urls_that_cannot_be_used_are_refused() {
    for url in [
        "redis-sentinel://h1,h2",
        "redis-sentinel://h1,h2/0#",
        "redis-sentinel:///0#main",
        "redis-sentinel://h1,,h2/#main",
        "redis-sentinel://h1/x#main",
        "redis-sentinel://h1/0?a=b#main",
        "redis-sentinel://user@h1/#main",
        "redis-sentinel://h1:port/#main",
        "redis-sentinel://h1/#a b",
    ] {
        let error = Client::open(url).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{url}: {error:?}");
    }
    for url in [
        "redis-sentinel://h1,h2#main",
        "redis-sentinel://u:p@h1:1,[::1]:2/15#my-master_1.x",
    ] {
        Client::open(url).unwrap();
    }
}
