//! The threads of one client, which hand a lease on among themselves.

use std::{
    collections::HashSet,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use redlatch::{Guard, LostReason, Wait};

use crate::{
    exclusive::{Client, Lock},
    store::{Acquire, MINUTE, PROMPT, Store, sleepy},
    support::{SECOND, lost, millis, wait_until},
};

/// What became of a lock, or of permits, that were released while another thread waited for them.
pub struct Passed {
    former_token: String,
    former_fencing_token: u64,
    /// When the release began.
    released: Instant,
    pub next: Guard,
}

impl Passed {
    pub fn is_handed_over(&self) -> bool {
        let risen = self.next.fencing_token() > self.former_fencing_token;
        assert!(risen, "{:?} after {}", self.next, self.former_fencing_token);
        self.next.token() == self.former_token
    }
}

/// Has one thread take `first` and release it after `hold`, and another take `next` meanwhile, most likely.
///
/// Nobody can see who waits in this process only. So what is to be seen is looked for with growing holds.
pub fn pass<A: Acquire>(first: &A, next: &A, hold: Duration, meanwhile: impl FnOnce(&Guard)) -> Passed {
    let guard = first.acquire_with(Wait::at_most(PROMPT)).unwrap();
    thread::scope(|scope| {
        let next = next.clone();
        let next = scope.spawn(move || next.acquire_with(Wait::at_most(PROMPT * 2)).unwrap());
        thread::sleep(hold);
        meanwhile(&guard);
        let (former_token, former_fencing_token) = (guard.token().to_owned(), guard.fencing_token());
        let released = Instant::now();
        // It may have been lost meanwhile.
        drop(guard);
        Passed {
            former_token,
            former_fencing_token,
            released,
            next: next.join().unwrap(),
        }
    })
}

/// Holds that are the longer the later: of 1 ms to 1 s.
pub fn holds() -> impl Iterator<Item = Duration> {
    (0..=10).map(|power| millis(1 << power))
}

/// A lease that was handed over from `first` to `next`.
#[track_caller]
pub fn handed_over<A: Acquire>(first: &A, next: &A) -> Passed {
    let mut passed = holds().map(|hold| pass(first, next, hold, |_| ()));
    passed.find(Passed::is_handed_over).expect("a lease to be handed over")
}

/// How long to hold a lease so that one that can be handed over is.
pub fn long_enough(lock: &impl Acquire) -> Duration {
    let is_enough = |hold: &Duration| pass(lock, lock, *hold, |_| ()).is_handed_over();
    holds().find(is_enough).expect("a lease to be handed over") * 2
}

/// A lock whose lease goes on from one thread to the next as often as it takes.
fn handed_on(client: &Client) -> Lock {
    sleepy(client, false).handoffs(u32::MAX)
}

pub fn threads_of_one_client_hand_a_lease_on_and_fencing_tokens_rise(store: &Store) {
    const THREADS: usize = 4;
    for lock in [sleepy(&store.sleepy_client(), false), handed_on(&store.sleepy_client())] {
        let mut chains = holds().map(|hold| {
            let (guard, grants) = (lock.acquire().unwrap(), Mutex::new(Vec::new()));
            let note = |guard: &Guard| {
                let grant = (guard.token().to_owned(), guard.fencing_token());
                grants.lock().unwrap().push(grant);
            };
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let guard = lock.acquire_timeout(PROMPT * 2).unwrap();
                        note(&guard);
                        guard.check().unwrap();
                        // Nothing is handed to a thread that is just asking the server, as those who want permits do
                        // when they come first.
                        thread::sleep(hold);
                        guard.release().unwrap();
                    });
                }
                thread::sleep(hold);
                note(&guard);
                guard.release().unwrap();
            });
            let grants = grants.into_inner().unwrap();
            assert!(
                grants.is_sorted_by(|(_, earlier), (_, later)| earlier < later),
                "{grants:?}"
            );
            assert_eq!(grants.len(), THREADS + 1);
            let leases: HashSet<String> = grants.into_iter().map(|(token, _)| token).collect();
            leases.len()
        });
        assert!(chains.any(|leases| leases == 1), "no lease went through all threads");
        // A place at the server that a hand-over came before is given up in the background.
        wait_until("nothing to be left", PROMPT, || lock.inspect().unwrap().is_free());
    }
}

pub fn a_lease_is_handed_over_to_the_same_settings_only(store: &Store) {
    let client = store.sleepy_client();
    let lock = handed_on(&client);
    let hold = long_enough(&lock);
    let others = [
        lock.clone().lease(MINUTE * 2),
        lock.clone().max_hold(MINUTE * 60),
        lock.clone().handoffs(7),
        lock.clone().handoffs(0),
        lock.clone().fair(true),
        client.timed_lock("x", MINUTE).handoffs(u32::MAX),
    ];
    for other in &others {
        for [first, next] in [[&lock, other], [other, &lock]] {
            let passed = pass(first, next, hold, |_| ());
            assert!(!passed.is_handed_over(), "{first:?} to {next:?}");
        }
    }
    let [.., none, fair, timed] = &others;
    for own in [none, fair, timed] {
        let passed = pass(own, own, hold, |_| ());
        assert!(!passed.is_handed_over(), "{own:?} to its like");
    }
    // By another client it is not even asked for.
    let passed = pass(&lock, &handed_on(&store.sleepy_client()), hold, |_| ());
    assert!(!passed.is_handed_over());
}

