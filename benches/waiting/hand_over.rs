//! How long it takes to hand a lock over from one process to another.

use std::{error::Error, thread, time::Duration};

use hdrhistogram::Histogram;
use redlatch::{Client, Guard};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    Bench,
    report::{Column, Report},
    support::Worker,
    way::{Party, Prize, Way},
    worker::Orders,
};

const WAYS: [Way; 3] = [Way::ByHand, Way::Default, Way::Fair];
const BY_HAND: usize = 0; // its place among them

const COLUMNS: &[Column] = &[
    ("p50 µs", "p50_us", 1),
    ("p99 µs", "p99_us", 1),
    ("p50 / by hand", "p50_ratio", 2),
    ("p99 / by hand", "p99_ratio", 2),
];

/// A and B pass one lock around. Each time A holds it and B waits; a short random pause later, when both are asleep, A
/// releases. What counts is the time from just before A's release to the return of B's acquire.
///
/// The ways take turns within each iteration, in random order and with pauses of the same kind, so that whatever else
/// the machine does hits all of them alike. So does `PING`, from A after such a pause.
pub fn measure(bench: &mut Bench, iterations: usize) -> Result<Report, Box<dyn Error>> {
    let name = bench.name();
    let (mut a, mut b) = (bench.worker(), bench.worker());
    for (place, way) in WAYS.iter().enumerate() {
        way.create(&mut bench.redis, Prize::Lock, &lock_name(&name, place))?;
    }
    for worker in [&mut a, &mut b] {
        worker.ask(format_args!(
            "hand-over {name} {}",
            WAYS.map(|way| way.to_string()).join(" ")
        ));
    }

    let (mut pings, mut hand_overs) = (times(), WAYS.map(|_| times()));
    let mut order: Vec<usize> = (0..=WAYS.len()).collect();
    let warm_up = iterations / 10;
    for iteration in 0..warm_up + iterations {
        fastrand::shuffle(&mut order);
        for &place in &order {
            let (times, took) = match hand_overs.get_mut(place) {
                Some(times) => (times, hand_over(&mut a, &mut b, place)),
                None => (&mut pings, number(&a.ask(format_args!("ping {}", pause())))),
            };
            if iteration >= warm_up {
                times.record(took)?;
            }
        }
    }

    for (place, way) in WAYS.iter().enumerate() {
        way.remove(&mut bench.redis, &lock_name(&name, place))?;
    }
    let mut report = Report::new("hand-over", COLUMNS);
    let mut row = |label: String, times: &Histogram<u64>| {
        let [p50, p99] = micros(times);
        let [by_hand_p50, by_hand_p99] = micros(&hand_overs[BY_HAND]);
        report.row(label, [p50, p99, p50 / by_hand_p50, p99 / by_hand_p99]);
    };
    row("PING".into(), &pings);
    for (way, times) in WAYS.iter().zip(&hand_overs) {
        row(way.label(), times);
    }
    Ok(report)
}

/// Returns how long it took, in nanoseconds.
fn hand_over(a: &mut Worker, b: &mut Worker, place: usize) -> u64 {
    a.ask(format_args!("acquire {place}"));
    b.ask(format_args!("wait {place}"));
    let released: u64 = number(&a.ask(format_args!("release {place} {}", pause())));
    let acquired: u64 = number(&b.receive());
    acquired
        .checked_sub(released)
        .expect("B waits until A releases the lock")
}

/// In microseconds: long enough for whoever has said that it waits to be asleep.
fn pause() -> u64 {
    fastrand::u64(1000..=3000)
}

fn times() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are possible")
}

fn micros(times: &Histogram<u64>) -> [f64; 2] {
    [0.5, 0.99].map(|quantile| times.value_at_quantile(quantile) as f64 / 1000.0)
}

fn lock_name(name: &str, place: usize) -> String {
    format!("{name}:{place}")
}

/// What a worker does, as A or as B.
pub fn take_part(url: &str, orders: Orders, name: &str, ways: &[&str]) {
    let client = Client::open(url).unwrap();
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut parties: Vec<Party> = Vec::new();
    for (place, way) in ways.iter().enumerate() {
        let way: Way = way.parse().unwrap();
        parties.push(way.join(url, &client, Prize::Lock, &lock_name(name, place)));
    }
    println!("ready");

    let mut held: Option<Guard> = None;
    for order in orders {
        let order = order.unwrap();
        match order.split(' ').collect::<Vec<_>>()[..] {
            ["acquire", place] => {
                held = party(&mut parties, place).acquire();
                println!("acquired");
            }
            ["release", place, pause] => {
                sleep(pause);
                let before = now();
                party(&mut parties, place).release(held.take());
                println!("{before}");
            }
            ["wait", place] => {
                let party = party(&mut parties, place);
                println!("waiting");
                let guard = party.acquire();
                let after = now();
                party.release(guard);
                println!("{after}");
            }
            ["ping", pause] => {
                sleep(pause);
                let before = now();
                redis::cmd("PING").exec(&mut redis).unwrap();
                println!("{}", now() - before);
            }
            _ => panic!("unknown order {order:?}"),
        }
    }
}

fn party<'a>(parties: &'a mut [Party], place: &str) -> &'a mut Party {
    &mut parties[number(place) as usize]
}

fn sleep(pause: &str) {
    thread::sleep(Duration::from_micros(number(pause)));
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

/// Nanoseconds on a clock that all processes of the machine share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
