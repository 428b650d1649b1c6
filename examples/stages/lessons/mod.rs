//! The five stages. Each has what goes wrong by hand, the same with redlatch, and what came of both.

pub mod client_clocks;
mod cost;
pub mod counter_race;
mod monitor;
pub mod no_timeout;
mod story;
pub mod two_commands;
pub mod under_a_lock;
mod victim;
mod world;

pub use victim::end_as_victim;
pub use world::World;

pub type Failure = Box<dyn std::error::Error>;
