//! The keys of a semaphore: that they are there only as long as they are needed, and leave alone what is not theirs.

use std::{
    mem,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, LostReason, Semaphore, Wait};

use crate::{
    corner::{Corner, KEY, SOON, client_at, helper},
    support::{SECOND, SetOnDrop, lost, millis, wait_until},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// What is wrong with the keys at this instant: one script sees one.
const COMPLAINTS: &str = "
    local complaints = {}
    local function ms_left(score)
      local time = redis.call('TIME')
      return score - time[1] * 1000 - time[2] / 1000
    end
    for _, key in ipairs(redis.call('KEYS', '*')) do
      local ttl = redis.call('PTTL', key)
      if ttl < 0 then
        table.insert(complaints, key .. ' stays for ever')
      end
      local last = string.find(key, '^semaphore:') and redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
      if last and ms_left(last) > ttl then
        table.insert(complaints, key .. ' goes before its last permit')
      end
      if last and ms_left(last) > redis.call('PTTL', '{' .. key .. '}:redlatch:limit:' .. key) then
        table.insert(complaints, key .. ' outlasts its limit')
      end
    end
    return complaints";

/// One of many uses of a semaphore, by one of several workers.
fn use_somehow(client: &Client, worker: u32, round: u32) {
    let semaphore = client.semaphore(format!("name-{}", round % 2), 3).lease(SECOND);
    let semaphore = semaphore.permits(1 + round % 3).fair(round.is_multiple_of(5));
    let wait = Wait::at_most(SOON);
    match (round + worker) % 7 {
        // A crash, as far as the server can see.
        0 => mem::forget(semaphore.max_hold(millis(200)).acquire_with(wait).unwrap()),
        1 => {
            let guard = semaphore.acquire_with(wait).unwrap();
            // Long enough for a renewal.
            guard.wait_lost(millis(400));
            guard.extend(SECOND * 3).unwrap();
        }
        2 => semaphore.set_limit(3 + round % 2).unwrap(),
        3 => drop(semaphore.acquire_timeout(millis(5))),
        _ => semaphore.with_permit_wait(wait, || thread::sleep(millis(1))).unwrap(),
    }
}

#[test]
fn everything_has_a_ttl_at_every_instant_that_ends_after_what_it_is_for() {
    let corner = Corner::new();
    let (clients, done) = (
        [(); 2].map(|()| client_at(&corner.server.url())),
        AtomicBool::new(false),
    );
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for worker in 0..4 {
            let (client, done) = (&clients[worker as usize % 2], &done);
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                let rounds = (0_u32..).take_while(|_| !done.load(Ordering::SeqCst));
                rounds.for_each(|round| use_somehow(client, worker, round));
            });
        }
        let (complaints, mut connection) = (redis::Script::new(COMPLAINTS), corner.server.connection());
        let (start, mut claims) = (Instant::now(), 0);
        while start.elapsed() < SECOND * 3 {
            let complaints: Vec<String> = complaints.invoke(&mut connection).unwrap();
            assert!(complaints.is_empty(), "{complaints:?}");
            claims += usize::from(corner.server.command_calls("publish") > 0);
        }
        assert!(claims > 0, "nothing was left to a waiter");
    });
}

#[test]
fn no_renewal_or_extension_makes_or_leaves_a_key_persistent() {
    let corner = Corner::new();
    let guard = corner.semaphore(3).lease(SECOND * 2).permits(2).acquire().unwrap();
    let persist = || [KEY, &helper("limit")].map(|key| corner.server.run(&format!("PERSIST {key}")));
    persist();
    wait_until("a renewal to give the keys their TTLs back", SOON, || {
        corner.server.ttl(KEY).is_some() && corner.server.ttl(&helper("limit")).is_some()
    });
    persist();
    guard.extend(SECOND * 10).unwrap();
    assert!(corner.ttl() > SECOND * 5 && corner.server.ttl(&helper("limit")).is_some());
    guard.release().unwrap();
    assert_eq!(corner.members(), [""; 0]);
}