pub fn a_lost_lease_is_not_handed_on(store: &Store) {
    let (lock, operator) = (handed_on(&store.sleepy_client()), store.client().lock("x"));
    let hold = long_enough(&lock);
    for knows in [true, false] {
        let start = Instant::now();
        let passed = pass(&lock, &lock, hold, |guard| {
            assert!(operator.force_release().unwrap());
            if knows {
                assert_eq!(lost(guard.extend(MINUTE * 2).unwrap_err()), LostReason::Deleted);
            }
        });
        assert!(start.elapsed() <= hold + PROMPT, "{:?}", start.elapsed());
        if knows || matches!(lock, Lock::Semaphore(_)) {
            assert!(!passed.is_handed_over());
        } else {
            // Nobody can know here, since the server is not asked as it is for permits: what was handed over is found
            // to be lost in its turn.
            passed.is_handed_over();
        }
        drop(passed);
        drop(store.client().lock("x").acquire_timeout(PROMPT).unwrap());
    }
}

pub fn an_extended_lease_is_not_handed_on(store: &Store) {
    let lock = handed_on(&store.sleepy_client());
    let hold = long_enough(&lock);
    let passed = pass(&lock, &lock, hold, |guard| guard.extend(MINUTE * 10).unwrap());
    assert!(!passed.is_handed_over());
    let left = passed.next.remaining();
    assert!(left <= MINUTE, "{left:?} of another's extension");
}

pub fn the_longest_hold_is_counted_anew_from_each_hand_over(store: &Store) {
    let max_hold = MINUTE * 60;
    let lock = handed_on(&store.sleepy_client()).max_hold(max_hold);
    let passed = pass(&lock, &lock, SECOND, |_| ());
    assert!(passed.is_handed_over());
    // From the grant before, this would be too long by half a second.
    passed.next.extend(max_hold - SECOND / 2).unwrap();
    let rest = max_hold - passed.released.elapsed();
    assert!(passed.next.remaining() <= rest, "it ends with the longest hold");
    drop(passed);

    let max_hold = SECOND * 3;
    // One that wants permits asks when the lease would end: not when it is released.
    let lock = lock.lease(SECOND * 3 / 2).max_hold(max_hold);
    let passed = pass(&lock, &lock, SECOND, |_| ());
    assert!(passed.is_handed_over());
    assert!(passed.next.wait_lost(PROMPT));
    let held = passed.released.elapsed();
    assert!(held > max_hold - SECOND / 2 && held <= max_hold + SECOND, "{held:?}");
    assert_eq!(lost(passed.next.release().unwrap_err()), LostReason::MaxHold);
}

pub fn each_grant_has_its_own_callback_told_and_no_former_holders(store: &Store) {
    let (client, operator) = (store.sleepy_client(), store.client().lock("x"));
    let (former, of_the_former) = mpsc::channel();
    let (own, of_its_own) = mpsc::channel();
    let with_callback =
        |sender: mpsc::Sender<u64>| handed_on(&client).on_lost(move |lost| sender.send(lost.fencing_token).unwrap());
    let locks = [with_callback(former), with_callback(own), handed_on(&client)];
    for next in [&locks[1], &locks[2]] {
        let passed = handed_over(&locks[0], next);
        assert!(operator.force_release().unwrap());
        assert_eq!(lost(passed.next.extend(MINUTE).unwrap_err()), LostReason::Deleted);
        if std::ptr::eq(next, &locks[1]) {
            let told = of_its_own.recv_timeout(PROMPT).unwrap();
            assert_eq!(told, passed.next.fencing_token());
        }
    }
    // A callback that is still under way ends with the client, and what it could tell with it.
    drop(locks);
    drop(client);
    assert_eq!(
        of_the_former.recv_timeout(PROMPT),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    assert!(of_its_own.recv_timeout(PROMPT).is_err());
}

pub fn fencing_tokens_rise_over_hand_overs_and_the_grants_of_two_clients(store: &Store) {
    const THREADS: usize = 3;
    const TURNS: usize = 60;
    let (grants, holder) = (Mutex::new(Vec::new()), store.sleepy_lock(false));
    let guard = holder.acquire().unwrap();
    thread::scope(|scope| {
        for client in 0..2 {
            let lock = sleepy(&store.sleepy_client(), false);
            for _ in 0..THREADS {
                let (lock, grants) = (lock.clone(), &grants);
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        let guard = lock.acquire_timeout(MINUTE / 2).unwrap();
                        let grant = (client, guard.token().to_owned(), guard.fencing_token());
                        grants.lock().unwrap().push(grant);
                        guard.release().unwrap();
                    }
                });
            }
        }
        // Or one may be through with its turns before the other has begun.
        store.wait_for_waiters(&holder, 2);
        guard.release().unwrap();
    });
    let grants = grants.into_inner().unwrap();
    assert_eq!(grants.len(), 2 * THREADS * TURNS);
    assert!(grants.is_sorted_by(|earlier, later| earlier.2 < later.2), "{grants:?}");
    let leases: HashSet<_> = grants.iter().map(|(_, token, _)| token).collect();
    assert!(leases.len() < grants.len(), "nothing was handed over");
    let changes = grants.windows(2).filter(|two| two[0].0 != two[1].0).count();
    assert!(changes > 1, "one client came after the other only");
}
