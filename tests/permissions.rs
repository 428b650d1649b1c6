//! The permissions that redlatch needs, and how it says which one is missing.

mod support;

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, Error, Guard, Lock, LostReason, Semaphore, Wait};
use support::{
    Fault, PROMPT, Proxy, SECOND, SLACK, Server, everything_said, is_acquire, is_release, lost, millis, wait_until,
};

const SECRET: &str = "correcthorsebatterystaple";

/// How often waiters look by themselves, and how long leases last, where a test is about being woken.
const MINUTE: Duration = SECOND.saturating_mul(60);

/// What the README's `ACL SETUSER` says that a user needs: keys, channels and commands.
fn least() -> Vec<&'static str> {
    let (_, rest) = include_str!("../README.md")
        .split_once("redis-cli ACL SETUSER app reset on ")
        .unwrap();
    let (command, _) = rest.split_once("```").unwrap();
    let words = command.split_whitespace().map(|word| word.trim_matches('\''));
    words.filter(|word| word.starts_with(['~', '&', '+'])).collect()
}

/// The permissions that an audit needs.
const AUDIT: [&str; 3] = ["+scan", "+pttl", "+type"];

/// A server with a proxy before it that lets in a user with few permissions.
struct Fixture {
    server: Server,
    proxy: Proxy,
}

impl Fixture {
    fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::to(&server);
        Self { server, proxy }
    }

    /// A client of a user who has these permissions only.
    fn client(&self, permissions: &[&str]) -> Client {
        self.client_polling(permissions, SECOND)
    }

    fn client_polling(&self, permissions: &[&str], poll_interval: Duration) -> Client {
        self.permit(permissions);
        let url = self.proxy.url().replace("redis://", &format!("redis://app:{SECRET}@"));
        let client = Client::builder().url(url).command_timeout(SECOND);
        client.poll_interval(poll_interval).build().unwrap()
    }

    /// Gives the user these permissions in place of those it had.
    fn permit(&self, permissions: &[&str]) {
        let permissions = permissions.join(" ");
        self.server
            .run(&format!("ACL SETUSER app reset on >{SECRET} {permissions}"));
    }

    /// A client of somebody else, who may do anything.
    fn other(&self) -> Client {
        Client::open(self.server.url()).unwrap()
    }

    /// What the server refused, and why.
    fn log(&self) -> redis::Value {
        self.server.run("ACL LOG")
    }

    /// The keys that stay for ever.
    fn eternal_keys(&self) -> Vec<String> {
        // One script sees one instant.
        let eternal = redis::Script::new(
            "local eternal = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
             if redis.call('PTTL', key) == -1 then table.insert(eternal, key) end end return eternal",
        );
        eternal.invoke(&mut self.server.connection()).unwrap()
    }

    /// How many permits of the semaphore `x` stand on the server, ended or not.
    fn permits(&self) -> redis::Value {
        self.server.run("ZCARD semaphore:x")
    }

    #[track_caller]
    fn wait_until_nothing_is_held(&self) {
        wait_until("the permits to be gone", PROMPT, || {
            self.permits() == redis::Value::Int(0)
        });
    }

    #[track_caller]
    fn wait_for_waiters(&self, count: usize) {
        let lock = self.other().lock("x");
        wait_until(&format!("{count} waiters"), PROMPT, || {
            lock.inspect().unwrap().waiters == count
        });
    }

    /// Has `waiter` wait for the lock that `guard` holds; returns what came of the release and of the wait, and how
    /// long that took.
    fn release_to(&self, guard: Guard, waiter: &Lock) -> (Result<(), Error>, Result<Guard, Error>, Duration) {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.acquire_timeout(MINUTE / 2));
            self.wait_for_waiters(1);
            let start = Instant::now();
            let released = guard.release();
            let acquired = waiting.join().unwrap();
            (released, acquired, start.elapsed())
        })
    }
}

fn all_but(lacking: &str) -> Vec<&'static str> {
    let mut rest = least();
    let before = rest.len();
    rest.retain(|permission| *permission != lacking);
    assert_eq!(rest.len(), before - 1, "{lacking} is not among the least permissions");
    rest
}

