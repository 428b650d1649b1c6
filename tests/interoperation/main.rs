//! redlatch and redis-py on the same locks: the real `redis.lock.Lock`, in a process of its own (`worker.py`).
//!
//! `client.lock("x")` and `Redis.lock("lock:x")` are one lock, and each of them must take the other for one of its own
//! kind.

#[path = "../support/mod.rs"]
mod support;
mod worker;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Trial};
use redlatch::{Client, Error, Expiry, Guard, Lock, LostReason};
use support::{Proxy, SECOND, SLACK, Server, SetOnDrop, Worker, is_acquire, lost, wait_until};
use worker::hex;

/// How long anybody waits for a lock that is about to be free.
const PATIENCE: Duration = SECOND.saturating_mul(20);

fn main() -> ExitCode {
    let missing = worker::missing();
    macro_rules! trials {
        ($($scenario:ident)*) => {
            vec![$(Trial::test(stringify!($scenario), || {
                $scenario(&Corner::new(stringify!($scenario)));
                Ok(())
            }).with_ignored_flag(missing.is_some())),*]
        };
    }
    let trials = trials! {
        each_keeps_the_other_out_until_its_release
        redlatchs_waiter_gets_the_lock_when_redis_py_releases
        redis_pys_waiter_gets_the_lock_when_redlatch_releases
        a_renewed_lock_keeps_redis_py_out_beyond_its_lease
        a_dead_redis_py_client_frees_the_lock_when_its_timeout_ends
        a_waiter_honours_an_extension_by_redis_py
        a_waiter_honours_a_reacquire_by_redis_py
        redis_pys_late_calls_leave_redlatchs_lock_alone
        redlatchs_late_calls_leave_redis_pys_lock_alone
        redlatchs_lapsed_lease_leaves_redis_pys_lock_alone
        a_redis_py_lock_without_timeout_is_waited_for_and_left_as_it_is
        threads_of_both_kinds_lose_no_update
        fencing_tokens_rise_around_redis_pys_grants
        any_bytes_name_the_same_lock
    };
    if let Some(missing) = missing {
        eprintln!("not run: interoperation with redis-py: {missing}");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A server, and a name that no other test uses.
struct Corner {
    server: Arc<Server>,
    name: &'static str,
}

impl Corner {
    fn new(name: &'static str) -> Self {
        Self {
            server: support::shared(),
            name,
        }
    }

    fn key(&self) -> String {
        format!("lock:{}", self.name)
    }

    fn lock(&self) -> Lock {
        Client::open(self.server.url()).unwrap().lock(self.name)
    }

    /// A redis-py client about to take the lock, for `timeout` seconds ("-": for ever).
    fn redis_py(&self, timeout: &str) -> Worker {
        let mut worker = worker::start(&self.server.url());
        worker::lock(&mut worker, self.key().as_bytes(), timeout);
        worker
    }

    /// A redis-py client that holds the lock.
    fn redis_py_holding(&self, timeout: &str) -> Worker {
        let mut worker = self.redis_py(timeout);
        assert_eq!(worker.ask("acquire 0"), "True");
        worker
    }

    fn holder(&self) -> Option<String> {
        self.server.get(&self.key())
    }

    fn ttl(&self) -> Option<Duration> {
        self.server.ttl(&self.key())
    }
}

/// A thread of redlatch's that waits for the lock, behind a proxy that shows what it does.
struct Waiter {
    thread: thread::JoinHandle<Guard>,
    _proxy: Proxy,
}

impl Waiter {
    /// Starts to wait, and returns once some attempts have been refused.
    fn start(corner: &Corner) -> Self {
        let proxy = Proxy::to(&corner.server);
        let attempts = proxy.on(is_acquire).watch();
        let lock = Client::open(proxy.url()).unwrap().lock(corner.name);
        let thread = thread::spawn(move || lock.acquire_timeout(PATIENCE).unwrap());
        // There is no third before the second has its answer.
        attempts.wait_seen(3, PATIENCE);
        assert!(!thread.is_finished());
        Self { thread, _proxy: proxy }
    }

    fn waits(&self) -> bool {
        !self.thread.is_finished()
    }

    fn gets_the_lock(self) {
        self.thread.join().unwrap().release().unwrap();
    }
}

fn each_keeps_the_other_out_until_its_release(corner: &Corner) {
    let lock = corner.lock();
    let mut redis_py = corner.redis_py("30");
    for _ in 0..3 {
        let guard = lock.try_acquire().unwrap().expect("redis-py has released it");
        assert_eq!(redis_py.ask("acquire 0"), "False");
        assert_eq!(redis_py.ask("locked"), "True");
        assert_eq!(redis_py.ask("owned"), "False");
        guard.release().unwrap();

        assert_eq!(redis_py.ask("acquire 0"), "True");
        assert!(lock.try_acquire().unwrap().is_none());
        assert_eq!(redis_py.ask("owned"), "True");
        assert_eq!(redis_py.ask("release"), "None");
    }
    assert_eq!(corner.holder(), None);
}

fn redlatchs_waiter_gets_the_lock_when_redis_py_releases(corner: &Corner) {
    let mut redis_py = corner.redis_py_holding("60");
    let waiter = Waiter::start(corner);
    assert_eq!(redis_py.ask("release"), "None");
    waiter.gets_the_lock();
}

fn redis_pys_waiter_gets_the_lock_when_redlatch_releases(corner: &Corner) {
    let guard = corner.lock().acquire().unwrap();
    let proxy = Proxy::to(&corner.server);
    let attempts = proxy.on(|args| args[0].eq_ignore_ascii_case(b"SET")).watch();
    let mut redis_py = worker::start(proxy.url());
    worker::lock(&mut redis_py, corner.key().as_bytes(), "30");
    redis_py.send(format_args!("acquire {}", PATIENCE.as_secs()));
    attempts.wait_seen(3, PATIENCE);
    assert!(!redis_py.has_answered());
    guard.release().unwrap();
    assert_eq!(redis_py.receive(), "True");
    assert!(corner.lock().try_acquire().unwrap().is_none());
    assert_eq!(redis_py.ask("release"), "None");
}

fn a_renewed_lock_keeps_redis_py_out_beyond_its_lease(corner: &Corner) {
    let guard = corner.lock().lease(SECOND * 2).acquire().unwrap();
    assert_eq!(corner.redis_py("30").ask("acquire 4"), "False");
    guard.release().unwrap();
}

fn a_dead_redis_py_client_frees_the_lock_when_its_timeout_ends(corner: &Corner) {
    let timeout = SECOND * 2;
    let redis_py = corner.redis_py_holding("2");
    assert!(corner.lock().try_acquire().unwrap().is_none());
    let killed = Instant::now();
    drop(redis_py);
    let left = corner.ttl().expect("a crash frees nothing at once");
    let guard = corner.lock().acquire_timeout(PATIENCE).unwrap();
    assert!(killed.elapsed() >= left && killed.elapsed() <= timeout + SLACK);
    guard.release().unwrap();
}

fn a_waiter_honours_an_extension_by_redis_py(corner: &Corner) {
    let mut redis_py = corner.redis_py_holding("3");
    let waiter = Waiter::start(corner);
    assert_eq!(redis_py.ask("extend 30 add"), "True");
    assert!(corner.ttl() > Some(SECOND * 10));
    // Only time shows that the waiter does not go by what it read before.
    thread::sleep(SECOND * 7 / 2);
    assert!(waiter.waits());
    // An end that has come nearer must be noticed as well.
    assert_eq!(redis_py.ask("extend 1 replace"), "True");
    waiter.gets_the_lock();
    assert_eq!(redis_py.ask("release"), "LockNotOwnedError");
}

fn a_waiter_honours_a_reacquire_by_redis_py(corner: &Corner) {
    let mut redis_py = corner.redis_py_holding("6");
    let waiter = Waiter::start(corner);
    let left = SECOND * 3;
    wait_until("some of the timeout to pass", PATIENCE, || corner.ttl() < Some(left));
    assert_eq!(redis_py.ask("reacquire"), "True");
    assert!(corner.ttl() > Some(left));
    thread::sleep(left);
    assert!(waiter.waits());
    assert_eq!(redis_py.ask("release"), "None");
    waiter.gets_the_lock();
}

fn redis_pys_late_calls_leave_redlatchs_lock_alone(corner: &Corner) {
    let mut redis_py = corner.redis_py_holding("0.2");
    let guard = corner.lock().acquire_timeout(PATIENCE).unwrap();
    let ttl = corner.ttl();
    assert_eq!(redis_py.ask("owned"), "False");
    assert_eq!(redis_py.ask("extend 60 replace"), "LockNotOwnedError");
    assert_eq!(redis_py.ask("reacquire"), "LockNotOwnedError");
    assert_eq!(redis_py.ask("release"), "LockNotOwnedError");
    assert!(corner.ttl() <= ttl);
    assert_eq!(corner.holder().as_deref(), Some(guard.token()));
    guard.release().unwrap();
}

fn redlatchs_late_calls_leave_redis_pys_lock_alone(corner: &Corner) {
    let extended = corner.lock().acquire().unwrap();
    corner.server.run(&format!("DEL {}", corner.key()));
    let released = corner.lock().acquire().unwrap();
    corner.server.run(&format!("DEL {}", corner.key()));

    let mut redis_py = corner.redis_py_holding("30");
    let holder = corner.holder();
    assert_eq!(lost(released.release().unwrap_err()), LostReason::Taken);
    assert_eq!(lost(extended.extend(SECOND * 600).unwrap_err()), LostReason::Taken);
    assert_eq!(lost(extended.release().unwrap_err()), LostReason::Taken);
    assert_eq!(corner.holder(), holder);
    assert!(corner.ttl() <= Some(SECOND * 30));
    assert_eq!(redis_py.ask("release"), "None");
}

fn redlatchs_lapsed_lease_leaves_redis_pys_lock_alone(corner: &Corner) {
    let client = Client::open(corner.server.url()).unwrap();
    let guard = client.timed_lock(corner.name, SECOND / 5).acquire().unwrap();
    let mut redis_py = corner.redis_py("30");
    assert_eq!(redis_py.ask(format_args!("acquire {}", PATIENCE.as_secs())), "True");
    assert!(!guard.is_held());
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Expired);
    assert_eq!(redis_py.ask("owned"), "True");
    assert_eq!(redis_py.ask("release"), "None");
}

fn a_redis_py_lock_without_timeout_is_waited_for_and_left_as_it_is(corner: &Corner) {
    let mut redis_py = corner.redis_py_holding("-");
    let holder = corner.holder();
    let waiter = Waiter::start(corner);
    let impatient = corner.lock().acquire_timeout(SECOND * 2);
    assert!(matches!(impatient, Err(Error::Timeout { .. })), "{impatient:?}");
    assert!(corner.lock().try_acquire().unwrap().is_none());
    let seen = corner.lock().inspect().unwrap();
    assert_eq!(seen.holders[0].expiry, Expiry::Never);
    assert!(seen.to_string().contains("no expiry"), "{seen}");
    assert_eq!(corner.holder(), holder);
    assert_eq!(
        corner.server.run(&format!("PTTL {}", corner.key())),
        redis::Value::Int(-1)
    );
    assert!(waiter.waits());
    assert_eq!(redis_py.ask("release"), "None");
    waiter.gets_the_lock();
}

/// Counts as nobody should without a lock, reading and then writing, until everybody has counted enough. Which kind
/// gets the lock is a matter of luck where one of them polls, so the kind that had the last few turns lets the other
/// in.
fn threads_of_both_kinds_lose_no_update(corner: &Corner) {
    const THREADS: usize = 3;
    const IN_A_ROW: isize = 10;
    const ENOUGH: usize = 60;
    let (counter, entries) = (format!("count:{}", corner.name), format!("entries:{}", corner.name));
    let mut connection = corner.server.connection();
    let mut log = || -> Vec<String> {
        let log = redis::cmd("LRANGE").arg(&entries).arg(0).arg(-1).query(&mut connection);
        log.unwrap()
    };
    let by_redis_py = |log: &[String]| log.iter().filter(|entry| *entry == "redis-py").count();

    let mut redis_py = corner.redis_py("30");
    let [name, hex_counter, hex_entries] = [&corner.key(), &counter, &entries].map(|text| hex(text.as_bytes()));
    let order = format!("count {name} {hex_counter} {hex_entries} {THREADS} {IN_A_ROW}");
    assert_eq!(redis_py.ask(order), "counting");
    wait_until("redis-py to count", PATIENCE, || !log().is_empty());

    let client = Client::open(corner.server.url()).unwrap();
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let _enough = SetOnDrop(&enough);
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _enough = SetOnDrop(&enough);
                let mut connection = corner.server.connection();
                while !enough.load(Ordering::SeqCst) {
                    let last: Vec<String> = redis::cmd("LRANGE")
                        .arg(&entries)
                        .arg(-IN_A_ROW)
                        .arg(-1)
                        .query(&mut connection)
                        .unwrap();
                    if by_redis_py(&last) == 0 {
                        thread::sleep(support::millis(2));
                        continue;
                    }
                    let guard = client.lock(corner.name).acquire_timeout(PATIENCE).unwrap();
                    let before: Option<u64> = redis::cmd("GET").arg(&counter).query(&mut connection).unwrap();
                    redis::pipe()
                        .set(&counter, before.unwrap_or(0) + 1)
                        .rpush(&entries, guard.fencing_token())
                        .exec(&mut connection)
                        .unwrap();
                    guard.release().unwrap();
                }
            });
        }
        wait_until("both to count enough", SECOND * 60, || {
            let log = log();
            by_redis_py(&log).min(log.len() - by_redis_py(&log)) >= ENOUGH || enough.load(Ordering::SeqCst)
        });
    });
    let answer = redis_py.ask("stop");
    let counted_by_redis_py: usize = answer.parse().unwrap_or_else(|_| panic!("{answer}"));

    let log = log();
    let counted: Option<usize> = redis::cmd("GET")
        .arg(&counter)
        .query(&mut corner.server.connection())
        .unwrap();
    assert_eq!(counted, Some(log.len()), "an update was lost");
    assert_eq!(by_redis_py(&log), counted_by_redis_py);
    let tokens: Vec<u64> = log.iter().filter_map(|entry| entry.parse().ok()).collect();
    assert_eq!(tokens.len() + counted_by_redis_py, log.len());
    assert!(tokens.len() >= ENOUGH && counted_by_redis_py >= ENOUGH);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
}

