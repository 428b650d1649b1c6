//! Servers that are spoken to over TLS.

#[path = "../support/mod.rs"]
mod support;

mod everyday;
mod faults;
mod relay;
mod scripted;
mod settings;
mod topologies;
mod trust;
