//! Slots that move to another master while what is in them is in use. Each test has a slot of its own.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, Guard, Inspection};

use crate::{
    FAILOVER, MINUTE, PROMPT, builder, client, sleepy_client,
    support::{Cluster, Migration, SECOND, chain, lost, millis, wait_until},
};

/// A lease that a test sees renewed several times, and that a busy machine has time to renew.
const LEASE: Duration = SECOND.saturating_mul(8);

/// A client whose requests have time for a slot to move.
fn patient_client(cluster: &Cluster) -> Client {
    builder(cluster)
        .command_timeout(MINUTE)
        .poll_interval(MINUTE)
        .build()
        .unwrap()
}

fn wait_for_waiters(inspect: impl Fn() -> Result<Inspection, Error>, count: usize) {
    wait_until(&format!("{count} waiters"), PROMPT, || {
        inspect().unwrap().waiters == count
    });
}

/// Has somebody wait, and tells when it has been granted.
fn waiter(acquire: impl FnOnce() -> Result<Guard, Error> + Send + 'static) -> mpsc::Receiver<(Guard, Instant)> {
    let (sender, granted) = mpsc::channel();
    thread::spawn(move || {
        let guard = acquire().unwrap();
        sender.send((guard, Instant::now())).unwrap();
    });
    granted
}

#[test]
fn a_lock_that_is_held_and_waited_for_moves_with_its_slot() {
    let cluster = Cluster::shared();
    let key = "lock:{moves at once}";
    let lock = client(cluster).lock("{moves at once}").lease(LEASE);
    let guard = lock.acquire().unwrap();
    let waiting = sleepy_client(cluster).lock("{moves at once}").lease(MINUTE);
    let granted = waiter({
        let waiting = waiting.clone();
        move || waiting.acquire_timeout(FAILOVER)
    });
    wait_for_waiters(|| lock.inspect(), 1);
    for _ in 0..3 {
        cluster.migrate(key, cluster.another_master_than_of(key));
        // Long enough that it is renewed where it is now.
        thread::sleep(LEASE / 2);
        guard.check().unwrap();
        assert_eq!(cluster.master_of(key).get(key).as_deref(), Some(guard.token()));
    }
    let (token, released) = (guard.fencing_token(), Instant::now());
    guard.release().unwrap();
    let (next, at) = granted.recv_timeout(FAILOVER).unwrap();
    assert!(at - released < PROMPT);
    assert!(next.fencing_token() > token);
    next.release().unwrap();
}

/// Valkey 9 moves slots by itself, all that is in them at once.
#[test]
fn a_lock_moves_with_a_slot_that_the_servers_move_by_themselves() {
    let cluster = Cluster::start();
    let key = "lock:{moved by itself}";
    let lock = client(&cluster).lock("{moved by itself}").lease(LEASE);
    let guard = lock.acquire().unwrap();
    let waiting = sleepy_client(&cluster).lock("{moved by itself}").lease(MINUTE);
    let granted = waiter(move || waiting.acquire_timeout(FAILOVER));
    wait_for_waiters(|| lock.inspect(), 1);
    let (from, to) = (cluster.master_of(key), cluster.another_master_than_of(key));
    let id: String = redis::cmd("CLUSTER").arg("MYID").query(&mut to.connection()).unwrap();
    let slot = cluster.slot_of(key);
    let mut order = redis::cmd("CLUSTER");
    order
        .arg(&["MIGRATESLOTS", "SLOTSRANGE"])
        .arg(slot)
        .arg(slot)
        .arg("NODE")
        .arg(id);
    if order.exec(&mut from.connection()).is_ok() {
        wait_until("the slot to have moved", FAILOVER, || {
            cluster.master_of(key).port() == to.port()
        });
        thread::sleep(LEASE * 3 / 2);
    } else {
        eprintln!("the servers do not move slots by themselves");
    }
    guard.check().unwrap();
    let released = Instant::now();
    guard.release().unwrap();
    let (next, at) = granted.recv_timeout(FAILOVER).unwrap();
    assert!(at - released < PROMPT);
    next.release().unwrap();
}

/// How far a slot is on its way, of whose keys each begins with this hash tag and of which the main key is given.
const STAGES: [fn(&Migration, &str, &str); 4] = [
    |_, _, _| {},
    |migration, _, main| migration.move_key(main),
    |migration, tag, main| {
        for kind in ["fencing", "queue", "waiters", "released", "limit"] {
            migration.move_key(format!("{tag}:redlatch:{kind}:{main}"));
        }
    },
    |migration, _, _| migration.move_keys(),
];