fn fencing_tokens_rise_around_redis_pys_grants(corner: &Corner) {
    let lock = corner.lock();
    let mut redis_py = corner.redis_py("30");
    let mut last = 0;
    for _ in 0..20 {
        let guard = lock.acquire().unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.release().unwrap();
        assert_eq!(redis_py.ask("acquire 0"), "True");
        assert_eq!(redis_py.ask("release"), "None");
    }
}

fn any_bytes_name_the_same_lock(corner: &Corner) {
    let client = Client::open(corner.server.url()).unwrap();
    let mut redis_py = corner.redis_py("30");
    for name in [&b"\0\xff\xfe \r\n%s{\"\\"[..], "näme {of} ☃".as_bytes(), &[0x80; 300]] {
        let lock = client.lock(name);
        worker::lock(&mut redis_py, &[b"lock:", name].concat(), "30");
        let guard = lock.acquire().unwrap();
        assert_eq!(redis_py.ask("acquire 0"), "False");
        guard.release().unwrap();
        assert_eq!(redis_py.ask("acquire 0"), "True");
        assert!(lock.try_acquire().unwrap().is_none());
        assert_eq!(redis_py.ask("release"), "None");
        lock.try_acquire()
            .unwrap()
            .expect("redis-py has released it")
            .release()
            .unwrap();
    }
}
