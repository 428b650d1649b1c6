//! How often what everybody wants changes hands, a lock or the permits of a semaphore, and how long each has to wait.

use std::{
    error::Error,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use redlatch::{Client, Guard};

use crate::{
    Bench,
    report::{Column, Report},
    room::Room,
    sent::Sent,
    support::{Worker, millis},
    way::{Prize, Way},
    worker::{self, Orders},
};

/// One process that takes part in a run.
#[derive(Clone, Copy)]
struct Crowd {
    threads: usize,
    /// Of a thread between a release and its next acquire.
    pause: Duration,
}

const EIGHT: Crowd = Crowd {
    threads: 8,
    pause: Duration::ZERO,
};
const ONE_WITH_PAUSES: Crowd = Crowd {
    threads: 1,
    pause: millis(1),
};

/// What one process saw.
struct Seen {
    /// All grants, also those after the end of the run.
    grants: u64,
    /// How many grants each thread got during the run.
    turns: Vec<u64>,
    /// Nanoseconds. A wait that the run's end interrupted counts as far as it got.
    waits: Histogram<u64>,
}

/// How many holders the contended semaphore may have.
const LIMIT: u32 = 5;

const COLUMNS: &[Column] = &[
    ("limit", "limit", 0),
    ("hold ms", "hold_ms", 0),
    ("grants/s", "grants_per_s", 0),
    ("/ by hand", "grants_ratio", 2),
    ("turns: min", "turns_min", 0),
    ("max", "turns_max", 0),
    ("most holders", "most_holders", 0),
    ("wait ms: p50", "wait_p50_ms", 2),
    ("p99", "wait_p99_ms", 2),
    ("longest", "wait_longest_ms", 2),
    ("commands/grant", "commands_per_grant", 2),
    ("reads/grant", "reads_per_grant", 2),
];

/// Two processes of eight threads each: acquire, hold, release, and again. First a lock, held for 0 or 1 ms, then a
/// semaphore, whose limit stands in its rows.
///
/// `commands/grant` counts what redlatch sends, `reads/grant` what the server reads: see [`Sent`].
pub fn measure(bench: &mut Bench, time: Duration) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("contended, 2 x 8 threads", COLUMNS);
    for (prize, hold) in [
        (Prize::Lock, Duration::ZERO),
        (Prize::Lock, millis(1)),
        (Prize::Semaphore { limit: LIMIT }, millis(1)),
    ] {
        let mut by_hand = f64::NAN;
        for way in [Way::ByHand, Way::Default, Way::Fair, Way::Handoffs(0)] {
            let (seen, sent) = run(bench, way, prize, [EIGHT, EIGHT], hold, time)?;
            let per_grant = |sent: u64| sent as f64 / seen.iter().map(|seen| seen.grants as f64).sum::<f64>();
            let [a, b] = &seen;
            let turns = || a.turns.iter().chain(&b.turns).map(|&turns| turns as f64);
            let mut waits = a.waits.clone();
            waits.add(&b.waits)?;
            let grants = turns().sum::<f64>() / time.as_secs_f64();
            let commands = match way {
                Way::ByHand => {
                    by_hand = grants;
                    f64::NAN
                }
                _ => per_grant(sent.commands),
            };
            report.row(
                way.label(),
                [
                    prize.limit().into(),
                    hold.as_secs_f64() * 1000.0,
                    grants,
                    grants / by_hand,
                    turns().fold(f64::INFINITY, f64::min),
                    turns().fold(0.0, f64::max),
                    bench.room.most_inside() as f64,
                    wait(&waits, 0.5),
                    p99(&waits),
                    longest(&waits),
                    commands,
                    per_grant(sent.reads),
                ],
            );
        }
    }
    Ok(report)
}

const SWEEP_COLUMNS: &[Column] = &[
    ("grants/s", "grants_per_s", 0),
    ("A: wait ms p99", "a_wait_p99_ms", 2),
    ("longest", "a_wait_longest_ms", 2),
    ("B: grants/s", "b_grants_per_s", 0),
    ("wait ms p50", "b_wait_p50_ms", 2),
    ("p99", "b_wait_p99_ms", 2),
    ("longest", "b_wait_longest_ms", 2),
];

/// What the budget of local hand-overs does, at no hold at all: A is a process of eight threads that do nothing else,
/// B one of a single thread that pauses for 1 ms after each release.
pub fn sweep(bench: &mut Bench, budgets: &[u32], time: Duration) -> Result<Report, Box<dyn Error>> {
    let mut report = Report::new("sweep, A 8 threads, B 1", SWEEP_COLUMNS);
    let budgets = budgets.iter().map(|&budget| Way::Handoffs(budget));
    for way in [Way::ByHand, Way::Default, Way::Fair].into_iter().chain(budgets) {
        let ([a, b], _) = run(bench, way, Prize::Lock, [EIGHT, ONE_WITH_PAUSES], Duration::ZERO, time)?;
        let rate = |seen: &Seen| seen.turns.iter().sum::<u64>() as f64 / time.as_secs_f64();
        report.row(
            way.label(),
            [
                rate(&a) + rate(&b),
                p99(&a.waits),
                longest(&a.waits),
                rate(&b),
                wait(&b.waits, 0.5),
                p99(&b.waits),
                longest(&b.waits),
            ],
        );
    }
    Ok(report)
}