#[test]
fn a_key_is_given_a_ttl_back_that_no_permit_outlasts() {
    let corner = Corner::new();
    let long = corner.semaphore(2).timed(SECOND * 60).acquire().unwrap();
    let short = corner.semaphore(2).timed(millis(300));
    for attempt in ["a grant", "an extension"] {
        corner.server.run(&format!("PERSIST {KEY}"));
        let guard = short.acquire_timeout(SOON).unwrap();
        if attempt == "an extension" {
            corner.server.run(&format!("PERSIST {KEY}"));
            guard.extend(millis(400)).unwrap();
        }
        assert!(corner.ttl() > SECOND * 50, "{attempt}: {:?}", corner.ttl());
        assert!(guard.wait_lost(SOON));
    }
    long.release().unwrap();
    corner.assert_all_are_free(2);
}

#[test]
fn a_short_lease_never_ends_a_long_one() {
    let corner = Corner::new();
    let [short, long] = [millis(300), SECOND * 60].map(|lease| corner.semaphore(3).timed(lease));
    for short_first in [true, false] {
        let first = short_first.then(|| short.acquire().unwrap());
        let kept = long.acquire().unwrap();
        let last = short.acquire().unwrap();
        for guard in first.iter().chain([&last]) {
            assert!(guard.wait_lost(SOON));
        }
        wait_until("the short ones to be over", SOON, || short.available().unwrap() == 2);
        assert!(corner.ttl() > SECOND * 50);
        kept.extend(SECOND * 90).unwrap();
        kept.release().unwrap();
        corner.assert_all_are_free(3);
    }
}

#[test]
fn a_limit_is_kept_for_two_days_after_the_last_lease_however_long_that_is() {
    let corner = Corner::new();
    let ttl = || corner.server.ttl(&helper("limit")).expect("a limit with a TTL");
    let kept = |lease: Duration| HOUR * 48 + lease - SOON..=HOUR * 48 + lease;
    let semaphore = corner.semaphore(3);
    let guard = semaphore.clone().lease(HOUR).acquire().unwrap();
    assert!(kept(HOUR).contains(&ttl()), "{:?}", ttl());
    guard.extend(HOUR * 9).unwrap();
    // Nothing that others do makes it any shorter.
    semaphore.acquire().unwrap().release().unwrap();
    semaphore.set_limit(4).unwrap();
    semaphore.acquire().unwrap().extend(HOUR).unwrap();
    guard.release().unwrap();
    assert!(kept(HOUR * 9).contains(&ttl()), "{:?}", ttl());
    assert_eq!(corner.server.get(&helper("limit")).as_deref(), Some("3 4"));
}

#[test]
fn names_that_were_used_once_leave_a_counter_a_limit_and_a_mark_and_they_expire() {
    const NAMES: usize = 2_000;
    let corner = Corner::new();
    let client = client_at(&corner.server.url());
    for name in 0..NAMES {
        let semaphore = client.semaphore(name.to_string(), 2).permits(2);
        semaphore.acquire().unwrap().release().unwrap();
    }
    let (keys, mut connection) = (corner.keys(), corner.server.connection());
    let mut ttls_of = |kind: &str| -> Vec<i64> {
        let mut ttls = redis::pipe();
        let kept = keys.iter().filter(|key| key.contains(&format!("}}:redlatch:{kind}:")));
        kept.for_each(|key| _ = ttls.cmd("PTTL").arg(key));
        ttls.query(&mut connection).unwrap()
    };
    let (counters, limits, marks) = (ttls_of("fencing"), ttls_of("limit"), ttls_of("released"));
    let hours = |hours: i64| hours * 3_600_000;
    for ttls in [&counters, &limits] {
        assert_eq!(ttls.len(), NAMES);
        assert!(ttls.iter().all(|ttl| (hours(47)..=hours(48) + 30_000).contains(ttl)));
    }
    // Some may have gone meanwhile.
    assert!(marks.iter().all(|ttl| (-2..=1_500).contains(ttl) && *ttl != -1));
    assert_eq!(keys.len(), counters.len() + limits.len() + marks.len(), "{keys:?}");
}

#[test]
fn there_are_no_more_than_a_thousand_marks() {
    let corner = Corner::new();
    let semaphore = client_at(&corner.server.url()).semaphore("x", 3);
    (0..1_100).for_each(|_| semaphore.with_permit(|| ()).unwrap());
    let marks = corner.server.run(&format!("ZCARD {}", helper("released")));
    assert_eq!(marks, redis::Value::Int(1_000));
}

