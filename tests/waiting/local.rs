//! The threads of one client, which hand a lease on among themselves.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use redlatch::LostReason;

use crate::{
    corner::Corner,
    record::{Grant, grants, turns_meanwhile, watch},
    support::{Proxy, SetOnDrop, lost, millis},
    terms::{MINUTE, NAME, PROMPT, Target, Terms},
    worker::hammer,
};

/// As many hand-overs in a row as a test could ask for.
const MANY: u32 = 1_000_000;

const THREADS: usize = 4;
const TURNS: usize = 200;

/// Has threads of one client take turns, with nobody else there; returns their grants.
fn take_turns(corner: &Corner, terms: &Terms) -> Vec<Grant> {
    let url = corner.server.url();
    hammer(
        &corner.client(),
        &url,
        terms,
        "thread",
        THREADS,
        TURNS,
        &AtomicBool::new(false),
    );
    let grants = grants(&corner.server, NAME);
    assert_eq!(grants.len(), THREADS * TURNS);
    corner.wait_until_all_is_gone();
    grants
}

fn leases(grants: &[Grant]) -> usize {
    grants.iter().map(|grant| &grant.token).collect::<HashSet<_>>().len()
}

pub fn fencing_tokens_rise_from_thread_to_thread(corner: &Corner) {
    // What is read from the record is checked to rise.
    take_turns(corner, &corner.terms());
}

pub fn a_hand_over_spares_the_server_the_round_trips(corner: &Corner) {
    let before = corner.server.command_calls("evalsha");
    let grants = take_turns(corner, &corner.terms().handoffs(MANY));
    let requests = corner.server.command_calls("evalsha") - before;
    assert!(leases(&grants) < grants.len() / 2, "{} leases", leases(&grants));
    assert!(
        (requests as usize) < grants.len(),
        "{requests} requests for {} grants",
        grants.len()
    );
}

pub fn without_hand_overs_each_grant_is_a_lease_of_its_own(corner: &Corner) {
    let grants = take_turns(corner, &corner.terms().handoffs(0));
    assert_eq!(leases(&grants), grants.len());
}

pub fn another_process_gets_its_turn_after_the_hand_overs_that_are_allowed(corner: &Corner) {
    const HANDOFFS: usize = 5;
    let (client, mut worker) = (corner.client(), corner.worker());
    let (terms, stopped) = (corner.terms().handoffs(HANDOFFS as u32), AtomicBool::new(false));
    let samples = watch(corner, || {
        thread::scope(|scope| {
            let _stopped = SetOnDrop(&stopped);
            let url = corner.server.url();
            let (client, terms, stopped) = (&client, &terms, &stopped);
            scope.spawn(move || hammer(client, &url, terms, "thread", THREADS, usize::MAX, stopped));
            worker.send(format_args!("hammer process 1 50 {terms}"));
            assert_eq!(worker.receive_within(PROMPT * 2), "hammered");
            stopped.store(true, Ordering::SeqCst);
        });
    });
    let grants = grants(&corner.server, NAME);
    assert!(leases(&grants) < grants.len(), "nothing was handed over");
    let passed = turns_meanwhile(&samples, &grants, "process", "thread");
    assert!(passed.len() > 10, "it was hardly seen waiting: {passed:?}");
    // A busy machine may make it miss what was kept for it, but not again and again.
    let in_time = passed.iter().filter(|turns| **turns <= HANDOFFS + 1).count();
    assert!(in_time * 2 > passed.len(), "{passed:?}");
    assert!(passed.iter().all(|turns| *turns <= 10 * (HANDOFFS + 1)), "{passed:?}");
    corner.wait_until_all_is_gone();
}

/// Whether a lease goes on from one thread to the next, who has begun to wait for it if `hold` is long enough.
fn is_handed_over(first: &Target, next: &Target, hold: Duration) -> bool {
    let guard = first.acquire_timeout(PROMPT).unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = next.acquire_timeout(PROMPT * 2).unwrap();
            let token = guard.token().to_owned();
            guard.release().unwrap();
            token
        });
        // What waits in this process only, nobody else can see.
        thread::sleep(hold);
        let token = guard.token().to_owned();
        guard.release().unwrap();
        token == next.join().unwrap()
    })
}

