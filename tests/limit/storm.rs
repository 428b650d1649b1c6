//! Workers that take permits, while this process kills them, pauses them and keeps their requests back.

use std::{
    ops::Range,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use redlatch::{Client, Semaphore};
use tempfile::TempDir;

use crate::{
    clock::{Moment, Skew, SkewedClock, now},
    mistakes::Mistake,
    record::Record,
    seat::Seat,
    support::{SLACK, Server, load_scripts, millis},
    sweep::{Finding, Flaw, Limits, Swept, sweep},
    terms::{LONGEST, NAMES, up_to},
};

/// How far each worker's clock is ahead of the true time: all are an hour or more apart.
const SKEWS: [Skew; 4] = [-7200, -3600, 3600, 7200];

/// How many ms it is between two things that are done to workers.
const RESPITE: Range<u64> = 50..250;

/// How long workers are paused and requests kept back, at most: longer than most leases.
const PAUSE: Duration = millis(2000);

/// How long a limit stays, at most.
const STEADY: Duration = millis(800);

pub struct Storm {
    seats: Vec<Seat>,
    semaphores: Vec<Semaphore>,
    limits: Vec<Limits>,
    changes_limits: bool,
    clock: SkewedClock,
    record: Record,
    start: Moment,
    struck: Struck,
    /// What was found besides the record.
    seen: Vec<Finding>,
    dir: TempDir,
    /// The others speak to it.
    _server: Server,
}

/// What was done to the workers.
#[derive(Debug, Default)]
pub struct Struck {
    pub kills: usize,
    pub pauses: usize,
    pub late_requests: usize,
    pub limits: usize,
}

/// How a storm went.
pub struct Outcome {
    pub findings: Vec<Finding>,
    pub struck: Struck,
    pub record: Record,
    /// For each semaphore, the most permits that were held at once.
    pub peaks: Vec<u32>,
}

impl Storm {
    /// Begins with the limits as they are declared; the scripts have no mistake unless one is given.
    pub fn begin(changes_limits: bool, mistake: Option<&'static Mistake>) -> Self {
        let server = Server::start();
        load_scripts(&server);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = record_in(&dir);
        let record = Record::create(&file);
        let (clock, start) = (SkewedClock::build(dir.path()), now());
        let client = Client::open(server.url()).unwrap();
        let seats = SKEWS.map(|skew| Seat::new(&server, &clock, skew, &file, mistake));
        Self {
            seats: seats.into(),
            semaphores: NAMES.iter().map(|name| name.semaphore(&client)).collect(),
            limits: NAMES.iter().map(|name| Limits::new(name.limit)).collect(),
            changes_limits,
            clock,
            record,
            start,
            struck: Struck::default(),
            seen: Vec::new(),
            dir,
            _server: server,
        }
    }

    /// Goes on for so long, or until there is a finding that `ends` it: that one.
    pub fn rage(&mut self, time: Duration, ends: impl Fn(&Finding) -> bool) -> Option<Finding> {
        let start = Instant::now();
        let (mut strike, mut change, mut judge) = (start, start + STEADY, start + millis(200));
        while start.elapsed() < time {
            let now = Instant::now();
            for seat in &mut self.seats {
                self.struck.late_requests += seat.let_go_on(now);
            }
            self.look_at_server();
            if now >= strike {
                self.strike();
                strike = now + millis(fastrand::u64(RESPITE));
            }
            if self.changes_limits && now >= change {
                self.change_a_limit();
                change = now + up_to(STEADY);
            }
            if now >= judge {
                let found = self.findings().into_iter().find(&ends);
                if found.is_some() {
                    return found;
                }
                // Each time from the beginning: it takes its share and no more, however long the storm is.
                judge = now + millis(200) + start.elapsed() / 10;
            }
            thread::sleep(millis(5));
        }
        None
    }

    /// Kills all workers and waits until all permits are free, as long as that may take.
    pub fn end(mut self) -> Outcome {
        self.seats.drain(..).for_each(Seat::clear);
        let deadline = Instant::now() + LONGEST + SLACK;
        while self.taken().is_some() && Instant::now() < deadline {
            thread::sleep(millis(5));
        }
        let not_freed = self.taken().map(|what| Finding {
            flaw: Flaw::NotFreed,
            what,
        });
        self.seen.extend(not_freed);
        Outcome {
            findings: self.findings(),
            peaks: self.swept().map(|swept| swept.peak).collect(),
            struck: self.struck,
            record: self.record,
        }
    }

    /// Which permits are still taken, if any.
    fn taken(&self) -> Option<String> {
        let inspected = self.semaphores.iter().map(|semaphore| semaphore.inspect().unwrap());
        let mut limits = inspected.zip(&self.limits);
        let taken = limits.find(|(inspection, limits)| inspection.available() != limits.last());
        taken.map(|(inspection, limits)| format!("{inspection}, of {} in all", limits.last()))
    }

    /// Looks at one of the semaphores: the server must not take more permits for held, or left to waiters, than there
    /// ever were.
    fn look_at_server(&mut self) {
        let name = fastrand::usize(..NAMES.len());
        let inspection = self.semaphores[name].inspect().unwrap();
        let held = inspection.holders.iter().map(|holder| holder.permits);
        let taken = held.sum::<u32>() + inspection.reserved;
        if taken > self.limits[name].highest_ever() {
            self.seen.push(Finding {
                flaw: Flaw::TooManyOnServer,
                what: format!("{taken} permits of {:?}: {inspection}", NAMES[name].name),
            });
        }
    }

    fn strike(&mut self) {
        let seat = &mut self.seats[fastrand::usize(..SKEWS.len())];
        match fastrand::u8(..4) {
            0 => {
                seat.kill(&self.clock, &record_in(&self.dir));
                self.struck.kills += 1;
            }
            1 if !seat.is_paused() => {
                seat.pause(up_to(PAUSE));
                self.struck.pauses += 1;
            }
            _ if !seat.keeps_back() => seat.keep_back_a_request(up_to(PAUSE)),
            _ => {}
        }
    }

    /// Sets a limit at random, from none to some more than declared.
    fn change_a_limit(&mut self) {
        let name = fastrand::usize(..NAMES.len());
        let (limit, before) = (fastrand::u32(..=NAMES[name].limit + 2), now());
        self.semaphores[name].set_limit(limit).unwrap();
        self.limits[name].change(limit, (before, now()));
        self.struck.limits += 1;
    }

    fn findings(&mut self) -> Vec<Finding> {
        self.record.read_on();
        let troubles = self.record.troubles.iter().map(|what| Finding {
            flaw: Flaw::Trouble,
            what: what.clone(),
        });
        let swept = self.swept().flat_map(|swept| swept.findings);
        swept.chain(troubles).chain(self.seen.iter().cloned()).collect()
    }

    fn swept(&self) -> impl Iterator<Item = Swept> {
        let limits = self.limits.iter().enumerate();
        limits.map(|(name, limits)| sweep(&self.record, name, limits, self.start))
    }
}

fn record_in(dir: &TempDir) -> PathBuf {
    dir.path().join("record")
}
