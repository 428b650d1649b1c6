//! What the threads do.

use std::{
    mem::{self, ManuallyDrop},
    sync::Arc,
    time::Duration,
};

use shuttle::rand::{Rng, thread_rng};

use super::{
    finds, holds,
    recorder::{Event, What},
    world::{LEASE, POLL_INTERVAL, Resource, World},
};
use crate::{
    CancelToken, Client, Error, Lock, LostReason, Wait,
    sync::{
        Mutex,
        interleaved::time,
        mpsc,
        thread::{self, JoinHandle},
    },
};

/// A wait so short that it is over before anything else is due.
const SHORT: Duration = Duration::from_millis(1);

/// Starts a thread that takes the resource once for each of `waits`.
fn taker(
    world: &Arc<World>,
    resource: impl Resource,
    waits: impl IntoIterator<Item = Wait> + Send + 'static,
) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || {
        for wait in waits {
            world.take(&resource, wait);
        }
    })
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn often() -> [Wait; 2] {
    [Wait::forever(), Wait::forever()]
}

fn chance(of: f64) -> bool {
    thread_rng().gen_bool(of)
}

/// The threads of one client hand the lock on to each other, and never ask for what one of them has.
fn threads_of_one_client() {
    let world = World::new();
    let client = world.listening_client();
    join([0; 3].map(|_| taker(&world, world.lock(&client), often())));
    if world.events().iter().any(|event| matches!(event.what, What::Busy(_))) {
        world.complain("a client asked for what it had");
    }
    world.close([client]);
    world.ends_clean();
}

/// Those of two clients wake each other.
fn threads_of_two_clients() {
    let world = World::new();
    let clients = [world.listening_client(), world.listening_client()];
    let locks = [&clients[0], &clients[0], &clients[1]].map(|client| world.lock(client));
    join(locks.map(|lock| taker(&world, lock, often())));
    world.close(clients);
    world.ends_clean();
}

/// Each of these keeps to its turn, also before its client hears knocks.
fn fair_ones() {
    let world = World::new();
    let clients = [world.client(), world.client()];
    let locks = [&clients[0], &clients[0], &clients[1]].map(|client| world.lock(client).fair(true));
    join(locks.map(|lock| taker(&world, lock, often())));
    world.close(clients);
    world.check_turns();
    world.ends_clean();
}

/// One in a while does not keep to its turn.
fn fair_and_unfair_ones() {
    let world = World::new();
    let clients = [world.listening_client(), world.listening_client()];
    let locks = [&clients[0], &clients[0], &clients[1]].map(|client| world.lock(client).fair(chance(0.7)));
    join(locks.map(|lock| taker(&world, lock, often())));
    world.close(clients);
    world.ends_clean();
}

/// Some waits are cancelled, some end by themselves, just as the lock is handed on or knocked for.
fn waits_that_end() {
    let world = World::new();
    let clients = [world.listening_client(), world.listening_client()];
    some_waits_end(&world, &clients, false);
    world.close(clients);
    world.ends_clean();
}

/// The same among those that keep to their turn, where one speaks to the server for others.
fn fair_waits_that_end() {
    let world = World::new();
    let clients = [world.client(), world.client()];
    some_waits_end(&world, &clients, true);
    world.close(clients);
    world.check_turns();
    world.ends_clean();
}

fn some_waits_end(world: &Arc<World>, clients: &[Client; 2], fair: bool) {
    let stop = CancelToken::new();
    let takers = [0, 0, 0, 1, 1].map(|client: usize| {
        let lock = world.lock(&clients[client]).fair(fair);
        taker(world, lock, [one_that_may_end(&stop)])
    });
    let canceller = thread::spawn(move || stop.cancel());
    thread::yield_now();
    time::pass(SHORT);
    join(takers);
    join([canceller]);
}

fn one_that_may_end(stop: &CancelToken) -> Wait {
    match thread_rng().gen_range(0..6) {
        0..2 => Wait::forever(),
        2..4 => Wait::forever().cancelled_by(stop),
        4 => Wait::at_most(SHORT),
        _ => Wait::none(),
    }
}

