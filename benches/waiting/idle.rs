//! What waiting costs while nothing happens.

use std::{
    error::Error,
    io,
    mem::MaybeUninit,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

use redlatch::Client;

use crate::{
    Bench,
    report::{Column, Report},
    sent::Sent,
    support::Worker,
    way::Way,
    worker::Orders,
};

const COLUMNS: &[Column] = &[
    ("waiters", "waiters", 0),
    ("commands/s", "commands_per_s", 2),
    ("reads/s", "reads_per_s", 2),
    ("CPU, % of a core", "cpu_percent", 2),
];

/// Many threads of one process wait for a lock that this one holds, with renewals as usual: one command in 10 s. The
/// commands are all that the server is sent meanwhile (see [`Sent`]), the CPU time is that of the waiting process.
/// Nothing is counted before all have begun to wait and `settle` has passed.
pub fn measure(bench: &mut Bench, waiters: usize, settle: Duration, time: Duration) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("idle", COLUMNS);
    for way in [Way::Default, Way::Fair] {
        let name = bench.name();
        let guard = way.lock(&Client::open(&bench.url)?, &name).acquire()?;
        let mut worker = bench.worker();
        worker.ask(format_args!("idle {name} {way} {waiters}"));
        thread::sleep(settle);

        let (start, cpu, sent) = (
            Instant::now(),
            cpu_time(&mut worker),
            Sent::until_now(&mut bench.redis)?,
        );
        thread::sleep(time);
        let sent = Sent::until_now(&mut bench.redis)? - sent;
        let cpu = cpu_time(&mut worker) - cpu;
        let seconds = start.elapsed().as_secs_f64();
        drop(worker);
        guard.release()?;

        report.row(
            way.label(),
            [
                waiters as f64,
                sent.commands as f64 / seconds,
                sent.reads as f64 / seconds,
                cpu.as_secs_f64() / seconds * 100.0,
            ],
        );
    }
    Ok(report)
}

fn cpu_time(worker: &mut Worker) -> Duration {
    Duration::from_micros(worker.ask("cpu").parse().expect("a time"))
}

/// What a worker does, until it is killed or its orders end.
pub fn take_part(url: &str, orders: Orders, name: &str, way: &str, waiters: &str) {
    let way: Way = way.parse().unwrap();
    let waiters: usize = waiters.parse().unwrap();
    let lock = way.lock(&Client::open(url).unwrap(), name);
    let barrier = Arc::new(Barrier::new(waiters + 1));
    for _ in 0..waiters {
        let (lock, barrier) = (lock.clone(), barrier.clone());
        thread::spawn(move || {
            barrier.wait();
            panic!("the lock stays taken, but: {:?}", lock.acquire());
        });
    }
    barrier.wait();
    println!("waiting");
    for order in orders {
        assert_eq!(order.unwrap(), "cpu");
        println!("{}", own_cpu_time().unwrap().as_micros());
    }
}

/// That of all threads, in user code and in the system.
fn own_cpu_time() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` has room for what the call writes.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so all of it is written.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}
