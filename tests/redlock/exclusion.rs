//! Never two holders, whatever happens to the servers and whoever reaches which.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, Guard, Lock};

use crate::{
    nodes::{MAX_LEASE, SOON, builder, client, voting},
    support::{Proxy, Redlock, SECOND, long_run},
};

/// Who holds the lock, as those who hold it tell.
#[derive(Default)]
struct Record {
    holder: Mutex<Option<Arc<Guard>>>,
    /// The highest fencing token so far.
    highest: Mutex<u64>,
    grants: AtomicU32,
}

impl Record {
    /// Holds the lock for a moment, makes sure that nobody else does, and releases it.
    fn hold(&self, guard: Guard, pause: Duration) {
        let guard = Arc::new(guard);
        {
            let mut holder = self.holder.lock().unwrap();
            let former = holder.replace(guard.clone());
            assert!(former.is_none_or(|former| !former.is_held()), "two hold it");
            let mut highest = self.highest.lock().unwrap();
            assert!(
                guard.fencing_token() > *highest,
                "{} after {highest}",
                guard.fencing_token()
            );
            *highest = guard.fencing_token();
        }
        thread::sleep(pause);
        let mut holder = self.holder.lock().unwrap();
        if holder.as_ref().is_some_and(|holder| Arc::ptr_eq(holder, &guard)) {
            *holder = None;
        }
        drop(holder);
        self.grants.fetch_add(1, Ordering::SeqCst);
    }
}

/// Another way to the same servers.
struct OtherWay(Vec<Proxy>);

impl OtherWay {
    fn to(redlock: &Redlock) -> Self {
        Self(redlock.nodes().iter().map(Proxy::to).collect())
    }

    fn client(&self) -> Client {
        let hosts: Vec<String> = self
            .0
            .iter()
            .map(|proxy| format!("127.0.0.1:{}", proxy.port()))
            .collect();
        builder(format!("redlock://{}", hosts.join(","))).build().unwrap()
    }
}

#[test]
fn two_sides_of_a_split_never_hold_it_both() {
    let redlock = voting();
    let other_way = OtherWay::to(&redlock);
    let (here, there) = (client(&redlock), other_way.client());
    let (here, there) = (here.lock("x").lease(MAX_LEASE), there.lock("x").lease(MAX_LEASE));
    let cut = |reached: &[usize], reached_there: &[usize]| {
        for nth in 0..5 {
            for (proxy, up) in [
                (redlock.proxy(nth), reached.contains(&nth)),
                (&other_way.0[nth], reached_there.contains(&nth)),
            ] {
                if up { proxy.go_up() } else { proxy.go_down() }
            }
        }
    };
    // Three against two.
    cut(&[0, 1, 2], &[3, 4]);
    let guard = here.acquire_timeout(SOON).unwrap();
    let refused = there.try_acquire().unwrap_err();
    assert!(matches!(refused, Error::NoQuorum(_)), "{refused:?}");
    guard.check().unwrap();
    // They have one in common.
    cut(&[0, 1, 2], &[2, 3, 4]);
    for _ in 0..20 {
        assert!(there.try_acquire().unwrap().is_none());
    }
    guard.check().unwrap();
    guard.release().unwrap();
    let guard = there.acquire_timeout(SOON).unwrap();
    assert!(here.try_acquire().unwrap().is_none());
    drop(guard);
}

#[test]
fn several_threads_and_clients_exclude_one_another_while_servers_fail_at_random() {
    let redlock = voting();
    let other_way = OtherWay::to(&redlock);
    let clients = [client(&redlock), client(&redlock), other_way.client()];
    let locks: Vec<Lock> = clients
        .iter()
        .flat_map(|client| [client.lock("x").lease(MAX_LEASE), client.timed_lock("x", SECOND)])
        .collect();
    let (record, over) = (Record::default(), AtomicBool::new(false));
    let until = Instant::now() + long_run().unwrap_or(SECOND * 12);
    thread::scope(|scope| {
        for lock in &locks {
            let (record, over) = (&record, &over);
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    match lock.acquire_timeout(SECOND * 2) {
                        Ok(guard) => record.hold(guard, Duration::from_micros(fastrand::u64(..2000))),
                        Err(Error::Timeout { .. } | Error::NoQuorum(_) | Error::Connection(_)) => {}
                        Err(Error::Unconfirmed(_)) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
        // At most two are away from anybody, or mute, at any time: so there is always a majority.
        while Instant::now() < until {
            let nth = fastrand::usize(..5);
            let proxies = [redlock.proxy(nth), &other_way.0[nth]];
            let struck = &proxies[..fastrand::usize(1..=2)];
            match fastrand::u32(..3) {
                0 => struck.iter().for_each(|proxy| proxy.go_down()),
                1 => struck.iter().for_each(|proxy| proxy.black_hole(true)),
                _ => redlock.node(nth).restart_empty(),
            }
            thread::sleep(Duration::from_millis(fastrand::u64(10..600)));
            for proxy in proxies {
                proxy.black_hole(false);
                proxy.go_up();
            }
            thread::sleep(Duration::from_millis(fastrand::u64(10..300)));
        }
        over.store(true, Ordering::SeqCst);
    });
    let grants = record.grants.load(Ordering::SeqCst);
    assert!(grants > 20, "{grants} grants");
}