/// Asserts that an error names what is missing, and gives no secret away.
#[track_caller]
fn assert_names(error: &Error, missing: &str) {
    let said = everything_said(error);
    let named = [format!("`{missing}`"), format!("'{missing}'")];
    assert!(named.iter().any(|name| said.contains(name)), "{missing} in {said}");
    assert!(!said.contains(SECRET), "{said}");
}

#[test]
fn the_least_permissions_suffice() {
    let fixture = Fixture::new();
    let client = fixture.client(&least());
    let lock = client.lock("x").lease(SECOND);
    let guard = lock.acquire().unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(!lock.inspect().unwrap().is_free());
    // It is renewed, also when its TTL has become too short.
    assert!(!guard.wait_lost(SECOND * 3 / 2));
    guard.extend(SECOND * 60).unwrap();
    guard.release().unwrap();
    lock.with_lock(|| ()).unwrap();
    let guard = lock.acquire().unwrap();
    assert!(lock.force_release().unwrap());
    assert!(guard.release().is_err());
    assert_eq!(fixture.log(), redis::Value::Array(Vec::new()));
}

#[test]
fn the_least_permissions_suffice_to_wait_and_to_be_woken() {
    let fixture = Fixture::new();
    let clients = [(); 3].map(|()| fixture.client_polling(&least(), MINUTE));
    for fair in [false, true] {
        let [lock, second, third] = clients
            .each_ref()
            .map(|client| client.lock("x").lease(MINUTE).fair(fair));
        let guard = lock.acquire().unwrap();
        let (cancel, pings) = (CancelToken::new(), fixture.server.command_calls("ping"));
        let pass = |lock: &Lock| lock.acquire_timeout(MINUTE / 2).unwrap().release().unwrap();
        thread::scope(|scope| {
            let cancelled = scope.spawn(|| second.acquire_with(Wait::forever().cancelled_by(&cancel)));
            fixture.wait_for_waiters(1);
            cancel.cancel();
            assert!(matches!(cancelled.join().unwrap(), Err(Error::Cancelled)));
            fixture.wait_for_waiters(0);
            assert!(third.try_acquire().unwrap().is_none());

            let start = Instant::now();
            let first = scope.spawn(|| pass(&second));
            fixture.wait_for_waiters(1);
            // Also two of one client, so that a lease is handed on, or asked for again.
            let others = [(); 2].map(|()| scope.spawn(|| pass(&third)));
            fixture.wait_for_waiters(if fair { 3 } else { 2 });
            if fair {
                // In a long silence the waiters ask whether the server is still there.
                let is_asked = || fixture.server.command_calls("ping") > pings;
                wait_until("the server to be asked", PROMPT * 2, is_asked);
            }
            assert!(start.elapsed() < MINUTE / 4);
            let released = Instant::now();
            guard.release().unwrap();
            first.join().unwrap();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
        });
        assert_eq!(lock.inspect().unwrap().waiters, 0);
    }
    assert_eq!(fixture.log(), redis::Value::Array(Vec::new()));
}

#[test]
fn the_least_permissions_suffice_for_semaphores() {
    let fixture = Fixture::new();
    let client = fixture.client(&least());
    let semaphore = client.semaphore("x", 3).permits(2).lease(SECOND);
    let guard = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().unwrap().is_none());
    semaphore.set_limit(4).unwrap();
    assert_eq!(semaphore.available().unwrap(), 2);
    // It is renewed, also when its TTL has become too short or was taken away.
    assert!(!guard.wait_lost(SECOND * 3 / 2));
    fixture.server.run("PERSIST semaphore:x");
    guard.extend(SECOND * 60).unwrap();
    let other = semaphore.acquire().unwrap();
    other.release().unwrap();
    guard.release().unwrap();
    semaphore.with_permit(|| ()).unwrap();
    // What has ended by itself is cleared away by the next grant.
    let ended = semaphore.clone().timed(millis(50)).acquire().unwrap();
    assert!(ended.wait_lost(SECOND * 10));
    let guard = semaphore.clone().permits(3).acquire().unwrap();
    assert!(semaphore.force_release().unwrap());
    assert!(guard.release().is_err());
    assert_eq!(fixture.log(), redis::Value::Array(Vec::new()));
}