/// One keeps the places of others at the server just as one of these ends its wait, and its client goes soon after.
fn places_kept_for_others() {
    let world = World::new();
    let (going, staying) = (world.client(), world.client());
    let stop = CancelToken::new();
    let guard = world.enter(world.lock(&staying).fair(true).acquire().unwrap());
    let takers = [
        taker(&world, world.lock(&going).fair(true), [Wait::forever()]),
        taker(
            &world,
            world.lock(&going).fair(true),
            [Wait::forever().cancelled_by(&stop)],
        ),
        taker(&world, world.lock(&staying).fair(true), [Wait::forever()]),
    ];
    drop(going);
    let placed = |event: &&Event| matches!(event.what, What::Busy(Some(_)));
    while world.events().iter().filter(placed).count() < 4 {
        thread::yield_now();
    }
    let canceller = thread::spawn(move || stop.cancel());
    time::pass(POLL_INTERVAL);
    world.release(world.leave(guard));
    join(takers);
    join([canceller]);
    world.close([staying]);
    world.check_turns();
    world.ends_clean();
}

/// All of it while time passes.
fn everything() {
    let world = World::with_losses();
    let clients = [world.client(), world.client()];
    let moving = world.start_time();
    let stop = CancelToken::new();
    let fair = chance(0.3);
    let takers = [0, 0, 0, 1, 1].map(|client: usize| {
        let lock = world
            .lock(&clients[client])
            .fair(fair || chance(0.1))
            .handoffs(thread_rng().gen_range(0..3));
        let waits = [0; 2].map(|_| match thread_rng().gen_range(0..4) {
            0 => Wait::forever(),
            1 => Wait::forever().cancelled_by(&stop),
            2 => Wait::at_most(POLL_INTERVAL * thread_rng().gen_range(0..4)),
            _ => Wait::at_most(SHORT),
        });
        taker(&world, lock, waits)
    });
    let canceller = thread::spawn(move || stop.cancel());
    join(takers);
    join([canceller]);
    world.stop_time(moving);
    world.close(clients);
    world.ends();
}

/// One lock is held for so long that it is renewed, while others wait; once nobody holds it, nobody renews it.
fn renewals() {
    let world = World::with_losses();
    let clients = [world.listening_client(), world.listening_client()];
    let moving = world.start_time();
    let threads = [&clients[0], &clients[0], &clients[1]].map(|client| {
        let (world, lock) = (world.clone(), world.lock(client));
        thread::spawn(move || {
            let guard = world.enter(lock.acquire().unwrap());
            if chance(0.7) {
                guard.wait_lost(LEASE / 2);
            }
            world.release(world.leave(guard));
        })
    });
    join(threads);
    world.stop_time(moving);
    let wait_for_keepers = || {
        for client in &clients {
            while !client.core().unwrap().keeper.sleeps() {
                thread::yield_now();
            }
        }
    };
    wait_for_keepers();
    let before = world.events().len();
    for _ in 0..10 {
        time::pass(LEASE / 5);
        wait_for_keepers();
    }
    if world.events()[before..]
        .iter()
        .any(|event| matches!(event.what, What::Renewed(_)))
    {
        world.complain("a lease was renewed that nobody holds");
    }
    world.close(clients);
    world.ends();
}

/// Guards are released in one thread while another waits for their end: that one is told of it, though the lock was
/// handed on, and the next holder keeps it until then.
fn guards_of_two_threads() {
    let world = World::new();
    let client = world.listening_client();
    let watchers: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
    join([0; 3].map(|_| {
        let (lock, watchers) = (world.lock(&client), watchers.clone());
        thread::spawn(move || {
            for wait in often() {
                // Not to be dropped when the scenario fails: that would need the threads of an execution that is over.
                let guard = ManuallyDrop::new(Arc::new(lock.acquire_with(wait).unwrap()));
                let earlier = mem::take(&mut *watchers.lock());
                join(earlier);
                let watched = Arc::clone(&guard);
                watchers
                    .lock()
                    .push(thread::spawn(move || assert!(watched.wait_lost(LEASE))));
                guard.release_once().expect("the first to release it").unwrap();
                assert!(guard.release_once().is_none());
                drop(ManuallyDrop::into_inner(guard));
            }
        })
    }));
    join(mem::take(&mut *watchers.lock()));
    world.close([client]);
    world.ends_clean();
}

