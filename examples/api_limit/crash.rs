//! What becomes of a permit whose process is killed in the middle of a call.

use std::{
    thread,
    time::{Duration, Instant},
};

use redlatch::Semaphore;

use crate::{Failure, api, wait_until, worker::Worker};

/// How long things took, counted from the kill.
pub struct Crash {
    pub call_ended: Duration,
    pub permit_free: Duration,
}

/// Kills the worker when it has been in its call for a time, and watches what follows.
pub fn crash(worker: &mut Worker, time: Duration, api: &api::Server, limit: &Semaphore) -> Result<Crash, Failure> {
    let token = worker.line()?;
    wait_until("its call to begin", || Ok(api.is_inside(&worker.name)))?;
    thread::sleep(time);
    let killed = Instant::now();
    worker.kill()?;
    wait_until("its call to end", || Ok(!api.is_inside(&worker.name)))?;
    let call_ended = killed.elapsed();
    wait_until("its permit to be free", || {
        let holders = limit.holders()?;
        Ok(!holders.iter().any(|holder| holder.token == token.as_bytes()))
    })?;
    Ok(Crash {
        call_ended,
        permit_free: killed.elapsed(),
    })
}