#[test]
fn the_least_permissions_suffice_to_wait_for_permits() {
    let fixture = Fixture::new();
    let clients = [(); 2].map(|()| fixture.client_polling(&least(), MINUTE));
    for fair in [false, true] {
        let of = |client: &Client| client.semaphore("x", 2).lease(MINUTE).fair(fair);
        let [one, another] = clients.each_ref().map(of);
        one.set_limit(1).unwrap();
        let guard = one.acquire().unwrap();
        let wait_for = |waiters: usize| {
            wait_until("them to wait", PROMPT, || one.inspect().unwrap().waiters == waiters);
        };
        let pass = |semaphore: &Semaphore| semaphore.acquire_timeout(MINUTE / 2).unwrap().release().unwrap();
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            let cancelled = scope.spawn(|| another.acquire_with(Wait::forever().cancelled_by(&cancel)));
            wait_for(1);
            cancel.cancel();
            assert!(matches!(cancelled.join().unwrap(), Err(Error::Cancelled)));
            wait_for(0);
            // Also two of one client, so that a permit is handed on.
            let mut passing = vec![scope.spawn(|| pass(&another))];
            wait_for(1);
            passing.extend([(); 2].map(|()| scope.spawn(|| pass(&one))));
            wait_for(if fair { 3 } else { 2 });
            let served = Instant::now();
            // There is one more for the first of them, and then one for all who are left.
            one.set_limit(2).unwrap();
            guard.release().unwrap();
            passing.into_iter().for_each(|passing| passing.join().unwrap());
            assert!(served.elapsed() <= PROMPT, "{:?}", served.elapsed());
        });
        wait_until("nobody to be left", PROMPT, || one.inspect().unwrap().waiters == 0);
    }
    assert_eq!(fixture.log(), redis::Value::Array(Vec::new()));
}

#[test]
fn without_channels_waiting_is_polling() {
    let fixture = Fixture::new();
    for fair in [false, true] {
        let of = |client: Client| client.lock("x").lease(MINUTE).fair(fair);
        for lacking in ["+subscribe", "&redlatch:*"] {
            let waiter = of(fixture.client_polling(&all_but(lacking), MINUTE));
            let guard = of(fixture.other()).acquire().unwrap();
            thread::scope(|scope| {
                let attempts = fixture.proxy.on(is_acquire).watch();
                let waiting = scope.spawn(|| waiter.acquire_timeout(MINUTE / 2).unwrap());
                // It looks again and again, however long it would sleep otherwise.
                attempts.wait_seen(10, PROMPT);
                let released = Instant::now();
                guard.release().unwrap();
                waiting.join().unwrap().release().unwrap();
                assert!(released.elapsed() <= SLACK, "{lacking}: {:?}", released.elapsed());
            });
        }
        // Whoever may not call those who wait is found out by them.
        for lacking in ["+publish", "&redlatch:*"] {
            let guard = of(fixture.client(&all_but(lacking))).acquire().unwrap();
            let (released, acquired, took) = fixture.release_to(guard, &of(fixture.other()));
            released.unwrap();
            acquired.unwrap().release().unwrap();
            assert!(took <= SECOND + SLACK, "{lacking}: {took:?}");
        }
    }
}

/// How long leases last where nobody can release.
const SHORT: Duration = SECOND.saturating_mul(2);

