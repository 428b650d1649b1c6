//! How the workers keep to the limit: the point of it all.

use std::{
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Error, Semaphore};

use crate::{Failure, api::Api};

/// How many calls the API takes for the account at a time. Everybody declares the same number.
pub const LIMIT: u32 = 5;

/// How long a permit stays taken after its process has crashed. The default, 30 s, would be a while to watch.
pub const LEASE: Duration = Duration::from_secs(2);

/// The stream's. It holds its permit far longer: as long as it lives, the lease is renewed.
pub const STREAM_LEASE: Duration = Duration::from_millis(500);

/// How long a call takes, in ms.
const CALL: Range<u64> = 20..60;

/// The limit of the account: the same on every machine.
pub fn account_limit(url: &str, prefix: &str, lease: Duration) -> Result<Semaphore, Error> {
    let client = Client::builder()
        .url(url)
        .prefix(prefix)
        .command_timeout(lease / 4) // a renewal may fail, and still be made again in time
        .build()?;
    // Fair, so that a bulk call gets its two permits although others want but one.
    Ok(client.semaphore("api:acct:7", LIMIT).lease(lease).fair(true))
}

/// What a worker needs to call the API.
pub struct Caller {
    pub limit: Semaphore,
    pub api: Api,
    /// When it is to stop.
    pub end: Instant,
}

/// How long a call waited for its permit; `None` if it was skipped.
pub type Waited = Option<Duration>;

impl Caller {
    /// The usual way: call now, or do something else.
    pub fn skip_when_busy(&self) -> Result<Waited, Failure> {
        let start = Instant::now();
        self.limit.try_with_permit(|| self.call(1, start))?.transpose()
    }

    pub fn wait(&self) -> Result<Waited, Failure> {
        let start = Instant::now();
        // `??`: the first error is the semaphore's (no server, lease lost), the second that of the call.
        Ok(Some(self.limit.with_permit(|| self.call(1, start))??))
    }

    pub fn wait_a_little(&self) -> Result<Waited, Failure> {
        let start = Instant::now();
        match self.limit.acquire_timeout(Duration::from_millis(100)) {
            Ok(guard) => {
                let waited = self.call(1, start)?;
                guard.release()?;
                Ok(Some(waited))
            }
            Err(Error::Timeout { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A call that the API counts as two takes two permits, both at once or none.
    pub fn call_in_bulk(&self) -> Result<Waited, Failure> {
        let start = Instant::now();
        let two = self.limit.clone().permits(2);
        Ok(Some(two.with_permit(|| self.call(2, start))??))
    }

    /// Holds one permit to the end, and hangs up if it is lost, since somebody else may be given it then.
    pub fn stream(&self) -> Result<Waited, Failure> {
        let start = Instant::now();
        let guard = self.limit.acquire()?;
        let waited = start.elapsed();
        let mut stream = self.api.stream()?;
        println!("streaming"); // the others may begin
        while Instant::now() < self.end {
            guard.check()?; // no I/O
            stream.send_chunk()?;
            thread::sleep(Duration::from_millis(10));
        }
        stream.finish()?; // before the permit is released: until then the API counts it
        guard.release()?;
        Ok(Some(waited))
    }

    /// Is killed in the middle of a call: nobody is left to release the permit.
    pub fn crash(&self) -> Result<Waited, Failure> {
        let guard = self.limit.acquire()?;
        println!("{}", guard.token()); // tells which permit to watch
        self.api.call(1, Duration::from_secs(600))?;
        Err("it was to be killed".into())
    }

    /// Calls the API, which counts the call as so many. Tells how long it has waited since `start`.
    fn call(&self, counts_as: u32, start: Instant) -> Result<Duration, Failure> {
        let waited = start.elapsed();
        self.api.call(counts_as, Duration::from_millis(fastrand::u64(CALL)))?;
        Ok(waited)
    }
}
