//! Many leases at once. Prints its figures; `REDLATCH_LONG=60 cargo test --release --test scale -- --nocapture` is the
//! run whose figures stand in `docs/measurements.md`.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Guard};
use support::{SECOND, Server, long_run};

const LEASES: usize = 10_000;
const LEASE: Duration = Duration::from_secs(10);

#[test]
fn ten_thousand_leases_are_kept_by_one_thread() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let losses = Arc::new(AtomicU32::new(0));
    let take = |nth: usize| {
        let losses = losses.clone();
        let on_lost = move |_: &_| _ = losses.fetch_add(1, Ordering::SeqCst);
        // Locks, and permits of large semaphores.
        let taken = if nth.is_multiple_of(2) {
            client
                .lock(format!("name-{nth}"))
                .lease(LEASE)
                .on_lost(on_lost)
                .try_acquire()
        } else {
            let semaphore = client.semaphore(format!("name-{}", nth % 5), 1_000).lease(LEASE);
            semaphore.on_lost(on_lost).try_acquire()
        };
        taken.unwrap().expect("free")
    };
    let guards: Vec<Guard> = (0..LEASES).map(take).collect();

    let hold = long_run().unwrap_or(LEASE * 5 / 4);
    let (start, before) = (Instant::now(), Cost::now(&server));
    while start.elapsed() < hold {
        thread::sleep(SECOND / 4);
        assert!(guards.iter().all(Guard::is_held), "after {:?}", start.elapsed());
    }
    let (held, after) = (start.elapsed(), Cost::now(&server));
    let renewals = after.commands - before.commands;
    // Each is renewed after about a third of its lease.
    let expected = LEASES as f64 * held.as_secs_f64() / (LEASE.as_secs_f64() / 3.0);
    assert!(
        (renewals as f64) > expected * 0.5 && (renewals as f64) < expected * 1.5,
        "{renewals} renewals where {expected:.0} are due"
    );
    println!(
        "{LEASES} leases of {LEASE:?} held for {held:.1?}: {} lost; {:.0} commands/s at the server",
        losses.load(Ordering::SeqCst),
        renewals as f64 / held.as_secs_f64(),
    );
    if let (Some(before), Some(after)) = (&before.keepers, &after.keepers) {
        assert_eq!((before.threads, after.threads), (1, 1));
        println!(
            "the keeper's thread used {:?} of processor time, {:.1} % of one processor",
            after.busy - before.busy,
            (after.busy - before.busy).as_secs_f64() / held.as_secs_f64() * 100.0,
        );
    }
    assert_eq!(client.semaphore("name-1", 1_000).available().unwrap(), 0);
    for guard in guards {
        guard.release().unwrap();
    }
    assert_eq!(client.semaphore("name-1", 1_000).available().unwrap(), 1_000);
    assert_eq!(losses.load(Ordering::SeqCst), 0);
}

/// What the renewals have cost so far.
struct Cost {
    /// Scripts that the server has run.
    commands: u64,
    /// The threads that renew, where the system tells.
    keepers: Option<Keepers>,
}

struct Keepers {
    threads: usize,
    busy: Duration,
}

impl Cost {
    fn now(server: &Server) -> Self {
        Self {
            commands: server.command_calls("evalsha"),
            keepers: Keepers::now(),
        }
    }
}

impl Keepers {
    #[cfg(target_os = "linux")]
    fn now() -> Option<Self> {
        let mut keepers = Self {
            threads: 0,
            busy: Duration::ZERO,
        };
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            // "<tid> (<name>) <state> ...": the 12th and 13th word after the name are user and system time in ticks.
            let Ok(stat) = std::fs::read_to_string(task.unwrap().path().join("stat")) else {
                continue;
            };
            let (name, rest) = stat.rsplit_once(')').unwrap();
            if name.ends_with("(redlatch-keeper") {
                let ticks: u64 = rest
                    .split_whitespace()
                    .skip(11)
                    .take(2)
                    .map(|word| word.parse::<u64>().unwrap())
                    .sum();
                keepers.threads += 1;
                // SAFETY: no memory is involved.
                let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
                keepers.busy += SECOND.mul_f64(ticks as f64 / per_second as f64);
            }
        }
        Some(keepers)
    }

    #[cfg(not(target_os = "linux"))]
    fn now() -> Option<Self> {
        None
    }
}