/// Something to be done with a semaphore.
type Attempt = fn(&Semaphore) -> Result<(), Error>;

/// Asserts that nothing of redlatch works, because of what stands at `key`, and that it is left as it is.
#[track_caller]
fn assert_conflict(corner: &Corner, key: &str, attempts: &[Attempt]) {
    let (before, keys) = (corner.dump(key), corner.keys());
    for (nth, attempt) in attempts.iter().enumerate() {
        match attempt(&corner.semaphore(3)) {
            Err(Error::KeyConflict { key: named, .. }) if named == key.as_bytes() => {}
            other => panic!("attempt {nth} with {key}: {other:?}"),
        }
    }
    assert_eq!(corner.dump(key), before);
    assert_eq!(corner.server.ttl(key), None, "{key}");
    assert_eq!(corner.keys(), keys);
}

const ACQUIRES: [Attempt; 3] = [
    |semaphore| semaphore.try_acquire().map(drop),
    |semaphore| semaphore.acquire().map(drop),
    |semaphore| {
        semaphore
            .clone()
            .fair(true)
            .permits(2)
            .acquire_timeout(SECOND)
            .map(drop)
    },
];

#[test]
fn a_key_that_is_no_semaphore_is_a_conflict_and_stays_untouched() {
    for meddle in ["SET semaphore:x words", "HSET semaphore:x field value"] {
        let corner = Corner::new();
        corner.server.run(meddle);
        assert_conflict(&corner, KEY, &ACQUIRES);
        let others: [Attempt; 5] = [
            |semaphore| semaphore.set_limit(2),
            |semaphore| semaphore.inspect().map(drop),
            |semaphore| semaphore.available().map(drop),
            |semaphore| semaphore.holders().map(drop),
            |semaphore| semaphore.force_release().map(drop),
        ];
        assert_conflict(&corner, KEY, &others);
    }
}

#[test]
fn a_limit_that_is_none_is_a_conflict_before_anything_is_written() {
    let limit = helper("limit");
    for meddle in [
        "HSET LIMIT field value",
        "SET LIMIT words",
        "SET LIMIT 3",
        "SET LIMIT -3/3",
        "SET LIMIT 3/-3",
        "SET LIMIT 3.5/3",
        "SET LIMIT 3/3/3",
    ] {
        let corner = Corner::new();
        let mut words = meddle
            .split(' ')
            .map(|word| word.replace('/', " ").replace("LIMIT", &limit));
        let mut command = redis::cmd(&words.next().unwrap());
        command
            .arg(words.collect::<Vec<_>>())
            .exec(&mut corner.server.connection())
            .unwrap();
        assert_conflict(&corner, &limit, &ACQUIRES);
        assert_conflict(&corner, &limit, &[|semaphore| semaphore.set_limit(5)]);
    }
}

#[test]
fn a_fencing_counter_that_is_none_is_a_conflict_before_anything_is_written() {
    let counter = helper("fencing");
    for meddle in ["HSET COUNTER field value", "SET COUNTER words", "SET COUNTER 1e300"] {
        let corner = Corner::new();
        corner.server.run(&meddle.replace("COUNTER", &counter));
        assert_conflict(&corner, &counter, &ACQUIRES);
    }
}

#[test]
fn a_limit_that_becomes_something_else_does_no_harm_to_those_who_hold_permits() {
    let limit = helper("limit");
    let go_on_with = |meddle: &str| {
        let corner = Corner::new();
        let guard = corner.semaphore(3).lease(SECOND * 3 / 2).acquire().unwrap();
        corner.server.run(&format!("DEL {limit}"));
        corner.server.run(&meddle.replace("LIMIT", &limit));
        let before = corner.dump(&limit);
        assert!(!guard.wait_lost(SECOND * 2), "a renewal met {meddle}");
        guard.extend(SECOND * 5).unwrap();
        guard.release().unwrap();
        assert_eq!(corner.members(), [""; 0]);
        assert_eq!(corner.dump(&limit), before);
        assert_eq!(corner.server.ttl(&limit), None, "a foreign key was given a TTL");
    };
    thread::scope(|scope| {
        for meddle in ["HSET LIMIT field value", "SET LIMIT words"] {
            let go_on_with = &go_on_with;
            scope.spawn(move || go_on_with(meddle));
        }
    });
}