/// The key is deleted under a holder while others wait. It is told; and once it knows, it hands nothing on.
fn losses() {
    let world = World::with_losses();
    let clients = [world.listening_client(), world.listening_client()];
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    let (taken, until_taken) = mpsc::channel();
    let holder = loser(
        &world,
        world.lock(&clients[0]),
        move || *count.lock() += 1,
        chance(0.5).then_some(until_taken),
    );
    let locks = [&clients[0], &clients[0], &clients[1]].map(|client| world.lock(client));
    join(locks.map(|lock| taker(&world, lock, [Wait::forever()])));
    drop(taken);
    join([holder]);
    world.close(clients);
    if *told.lock() != 1 {
        world.complain("the loss was not told once");
    }
    world.ends_clean();
}

/// Starts a thread that takes the lock, loses it, and notices; it may keep its guard for longer.
fn loser(
    world: &Arc<World>,
    lock: Lock,
    told: impl Fn() + Send + Sync + 'static,
    until: Option<mpsc::Receiver<()>>,
) -> JoinHandle<()> {
    let lock = lock.on_lost(move |lost| {
        if matches!(lost.reason, LostReason::Deleted | LostReason::Taken) {
            told();
        }
    });
    let world = world.clone();
    thread::spawn(move || {
        let guard = lock.acquire().unwrap();
        drop(lock);
        world.evict(&guard);
        if !matches!(guard.extend(LEASE), Err(Error::Lost(_))) {
            world.complain("an extension did not notice the loss");
        }
        world.lost(&guard);
        if let Some(until) = until {
            let _ = until.recv();
        }
        if chance(0.5) {
            drop(guard);
        } else if !matches!(guard.release(), Err(Error::Lost(_))) {
            world.complain("a release did not tell of the loss");
        }
    })
}

/// A client goes with the last of its handles: on the thread of a waiter, of a holder or of a callback, with clean-ups
/// still to be done, while another one waits.
fn clients_that_go() {
    let world = World::with_losses();
    let (going, staying) = (world.listening_client(), world.listening_client());
    let stop = CancelToken::new();
    let by_callback = chance(0.3);
    let mut threads = vec![
        taker(&world, world.lock(&staying), [Wait::forever()]),
        taker(&world, world.lock(&going), [Wait::forever().cancelled_by(&stop)]),
        taker(&world, world.lock(&going), [Wait::forever()]),
    ];
    threads.push({
        let kept = by_callback.then(|| going.clone());
        let told = move || {
            let _ = &kept;
        };
        loser(&world, world.lock(&going), told, None)
    });
    drop(going);
    stop.cancel();
    join(threads);
    world.close([staying]);
    if by_callback {
        // The other client may be going still.
        world.ends();
    } else {
        world.ends_clean();
    }
}

/// The threads of one client, and of another one, hand permits on to each other, and those of another client get
/// theirs.
fn permits_of_two_clients() {
    let world = World::of_permits(2);
    let clients = [world.listening_client(), world.listening_client()];
    let semaphores = [0, 0, 0, 0, 1].map(|client: usize| {
        let semaphore = world.semaphore(&clients[client]);
        semaphore.handoffs(thread_rng().gen_range(1..3))
    });
    join(semaphores.map(|semaphore| taker(&world, semaphore, often())));
    world.close(clients);
    world.ends_clean();
}

/// The turn of a client whose threads hand permits on is over again and again while another one waits.
fn permits_by_turns() {
    let world = World::of_permits(2);
    let clients = [world.listening_client(), world.listening_client()];
    let semaphores = [0, 0, 0, 0, 1].map(|client: usize| world.semaphore(&clients[client]).handoffs(1));
    join(semaphores.map(|semaphore| taker(&world, semaphore, [0; 5].map(|_| Wait::forever()))));
    world.close(clients);
    world.ends_clean();
}

/// One of those who want permits wants two at once.
fn several_permits_at_once() {
    let world = World::of_permits(3);
    let clients = [world.listening_client(), world.listening_client()];
    let fair = chance(0.5);
    let semaphores = [(0, 1), (0, 2), (0, 1), (1, 1), (1, 3)].map(|(client, permits): (usize, u32)| {
        let semaphore = world.semaphore(&clients[client]);
        semaphore.permits(permits).fair(fair)
    });
    join(semaphores.map(|semaphore| taker(&world, semaphore, often())));
    world.close(clients);
    world.ends_clean();
}

