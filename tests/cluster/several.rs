//! Several locks as one, on several nodes.

use std::{thread, time::Instant};

use redlatch::Error;

use crate::{
    MINUTE, PROMPT, builder, client, lock_on,
    support::{Cluster, SECOND, wait_until},
};

/// A cluster that never fails over, and the names of locks on two of its masters, in the order in which they are taken.
fn cluster_with_names() -> (Cluster, [String; 2]) {
    let cluster = Cluster::start();
    for node in cluster.servers() {
        node.run("CONFIG SET cluster-node-timeout 600000");
    }
    let mut names = [0, 1].map(|nth| lock_on(&cluster, cluster.masters()[nth], "x"));
    names.sort_by_key(|name| cluster.slot_of(format!("lock:{name}")));
    (cluster, names)
}

/// A node takes its time; meanwhile somebody deletes what another one has granted.
#[test]
fn a_try_takes_again_what_it_has_lost_before_it_had_all() {
    let (cluster, [first, last]) = cluster_with_names();
    let client = builder(&cluster).command_timeout(MINUTE).build().unwrap();
    let lease = SECOND * 9;
    let locks = client.multi_lock([&first, &last]).lease(lease);
    locks.acquire().unwrap().release().unwrap();
    let [fast, slow] = [&first, &last].map(|name| cluster.master_of(format!("lock:{name}")));
    let key = format!("lock:{first}");
    slow.stop_process();
    thread::scope(|scope| {
        let trying = scope.spawn(|| locks.try_acquire());
        wait_until("the first to be granted", PROMPT, || fast.get(&key).is_some());
        fast.run(&format!("DEL {key}"));
        // By then a renewal has found it out.
        thread::sleep(lease / 2);
        slow.continue_process();
        let guard = trying.join().unwrap().unwrap().expect("nobody else wants them");
        guard.check().unwrap();
        assert_eq!(fast.get(&key).as_deref(), Some(guard.token()));
        guard.release().unwrap();
    });
}

#[test]
fn a_node_that_does_not_answer_keeps_nothing_at_the_others() {
    let (cluster, [first, last]) = cluster_with_names();
    let timeout = SECOND * 2;
    let (impatient, other) = (builder(&cluster).command_timeout(timeout).build(), client(&cluster));
    let locks = impatient.unwrap().multi_lock([&first, &last]);
    let in_time = |what: &str, timeouts: u32, call: &mut dyn FnMut() -> Result<(), Error>| {
        let start = Instant::now();
        let error = call().unwrap_err();
        assert!(
            start.elapsed() < timeout * timeouts + SECOND * 5,
            "{what}: {:?}",
            start.elapsed()
        );
        error
    };
    for (silent, answering) in [(&first, &last), (&last, &first)] {
        let guard = locks.acquire().unwrap();
        let node = cluster.master_of(format!("lock:{silent}"));
        node.stop_process();
        in_time("an extension", 1, &mut || guard.extend(MINUTE));
        guard.check().unwrap();
        let mut guard = Some(guard);
        let error = in_time("a release", 2, &mut || guard.take().unwrap().release());
        assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
        drop(other.lock(answering).try_acquire().unwrap().expect("given back"));
        in_time("a try", 1, &mut || locks.try_acquire().map(drop));
        let error = in_time("a wait", 3, &mut || locks.acquire_timeout(timeout).map(drop));
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        drop(other.lock(answering).acquire_timeout(PROMPT).unwrap());
        node.continue_process();
        drop(other.lock(silent).acquire_timeout(PROMPT).unwrap());
    }
}
