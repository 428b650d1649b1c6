//! Acquiring and releasing, with all servers and with some of them away.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error};

use crate::{
    nodes::{BLOWS, Blow, MAX_LEASE, PATIENT, SOON, builder, client, standing, strike, voting, wait_until_gone},
    support::{Fault, Redlock, SECOND, SLACK, chain, is_acquire, is_release, is_renew, wait_until},
};

const ALL: [usize; 5] = [0, 1, 2, 3, 4];

#[test]
fn a_grant_stands_on_every_server_and_its_release_leaves_nothing() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    let guard = lock.acquire().unwrap();
    for node in redlock.nodes() {
        assert_eq!(node.get("lock:x").as_deref(), Some(guard.token()));
        assert!(node.ttl("lock:x").unwrap() <= MAX_LEASE);
    }
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(
        client(&redlock)
            .lock("x")
            .lease(MAX_LEASE)
            .try_acquire()
            .unwrap()
            .is_none()
    );
    guard.release().unwrap();
    assert_eq!(standing(&redlock, &ALL, "lock:x"), 0);
    lock.try_acquire().unwrap().expect("it is free").release().unwrap();
}

#[test]
fn other_redlock_clients_and_this_exclude_one_another() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    for node in &redlock.nodes()[..3] {
        node.run("SET lock:x theirs NX PX 60000");
    }
    assert!(lock.try_acquire().unwrap().is_none());
    for node in &redlock.nodes()[..2] {
        node.run("DEL lock:x");
    }
    // A minority stands in nobody's way, and is left alone.
    lock.try_acquire()
        .unwrap()
        .expect("a majority is free")
        .release()
        .unwrap();
    assert_eq!(redlock.node(2).get("lock:x").as_deref(), Some("theirs"));
}

#[test]
fn up_to_two_of_five_servers_may_be_away() {
    for blow in BLOWS {
        for away in [1, 2] {
            let redlock = voting();
            let alive: Vec<usize> = (away..5).collect();
            // One that has its connections already, and one that has none.
            let (old, new) = (client(&redlock), client(&redlock));
            old.lock("warm").lease(MAX_LEASE).acquire().unwrap().release().unwrap();
            strike(&redlock, 0..away, blow);
            for client in [old, new] {
                let lock = client.lock("x").lease(MAX_LEASE);
                for _ in 0..3 {
                    let guard = lock.acquire_timeout(SOON).unwrap();
                    assert!(standing(&redlock, &alive, "lock:x") >= 3, "{blow:?}");
                    guard.release().unwrap_or_else(|error| panic!("{blow:?}: {error:?}"));
                }
            }
            wait_until_gone(&redlock, &alive, "lock:x", SOON);
        }
    }
}

#[test]
fn three_of_five_servers_away_are_no_quorum_and_ridden_out_by_a_wait() {
    for blow in [Blow::Killed, Blow::BlackHoled] {
        let redlock = voting();
        let lock = client(&redlock).lock("x").lease(MAX_LEASE);
        lock.acquire().unwrap().release().unwrap();
        strike(&redlock, 0..3, blow);
        let refused = lock.try_acquire().unwrap_err();
        assert!(matches!(refused, Error::NoQuorum(_)), "{blow:?}: {refused:?}");
        let said = chain(&refused);
        let port = redlock.url().rsplit(':').next().unwrap().to_owned();
        assert!(said.contains("3 are needed") && said.contains(&port), "{said}");
        assert_eq!(
            standing(&redlock, &[3, 4], "lock:x"),
            0,
            "what two granted was given back"
        );

        let refused = lock.acquire_timeout(SECOND).unwrap_err();
        match refused {
            Error::Timeout { last: Some(last), .. } => assert!(matches!(*last, Error::NoQuorum(_)), "{last:?}"),
            other => panic!("{other:?}"),
        }
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.acquire_timeout(SOON).map(drop));
            for nth in 0..3 {
                match blow {
                    Blow::Killed => redlock.node(nth).restart(),
                    _ => redlock.proxy(nth).black_hole(false),
                }
            }
            waiter.join().unwrap().unwrap();
        });
    }
}

