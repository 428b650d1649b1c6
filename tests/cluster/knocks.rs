//! Waiters that are woken whichever node they listen at. They look by themselves once a minute only.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Error, Guard};

use crate::{
    FAILOVER, MINUTE, PROMPT, client, lock_on, sleepy_client,
    support::{Cluster, SECOND, Server, wait_until},
};

/// Tells what was granted to a wait, and when.
type WaitingThread = thread::JoinHandle<Result<(Guard, Instant), Error>>;

/// How many clients listen at a node.
fn listeners_at(server: &Server) -> usize {
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .arg("TYPE")
        .arg("PUBSUB")
        .query(&mut server.connection())
        .unwrap();
    list.lines().count()
}

fn wait_for_waiters(lock: &redlatch::Lock, count: usize) {
    wait_until(&format!("{count} waiters"), PROMPT, || {
        lock.inspect().unwrap().waiters == count
    });
}

/// Eight clients of which each has one wait, in this order; they hold it for a moment and tell who they are, and how
/// long they waited since the one before had it.
fn wait_in_turn(cluster: &Cluster, name: &str, fair: bool) -> Vec<(usize, Duration)> {
    const WAITERS: usize = 8;
    let lock = client(cluster).lock(name).lease(MINUTE).fair(fair);
    let guard = lock.acquire().unwrap();
    let (sender, served) = mpsc::channel();
    for nth in 0..WAITERS {
        let (lock, sender) = (
            sleepy_client(cluster).lock(name).lease(MINUTE).fair(fair),
            sender.clone(),
        );
        thread::spawn(move || {
            let guard = lock.acquire_timeout(FAILOVER).unwrap();
            sender.send((nth, Instant::now())).unwrap();
            guard.release().unwrap();
        });
        wait_for_waiters(&lock_to_look(cluster, name), nth + 1);
    }
    let key = format!("lock:{name}");
    wait_until("all to listen", PROMPT, || {
        cluster.servers().map(listeners_at).sum::<usize>() >= WAITERS
    });
    // They choose a node each. All of them at the one that has the key would show nothing.
    let elsewhere = cluster
        .servers()
        .filter(|server| server.port() != cluster.master_of(&key).port());
    assert!(elsewhere.map(listeners_at).sum::<usize>() > 0);
    let mut last = Instant::now();
    guard.release().unwrap();
    (0..WAITERS)
        .map(|_| {
            let (nth, at) = served.recv_timeout(FAILOVER).unwrap();
            let waited = at.saturating_duration_since(last);
            last = at;
            (nth, waited)
        })
        .collect()
}

fn lock_to_look(cluster: &Cluster, name: &str) -> redlatch::Lock {
    client(cluster).lock(name)
}

#[test]
fn every_waiter_is_woken_whichever_node_it_listens_at() {
    let served = wait_in_turn(Cluster::shared(), "{woken}", false);
    for (_, waited) in &served {
        assert!(*waited < PROMPT, "{served:?}");
    }
}

#[test]
fn fair_waiters_are_served_in_their_order_whichever_node_they_listen_at() {
    let served = wait_in_turn(Cluster::shared(), "{woken in order}", true);
    for (nth, (who, waited)) in served.iter().enumerate() {
        assert_eq!(*who, nth, "{served:?}");
        assert!(*waited < PROMPT, "{served:?}");
    }
}

/// A cluster counts only those who listen at the node itself: nobody, here.
#[test]
fn a_lock_is_left_to_a_waiter_that_listens_at_another_node() {
    const ROUNDS: usize = 20;
    let cluster = Cluster::shared();
    let lock = client(cluster).lock("{left}").lease(MINUTE);
    let home = cluster.master_of("lock:{left}");
    let before = listeners_at(home);
    // Whoever listens at the node that has the lock shows nothing.
    let waiter = loop {
        let guard = lock.acquire().unwrap();
        let waiter = sleepy_client(cluster).lock("{left}").lease(MINUTE);
        let waiting = thread::spawn({
            let waiter = waiter.clone();
            move || waiter.acquire_timeout(FAILOVER).unwrap().release().unwrap()
        });
        wait_for_waiters(&lock, 1);
        guard.release().unwrap();
        waiting.join().unwrap();
        if listeners_at(home) <= before {
            break waiter;
        }
    };
    let mut left = 0;
    for _ in 0..ROUNDS {
        let guard = lock.acquire().unwrap();
        let waiting = thread::spawn({
            let waiter = waiter.clone();
            move || waiter.acquire_timeout(FAILOVER).unwrap().release().unwrap()
        });
        wait_for_waiters(&lock, 1);
        guard.release().unwrap();
        // Quicker than anybody who has to be woken first.
        match lock.try_acquire().unwrap() {
            None => left += 1,
            Some(guard) => guard.release().unwrap(),
        }
        waiting.join().unwrap();
    }
    // What is left to it is so for some milliseconds only: this thread may not have run for as long, now and then.
    assert!(left > ROUNDS / 2, "{left}");
}

