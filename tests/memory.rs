//! That nothing piles up in this process, whatever was acquired, lost or waited for in vain.
//!
//! Exact, since all memory is counted here; for the same reason it is one test, alone in its process. In a long run
//! (`REDLATCH_LONG=1 cargo test --release --test memory -- --nocapture`) it goes through a million names.

mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicIsize, Ordering},
    time::Duration,
};

use redlatch::{Client, Error, LostReason, Wait};
use support::{Server, long_run, lost, millis};

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

/// What maps and queues may keep for reuse. A leak of one byte for each of some thousands of rounds is more.
const TOLERANCE: isize = 4096;

/// Goes through `first` rounds, so that whatever is made once has been made, and then through `more`, after which no
/// more may be in use than before.
fn nothing_piles_up(what: &str, first: u64, more: u64, mut round: impl FnMut(u64)) {
    (0..first).for_each(&mut round);
    let before = IN_USE.load(Ordering::SeqCst);
    (first..first + more).for_each(&mut round);
    let grown = IN_USE.load(Ordering::SeqCst) - before;
    println!("{what}: {grown} bytes more in use after {more} more");
    assert!(grown < TOLERANCE, "{what}: {grown} bytes more in use after {more} more");
}

#[test]
fn nothing_piles_up_in_this_process() {
    let server = Server::start();
    let (names, cycles) = if long_run().is_some() {
        (1_000_000, 100_000)
    } else {
        (10_000, 2_000)
    };
    let client = Client::builder().url(server.url()).build().unwrap();
    let other = Client::builder().url(server.url()).build().unwrap();
    let mut meddler = server.connection();

    let used_memory = || {
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("memory")
            .query(&mut server.connection())
            .unwrap();
        info.get::<u64>("used_memory").unwrap()
    };
    let before = used_memory();
    nothing_piles_up("names acquired and released", names / 10, names - names / 10, |name| {
        client
            .lock(format!("name-{name}"))
            .acquire()
            .unwrap()
            .release()
            .unwrap();
    });
    let stays: u64 = redis::cmd("DBSIZE").query(&mut meddler).unwrap();
    assert_eq!(stays, names, "one counter for each name");
    println!(
        "the server keeps {stays} keys: {} bytes for each",
        (used_memory() - before) / names
    );
    server.run("FLUSHALL");

    let taken = other.lock("taken").acquire().unwrap();
    nothing_piles_up("names waited for in vain", names / 10, names / 10, |name| {
        let name = format!("name-{name}");
        let lock = client.lock(name);
        drop(lock.try_acquire().unwrap());
        assert!(client.lock("taken").try_acquire().unwrap().is_none());
    });
    nothing_piles_up("cycles of grant, timeout and loss", cycles / 10, cycles, |cycle| {
        let lock = client.lock("cycle").lease(Duration::from_secs(30)).on_lost(|_| ());
        let guard = lock.acquire().unwrap();
        guard.extend(Duration::from_secs(60)).unwrap();
        let timeout = client.lock("taken").acquire_with(Wait::at_most(millis(cycle % 2)));
        assert!(matches!(timeout, Err(Error::Timeout { .. })));
        match cycle % 4 {
            0 => guard.release().unwrap(),
            1 => drop(guard),
            2 => {
                redis::cmd("DEL").arg("lock:cycle").exec(&mut meddler).unwrap();
                assert_eq!(
                    lost(guard.extend(Duration::from_secs(60)).unwrap_err()),
                    LostReason::Deleted
                );
                assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
            }
            _ => {
                redis::cmd("SET")
                    .arg("lock:cycle")
                    .arg("thief")
                    .arg("PX")
                    .arg(1)
                    .exec(&mut meddler)
                    .unwrap();
                assert!(guard.release().is_err());
            }
        }
    });
    taken.release().unwrap();
}
