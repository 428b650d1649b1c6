//! A process that holds locks: this program again, told what to do line by line.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use redlatch::{Audit, Client, Error, Guard, Lock, Wait};

use crate::support::{SECOND, SetOnDrop, Worker, millis, wait_until};

/// How long anything in a forked child may take before it counts as hanging.
const CHILD: Duration = SECOND.saturating_mul(20);

/// Has the worker take the lock; returns its fencing token.
pub fn acquire(worker: &mut Worker, name: &str, lease: Duration) -> u64 {
    let answer = worker.ask(format_args!("acquire {name} {}", lease.as_millis()));
    answer.parse().unwrap()
}

/// Has the worker take so many of the three permits of a semaphore; returns their fencing token.
pub fn take_permits(worker: &mut Worker, name: &str, permits: u32, lease: Duration) -> u64 {
    let answer = worker.ask(format_args!("permits {name} {permits} {}", lease.as_millis()));
    answer.parse().unwrap()
}

/// Where `count` counts.
pub fn counter(name: &str) -> String {
    format!("count:{name}")
}

/// Where `count` notes its fencing tokens.
pub fn tokens(name: &str) -> String {
    format!("tokens:{name}")
}

/// Does what it is told until its orders end.
pub fn run(url: &str) {
    let client = Client::open(url).unwrap();
    let mut held = None;
    for order in io::stdin().lines() {
        let order = order.unwrap();
        let words: Vec<&str> = order.split(' ').collect();
        let answer = match words[..] {
            ["acquire", name, lease] => {
                let lease = Duration::from_millis(lease.parse().unwrap());
                let guard = client.lock(name).lease(lease).acquire().unwrap();
                let fencing_token = guard.fencing_token();
                held = Some(guard);
                fencing_token.to_string()
            }
            ["permits", name, permits, lease] => {
                let lease = Duration::from_millis(lease.parse().unwrap());
                let semaphore = client.semaphore(name, 3).permits(permits.parse().unwrap());
                let guard = semaphore.lease(lease).acquire().unwrap();
                let fencing_token = guard.fencing_token();
                held = Some(guard);
                fencing_token.to_string()
            }
            ["is_held"] => held.as_ref().is_some_and(Guard::is_held).to_string(),
            ["release"] => match held.take().unwrap().release() {
                Ok(()) => "released".into(),
                Err(Error::Lost(_)) => "lost".into(),
                Err(error) => error.to_string(),
            },
            ["count", name, times] => {
                count(&client, url, name, times.parse().unwrap());
                "counted".into()
            }
            ["fork", name] => {
                let mut audit = audit_under_way(&client, url, name);
                let guard = client.lock(format!("{name}-dropped")).acquire().unwrap();
                format!(
                    "child {}",
                    in_child(|| {
                        assert!(matches!(audit.next(), Some(Err(Error::Forked))));
                        assert!(audit.next().is_none());
                        inert_in_child(&client, url, held.as_ref().unwrap(), guard, name);
                    })
                )
            }
            ["fork-busily", name, times] => {
                format!("children {}", fork_busily(&client, url, name, times.parse().unwrap()))
            }
            ["fork-beside-waiter", name, fair] => fork_beside_waiter(url, name, fair.parse().unwrap()),
            ["fork-with-permits", name] => {
                let guard = client.semaphore(format!("{name}-dropped"), 3).acquire().unwrap();
                format!(
                    "child {}",
                    in_child(|| permits_inert_in_child(&client, url, held.as_ref().unwrap(), guard, name))
                )
            }
            ["threads", name] => {
                threads_end(url, name);
                "ended".into()
            }
            ["signals", name] => threads_without_signals(url, name).join(" "),
            _ => panic!("unknown order {order:?}"),
        };
        println!("{answer}");
    }
}

/// An audit that has something left to tell without asking the server.
fn audit_under_way(client: &Client, url: &str, name: &str) -> Audit {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    for number in 0..3 {
        let key = format!("eternal:{name}:{number}");
        redis::cmd("SET").arg(key).arg("x").exec(&mut connection).unwrap();
    }
    let mut audit = client.audit(format!("eternal:{name}:*")).unwrap();
    audit.next().expect("three keys").unwrap();
    audit
}

/// Counts as nobody should without a lock: reads, and then writes.
fn count(client: &Client, url: &str, name: &str, times: u32) {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    for _ in 0..times {
        let counted = client.lock(name).with_guard(|guard| {
            let before: Option<u64> = redis::cmd("GET").arg(counter(name)).query(&mut connection).unwrap();
            thread::yield_now();
            redis::pipe()
                .set(counter(name), before.unwrap_or(0) + 1)
                .rpush(tokens(name), guard.fencing_token())
                .exec(&mut connection)
                .unwrap();
        });
        counted.unwrap();
    }
}