#[test]
fn a_missing_permission_to_wait_is_named_by_the_wait_and_changes_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.other().lock("x");
    for fair in [false, true] {
        for lacking in ["+zadd", "+zrange", "+zscore", "+hset", "+pexpire"] {
            let client = fixture.client(&all_but(lacking));
            let lock = client.lock("x").fair(fair);
            let guard = holder.acquire().unwrap();
            // Whoever comes later is not kept waiting by those who have failed.
            for _ in 0..3 {
                let start = Instant::now();
                let error = lock.acquire_timeout(MINUTE).unwrap_err();
                assert!(matches!(error, Error::Server(_)), "{lacking}: {error:?}");
                assert_names(&error, &lacking[1..]);
                assert!(start.elapsed() <= PROMPT, "{lacking}: {:?}", start.elapsed());
            }
            // What is still to be cleaned up gets its last try.
            drop((client, lock));
            wait_until("what was half done to be undone", PROMPT, || {
                fixture.eternal_keys().is_empty() && holder.inspect().unwrap().waiters == 0
            });
            assert_eq!(fixture.server.get("lock:x").as_deref(), Some(guard.token()));
            guard.release().unwrap();
            holder.try_acquire().unwrap().expect("free").release().unwrap();
        }
    }
}

#[test]
fn a_missing_permission_to_leave_the_queue_is_named_by_the_grant_and_costs_one_lease() {
    let fixture = Fixture::new();
    for fair in [false, true] {
        for lacking in ["+zrem", "+hdel"] {
            let lock = fixture.client(&all_but(lacking)).lock("x").lease(SHORT).fair(fair);
            let holder = fixture.other().lock("x").lease(MINUTE).fair(fair);
            let (released, acquired, _) = fixture.release_to(holder.acquire().unwrap(), &lock);
            released.unwrap();
            let error = acquired.unwrap_err();
            assert!(matches!(error, Error::Server(_)), "{lacking}: {error:?}");
            assert_names(&error, &lacking[1..]);
            assert_eq!(fixture.eternal_keys(), Vec::<String>::new(), "{lacking}");
            // A place, and a claim, may stay for two and a half poll intervals, and a grant for one lease.
            let next = holder.acquire_timeout(PROMPT).unwrap();
            next.release().unwrap();
            fixture.server.run("FLUSHALL");
        }
    }
}

#[test]
fn a_missing_permission_to_call_the_next_is_named_by_the_release_and_costs_one_lease_at_most() {
    let costs_one_lease = |fair| {
        let fixture = Fixture::new();
        for lacking in ["+zcard", "+zrange", "+hget", "+hset"] {
            let lock = fixture.client(&all_but(lacking)).lock("x").lease(SHORT);
            let guard = lock.try_acquire().unwrap().expect("free");
            let waiter = fixture.other().lock("x").fair(fair);
            let (released, acquired, took) = fixture.release_to(guard, &waiter);
            let error = released.unwrap_err();
            assert!(matches!(error, Error::Unconfirmed(_)), "{lacking}: {error:?}");
            assert_names(&error, &lacking[1..]);
            // The release was not done, or all of it but the call: the waiter looks once in a second, and when the
            // lease ends.
            assert!(took <= SHORT + SLACK, "{lacking}: {took:?}");
            let guard = acquired.unwrap();
            assert_eq!(fixture.eternal_keys(), Vec::<String>::new(), "{lacking}");
            // What was unconfirmed is being cleaned up meanwhile, and is another's token.
            guard.extend(MINUTE).unwrap();
            guard.release().unwrap();
        }
    };
    // Leases end one after the other; here two at a time.
    thread::scope(|scope| {
        for fair in [false, true] {
            scope.spawn(move || costs_one_lease(fair));
        }
    });
}

#[test]
fn what_is_half_done_for_want_of_a_permission_has_a_ttl_even_if_nobody_can_undo_it() {
    let fixture = Fixture::new();
    let (lock, semaphore) = (fixture.other().lock("x"), fixture.other().semaphore("x", 1));
    let _held = (lock.acquire().unwrap(), semaphore.acquire().unwrap());
    type Wait = fn(&Client) -> Result<Guard, Error>;
    let waits: [Wait; 2] = [
        |client| client.lock("x").acquire_timeout(MINUTE),
        |client| client.semaphore("x", 1).acquire_timeout(MINUTE),
    ];
    for wait in waits {
        for lacking in ["+zadd", "+zrange", "+zscore", "+hset", "+pexpire"] {
            let client = fixture.client(&all_but(lacking));
            let kept = fixture.proxy.on(is_release).every().may_miss().apply(Fault::CutBefore);
            assert_names(&wait(&client).unwrap_err(), &lacking[1..]);
            assert_eq!(fixture.eternal_keys(), Vec::<String>::new(), "without {lacking}");
            kept.end();
        }
    }
}