#[test]
fn a_slot_may_stop_on_its_way_and_what_is_held_there_is_kept() {
    let cluster = Cluster::shared();
    thread::scope(|scope| {
        for (nth, stage) in STAGES.iter().enumerate() {
            scope.spawn(move || stop_on_the_way(cluster, &format!("{{on its way {nth}}}"), *stage));
        }
    });
}

fn stop_on_the_way(cluster: &Cluster, name: &str, stage: fn(&Migration, &str, &str)) {
    let (lock_key, semaphore_key) = (format!("lock:{name}"), format!("semaphore:{name}"));
    let client = client(cluster);
    let lock = client.lock(name).lease(LEASE);
    let semaphore = client.semaphore(name, 3).lease(LEASE);
    let guards = [lock.acquire().unwrap(), semaphore.acquire().unwrap()];
    let patient = patient_client(cluster);
    let (waiting, waiting_for_permits) = (
        patient.lock(name).lease(MINUTE),
        patient.semaphore(name, 3).lease(MINUTE).permits(3),
    );
    let granted = [
        waiter(move || waiting.acquire_timeout(FAILOVER)),
        waiter(move || waiting_for_permits.acquire_timeout(FAILOVER)),
    ];
    wait_for_waiters(|| lock.inspect(), 1);
    wait_for_waiters(|| semaphore.inspect(), 1);

    let migration = cluster.begin_migration(&lock_key, cluster.another_master_than_of(&lock_key));
    stage(&migration, name, &lock_key);
    stage(&migration, name, &semaphore_key);
    thread::sleep(LEASE * 2);
    for guard in &guards {
        guard.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        guard.extend(LEASE * 2).unwrap();
    }
    migration.move_keys();
    migration.finish();
    let released = Instant::now();
    for (guard, granted) in guards.into_iter().zip(granted) {
        let token = guard.fencing_token();
        guard.release().unwrap();
        let (next, at) = granted.recv_timeout(FAILOVER).unwrap();
        assert!(at - released < PROMPT, "{name}: after {:?}", at - released);
        assert!(next.fencing_token() > token);
        next.release().unwrap();
    }
}

#[test]
fn what_is_asked_for_on_the_way_is_done_when_the_slot_has_moved() {
    let cluster = Cluster::shared();
    for stage in 0..3 {
        let name = format!("{{asked on the way {stage}}}");
        let key = format!("lock:{name}");
        let lock = patient_client(cluster).lock(&name).lease(MINUTE);
        let guard = lock.acquire().unwrap();
        let migration = cluster.begin_migration(&key, cluster.another_master_than_of(&key));
        match stage {
            0 => {}
            1 => migration.move_key(&key),
            _ => migration.move_keys(),
        }
        let token = guard.fencing_token();
        let releasing = thread::spawn(move || guard.release());
        let other = patient_client(cluster).lock(&name).lease(MINUTE);
        let acquiring = thread::spawn(move || other.acquire_timeout(FAILOVER));
        thread::sleep(SECOND);
        assert!(!releasing.is_finished() && !acquiring.is_finished());
        migration.move_keys();
        migration.finish();
        releasing.join().unwrap().unwrap();
        let next = acquiring.join().unwrap().unwrap();
        assert!(next.fencing_token() > token);
        next.release().unwrap();
        assert!(cluster.keys(&key).is_empty());
    }
}

#[test]
fn a_release_is_not_stopped_halfway_though_all_its_keys_are_still_there() {
    let cluster = Cluster::shared();
    let key = "lock:{all there}";
    let lock = patient_client(cluster).lock("{all there}").lease(MINUTE);
    // It leaves a mark, so that the next release finds all keys that it names.
    lock.acquire().unwrap().release().unwrap();
    let guard = lock.acquire().unwrap();
    let waiting = patient_client(cluster).lock("{all there}").lease(MINUTE);
    let granted = waiter(move || waiting.acquire_timeout(FAILOVER));
    wait_for_waiters(|| lock.inspect(), 1);
    let migration = cluster.begin_migration(key, cluster.another_master_than_of(key));
    let releasing = thread::spawn(move || guard.release());
    thread::sleep(SECOND);
    migration.move_keys();
    migration.finish();
    let finished = Instant::now();
    releasing.join().unwrap().unwrap();
    let (next, at) = granted.recv_timeout(FAILOVER).unwrap();
    assert!(at.saturating_duration_since(finished) < PROMPT);
    next.release().unwrap();
}

