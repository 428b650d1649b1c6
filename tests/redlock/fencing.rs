//! Fencing tokens rise over all grants, whichever servers make them.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    nodes::{MAX_LEASE, SOON, builder, client, fencing_key, voting},
    support::{Fault, Redlock, SECOND, is_acquire, is_raise, wait_until},
};

/// Grants the lock with the votes of these servers only, to a client of its own.
fn granted_by(redlock: &Redlock, servers: &[usize]) -> u64 {
    for nth in 0..5 {
        if servers.contains(&nth) {
            redlock.proxy(nth).go_up();
        } else {
            redlock.proxy(nth).go_down();
        }
    }
    let lock = builder(redlock.url()).build().unwrap().lock("x").lease(MAX_LEASE);
    let guard = lock.acquire_timeout(SOON).unwrap();
    let token = guard.fencing_token();
    guard.release().unwrap();
    token
}

fn micros_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[test]
fn tokens_rise_when_the_majority_changes() {
    let redlock = voting();
    let mut last = 0;
    for servers in [[0, 1, 2], [2, 3, 4], [0, 3, 4], [1, 2, 3], [0, 1, 4], [0, 2, 4]] {
        let token = granted_by(&redlock, &servers);
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn a_token_that_one_server_alone_would_draw_is_known_to_a_majority_before_the_grant_returns() {
    let redlock = voting();
    granted_by(&redlock, &[0, 1, 2]);
    // As if its clock were an hour ahead.
    let ahead = micros_now() + 3_600_000_000;
    redlock.node(4).run(&format!("SET {} {ahead}", fencing_key("x")));
    let token = granted_by(&redlock, &[2, 3, 4]);
    assert_eq!(token, ahead + 1);
    for nth in [2, 3] {
        assert_eq!(redlock.node(nth).get(&fencing_key("x")), Some(token.to_string()));
    }
    assert!(granted_by(&redlock, &[0, 1, 2]) > token);
    assert!(granted_by(&redlock, &[0, 1, 3]) > token);
}

#[test]
fn tokens_rise_when_servers_are_restarted_empty_one_after_the_other() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    let mut last = 0;
    for nth in 0..3 {
        let token = lock.acquire_timeout(SOON).unwrap().fencing_token();
        assert!(token > last, "{token} after {last}");
        last = token;
        redlock.node(nth).restart_empty();
    }
    assert!(lock.acquire_timeout(SOON).unwrap().fencing_token() > last);
}

#[test]
fn after_a_slow_answer_no_token_is_drawn_that_the_clocks_have_yet_to_reach() {
    let redlock = voting();
    let lock = builder(redlock.url())
        .node_timeout(SECOND * 3)
        .build()
        .unwrap()
        .lock("x")
        .lease(MAX_LEASE);
    lock.acquire().unwrap().release().unwrap();
    let slow = redlock.proxy(0).on(is_acquire).apply(Fault::DelayReply(SECOND * 2));
    lock.acquire().unwrap().release().unwrap();
    drop(slow);
    let token = lock.acquire().unwrap().fencing_token();
    let ahead = token.saturating_sub(micros_now());
    assert!(ahead < 100_000, "ahead of the clocks by {ahead} µs");
    // By then it is not drawn again when the counters are lost.
    wait_until("the clocks to reach it", SOON, || micros_now() > token);
    for node in redlock.nodes() {
        node.run("FLUSHALL");
    }
    let other = client(&redlock).lock("x").lease(MAX_LEASE).acquire().unwrap();
    assert!(other.fencing_token() > token, "{} after {token}", other.fencing_token());
}

#[test]
fn a_client_that_knows_the_servers_clocks_seldom_needs_to_raise_any() {
    let redlock = voting();
    let lock = client(&redlock).lock("x").lease(MAX_LEASE);
    for _ in 0..10 {
        lock.acquire().unwrap().release().unwrap();
    }
    let raised: Vec<_> = (0..5).map(|nth| redlock.proxy(nth).on(is_raise).watch()).collect();
    let raised = || raised.iter().map(|raised| raised.seen()).sum::<usize>();
    let mut last = 0;
    // On a busy machine a server may come to a request late; without the proposal they would never agree so often.
    let mut in_a_row = 0;
    wait_until("five grants in a row that none is raised for", SOON * 2, || {
        let before = raised();
        let guard = lock.acquire().unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        drop(guard);
        in_a_row = if raised() == before { in_a_row + 1 } else { 0 };
        in_a_row == 5
    });
    assert!(last < micros_now() + 1_000_000, "the tokens ran ahead of the clocks");
}
