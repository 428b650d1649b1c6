//! Waits that are cancelled, or end, before they are served.

use std::{thread, time::Instant};

use redlatch::{CancelToken, Client, Error, Guard, Wait};

use crate::{
    corner::Corner,
    prompt::spin,
    support::{SLACK, millis, wait_until},
    terms::{LIMIT, PROMPT},
};

fn wait_for_it(corner: &Corner, client: &Client, cancel: &CancelToken) -> Result<Guard, Error> {
    let target = corner.terms().target(client);
    target.acquire_with(Wait::at_most(LIMIT).cancelled_by(cancel))
}

/// Asserts that anybody can have it soon, though the leases of those who were there before last a minute.
fn assert_free_soon(corner: &Corner, client: &Client) {
    let target = corner.terms().target(client);
    let mut taken = None;
    wait_until("it to be free", PROMPT, || {
        taken = target.try_acquire().unwrap();
        taken.is_some()
    });
    taken.unwrap().release().unwrap();
}

#[derive(Default)]
struct Outcomes {
    served: u32,
    unserved: u32,
}

impl Outcomes {
    fn count(&mut self, outcome: Result<Guard, Error>) {
        match outcome {
            Ok(guard) => {
                guard.release().unwrap();
                self.served += 1;
            }
            Err(Error::Cancelled | Error::Timeout { .. }) => self.unserved += 1,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn assert_both(&self) {
        let Self { served, unserved } = self;
        assert!(
            *served > 0 && *unserved > 0,
            "{served} were served, {unserved} were not"
        );
    }
}

pub fn a_cancelled_wait_ends_at_once_and_leaves_nothing(corner: &Corner) {
    let (client, cancel) = (corner.client(), CancelToken::new());
    let guard = corner.hold();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_for_it(corner, &client, &cancel));
        corner.wait_for_registered(1);
        let cancelled = Instant::now();
        cancel.cancel();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled)));
        assert!(cancelled.elapsed() <= SLACK, "{:?}", cancelled.elapsed());
    });
    wait_until("its registration to go", PROMPT, || {
        corner.traces_of_waiting().is_empty()
    });
    guard.release().unwrap();
    assert_eq!(corner.holder(), None, "it is kept for nobody");
}

pub fn a_wait_that_is_cancelled_around_the_release_leaves_no_lease(corner: &Corner) {
    let clients = [(); 3].map(|()| corner.client());
    let mut outcomes = Outcomes::default();
    for round in 0..200 {
        let (guard, cancel) = (corner.terms().acquire(&clients[0]).unwrap(), CancelToken::new());
        let between = millis(1) * (round / 2) / 25;
        thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_for_it(corner, &clients[1], &cancel));
            corner.wait_for_registered(1);
            if round % 2 == 0 {
                guard.release().unwrap();
                spin(between);
                cancel.cancel();
            } else {
                cancel.cancel();
                spin(between / 4);
                guard.release().unwrap();
            }
            outcomes.count(waiter.join().unwrap());
        });
        assert_free_soon(corner, &clients[2]);
    }
    outcomes.assert_both();
    corner.wait_until_all_is_gone();
}

pub fn a_wait_that_times_out_around_the_release_leaves_no_lease(corner: &Corner) {
    let clients = [(); 3].map(|()| corner.client());
    let mut outcomes = Outcomes::default();
    for round in 0..100 {
        let guard = corner.terms().acquire(&clients[0]).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| corner.terms().limit(millis(10)).acquire(&clients[1]));
            thread::sleep(millis(7) + millis(6) * round / 100);
            guard.release().unwrap();
            outcomes.count(waiter.join().unwrap());
        });
        assert_free_soon(corner, &clients[2]);
    }
    outcomes.assert_both();
    corner.wait_until_all_is_gone();
}

pub fn a_wait_of_a_thread_is_cancelled_beside_another_of_its_client(corner: &Corner) {
    let client = corner.client();
    for first_is_cancelled in [true, false] {
        let (first, second) = (CancelToken::new(), CancelToken::new());
        let guard = corner.hold();
        thread::scope(|scope| {
            let waits = [&first, &second].map(|cancel| {
                let wait = scope.spawn(|| wait_for_it(corner, &client, cancel));
                // Where the second waits in this process only, nobody else can see it.
                wait_until("a registration", PROMPT, || corner.registered() >= 1);
                wait
            });
            let [cancelled, served] = if first_is_cancelled {
                first.cancel();
                waits
            } else {
                second.cancel();
                let [first, second] = waits;
                [second, first]
            };
            assert!(matches!(cancelled.join().unwrap(), Err(Error::Cancelled)));
            corner.wait_for_registered(1);
            let released = Instant::now();
            guard.release().unwrap();
            served.join().unwrap().unwrap().release().unwrap();
            assert!(released.elapsed() <= PROMPT, "{:?}", released.elapsed());
        });
        corner.wait_until_all_is_gone();
    }
}
