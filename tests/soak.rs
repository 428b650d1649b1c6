//! Everything at once: many holders, a connection that breaks in every way, and a server that is meddled with in every
//! way that keeps its data. A few seconds by default, or as many as `REDLATCH_LONG` says: minutes with
//! `scripts/test --long`.

mod support;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Instant,
};

use redlatch::{Client, Error, Guard};
use support::{Fault, Proxy, SECOND, Server, SetOnDrop, is_acquire, is_release, is_renew, long_run, millis};

const NAMES: usize = 3;

/// Whoever holds each name, as far as this process knows.
#[derive(Default)]
struct Holders([Mutex<(u64, Option<Arc<Guard>>)>; NAMES]);

impl Holders {
    /// Takes in a new holder: the one before must not hold any more, and have a lower token.
    fn enter(&self, name: usize, guard: &Arc<Guard>) {
        let mut holder = self.0[name].lock().unwrap();
        assert!(guard.fencing_token() > holder.0, "a token came again");
        if let Some(before) = holder.1.replace(guard.clone()) {
            assert!(
                !before.is_held(),
                "two holders of name {name}: {before:?} and {guard:?}"
            );
        }
        holder.0 = guard.fencing_token();
    }

    /// Takes out a holder that is about to release.
    fn leave(&self, name: usize, guard: &Arc<Guard>) {
        let mut holder = self.0[name].lock().unwrap();
        if holder.1.as_ref().is_some_and(|present| Arc::ptr_eq(present, guard)) {
            holder.1 = None;
        }
    }
}

#[test]
fn at_most_one_holds_each_name_whatever_happens_to_the_connection() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let (holders, done) = (Holders::default(), AtomicBool::new(false));
    let (grants, losses) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let _done = SetOnDrop(&done);
        for worker in 0..6_usize {
            // Half of them have a straight line to the server, and would profit from any lapse of the others.
            let url = if worker % 2 == 0 {
                proxy.url().to_owned()
            } else {
                server.url()
            };
            let client = Client::builder().url(url).command_timeout(millis(150)).build().unwrap();
            let (holders, done, grants, losses) = (&holders, &done, &grants, &losses);
            scope.spawn(move || {
                let _done = SetOnDrop(done);
                for round in worker.. {
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                    let name = round % NAMES;
                    let lock = client.lock(format!("name-{name}")).lease(millis(400));
                    let guard = match lock.acquire_timeout(millis(500)) {
                        Ok(guard) => Arc::new(guard),
                        Err(
                            Error::Timeout { .. } | Error::Unconfirmed(_) | Error::Connection(_) | Error::Server(_),
                        ) => continue,
                        Err(error) => panic!("{error:?}"),
                    };
                    grants.fetch_add(1, Ordering::SeqCst);
                    holders.enter(name, &guard);
                    // Sometimes longer than the lease, so that it has to be renewed.
                    let work = millis(if round % 10 == 0 { 600 } else { (round % 7) as u64 });
                    if guard.wait_lost(work) {
                        losses.fetch_add(1, Ordering::SeqCst);
                    }
                    holders.leave(name, &guard);
                    match Arc::into_inner(guard).map(Guard::release) {
                        None | Some(Ok(()) | Err(Error::Lost(_) | Error::Unconfirmed(_))) => {}
                        Some(Err(error)) => panic!("{error:?}"),
                    }
                }
            });
        }
        let end = Instant::now() + long_run().unwrap_or(SECOND * 4);
        let strike = |target: fn(&[Vec<u8>]) -> bool, fault| drop(proxy.on(target).may_miss().apply(fault));
        for round in 0_usize.. {
            if Instant::now() >= end || done.load(Ordering::SeqCst) {
                break;
            }
            let target = [is_acquire, is_renew, is_release][round % 3];
            match round % 11 {
                0 => strike(target, Fault::SwallowReply),
                1 => strike(target, Fault::CutAfter),
                2 => strike(target, Fault::CutBefore),
                3 => strike(target, Fault::DelayReply(millis(200))),
                4 => strike(target, Fault::HoldRequest),
                5 => proxy.black_hole(true),
                6 => proxy.black_hole(false),
                7 => proxy.go_down(),
                8 => proxy.go_up(),
                9 => drop(server.run("SCRIPT FLUSH")),
                _ => drop(server.run("CLIENT KILL TYPE normal")),
            }
            thread::sleep(millis(40));
        }
        proxy.black_hole(false);
        proxy.go_up();
    });
    let (grants, losses) = (grants.into_inner(), losses.into_inner());
    println!("{grants} grants, {losses} of them lost");
    assert!(grants > 20, "hardly anything happened: {grants} grants");
}
