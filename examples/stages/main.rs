//! Five hand-built locks and semaphores, each run into the failure that it is known for, and the same with redlatch.
//!
//! They are the stages by which every tutorial arrives at its lock: each repairs the one before, and each is broken in
//! a way of its own, but for the last.
//!
//! | Stage | By hand | Known failure |
//! |---|---|---|
//! | 1 | a lock by `SETNX` | a holder that crashes keeps it for ever |
//! | 2 | `SETNX`, then `EXPIRE`; whoever finds no TTL sets one | a crash between the two commands |
//! | 3 | a sorted-set semaphore by the clients' clocks | a clock that is 10 ms slow steals the last slot |
//! | 4 | a fair one by a counter | who draws its number first and enters second steals the last slot |
//! | 5 | the same under a lock | none; it costs round trips |
//!
//! Nothing is staged by luck. Holders that crash are processes of their own, and are killed. The races are driven step
//! by step: the commands go out in the very order in which they may go out on any day. Only the wrong clock is made up.
//!
//! ```text
//! cargo run --example stages                                  # on a server of its own
//! REDIS_URL=redis://127.0.0.1/ cargo run --example stages     # on that one
//! ```
//!
//! It takes some ten seconds. All keys lie under prefixes of its own and are removed at the end, unless it is killed.
//! (A server of its own is stopped in any case.) It listens to its own commands by `MONITOR`, which slows a server down
//! meanwhile: better no busy one.
//!
//! Reading order: `lessons` has a file for each stage, with the code by hand in a module `by_hand`. That code is **not
//! to be copied**. [`summary`] is the table at the end. `tests/stages.rs` asserts what comes of each stage.
//!
//! The semaphores are Josiah Carlson's, from *Redis in Action* (Manning, 2013), sections 6.3.1, 6.3.2 and 6.3.5, which
//! says of each what is wrong with it.

mod lessons;
#[path = "../server/mod.rs"]
mod server;
mod summary;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use lessons::Failure;
use server::Server;
use summary::Outcomes;

const LEGEND: &str = "\
Five locks and semaphores, each built by hand as tutorials build it, and then the same with redlatch.
A, B, C, X and Y are clients on different machines. Keys are shown without their common prefix.";

const TO_CLEAN_UP: &str = "
What it writes is removed at the end. Should you stop it before:
    redis-cli --scan --pattern '*redlatch-stages:*' | xargs redis-cli del";

fn main() -> ExitCode {
    match end_as_victim_or_run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stages: {error}");
            ExitCode::FAILURE
        }
    }
}

fn end_as_victim_or_run() -> Result<(), Failure> {
    if lessons::end_as_victim()? {
        return Ok(());
    }
    let server = Server::from_env_or_start()?;
    writeln!(io::stdout(), "{LEGEND}")?;
    if std::env::var_os("REDIS_URL").is_some() {
        writeln!(io::stdout(), "{TO_CLEAN_UP}")?;
    }
    let outcomes = Outcomes::of_all_stages(server.url())?;
    writeln!(io::stdout(), "\n\n{}", summary::table(&outcomes))?;
    Ok(())
}