/// Runs `check` in a forked child; returns the child's exit code, or -1 if it hangs or dies otherwise.
fn in_child(check: impl FnOnce()) -> i32 {
    // SAFETY: the child only runs `check`, which uses nothing that a thread of the parent may have left locked but
    // what redlatch promises to leave alone and the allocator, which glibc unlocks; it leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_ok();
        // SAFETY: ends the child at once, without running what belongs to the parent.
        unsafe { libc::_exit(if passed { 0 } else { 1 }) }
    }
    let (deadline, mut status) = (Instant::now() + CHILD, 0);
    loop {
        // SAFETY: `child` is our child and not yet waited for; `status` outlives the call.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if Instant::now() < deadline => thread::sleep(millis(2)),
            0 => {
                // SAFETY: as above; the child is killed, then waited for.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &mut status, 0);
                }
                return -1;
            }
            _ if libc::WIFEXITED(status) => return libc::WEXITSTATUS(status),
            _ => return -1,
        }
    }
}

/// What a child sees of its parent's handles.
fn inert_in_child(client: &Client, url: &str, shared: &Guard, owned: Guard, name: &str) {
    for guard in [shared, &owned] {
        assert!(!guard.is_held());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(guard.wait_lost(Duration::from_secs(3600)));
        assert!(matches!(guard.check(), Err(Error::Forked)));
        assert!(matches!(guard.extend(Duration::from_secs(60)), Err(Error::Forked)));
        assert!(guard.fencing_token() > 0 && !guard.token().is_empty());
        let _ = format!("{guard:?}");
    }
    drop(owned);
    let lock = client.lock(name);
    assert!(matches!(lock.acquire(), Err(Error::Forked)));
    assert!(matches!(lock.try_acquire(), Err(Error::Forked)));
    assert!(matches!(lock.inspect(), Err(Error::Forked)));
    assert!(matches!(lock.force_release(), Err(Error::Forked)));
    assert!(matches!(client.audit("*"), Err(Error::Forked)));
    assert!(matches!(
        lock.with_lock(|| unreachable!("in the child")),
        Err::<(), _>(Error::Forked)
    ));
    drop(lock);

    // A client of its own works, and finds the parent's locks held.
    let own = Client::open(url).unwrap();
    assert!(own.lock(name).try_acquire().unwrap().is_none());
    let forked = own.lock(format!("{name}-{}", std::process::id()));
    forked.with_lock(|| ()).unwrap();
    let memory = Client::open("memory://fork").unwrap();
    memory.lock(name).with_lock(|| ()).unwrap();
}

/// What a child sees of its parent's permits, of which the parent has two of three.
fn permits_inert_in_child(client: &Client, url: &str, shared: &Guard, owned: Guard, name: &str) {
    for guard in [shared, &owned] {
        assert!(!guard.is_held());
        assert!(matches!(guard.check(), Err(Error::Forked)));
        assert!(matches!(guard.extend(Duration::from_secs(60)), Err(Error::Forked)));
    }
    drop(owned);
    let semaphore = client.semaphore(name, 3);
    assert!(matches!(semaphore.acquire(), Err(Error::Forked)));
    assert!(matches!(semaphore.try_acquire(), Err(Error::Forked)));
    assert!(matches!(semaphore.available(), Err(Error::Forked)));
    assert!(matches!(semaphore.set_limit(4), Err(Error::Forked)));
    assert!(matches!(semaphore.force_release(), Err(Error::Forked)));
    assert!(matches!(
        semaphore.try_with_permit(|| unreachable!("in the child")),
        Err::<Option<()>, _>(Error::Forked)
    ));
    drop(semaphore);

    // A client of its own works, and finds the parent's permits taken.
    let own = Client::open(url).unwrap().semaphore(name, 3);
    assert!(own.clone().permits(2).try_acquire().unwrap().is_none());
    own.try_acquire().unwrap().expect("free").release().unwrap();
}

/// Forks again and again while other threads are in the middle of everything; returns how many children ended well.
fn fork_busily(client: &Client, url: &str, name: &str, times: u32) -> u32 {
    let done = AtomicBool::new(false);
    let memory = Client::open("memory://fork").unwrap();
    let shared = client.lock(name).lease(SECOND * 5).acquire().unwrap();
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for thread in 0..3 {
            let (locks, done, shared) = (
                [client.lock(format!("{name}-{thread}")), memory.lock("x")],
                &done,
                &shared,
            );
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                while !done.load(Ordering::SeqCst) {
                    for lock in &locks {
                        lock.with_lock_wait(Wait::at_most(CHILD), || ()).unwrap();
                    }
                    (0..100).for_each(|_| assert!(shared.is_held()));
                }
            });
        }
        (0..times)
            .filter(|round| {
                let owned = client.lock(format!("{name}-owned-{round}"));
                let guard = owned.acquire_timeout(CHILD).unwrap();
                in_child(|| inert_in_child(client, url, &shared, guard, name)) == 0
            })
            .count() as u32
    })
}

