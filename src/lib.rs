#![forbid(unsafe_code)]
#![deny(missing_docs)]
//! Distributed locks on Redis and Valkey for threaded, blocking programs.

mod background;
mod builder;
mod client;
mod clock;
mod error;
mod fork;
mod guard;
mod keys;
mod lease;
mod lock;
mod store;
mod sync;
mod wait;
mod waiting;

pub use self::{
    builder::ClientBuilder,
    client::Client,
    error::{Error, Source},
    guard::Guard,
    lease::{Lost, LostReason},
    lock::Lock,
    wait::Wait,
};