#[test]
fn waiters_for_permits_are_woken_as_they_come_free() {
    let cluster = Cluster::shared();
    let semaphore = client(cluster).semaphore("{permits}", 3).lease(MINUTE);
    let guards: Vec<Guard> = (0..3).map(|_| semaphore.acquire().unwrap()).collect();
    let wants_two = sleepy_client(cluster)
        .semaphore("{permits}", 3)
        .lease(MINUTE)
        .permits(2);
    let waiting = thread::spawn(move || wants_two.acquire_timeout(FAILOVER).map(|guard| (guard, Instant::now())));
    wait_until("a waiter", PROMPT, || semaphore.inspect().unwrap().waiters == 1);
    let mut guards = guards.into_iter();
    guards.next().unwrap().release().unwrap();
    thread::sleep(SECOND);
    assert!(!waiting.is_finished());
    let released = Instant::now();
    guards.next().unwrap().release().unwrap();
    let (_guard, at) = waiting.join().unwrap().unwrap();
    assert!(at - released < PROMPT);
}

/// Has somebody wait for the lock `name` who listens at a node that `may_be_left`; tells which.
fn wait_at<'a>(
    cluster: &'a Cluster,
    name: &str,
    may_be_left: impl Fn(&Server) -> bool,
    client: impl Fn() -> redlatch::Client,
) -> (WaitingThread, &'a Server) {
    let post = || {
        cluster
            .servers()
            .filter(|server| server.runs())
            .find(|server| listeners_at(server) > 0)
    };
    loop {
        let waiter = client().lock(name).lease(MINUTE);
        let cancel = redlatch::CancelToken::new();
        let wait = redlatch::Wait::at_most(FAILOVER).cancelled_by(&cancel);
        let waiting = thread::spawn(move || waiter.acquire_with(wait).map(|guard| (guard, Instant::now())));
        wait_for_waiters(&lock_to_look(cluster, name), 1);
        wait_until("it to listen", PROMPT, || post().is_some());
        let at = post().unwrap();
        if may_be_left(at) {
            return (waiting, at);
        }
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
        wait_until("it to be gone", PROMPT, || post().is_none());
    }
}

/// Waits until somebody listens at another node than `former`, and has a release wake the waiter.
fn release_to_whoever_listens_elsewhere(cluster: &Cluster, former: &Server, guard: Guard, waiting: WaitingThread) {
    wait_until("it to listen elsewhere", PROMPT * 3, || {
        cluster
            .servers()
            .filter(|server| server.runs() && server.port() != former.port())
            .any(|server| listeners_at(server) > 0)
    });
    let released = Instant::now();
    guard.release().unwrap();
    let (next, at) = waiting.join().unwrap().unwrap();
    assert!(at - released < PROMPT);
    next.release().unwrap();
}

#[test]
fn a_waiter_whose_node_dies_listens_at_another_one() {
    let cluster = Cluster::start();
    // No failover: what is about the dead node would hide what is about listening.
    for node in cluster.servers() {
        node.run("CONFIG SET cluster-node-timeout 600000");
        node.run("CONFIG SET cluster-require-full-coverage no");
    }
    // It may listen anywhere but at the node that has the lock, or its death would be more than that of a listening
    // post.
    let (home, name) = (cluster.node(0), lock_on(&cluster, cluster.node(0), "x"));
    let guard = client(&cluster).lock(&name).lease(MINUTE).acquire().unwrap();
    let (waiting, post) = wait_at(
        &cluster,
        &name,
        |post| post.port() != home.port(),
        || sleepy_client(&cluster),
    );
    post.kill();
    release_to_whoever_listens_elsewhere(&cluster, post, guard, waiting);
}

#[test]
fn a_waiter_whose_node_leaves_the_cluster_listens_at_another_one() {
    let cluster = Cluster::start();
    let name = lock_on(&cluster, cluster.node(0), "x");
    let guard = client(&cluster).lock(&name).lease(MINUTE).acquire().unwrap();
    let is_replica = |post: &Server| cluster.masters().iter().all(|master| master.port() != post.port());
    let (waiting, post) = wait_at(&cluster, &name, is_replica, || sleepy_client(&cluster));
    // As `redis-cli --cluster del-node` does. It goes on as a server of its own, and hangs up on nobody.
    cluster.remove(post);
    release_to_whoever_listens_elsewhere(&cluster, post, guard, waiting);
}

#[test]
fn a_waiter_at_a_node_of_the_url_that_leaves_the_cluster_listens_at_another_one() {
    let cluster = Cluster::start();
    let name = lock_on(&cluster, cluster.node(0), "x");
    let guard = client(&cluster).lock(&name).lease(MINUTE).acquire().unwrap();
    let seed = cluster.node(3);
    let (waiting, post) = wait_at(
        &cluster,
        &name,
        |post| post.port() == seed.port(),
        || {
            let url = format!("redis-cluster://127.0.0.1:{}", seed.port());
            redlatch::Client::builder()
                .url(url)
                .poll_interval(MINUTE)
                .build()
                .unwrap()
        },
    );
    cluster.remove(post);
    release_to_whoever_listens_elsewhere(&cluster, post, guard, waiting);
}
