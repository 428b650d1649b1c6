//! That nothing piles up in this process, whatever was acquired, lost or waited for in vain.
//!
//! Exact, since all memory of the process is counted. The long run, whose figures stand in `docs/measurements.md`:
//! `REDLATCH_LONG=1 cargo test --release --test memory -- --nocapture`.

mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicIsize, Ordering},
    },
};

use redlatch::{Client, Error, LostReason};
use support::{SECOND, Server, long_run, lost, millis, wait_until};

/// Bytes that are in use now.
static IN_USE: AtomicIsize = AtomicIsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The read buffer of a connection grows from 8 to 16 KiB once, when a reply happens to straddle its end; there are a
/// few connections. A leak of 16 bytes a round is more than this.
const TOLERANCE: isize = 32_000;

/// Goes through `first` rounds, so that whatever is made once has been made, and then through `more`, after which no
/// more may be in use than before.
fn nothing_piles_up(what: &str, first: u64, more: u64, mut round: impl FnMut(u64)) {
    (0..first).for_each(&mut round);
    let before = IN_USE.load(Ordering::SeqCst);
    (first..first + more).for_each(&mut round);
    let grown = || IN_USE.load(Ordering::SeqCst) - before;
    // The last callbacks may still be under way.
    wait_until("memory to be given back", SECOND * 10, || grown() < TOLERANCE);
    let grown = grown();
    println!("{what}: {grown} bytes more in use after {more} more");
}

/// One after the other: each counts all memory of the process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn nothing_piles_up_with_the_names() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let names = if long_run().is_some() { 1_000_000 } else { 10_000 };
    let used_memory = || {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("memory")
            .query(&mut server.connection())
            .unwrap();
        info.get::<u64>("used_memory").unwrap()
    };
    let before = used_memory();
    nothing_piles_up("names acquired and released", names / 10, names - names / 10, |name| {
        let lock = client.lock(format!("name-{name}"));
        lock.acquire().unwrap().release().unwrap();
    });
    let count = redis::Script::new("return {#redis.call('KEYS', '*:fencing:*'), redis.call('DBSIZE')}");
    let (counters, keys): (u64, u64) = count.invoke(&mut server.connection()).unwrap();
    assert_eq!(counters, names, "one counter for each name");
    let bytes = (used_memory() - before) / names;
    println!(
        "the server keeps {counters} counters and {} marks: {bytes} bytes for each name",
        keys - counters
    );
}

#[test]
fn nothing_piles_up_with_grants_timeouts_and_losses() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let cycles = if long_run().is_some() { 100_000 } else { 2_000 };
    let mut meddler = server.connection();
    let taken = Client::open(server.url()).unwrap().lock("taken").acquire().unwrap();
    nothing_piles_up("cycles of grant, timeout and loss", cycles / 10, cycles, |cycle| {
        let lock = client.lock("cycle").on_lost(|_| ());
        let guard = lock.acquire().unwrap();
        guard.extend(SECOND * 60).unwrap();
        let timeout = client.lock("taken").acquire_timeout(millis(cycle % 2));
        assert!(matches!(timeout, Err(Error::Timeout { .. })));
        match cycle % 4 {
            0 => guard.release().unwrap(),
            1 => drop(guard),
            2 => {
                redis::cmd("DEL").arg("lock:cycle").exec(&mut meddler).unwrap();
                assert_eq!(lost(guard.extend(SECOND * 60).unwrap_err()), LostReason::Deleted);
                assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
            }
            _ => {
                let mut steal = redis::cmd("SET");
                steal.arg("lock:cycle").arg("thief").arg("PX").arg(1);
                steal.exec(&mut meddler).unwrap();
                assert!(guard.release().is_err());
            }
        }
    });
    taken.release().unwrap();
}