// FAULTS 24, node-redlock#262, redlock-rb#60.
#[test]
fn one_server_of_three_away_costs_at_most_one_node_timeout_and_not_each_time() {
    for refuses in [true, false] {
        let redlock = voting();
        let lock = builder(redlock.url_of(&[0, 1, 2]))
            .build()
            .unwrap()
            .lock("x")
            .lease(MAX_LEASE);
        if refuses {
            redlock.proxy(0).go_down();
        } else {
            redlock.proxy(0).black_hole(true);
        }
        let start = Instant::now();
        lock.try_acquire()
            .unwrap()
            .expect("two of three are a majority")
            .release()
            .unwrap();
        assert!(start.elapsed() < PATIENT + SLACK, "{:?}", start.elapsed());
        // Left out for a second at a time: of many pairs, a few cost that once more.
        let (start, mut pairs) = (Instant::now(), 0_u32);
        while start.elapsed() < SECOND * 5 {
            lock.try_acquire().unwrap().expect("it is free").release().unwrap();
            pairs += 1;
        }
        assert!(pairs > 20, "{pairs}");
    }
}

#[test]
fn a_silent_server_leaves_time_for_the_rest_of_the_grant_however_the_timeouts_are_set() {
    let redlock = voting();
    redlock.proxy(0).black_hole(true);
    let client = builder(redlock.url())
        .node_timeout(SECOND * 5)
        .command_timeout(SECOND * 2)
        .build()
        .unwrap();
    let guard = client.lock("x").lease(MAX_LEASE).try_acquire().unwrap();
    guard.expect("four of five are a majority").release().unwrap();
}

// FAULTS 25, node-redlock#369.
#[test]
fn a_failed_attempt_does_not_block_the_next() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    lock.acquire().unwrap().release().unwrap();
    for nth in 0..3 {
        redlock.proxy(nth).go_down();
    }
    for _ in 0..3 {
        assert!(matches!(lock.try_acquire(), Err(Error::NoQuorum(_))));
    }
    for nth in 0..3 {
        redlock.proxy(nth).go_up();
    }
    lock.try_acquire()
        .unwrap()
        .expect("nothing stands in the way")
        .release()
        .unwrap();
}

#[test]
fn a_grant_whose_replies_are_lost_is_taken_back() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    lock.acquire().unwrap().release().unwrap();
    let swallowed = [0, 1, 2].map(|nth| redlock.proxy(nth).on(is_acquire).apply(Fault::SwallowReply));
    assert!(matches!(lock.try_acquire(), Err(Error::NoQuorum(_))));
    drop(swallowed);
    // Long before the lease ends.
    let start = Instant::now();
    wait_until_gone(&redlock, &ALL, "lock:x", SOON);
    assert!(start.elapsed() < MAX_LEASE, "{:?}", start.elapsed());
}

#[test]
fn what_a_stalled_server_grants_late_is_taken_away() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    lock.acquire().unwrap().release().unwrap();
    let held = redlock.proxy(0).on(is_acquire).apply(Fault::HoldRequest);
    // The others grant it; it is released before the stalled one comes to it.
    lock.acquire().unwrap().release().unwrap();
    wait_until("the request to be held", SOON, || redlock.proxy(0).held() == 1);
    let start = Instant::now();
    redlock.proxy(0).release_held();
    wait_until_gone(&redlock, &ALL, "lock:x", SOON);
    assert!(start.elapsed() < MAX_LEASE * 2 / 3, "{:?}", start.elapsed());
    drop(held);
}

#[test]
fn what_a_stalled_server_grants_late_is_taken_away_also_after_a_repeated_release() {
    // So long that what is waited for in between is little.
    const LEASE: Duration = SECOND.saturating_mul(15);
    let redlock = Redlock::start_behind_proxies();
    redlock.wait_for_votes(LEASE);
    let client = builder(redlock.url()).max_lease(LEASE).build().unwrap();
    let lock = client.lock("x").lease(LEASE);
    lock.acquire().unwrap().release().unwrap();
    let held = redlock.proxy(0).on(is_acquire).apply(Fault::HoldRequest);
    let guard = lock.acquire().unwrap();
    wait_until("the request to be held", SOON, || redlock.proxy(0).held() == 1);
    let cut = [1, 2, 3].map(|nth| redlock.proxy(nth).on(is_release).apply(Fault::CutBefore));
    redlock.proxy(0).black_hole(true);
    guard.release().unwrap();
    drop(cut);
    let taken_away = redlock.proxy(0).on(is_release).watch();
    redlock.proxy(0).black_hole(false);
    // It is asked to take away what is not there yet, and has answered.
    taken_away.wait_seen(1, SOON);
    thread::sleep(SECOND / 5);
    let start = Instant::now();
    redlock.proxy(0).release_held();
    wait_until_gone(&redlock, &ALL, "lock:x", SOON);
    assert!(start.elapsed() < LEASE / 2, "{:?}", start.elapsed());
    drop(held);
}