#[test]
fn a_grant_that_stops_half_way_for_want_of_a_permission_leaves_nothing_without_a_ttl() {
    for held in [false, true] {
        for lacking in ["+zadd", "+pexpire", "+set", "+zremrangebyscore"] {
            let fixture = Fixture::new();
            let _held = held.then(|| fixture.other().semaphore("x", 3).lease(SECOND).acquire().unwrap());
            let client = fixture.client(&all_but(lacking));
            let kept = fixture.proxy.on(is_release).every().may_miss().apply(Fault::CutBefore);
            let semaphore = client.semaphore("x", 3).permits(2).timed(SECOND * 2);
            assert_names(&semaphore.try_acquire().unwrap_err(), &lacking[1..]);
            assert_eq!(fixture.eternal_keys(), Vec::<String>::new(), "without {lacking}");
            kept.end();
            drop((client, semaphore));
            let free = || fixture.other().semaphore("x", 3).available().unwrap() == 3 - u32::from(held);
            wait_until("what was granted to end", PROMPT, free);
        }
    }
}

#[test]
fn an_audit_needs_its_own_permissions_and_names_the_missing_one() {
    let fixture = Fixture::new();
    fixture.server.run("SET lock:eternal token");
    let client = fixture.client(&[&AUDIT[..], &["~lock:*"]].concat());
    assert_eq!(client.audit("lock:*").unwrap().map(Result::unwrap).count(), 1);
    // Without the permission to ask who it is, every new connection is to a stranger.
    let fill = redis::Script::new("for i = 1, 5000 do redis.call('SET', 'lock:' .. i, 'token') end");
    fill.invoke::<()>(&mut fixture.server.connection()).unwrap();
    let mut audit = client.audit("lock:*").unwrap();
    audit.next().unwrap().unwrap();
    fixture.server.run("CLIENT KILL TYPE normal SKIPME yes");
    let keys: BTreeSet<_> = audit.map(|finding| finding.unwrap().key).collect();
    assert_eq!(keys.len(), 5_001);
    for lacking in AUDIT {
        let rest = AUDIT.into_iter().filter(|permission| *permission != lacking);
        let client = fixture.client(&rest.chain(["~lock:*"]).collect::<Vec<_>>());
        let mut audit = client.audit("lock:*").unwrap();
        let error = audit.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{error:?}");
        assert_names(&error, &lacking[1..]);
        assert!(audit.next().is_none());
    }
}

#[test]
fn a_missing_permission_to_acquire_is_named_at_once_and_changes_nothing() {
    let fixture = Fixture::new();
    let counter = "{lock:x}:redlatch:fencing:lock:x";
    for (lacking, missing) in [
        ("+evalsha", "evalsha"),
        ("+eval", "eval"),
        ("+get", "get"),
        ("+set", "set"),
        ("+time", "time"),
        ("~lock:*", "lock:x"),
        ("~{lock:*}:redlatch:*", counter),
    ] {
        let lock = fixture.client(&all_but(lacking)).lock("x");
        // EVAL is for a server that does not know the script.
        fixture.server.run("SCRIPT FLUSH");
        for wait in [Wait::forever(), Wait::at_most(SECOND * 60), Wait::none()] {
            let attempts = fixture.proxy.on(is_acquire).watch();
            let error = lock.acquire_with(wait).unwrap_err();
            assert!(matches!(error, Error::Server(_)), "{missing}: {error:?}");
            assert_names(&error, missing);
            assert_eq!(attempts.seen(), 1, "{missing}: it is not asked again");
        }
        assert_eq!(fixture.server.get("lock:x"), None);
        assert_eq!(fixture.server.get(counter), None);
    }
}