#[test]
fn a_slot_that_does_not_arrive_ends_no_wait_and_every_call_ends_in_its_time() {
    let cluster = Cluster::shared();
    let key = "lock:{does not arrive}";
    let client = builder(cluster).command_timeout(SECOND * 3).build().unwrap();
    let lock = client.lock("{does not arrive}").lease(MINUTE);
    let guard = lock.acquire().unwrap();
    let migration = cluster.begin_migration(key, cluster.another_master_than_of(key));
    migration.move_key(key);

    let start = Instant::now();
    let error = lock.try_acquire().unwrap_err();
    assert!(matches!(error, Error::Server(_)), "{error:?}");
    assert!(chain(&error).contains("TRYAGAIN"), "{error:?}");
    assert!(start.elapsed() < PROMPT);
    let other = client.lock("{does not arrive}").lease(MINUTE);
    let granted = waiter(move || other.acquire_timeout(FAILOVER));
    // The holder cannot say that it has gone. It is said for it when the slot has moved, long before its lease ends.
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert!(granted.recv_timeout(SECOND).is_err());
    migration.move_keys();
    migration.finish();
    let (next, _) = granted.recv_timeout(PROMPT).unwrap();
    next.check().unwrap();
    next.release().unwrap();
}

#[test]
fn a_client_learns_where_a_slot_has_gone_and_goes_there_itself_from_then_on() {
    let cluster = Cluster::start();
    let key = "lock:{gone}";
    let client = client(&cluster);
    let lock = client.lock("{gone}");
    lock.acquire().unwrap().release().unwrap();
    let (from, to) = (cluster.master_of(key), cluster.another_master_than_of(key));
    cluster.migrate(key, to);
    lock.acquire().unwrap().release().unwrap();
    from.run("CONFIG RESETSTAT");
    for _ in 0..10 {
        lock.acquire().unwrap().release().unwrap();
    }
    let calls = from.command_calls("evalsha") + from.command_calls("eval");
    assert_eq!(calls, 0);
}

#[test]
fn a_node_that_does_not_know_the_script_is_told_it_on_the_way_too() {
    let cluster = Cluster::start();
    let key = "lock:{unknown script}";
    let lock = client(&cluster).lock("{unknown script}").lease(MINUTE);
    let guard = lock.acquire().unwrap();
    let to = cluster.another_master_than_of(key);
    let migration = cluster.begin_migration(key, to);
    migration.move_keys();
    to.run("SCRIPT FLUSH");
    guard.extend(MINUTE * 2).unwrap();
    assert!(to.command_calls("eval") > 0);
    migration.finish();
    to.run("SCRIPT FLUSH");
    guard.release().unwrap();
}

#[test]
fn a_lock_that_is_deleted_while_its_slot_moves_is_lost() {
    let cluster = Cluster::shared();
    let key = "lock:{deleted on the way}";
    let guard = client(cluster)
        .lock("{deleted on the way}")
        .lease(LEASE)
        .acquire()
        .unwrap();
    let migration = cluster.begin_migration(key, cluster.another_master_than_of(key));
    cluster.delete(key);
    assert!(guard.wait_lost(MINUTE));
    assert_eq!(lost(guard.check().unwrap_err()), redlatch::LostReason::Deleted);
    drop(guard);
    migration.move_keys();
    migration.finish();
}

#[test]
fn slots_that_move_all_the_time_cost_nobody_a_turn() {
    let cluster = Cluster::start();
    let key = "lock:{restless}";
    let end = Instant::now() + SECOND * 5;
    let turns = thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let lock = client(&cluster).lock("{restless}").lease(SECOND * 10);
                scope.spawn(move || {
                    let mut tokens = Vec::new();
                    while Instant::now() < end {
                        let guard = lock.acquire_timeout(FAILOVER).unwrap();
                        tokens.push(guard.fencing_token());
                        thread::sleep(millis(1));
                        guard.release().unwrap();
                    }
                    tokens
                })
            })
            .collect();
        while Instant::now() < end {
            cluster.migrate(key, cluster.another_master_than_of(key));
        }
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut sorted = turns.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), turns.len());
}