pub fn a_lease_is_handed_over_to_the_same_settings_only(corner: &Corner) {
    let client = corner.client();
    let lock = corner.terms().handoffs(MANY).lock(&client);
    let others = [
        lock.clone().lease(MINUTE * 2),
        lock.clone().max_hold(MINUTE),
        client.timed_lock(NAME, MINUTE).handoffs(MANY),
    ];
    let (lock, others) = (Target::Lock(lock), others.map(Target::Lock));
    let mut holds = (0..10).map(|power| millis(1 << power));
    let hold = holds.find(|hold| is_handed_over(&lock, &lock.clone(), *hold));
    let hold = hold.expect("a lease is handed over to whoever waits with the same settings");
    for other in &others {
        for _ in 0..5 {
            assert!(!is_handed_over(&lock, other, hold * 2), "{lock:?} to {other:?}");
            assert!(!is_handed_over(other, &lock, hold * 2), "{other:?} to {lock:?}");
        }
    }
    let timed = &others[2];
    assert!(!is_handed_over(timed, timed, hold * 2), "a lease that nobody renews");
    corner.wait_until_all_is_gone();
}

pub fn a_lost_lease_is_not_handed_on(corner: &Corner) {
    // A key that somebody deletes is seen to be gone by a look only.
    let client = corner.builder().poll_interval(millis(200)).build().unwrap();
    let target = corner.terms().handoffs(MANY).target(&client);
    for round in 0..20 {
        let guard = target.acquire_timeout(PROMPT).unwrap();
        let fencing_token = guard.fencing_token();
        thread::scope(|scope| {
            let next = scope.spawn(|| target.acquire_timeout(PROMPT * 2).unwrap());
            // What waits in this process only, nobody else can see. Some rounds are enough in which it does.
            thread::sleep(millis(round));
            corner.server.run(&format!("DEL {}", corner.key()));
            let token = guard.token().to_owned();
            let loss = lost(guard.extend(MINUTE).unwrap_err());
            assert!(matches!(loss, LostReason::Deleted | LostReason::Taken), "{loss:?}");
            guard.release().unwrap_err();
            let next = next.join().unwrap();
            assert_ne!(next.token(), token);
            assert!(next.fencing_token() > fencing_token);
            assert_eq!(corner.holder().as_deref(), Some(next.token()));
            next.release().unwrap();
        });
    }
    corner.wait_until_all_is_gone();
}

pub fn those_behind_notice_the_end_of_a_lease_that_is_never_released(corner: &Corner) {
    let client = corner.client();
    let first = client.timed_lock(NAME, millis(300)).fair(corner.fair);
    // All guards live on, each past the end of its lease, until everybody has had one.
    let holder = first.acquire().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| first.acquire_timeout(PROMPT)))
            .collect();
        let guards: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        for guard in guards {
            assert!(guard.is_ok(), "{guard:?}");
        }
    });
    assert!(!holder.is_held());
}

pub fn those_behind_notice_that_the_server_has_lost_the_lease(corner: &Corner) {
    let client = corner.client();
    let lock = client.lock(NAME).fair(corner.fair).lease(millis(900));
    let holder = lock.acquire().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let guard = lock.acquire_timeout(PROMPT)?;
                    corner.server.run(&format!("DEL lock:{NAME}"));
                    Ok::<_, redlatch::Error>(guard)
                })
            })
            .collect();
        corner.server.run(&format!("DEL lock:{NAME}"));
        for waiter in waiters {
            waiter
                .join()
                .unwrap()
                .map(drop)
                .unwrap_or_else(|error| assert!(matches!(error, redlatch::Error::Lost(_)), "{error:?}"));
        }
    });
    assert!(!holder.is_held());
}

pub fn an_outage_is_ridden_out_by_those_behind_too(corner: &Corner) {
    let proxy = Proxy::to(&corner.server);
    let client = corner
        .builder()
        .url(proxy.url())
        .poll_interval(millis(100))
        .build()
        .unwrap();
    let lock = client.lock(NAME).fair(corner.fair);
    let holder = lock.acquire().unwrap();
    let failed = thread::scope(|scope| {
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| lock.acquire_timeout(PROMPT).map(drop)))
            .collect();
        // Nobody can tell who stands in line within the client, so this waits for longer than it takes.
        assert!(!holder.wait_lost(millis(500)));
        proxy.go_down();
        assert!(!holder.wait_lost(millis(1_500)));
        proxy.go_up();
        holder.release().unwrap();
        let outcomes = waiters.into_iter().map(|waiter| waiter.join().unwrap());
        outcomes.filter_map(Result::err).collect::<Vec<_>>()
    });
    assert!(failed.is_empty(), "{failed:?}");
}
