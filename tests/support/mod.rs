//! What the integration tests share: a real server of their own, a proxy that misbehaves on cue,
//! and waiting for a condition. A test binary takes it in with `mod support;`.
//!
//! A test that forks must leave its child by `_exit`: the child would otherwise drop the parent's
//! server and wait for threads that it does not have.

// Every test binary compiles this module for itself, and each needs only a part of it.
#![allow(dead_code, unused_imports)]

mod cluster;
mod errors;
mod flag;
mod long;
mod port;
mod process;
mod proxy;
mod redlock;
mod sentinel;
mod server;
mod time;
#[cfg(feature = "tls")]
pub mod tls;
mod worker;

pub use cluster::{Cluster, Migration};
pub use errors::{chain, everything_said, lost};
pub use flag::SetOnDrop;
pub use long::long_run;
pub use port::ReservedPort;
pub use proxy::{
    Fault, FaultHandle, Proxy, Script, is_acquire, is_acquire_several, is_inspect, is_raise, is_registration,
    is_release, is_renew, is_set_limit, is_turn, is_withdraw, load_scripts, scripts,
};
pub use redlock::Redlock;
pub use sentinel::Sentinels;
pub use server::{Server, shared};
pub use time::{MINUTE, PROMPT, SECOND, SLACK, millis, wait_until};
pub use worker::{Worker, worker_url};