/// A lock of a client of its own that looks by itself once a minute only, with a lease as long.
pub fn sleepy_lock(url: &str, name: &str, fair: bool) -> Lock {
    let client = Client::builder().url(url).poll_interval(SECOND * 60).build();
    client.unwrap().lock(name).lease(SECOND * 60).fair(fair)
}

/// Forks while a thread waits for the lock; tells what came of its wait, and of the child.
fn fork_beside_waiter(url: &str, name: &str, fair: bool) -> String {
    let lock = sleepy_lock(url, name, fair);
    let pass = |lock: &Lock| lock.acquire_timeout(CHILD).unwrap().release().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pass(&lock));
        wait_until("the thread to wait", CHILD, || lock.inspect().unwrap().waiters == 1);
        let child = in_child(|| {
            let (inherited, own) = (lock.clone(), sleepy_lock(url, name, fair));
            assert!(matches!(inherited.acquire(), Err(Error::Forked)));
            drop(inherited);
            // Served by wake-ups that the child hears on a line of its own.
            pass(&own);
            drop(own);
            let here = Client::open("memory://fork-beside-waiter")
                .unwrap()
                .lock(name)
                .fair(fair);
            let guard = here.acquire().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| pass(&here));
                guard.release().unwrap();
                waiting.join().unwrap();
            });
        });
        waiting.join().unwrap();
        format!("served child {child}")
    })
}

/// Takes clients through their lives; returns once the only thread left is this one.
fn threads_end(url: &str, name: &str) {
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    wait_until("the threads of the worker's own client", CHILD, || threads() <= 2);
    let before = threads();
    let lock = |n: usize| Client::open(url).unwrap().lock(format!("{name}-{n}"));
    let guards: Vec<Guard> = (0..10)
        .map(|n| lock(n).on_lost(|_| ()).max_hold(millis(200)).acquire().unwrap())
        .collect();
    assert!(threads() >= before + 10);
    guards.iter().for_each(|guard| assert!(guard.wait_lost(CHILD)));
    drop(guards);
    wait_until("the threads to end", CHILD, || threads() == before);
}

/// Has a client at work with all its threads; returns the names of those that block all signals but those of their own
/// faults. This thread goes on to get them all.
fn threads_without_signals(url: &str, name: &str) -> Vec<String> {
    let client = Client::builder().url(url).poll_interval(SECOND * 60).build().unwrap();
    let lock = client.lock(name).on_lost(|_| ());
    let guard = lock.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| client.lock(name).fair(true).acquire_timeout(CHILD).unwrap());
        let mut names = Vec::new();
        // A thread gives itself its name, some time after it was started.
        wait_until("all threads of a client", CHILD, || {
            let tasks = fs::read_dir("/proc/self/task").unwrap();
            let threads = tasks.filter_map(|task| Thread::at(&task.unwrap().path()));
            // The last lives only while a connection is opened.
            let ours = threads
                .filter(|thread| thread.name.starts_with("redlatch-") && !thread.name.starts_with("redlatch-connec"));
            names = ours.filter(Thread::gets_no_signals).map(|thread| thread.name).collect();
            names.sort();
            names.dedup();
            names.len() == 3
        });
        assert_eq!(Thread::at(Path::new("/proc/thread-self")).unwrap().blocked, 0);
        guard.release().unwrap();
        names
    })
}

/// A thread as the system shows it.
struct Thread {
    name: String,
    /// The signals that it blocks.
    blocked: u64,
}

impl Thread {
    /// `None` if it has ended.
    fn at(task: &Path) -> Option<Self> {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        Some(Self {
            name: field("Name:"),
            blocked: u64::from_str_radix(&field("SigBlk:"), 16).unwrap(),
        })
    }

    fn gets_no_signals(&self) -> bool {
        let is_blocked = |signal: i32| self.blocked & (1 << (signal - 1)) != 0;
        let faults = [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGSYS,
        ];
        let unblockable = [libc::SIGKILL, libc::SIGSTOP];
        let mut others = (1..=libc::SIGSYS)
            .filter(|signal| !faults.contains(signal) && !unblockable.contains(signal))
            .chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        others.all(is_blocked) && !faults.into_iter().any(is_blocked)
    }
}