/// Some of the waits for permits are cancelled, some end by themselves, just as permits are handed on or knocked for.
fn waits_for_permits_that_end() {
    let world = World::of_permits(2);
    let clients = [world.listening_client(), world.listening_client()];
    let (stop, fair) = (CancelToken::new(), chance(0.3));
    let takers = [(0, 1), (0, 1), (0, 1), (0, 2), (1, 1), (1, 1)].map(|(client, permits): (usize, u32)| {
        let semaphore = world.semaphore(&clients[client]).permits(permits).fair(fair);
        taker(&world, semaphore, [one_that_may_end(&stop), Wait::forever()])
    });
    let canceller = thread::spawn(move || stop.cancel());
    thread::yield_now();
    time::pass(SHORT);
    join(takers);
    join([canceller]);
    world.close(clients);
    world.ends_clean();
}

/// Threads of two clients take sets that overlap in a ring, and single locks out of it; some of the waits end.
fn sets_of_locks() {
    let world = World::new();
    let clients = [world.listening_client(), world.listening_client()];
    let (stop, lease) = (CancelToken::new(), LEASE);
    let held = Arc::default();
    let sets = [["a", "b"], ["b", "c"], ["c", "a"]];
    let mut threads: Vec<_> = sets
        .iter()
        .enumerate()
        .map(|(nth, &set)| {
            let locks = clients[nth % 2].multi_lock(set).lease(lease);
            set_taker(&world, &held, locks, [Wait::forever(), one_that_may_end(&stop)])
        })
        .collect();
    let single = clients[1].lock("b").lease(lease);
    threads.push(set_taker(&world, &held, single, often()));
    let canceller = thread::spawn(move || stop.cancel());
    join(threads);
    join([canceller]);
    world.close(clients);
    world.ends_clean();
}

/// Starts a thread that takes the locks once for each of `waits`. None of them may be held by two.
fn set_taker(
    world: &Arc<World>,
    held: &Arc<std::sync::Mutex<Vec<Vec<u8>>>>,
    locks: impl Resource,
    waits: [Wait; 2],
) -> JoinHandle<()> {
    let (world, held) = (world.clone(), held.clone());
    thread::spawn(move || {
        for wait in waits {
            let guard = match locks.acquire(wait) {
                Ok(guard) => guard,
                Err(Error::Timeout { .. } | Error::Cancelled) => continue,
                Err(error) => {
                    world.complain(format!("an acquire failed: {error}"));
                    continue;
                }
            };
            let names: Vec<Vec<u8>> = guard.names().map(<[u8]>::to_vec).collect();
            if names.iter().any(|name| held.lock().unwrap().contains(name)) {
                world.complain("a lock is held twice");
            }
            held.lock().unwrap().extend(names.iter().cloned());
            thread::yield_now();
            held.lock().unwrap().retain(|name| !names.contains(name));
            world.release(guard);
        }
    })
}

macro_rules! tests {
    ($($scenario:ident: $($mistake:ident => $complaint:literal),*;)*) => {
        mod without_mistakes {
            $(#[test]
            fn $scenario() {
                super::holds(super::$scenario);
            })*
        }

        #[allow(non_snake_case)]
        mod with_the_mistake {
            use crate::mistakes::Mistake;

            $($(#[test]
            fn $mistake() {
                super::finds(Mistake::$mistake, super::$scenario, $complaint);
            })*)*
        }
    };
}

tests! {
    threads_of_one_client:
        SleepsAfterALook => "deadlock",
        WakesBeforeTheRelease => "a client asked for what it had";
    threads_of_two_clients:
        DropsAKnock => "deadlock",
        ExpectsAfterAsking => "deadlock",
        ReleasesWhatItHandedOn => "it was lost when it was acquired",
        SleepsThroughTheEnd => "deadlock";
    fair_ones:
        ListensInSilence => "deadlock",
        PassesOnByForce => "a release failed: lost the lease";
    fair_and_unfair_ones: ;
    waits_that_end:
        LeavesInSilence => "deadlock",
        LosesAHandOver => "something is left in the gate";
    fair_waits_that_end: ;
    places_kept_for_others: ;
    everything: ;
    renewals:
        RenewsAfterRelease => "a lease was renewed that nobody holds";
    guards_of_two_threads:
        HandsOnInSilence => "deadlock";
    losses:
        LosesInSilence => "deadlock",
        HandsOnALostLease => "what was lost was handed on";
    clients_that_go: ;
    permits_of_two_clients:
        InheritsInSilence => "deadlock",
        VacatesInSilence => "deadlock";
    permits_by_turns: ;
    several_permits_at_once: ;
    waits_for_permits_that_end: ;
    sets_of_locks:
        TakesInNoOrder => "deadlock";
}
