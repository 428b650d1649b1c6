//! Locks on five independent servers: what becomes of them when servers are killed, cut off, silent or restarted empty.

mod exclusion;
mod fencing;
mod grants;
mod holding;
mod mending;
mod nodes;
mod operators;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod voting;