/// Has a process for each crowd fight for one prize. Panics if more threads held it at a time than may.
fn run(
    bench: &mut Bench,
    way: Way,
    prize: Prize,
    crowds: [Crowd; 2],
    hold: Duration,
    time: Duration,
) -> Result<([Seen; 2], Sent), Box<dyn Error>> {
    let name = bench.name();
    way.create(&mut bench.redis, prize, &name)?;
    bench.room.clear();
    let mut workers = crowds.map(|crowd| (crowd, bench.worker()));
    for (Crowd { threads, pause }, worker) in &mut workers {
        let [hold, pause, time] = [hold, *pause, time].map(|time| time.as_micros());
        worker.send(format_args!(
            "contend {way} {prize} {name} {threads} {hold} {pause} {time}"
        ));
    }
    for (_, worker) in &mut workers {
        worker.receive();
    }
    let before = Sent::until_now(&mut bench.redis)?;
    for (_, worker) in &mut workers {
        worker.send("go");
    }
    // A worker need not answer for longer than one waits for its answer.
    thread::sleep(time);
    let seen = workers.each_mut().map(|(_, worker)| Seen::receive(worker));
    let sent = Sent::until_now(&mut bench.redis)? - before;
    way.remove(&mut bench.redis, &name)?;
    Ok((seen, sent))
}

/// In milliseconds.
fn wait(waits: &Histogram<u64>, quantile: f64) -> f64 {
    waits.value_at_quantile(quantile) as f64 / 1e6
}

fn p99(waits: &Histogram<u64>) -> f64 {
    wait(waits, 0.99)
}

fn longest(waits: &Histogram<u64>) -> f64 {
    wait(waits, 1.0)
}

/// What a worker does.
pub fn take_part(url: &str, mut orders: Orders, terms: &[&str]) {
    let [way, prize, name, threads, hold, pause, time] = terms else {
        panic!("unknown terms {terms:?}");
    };
    let (way, prize): (Way, Prize) = (way.parse().unwrap(), prize.parse().unwrap());
    let threads: usize = threads.parse().unwrap();
    let [hold, pause, time] = [hold, pause, time].map(|micros| Duration::from_micros(micros.parse().unwrap()));
    let (client, room, barrier) = (Client::open(url).unwrap(), worker::room(), Barrier::new(threads + 1));

    let seen = thread::scope(|scope| {
        let contend = || {
            let mut party = way.join(url, &client, prize, name);
            let mut seen = Seen::nothing();
            // Opens the connections.
            let guard = party.acquire();
            party.release(guard);
            barrier.wait(); // ready
            barrier.wait(); // go

            let end = Instant::now() + time;
            let mut turns = 0;
            loop {
                let asked = Instant::now();
                if asked >= end {
                    break;
                }
                let guard = party.acquire();
                let granted = Instant::now();
                seen.waits.record((granted.min(end) - asked).as_nanos() as u64).unwrap();
                turns += u64::from(granted < end);
                seen.grants += 1;
                stay(&room, prize, guard.as_ref(), hold);
                party.release(guard);
                rest(pause);
            }
            seen.turns.push(turns);
            seen
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(contend)).collect();
        barrier.wait();
        println!("ready");
        orders.next().expect("to be told when to go").unwrap();
        barrier.wait();
        let seen = threads.into_iter().map(|thread| thread.join().unwrap());
        seen.reduce(Seen::and).expect("at least one thread")
    });
    seen.send();
}

/// Holds what it was granted.
fn stay(room: &Room, prize: Prize, guard: Option<&Guard>, hold: Duration) {
    room.enter(prize.limit(), guard.map(Guard::fencing_token));
    rest(hold);
    room.leave();
}

/// Not even a system call for no time at all.
fn rest(time: Duration) {
    if !time.is_zero() {
        thread::sleep(time);
    }
}

impl Seen {
    fn nothing() -> Self {
        Seen {
            grants: 0,
            turns: Vec::new(),
            waits: Histogram::new(3).expect("three digits are possible"),
        }
    }

    fn and(mut self, other: Seen) -> Seen {
        self.grants += other.grants;
        self.turns.extend(other.turns);
        self.waits.add(other.waits).unwrap();
        self
    }

    /// From a worker: three words, of which the last two are lists.
    fn send(&self) {
        let turns: Vec<String> = self.turns.iter().map(u64::to_string).collect();
        let waits = self.waits.iter_recorded();
        let waits = waits.map(|step| format!("{}*{}", step.value_iterated_to(), step.count_since_last_iteration()));
        let waits: Vec<String> = waits.collect();
        println!("{} {} {}", self.grants, turns.join(","), waits.join(","));
    }

    fn receive(worker: &mut Worker) -> Self {
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let answer = worker.receive();
        let [grants, turns, waits] = answer.split(' ').collect::<Vec<_>>()[..] else {
            panic!("unknown answer {answer:?}");
        };
        let mut seen = Seen::nothing();
        seen.grants = number(grants);
        seen.turns = turns.split(',').map(number).collect();
        for step in waits.split(',') {
            let (wait, count) = step.split_once('*').expect("a wait and its count");
            seen.waits.record_n(number(wait), number(count)).unwrap();
        }
        seen
    }
}