#[test]
fn a_missing_permission_to_take_a_permit_is_named_at_once_and_is_undone() {
    let fixture = Fixture::new();
    let (counter, limit) = (
        "{semaphore:x}:redlatch:fencing:semaphore:x",
        "{semaphore:x}:redlatch:limit:semaphore:x",
    );
    for (lacking, missing) in [
        ("+evalsha", "evalsha"),
        ("+eval", "eval"),
        ("+get", "get"),
        ("+set", "set"),
        ("+time", "time"),
        ("+zscore", "zscore"),
        ("+zcount", "zcount"),
        ("+zadd", "zadd"),
        ("+pttl", "pttl"),
        ("+pexpire", "pexpire"),
        ("+zremrangebyscore", "zremrangebyscore"),
        ("+zcard", "zcard"),
        ("~semaphore:*", "semaphore:x"),
        ("~{semaphore:*}:redlatch:*", counter),
        ("~{semaphore:*}:redlatch:*", limit),
    ] {
        let client = fixture.client(&all_but(lacking));
        let semaphore = client.semaphore("x", 10);
        // EVAL is for a server that does not know the script.
        fixture.server.run("SCRIPT FLUSH");
        for wait in [Wait::forever(), Wait::at_most(SECOND * 60), Wait::none()] {
            let attempts = fixture.proxy.on(is_acquire).watch();
            let error = semaphore.acquire_with(wait).expect_err(missing);
            assert!(matches!(error, Error::Server(_)), "{missing}: {error:?}");
            assert_names(&error, missing);
            assert_eq!(attempts.seen(), 1, "{missing}: it is not asked again");
        }
        // What is still to be cleaned up gets its last try; without some permissions nobody but the lease can.
        fixture.permit(&least());
        drop((client, semaphore));
        fixture.wait_until_nothing_is_held();
    }
}

#[test]
fn a_permission_to_give_permits_back_that_is_missing_is_named_and_costs_one_lease_at_most() {
    let fixture = Fixture::new();
    for lacking in ["+zrem", "+zcard", "+zscore"] {
        let semaphore = fixture.client(&least()).semaphore("x", 3).permits(2).timed(SECOND);
        let guard = semaphore.acquire().unwrap();
        fixture.permit(&all_but(lacking));
        let error = guard.release().unwrap_err();
        assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
        assert_names(&error, &lacking[1..]);
        wait_until("the permits to end by themselves", PROMPT, || {
            fixture.other().semaphore("x", 3).available().unwrap() == 3
        });
        fixture.permit(&least());
    }
    // What only those who wait need is missed after the permits were given back: one that is not told looks once in a
    // second.
    fixture.server.run("FLUSHALL");
    for lacking in ["+zcount", "+zadd", "+pexpire"] {
        let guard = fixture.client(&least()).semaphore("x", 1).acquire().unwrap();
        fixture.permit(&all_but(lacking));
        let waiter = fixture.other().semaphore("x", 1);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.acquire_timeout(MINUTE / 2).unwrap());
            wait_until("it to wait", PROMPT, || waiter.inspect().unwrap().waiters == 1);
            let error = guard.release().unwrap_err();
            assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
            assert_names(&error, &lacking[1..]);
            waiting.join().unwrap().release().unwrap();
        });
        assert_eq!(fixture.eternal_keys(), Vec::<String>::new(), "without {lacking}");
        fixture.permit(&least());
    }
}

#[test]
fn marks_of_releases_that_may_not_be_kept_hinder_no_release_and_stay_not_for_ever() {
    let fixture = Fixture::new();
    for lacking in ["+zremrangebyrank", "+pexpire", "+zadd"] {
        let semaphore = fixture.client(&least()).semaphore("x", 3);
        let guard = semaphore.acquire().unwrap();
        fixture.permit(&all_but(lacking));
        guard.release().unwrap();
        assert_eq!(fixture.permits(), redis::Value::Int(0));
        assert_eq!(fixture.eternal_keys(), Vec::<String>::new(), "without {lacking}");
        fixture.permit(&least());
    }
}

