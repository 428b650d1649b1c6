//! What semaphores are on a real server: their keys, and what happens to them when requests are lost or something
//! happens to the server. What they have in common with locks stands beside theirs.

mod corner;
mod keys;
mod lost_replies;
mod operators;
mod server_events;
#[path = "../support/mod.rs"]
mod support;
