//! Masters that die, and replicas that take over. Each test has a cluster of its own.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use redlatch::{Error, LostReason};

use crate::{
    FAILOVER, PROMPT, builder, client, lock_on,
    support::{Cluster, SECOND, wait_until},
};

#[test]
fn waits_ride_out_the_death_of_a_master_and_fencing_tokens_go_on_rising() {
    let cluster = Cluster::start();
    let (tokens, grants, stop) = (Mutex::new(Vec::new()), AtomicU64::new(0), AtomicBool::new(false));
    let keep_locking = |client: &redlatch::Client| {
        let lock = client.lock("{x}").lease(SECOND * 3);
        while !stop.load(Ordering::SeqCst) {
            let guard = lock.acquire_timeout(FAILOVER).unwrap();
            // Not while two may hold it, as they may after a failover that lost the lock.
            if guard.is_held() {
                tokens.lock().unwrap().push(guard.fencing_token());
                grants.fetch_add(1, Ordering::SeqCst);
            }
            // However it ends: the failover may have taken it.
            let _ = guard.release();
        }
    };
    let more = |count| {
        let before = grants.load(Ordering::SeqCst);
        wait_until(&format!("{count} more grants"), FAILOVER, || {
            grants.load(Ordering::SeqCst) > before + count
        });
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            let client = builder(&cluster).command_timeout(SECOND).build().unwrap();
            for _ in 0..3 {
                let (client, keep_locking) = (client.clone(), &keep_locking);
                scope.spawn(move || keep_locking(&client));
            }
        }
        more(100);
        cluster.failover("{x}");
        more(100);
        stop.store(true, Ordering::SeqCst);
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn a_holder_is_told_when_its_lock_did_not_survive_and_the_next_has_a_larger_fencing_token() {
    let cluster = Cluster::start();
    let (sender, losses) = mpsc::channel();
    let lock = client(&cluster).lock("{x}").lease(SECOND * 20);
    // The replica knows an old fencing counter.
    lock.acquire().unwrap().release().unwrap();
    let lock = lock.on_lost(move |lost| sender.send(lost.reason).unwrap());
    // What is granted from here on does not reach it.
    let master = cluster.master_of("{x}");
    let replica = cluster.replica_of(master);
    replica.stop_process();
    master.run("CLIENT KILL TYPE replica");
    let guard = lock.acquire().unwrap();
    master.kill();
    replica.continue_process();
    cluster.wait_for_new_master("{x}", master);
    let next = client(&cluster).lock("{x}").acquire_timeout(FAILOVER).unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    // It depends on whether it or the next asks first.
    let reason = losses.recv_timeout(SECOND * 30).unwrap();
    assert!(matches!(reason, LostReason::Taken | LostReason::Deleted), "{reason:?}");
    assert!(matches!(guard.check(), Err(Error::Lost(_))));
    next.release().unwrap();
}

/// Long enough for a busy machine to renew it.
const OTHERS_LEASE: Duration = SECOND.saturating_mul(8);

#[test]
fn what_a_replica_confirmed_survives_its_masters_death_and_the_others_notice_nothing() {
    let cluster = Cluster::start();
    let client = client(&cluster);
    let master = cluster.master_of("lock:{x}");
    let guard = client
        .lock("{x}")
        .lease(SECOND * 60)
        .replicas(1, SECOND * 20)
        .acquire()
        .unwrap();
    let others: Vec<_> = cluster
        .masters()
        .into_iter()
        .filter(|other| other.port() != master.port())
        .map(|other| {
            client
                .lock(lock_on(&cluster, other, "other"))
                .lease(OTHERS_LEASE)
                .acquire()
                .unwrap()
        })
        .collect();
    cluster.failover("{x}");
    thread::sleep(OTHERS_LEASE);
    for other in others {
        other.check().unwrap();
        other.release().unwrap();
    }
    wait_until("the new master to answer", PROMPT, || {
        client.lock("{x}").inspect().is_ok()
    });
    assert!(client.lock("{x}").try_acquire().unwrap().is_none());
    guard.check().unwrap();
    guard.release().unwrap();
}

#[test]
fn a_lease_by_the_new_master_is_kept_while_renewals_wait_for_the_old_one() {
    let cluster = Cluster::start();
    let (former, other) = (cluster.node(0), cluster.node(1));
    // It forgets the old master, which is not in the URL, as soon as it learns of the new one.
    let url = format!("redis-cluster://127.0.0.1:{}", other.port());
    let client = builder(&cluster).url(url).command_timeout(SECOND * 10).build().unwrap();
    let [long, short, third] = ["long", "short", "third"].map(|prefix| lock_on(&cluster, former, prefix));
    let elsewhere = lock_on(&cluster, other, "other");
    client.lock(&elsewhere).acquire().unwrap().release().unwrap();
    let replica = cluster.replica_of(former);
    // Its renewal goes out a third of the lease later, and gets half of what is left for its answer.
    let _long = client.lock(&long).lease(SECOND * 24).acquire().unwrap();
    former.stop_process();
    // One that is in vain for 10 s: the next one looks where the masters are by now.
    client.lock(&third).try_acquire().unwrap_err();
    wait_until("the replica to take over", FAILOVER, || {
        replica.info("replication", "role").as_deref() == Some("master")
    });
    client.lock(&elsewhere).acquire().unwrap().release().unwrap();
    let short = client.lock(&short).lease(SECOND).acquire().unwrap();
    assert!(!short.wait_lost(SECOND * 5));
    short.release().unwrap();
    former.continue_process();
}