#[test]
fn a_missing_permission_to_renew_permits_is_named_as_the_cause_of_the_loss() {
    let lose_for_want_of = |lacking: &str| {
        let fixture = Fixture::new();
        let client = fixture.client(&least());
        let guard = client.semaphore("x", 3).lease(SECOND).acquire().unwrap();
        fixture.permit(&all_but(lacking));
        assert!(guard.wait_lost(SECOND * 10));
        let error = guard.check().unwrap_err();
        assert_names(&error, &lacking[1..]);
        assert_eq!(lost(error), LostReason::Expired);
    };
    // Each takes a lease.
    thread::scope(|scope| {
        for lacking in ["+zadd", "+pttl", "+pexpire", "+zscore"] {
            scope.spawn(move || lose_for_want_of(lacking));
        }
    });
}

#[test]
fn a_missing_permission_to_look_at_permits_or_to_change_their_number_is_named() {
    let fixture = Fixture::new();
    let guard = fixture.other().semaphore("x", 3).acquire().unwrap();
    for lacking in ["+get", "+zrange", "+hvals", "+time"] {
        let semaphore = fixture.client(&all_but(lacking)).semaphore("x", 3);
        for error in [semaphore.inspect().unwrap_err(), semaphore.force_release().unwrap_err()] {
            assert!(matches!(error, Error::Server(_)), "{error:?}");
            assert_names(&error, &lacking[1..]);
        }
    }
    for lacking in ["+get", "+set", "+pttl", "+zcard"] {
        let semaphore = fixture.client(&all_but(lacking)).semaphore("x", 3);
        let error = semaphore.set_limit(5).unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{error:?}");
        assert_names(&error, &lacking[1..]);
    }
    guard.release().unwrap();
}

#[test]
fn what_was_not_permitted_at_all_leaves_nothing_to_clean_up() {
    let fixture = Fixture::new();
    let client = fixture.client(&all_but("+evalsha"));
    let releases = fixture.proxy.on(is_release).watch();
    for _ in 0..10 {
        client.lock("x").try_acquire().unwrap_err();
    }
    // What is still to be cleaned up gets its last try.
    drop(client);
    assert_eq!(releases.seen(), 0);
}

#[test]
fn a_missing_permission_to_delete_is_named_by_the_unconfirmed_release() {
    let fixture = Fixture::new();
    let client = fixture.client(&all_but("+del"));
    let guard = client.timed_lock("x", SECOND * 2).acquire().unwrap();
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert_names(&error, "del");
    wait_until("the key to expire by itself", SECOND * 10, || {
        fixture.server.get("lock:x").is_none()
    });
}

#[test]
fn a_missing_permission_to_renew_is_named_as_the_cause_of_the_loss() {
    let fixture = Fixture::new();
    for lacking in ["+pttl", "+pexpire"] {
        let client = fixture.client(&all_but(lacking));
        let guard = client.lock("x").lease(SECOND).acquire().unwrap();
        assert!(guard.wait_lost(SECOND * 10));
        let error = guard.release().unwrap_err();
        assert_names(&error, &lacking[1..]);
        assert_eq!(lost(error), LostReason::Expired);
    }
}

#[test]
fn a_missing_permission_to_look_or_to_see_who_is_there_is_named() {
    let fixture = Fixture::new();
    fixture.server.run("SET lock:x another PX 60000");
    for lacking in ["+hvals", "+time"] {
        let lock = fixture.client(&all_but(lacking)).lock("x");
        for error in [lock.inspect().unwrap_err(), lock.force_release().unwrap_err()] {
            assert!(matches!(error, Error::Server(_)), "{error:?}");
            assert_names(&error, &lacking[1..]);
        }
    }
    for lacking in ["+get", "+pttl"] {
        let lock = fixture.client(&all_but(lacking)).lock("x");
        for error in [
            lock.inspect().unwrap_err(),
            lock.force_release().unwrap_err(),
            lock.acquire_timeout(millis(100)).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Server(_)), "{error:?}");
            assert_names(&error, &lacking[1..]);
        }
    }
    assert_eq!(fixture.server.get("lock:x").as_deref(), Some("another"));
}