#[test]
fn what_an_unconfirmed_extension_left_is_taken_away_however_long_it_would_last() {
    const LEASE: Duration = SECOND.saturating_mul(4);
    const LONGER: Duration = SECOND.saturating_mul(15);
    let redlock = Redlock::start_behind_proxies();
    redlock.wait_for_votes(LONGER);
    let client = builder(redlock.url())
        .max_lease(LONGER)
        .node_timeout(SECOND / 2)
        .build()
        .unwrap();
    let guard = client.timed_lock("x", LEASE).acquire().unwrap();
    let swallowed = [0, 1, 2].map(|nth| redlock.proxy(nth).on(is_renew).every().apply(Fault::SwallowReply));
    let refused = guard.extend(LONGER).unwrap_err();
    assert!(matches!(refused, Error::NoQuorum(_)), "{refused:?}");
    drop(swallowed);
    redlock.proxy(0).black_hole(true);
    guard.release().unwrap();
    // The lease would be over by now, but not what it was to be extended to.
    thread::sleep(LEASE);
    let start = Instant::now();
    redlock.proxy(0).black_hole(false);
    wait_until_gone(&redlock, &ALL, "lock:x", SOON);
    assert!(start.elapsed() < LONGER / 3, "{:?}", start.elapsed());
}

#[test]
fn a_release_that_a_server_does_not_answer_is_completed_when_it_does() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    let guard = lock.acquire().unwrap();
    let lost = redlock.proxy(0).on(is_release).apply(Fault::CutBefore);
    redlock.proxy(1).black_hole(true);
    guard.release().unwrap();
    redlock.proxy(1).black_hole(false);
    let start = Instant::now();
    wait_until_gone(&redlock, &ALL, "lock:x", SOON);
    assert!(start.elapsed() < MAX_LEASE, "{:?}", start.elapsed());
    drop(lost);
}

#[test]
fn a_release_that_no_majority_answers_is_unconfirmed_and_completed_later() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    let guard = lock.acquire().unwrap();
    for nth in 0..3 {
        redlock.proxy(nth).black_hole(true);
    }
    let unconfirmed = guard.release().unwrap_err();
    assert!(
        matches!(unconfirmed, Error::Unconfirmed(_) | Error::Lost(_)),
        "{unconfirmed:?}"
    );
    for nth in 0..3 {
        redlock.proxy(nth).black_hole(false);
    }
    wait_until_gone(&redlock, &ALL, "lock:x", SOON);
    lock.try_acquire().unwrap().expect("it is free").release().unwrap();
}

#[test]
fn a_repeated_release_finds_that_the_first_did_it() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    let guard = lock.acquire().unwrap();
    let cut = [0, 1, 2].map(|nth| redlock.proxy(nth).on(is_release).apply(Fault::CutAfter));
    guard.release().unwrap();
    drop(cut);
    assert_eq!(standing(&redlock, &ALL, "lock:x"), 0);
}

#[test]
fn a_crash_frees_the_lock_within_its_lease() {
    let redlock = voting();
    let lock = client(&redlock).timed_lock("x", SECOND);
    std::mem::forget(lock.acquire().unwrap());
    let start = Instant::now();
    drop(
        client(&redlock)
            .lock("x")
            .lease(MAX_LEASE)
            .acquire_timeout(SOON)
            .unwrap(),
    );
    // Its own lease, and not the longest that there may be.
    assert!(start.elapsed() < MAX_LEASE, "{:?}", start.elapsed());
}

// FAULTS 14, portalocker#101.
#[test]
fn those_who_ask_in_step_do_not_split_the_votes_for_ever() {
    const TURNS: u32 = 5;
    let redlock = voting();
    let clients: Vec<Client> = (0..8).map(|_| client(&redlock)).collect();
    let (start, inside) = (Barrier::new(clients.len()), AtomicU32::new(0));
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                let lock = client.lock("x").lease(MAX_LEASE);
                start.wait();
                for _ in 0..TURNS {
                    let guard = lock.acquire_timeout(SOON * 2).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::sleep(Duration::from_millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
}