#[test]
fn what_are_no_marks_of_releases_stays_and_hinders_none() {
    let (corner, marks) = (Corner::new(), helper("released"));
    for meddle in ["LPUSH MARKS element", "SET MARKS words"] {
        corner.server.run("FLUSHALL");
        corner.server.run(&meddle.replace("MARKS", &marks));
        let before = corner.dump(&marks);
        let semaphore = corner.semaphore(3);
        semaphore.acquire().unwrap().release().unwrap();
        let guard = semaphore.acquire().unwrap();
        corner.server.run(&format!("DEL {KEY}"));
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
        assert_eq!(corner.dump(&marks), before);
        assert_eq!(corner.server.ttl(&marks), None, "a foreign key was given a TTL");
    }
}

#[test]
fn what_is_no_queue_stays_and_hinders_no_grant_and_no_release() {
    for kind in ["queue", "waiters"] {
        let (corner, key) = (Corner::new(), helper(kind));
        corner.server.run(&format!("SET {key} foreign"));
        let semaphore = client_at(&corner.server.url()).semaphore("x", 1);
        let guard = semaphore.acquire().unwrap();
        // With a thread that waits the server is asked whether anybody else does.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| semaphore.acquire_timeout(SOON).map(drop));
            assert!(!guard.wait_lost(millis(100)));
            guard.release().unwrap();
            // It is told by whoever needs a queue.
            let outcome = waiting.join().unwrap();
            assert!(
                matches!(outcome, Ok(()) | Err(Error::KeyConflict { .. })),
                "{outcome:?}"
            );
        });
        let guard = semaphore.acquire().unwrap();
        let error = corner.semaphore(1).fair(true).acquire_timeout(SOON).unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
        guard.release().unwrap();
        assert_eq!(corner.server.get(&key).as_deref(), Some("foreign"));
        assert_eq!(corner.server.ttl(&key), None, "a foreign key was given a TTL");
    }
}

#[test]
fn permits_whose_key_becomes_something_else_are_taken() {
    let corner = Corner::new();
    let semaphore = corner.semaphore(3).lease(SECOND * 2);
    let guards = [(); 2].map(|()| semaphore.acquire().unwrap());
    corner.server.run("LPUSH list element");
    // In one step, so that no renewal finds nothing there.
    corner.server.run(&format!("RENAME list {KEY}"));
    let [renewed, released] = guards;
    assert_eq!(lost(released.release().unwrap_err()), LostReason::Taken);
    assert!(renewed.wait_lost(SOON));
    assert_eq!(lost(renewed.release().unwrap_err()), LostReason::Taken);
    assert_eq!(corner.server.run(&format!("LLEN {KEY}")), redis::Value::Int(1));
    assert_eq!(corner.server.ttl(KEY), None);
}

#[test]
fn a_late_release_touches_nobody_elses_permits() {
    let corner = Corner::new();
    let late = corner.semaphore(2).permits(2).timed(millis(200)).acquire().unwrap();
    assert!(late.wait_lost(SOON));
    let others = [(); 2].map(|()| corner.semaphore(2).acquire_timeout(SOON).unwrap());
    assert_eq!(lost(late.release().unwrap_err()), LostReason::Expired);
    let (mut held, mut tokens) = (
        corner.members(),
        others.each_ref().map(|guard| guard.token().to_owned()),
    );
    held.sort();
    tokens.sort();
    assert_eq!(held, tokens);
    others.into_iter().for_each(|guard| guard.release().unwrap());
}

#[test]
fn a_renewal_never_re_creates_a_permit() {
    let corner = Corner::new();
    let guards = [1, 2].map(|permits| {
        corner
            .semaphore(3)
            .permits(permits)
            .lease(SECOND * 2)
            .acquire()
            .unwrap()
    });
    // Others have come and gone meanwhile.
    assert!(corner.semaphore(3).force_release().unwrap());
    corner.semaphore(3).permits(3).acquire().unwrap().release().unwrap();
    for guard in guards {
        assert!(guard.wait_lost(SOON));
        assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    }
    assert_eq!(corner.members(), [""; 0]);
}
