//! What happens to locks and permits when something happens to the processes that hold them: killed, stopped, forked.
//!
//! This program is also the process that holds them: see `worker`.

#[path = "../support/mod.rs"]
mod support;
mod worker;

use std::{process::ExitCode, sync::Arc, thread, time::Instant};

use libtest_mimic::{Arguments, Trial};
use redlatch::{Client, Holder, Lock, Semaphore};
use support::{SECOND, SLACK, Server, Worker, wait_until};

fn main() -> ExitCode {
    if let Some(url) = support::worker_url() {
        worker::run(&url);
        return ExitCode::SUCCESS;
    }
    macro_rules! trials {
        ($($scenario:ident)*) => {
            vec![$(Trial::test(stringify!($scenario), || {
                $scenario(&Corner::new(stringify!($scenario)));
                Ok(())
            })),*]
        };
    }
    let trials = trials! {
        a_killed_holder_frees_the_lock_within_one_lease
        a_holder_stopped_beyond_its_lease_knows_at_once_that_it_lost_the_lock
        killed_holders_of_permits_give_all_of_them_back_within_one_lease
        a_holder_of_permits_stopped_beyond_its_lease_knows_at_once_that_it_lost_them
        processes_exclude_one_another_and_see_rising_tokens
        a_forked_child_cannot_touch_its_parents_lock
        a_forked_child_cannot_touch_its_parents_permits
        a_forked_child_of_a_busy_parent_never_hangs
        a_fork_beside_a_thread_that_waits_hinders_neither_process
        a_clients_threads_end_with_its_last_handle
        signals_go_to_the_programs_threads_alone
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A server, and names that no other test uses.
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

    fn worker(&self) -> Worker {
        Worker::of_this_program(&self.server.url())
    }

    fn lock(&self) -> Lock {
        Client::open(self.server.url()).unwrap().lock(self.name)
    }

    fn semaphore(&self) -> Semaphore {
        Client::open(self.server.url()).unwrap().semaphore(self.name, 3)
    }

    /// With a lease of a minute, of a client whose waiters look by themselves as seldom.
    fn sleepy_lock(&self, fair: bool) -> Lock {
        worker::sleepy_lock(&self.server.url(), self.name, fair)
    }

    fn holder(&self) -> Option<String> {
        self.server.get(&format!("lock:{}", self.name))
    }
}

fn a_killed_holder_frees_the_lock_within_one_lease(corner: &Corner) {
    let lease = SECOND * 2;
    let mut worker = corner.worker();
    let start = Instant::now();
    let fencing_token = worker::acquire(&mut worker, corner.name, lease);
    // Long enough for a renewal.
    thread::sleep(lease / 2);
    assert!(corner.lock().try_acquire().unwrap().is_none());
    let killed = Instant::now();
    worker.kill();
    let guard = corner.lock().acquire_timeout(lease * 10).unwrap();
    assert!(killed.elapsed() <= lease + SLACK, "{:?}", killed.elapsed());
    assert!(start.elapsed() >= lease);
    assert!(guard.fencing_token() > fencing_token);
}

fn a_holder_stopped_beyond_its_lease_knows_at_once_that_it_lost_the_lock(corner: &Corner) {
    let mut worker = corner.worker();
    let fencing_token = worker::acquire(&mut worker, corner.name, SECOND * 2);
    assert_eq!(worker.ask("is_held"), "true");
    worker.stop();
    let guard = corner.lock().acquire_timeout(SECOND * 20).unwrap();
    assert!(guard.fencing_token() > fencing_token);
    // Asked for while it is stopped, so that it is the first thing that it does.
    worker.send("is_held");
    worker.resume();
    assert_eq!(worker.receive(), "false");
    assert_eq!(worker.ask("release"), "lost");
    guard.check().unwrap();
    assert_eq!(corner.holder().as_deref(), Some(guard.token()));
    guard.release().unwrap();
}

fn killed_holders_of_permits_give_all_of_them_back_within_one_lease(corner: &Corner) {
    let lease = SECOND * 2;
    // One of them dies with two.
    let mut workers = [corner.worker(), corner.worker()];
    let tokens: Vec<u64> = (1..)
        .zip(&mut workers)
        .map(|(permits, worker)| worker::take_permits(worker, corner.name, permits, lease))
        .collect();
    // Long enough for a renewal.
    thread::sleep(lease / 2);
    assert!(corner.semaphore().try_acquire().unwrap().is_none());
    let killed = Instant::now();
    workers.iter().for_each(Worker::kill);
    let guard = corner.semaphore().permits(3).acquire_timeout(lease * 10).unwrap();
    assert!(killed.elapsed() <= lease + SLACK, "{:?}", killed.elapsed());
    assert!(tokens.iter().all(|token| *token < guard.fencing_token()));
    assert!(corner.semaphore().try_acquire().unwrap().is_none());
}

fn a_holder_of_permits_stopped_beyond_its_lease_knows_at_once_that_it_lost_them(corner: &Corner) {
    let mut worker = corner.worker();
    let fencing_token = worker::take_permits(&mut worker, corner.name, 2, SECOND * 2);
    worker.stop();
    let guard = corner.semaphore().permits(3).acquire_timeout(SECOND * 20).unwrap();
    assert!(guard.fencing_token() > fencing_token);
    // Asked for while it is stopped, so that it is the first thing that it does.
    worker.send("is_held");
    worker.resume();
    assert_eq!(worker.receive(), "false");
    assert_eq!(worker.ask("release"), "lost");
    // What it had has not come back, nor gone from the other.
    guard.check().unwrap();
    let holders = corner.semaphore().holders().unwrap();
    assert!(
        holders.len() == 1 && holders[0].token == guard.token().as_bytes(),
        "{holders:?}"
    );
    guard.release().unwrap();
    assert_eq!(corner.semaphore().available().unwrap(), 3);
}

fn processes_exclude_one_another_and_see_rising_tokens(corner: &Corner) {
    let mut workers: Vec<Worker> = (0..4).map(|_| corner.worker()).collect();
    for worker in &mut workers {
        worker.send(format_args!("count {} 25", corner.name));
    }
    for worker in &mut workers {
        assert_eq!(worker.receive(), "counted");
    }
    let mut connection = corner.server.connection();
    let count: u64 = redis::cmd("GET")
        .arg(worker::counter(corner.name))
        .query(&mut connection)
        .unwrap();
    assert_eq!(count, 100, "an update was lost");
    let tokens: Vec<u64> = redis::cmd("LRANGE")
        .arg(worker::tokens(corner.name))
        .arg(0)
        .arg(-1)
        .query(&mut connection)
        .unwrap();
    assert_eq!(tokens.len(), 100);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
}

fn a_forked_child_cannot_touch_its_parents_lock(corner: &Corner) {
    let lease = SECOND * 3 / 2;
    let mut worker = corner.worker();
    worker::acquire(&mut worker, corner.name, lease);
    let before = corner.holder();
    assert_eq!(worker.ask(format_args!("fork {}", corner.name)), "child 0");
    // The parent goes on as if nothing had been: its lock is held, and renewed.
    // That it stays so is seen only by letting the time pass in which the lease would have ended.
    thread::sleep(lease * 2);
    assert_eq!(corner.holder(), before);
    assert_eq!(worker.ask("is_held"), "true");
    assert_eq!(worker.ask("release"), "released");
    assert_eq!(corner.holder(), None);
}

fn a_forked_child_cannot_touch_its_parents_permits(corner: &Corner) {
    let (lease, mut worker) = (SECOND * 3 / 2, corner.worker());
    worker::take_permits(&mut worker, corner.name, 2, lease);
    let before = corner.semaphore().holders().unwrap();
    assert_eq!(worker.ask(format_args!("fork-with-permits {}", corner.name)), "child 0");
    // The parent goes on as if nothing had been: its permits are held, and renewed.
    // That it stays so is seen only by letting the time pass in which the lease would have ended.
    thread::sleep(lease * 2);
    let after = corner.semaphore().holders().unwrap();
    let held = |holders: &[Holder]| {
        holders
            .iter()
            .map(|holder| (holder.token.clone(), holder.permits))
            .collect::<Vec<_>>()
    };
    assert_eq!(held(&after), held(&before));
    assert_eq!(worker.ask("is_held"), "true");
    assert_eq!(worker.ask("release"), "released");
    assert_eq!(corner.semaphore().available().unwrap(), 3);
}

fn a_forked_child_of_a_busy_parent_never_hangs(corner: &Corner) {
    let mut worker = corner.worker();
    assert_eq!(
        worker.ask(format_args!("fork-busily {} 40", corner.name)),
        "children 40"
    );
}

fn a_fork_beside_a_thread_that_waits_hinders_neither_process(corner: &Corner) {
    for fair in [false, true] {
        let lock = corner.sleepy_lock(fair);
        let mut worker = corner.worker();
        let guard = lock.acquire().unwrap();
        worker.send(format_args!("fork-beside-waiter {} {fair}", corner.name));
        // A thread of the parent, and one of the child, which has a client of its own.
        wait_until("both to wait", SECOND * 10, || lock.inspect().unwrap().waiters == 2);
        // Nobody looks by himself so soon.
        let released = Instant::now();
        guard.release().unwrap();
        assert_eq!(worker.receive(), "served child 0");
        assert!(released.elapsed() <= SECOND * 10, "{:?}", released.elapsed());
        assert_eq!(corner.holder(), None);
        wait_until("nobody to be left", SECOND * 10, || {
            lock.inspect().unwrap().waiters == 0
        });
    }
}

fn a_clients_threads_end_with_its_last_handle(corner: &Corner) {
    if cfg!(target_os = "linux") {
        let mut worker = corner.worker();
        assert_eq!(worker.ask(format_args!("threads {}", corner.name)), "ended");
    }
}

fn signals_go_to_the_programs_threads_alone(corner: &Corner) {
    if cfg!(target_os = "linux") {
        let mut worker = corner.worker();
        let threads = worker.ask(format_args!("signals {}", corner.name));
        // The system keeps fifteen letters.
        assert_eq!(threads, "redlatch-keeper redlatch-knocks redlatch-on-los");
    }
}
