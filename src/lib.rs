#![cfg_attr(not(feature = "capi"), forbid(unsafe_code))]
#![deny(missing_docs, unsafe_code)]
//! Distributed locks and counting semaphores on Redis and Valkey for blocking, threaded programs: leased, renewed in
//! the background, with a fencing token for every grant. No async runtime.
//!
//! # What it guarantees
//!
//! A lock, or a semaphore's permit, is *held* from the return of acquire until [`release`](Guard::release) is called or
//! [`remaining`](Guard::remaining) reaches zero, whichever comes first.
//!
//! 1. **Exclusion while the lease holds.** At most one [`Guard`] of a lock, and no more than the limit of a semaphore's
//!    permits, are held at any instant, whatever clocks and leases the holders have, as long as the server keeps its
//!    data (no eviction: use `noeviction`; nobody else deletes or overwrites the key, no
//!    [`force_release`](Lock::force_release)) and its clock is not stepped.
//! 2. **The end of a lease is honest.** It is counted on this machine's boot-time clock (which runs on while the
//!    machine sleeps), from before the request was sent, less 1 % of the lease and 2 ms for drift.
//!    [`is_held`](Guard::is_held) and [`remaining`](Guard::remaining) do no I/O and turn false and zero at that
//!    instant, even if this process was paused or the server is gone.
//! 3. **A crash frees the lock or permit** within one lease, its own. Nothing is written without a TTL.
//! 4. **Only the owner releases or renews.** A late release never touches another's lock, and a renewal never
//!    re-creates a key.
//! 5. **Fencing tokens** rise strictly with every grant of a name, also after `FLUSHALL`, an empty restart, an old
//!    snapshot or a lossy failover, unless the server's clock also went back past the loss. Where the resource
//!    [checks them](Guard::fencing_token), a stale lock holder can do no harm even when the first guarantee is broken.
//!    A semaphore's tokens tell its grants apart and order them, but with several holders at once they are no such
//!    barrier.
//! 6. **No silent loss.** A lost lease is reported by the guard, the callback and the release. An operation of unknown
//!    outcome says so ([`Error::Unconfirmed`]), and what it may have left behind is cleaned up in the background.
//! 7. **Not promised:** exclusion across a restart or failover that loses the write, or for a process that is paused
//!    between [`check`](Guard::check) and its write. Fencing is for that. Two texts to read before relying on any such
//!    lock: Martin Kleppmann, [How to do distributed locking][kleppmann], and Salvatore Sanfilippo,
//!    [Is Redlock safe?][antirez]
//!
//! Size a lease to the work's slow tail, not its median. Locks taken in different orders can deadlock:
//! take them by [`Client::multi_lock`]. None is reentrant.
//!
//! [kleppmann]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//! [antirez]: http://antirez.com/news/101
//!
//! # Quick start
//!
//! ```
//! let client = redlatch::Client::open("memory://")?; // in earnest: "redis://127.0.0.1/"
//! let lock = client.lock("item:42"); // renewed in the background until it is released
//!
//! let sum = lock.with_lock(|| 40 + 2)?; // waits for the lock, runs the closure, releases
//! assert_eq!(sum, 42);
//!
//! let guard = lock.acquire()?; // released on drop at the latest
//! guard.check()?; // before each write: an error once the lock is lost; no I/O
//! assert!(lock.try_acquire()?.is_none());
//! guard.release()?; // reports how it went; a drop does not
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! A bounded wait, a callback for losses, and a semaphore:
//!
//! ```
//! # let client = redlatch::Client::open("memory://")?;
//! let report = client.lock("report").on_lost(|lost| eprintln!("{lost}"));
//! let guard = report.acquire_timeout(std::time::Duration::from_secs(1))?; // Err(Timeout) if it takes longer
//! if client.semaphore("api:acct:7", 5).try_with_permit(|| println!("calling"))?.is_none() {
//!     println!("five calls are under way: try later");
//! }
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! # Contents
//!
//! - [`Client`] and [`ClientBuilder`]: the server, its connections and timeouts.
//! - [`Lock`], [`Semaphore`], [`MultiLock`]: names, settings, every way to acquire it; [`Wait`], [`CancelToken`]: for
//!   how long.
//! - [`Guard`]: a hold, from grant to release.
//! - [`Inspection`] and [`Audit`]: what stands on the server, for operators.
//! - [`Error`]: what went wrong, by what to do next; [`Lost`] and [`LostReason`]: how a lease ended.
//!
//! Features, none on by default: `tls` (`rediss://` URLs), `tracing` (one warning, where waiters cannot be woken),
//! `capi` (the C API).
//!
//! The repository's `README.md` covers operation (timeouts, permissions, outages, fork) and the C, C++ and Python APIs,
//! `docs/protocol.md` the keys and scripts, `ARCHITECTURE.md` the inside.

mod audit;
mod background;
mod builder;
mod cancel;
mod client;
mod clock;
mod error;
#[cfg(feature = "capi")]
mod ffi;
mod fork;
mod guard;
mod inspection;
#[cfg(all(test, shuttle))]
mod interleavings;
mod interrupt;
mod keys;
mod lease;
mod lock;
mod mistakes;
mod multi_lock;
mod named;
mod notice;
mod semaphore;
mod signals;
mod store;
mod sync;
mod wait;
mod waiting;

pub use self::{
    audit::{Audit, DataType, Finding},
    builder::ClientBuilder,
    cancel::CancelToken,
    client::Client,
    error::{Error, Source},
    guard::Guard,
    inspection::{Expiry, Holder, Inspection},
    lease::{Lost, LostReason},
    lock::Lock,
    multi_lock::MultiLock,
    semaphore::Semaphore,
    wait::Wait,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // compiles its examples
struct Readme;
