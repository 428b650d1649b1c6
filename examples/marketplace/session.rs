//! Some seconds of trade: the threads, what each of them notes down, and the progress shown meanwhile.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use redis::Commands;

use crate::Failure;
use crate::moves::{Listing, Purchase};
use crate::ways::{Outcome, Trader, Way};
use crate::world::{Books, HIGHEST_PRICE, Sale, World};

/// What a lister makes at a time when it has only one item left. Nobody ever runs out, new items cost one command in a
/// thousand, and their number is bounded by the length of the run.
const BATCH: usize = 1000;

/// A buyer picks one of the cheapest so many: buyers want the same things, but not all of them the very same thing.
const SHOP_WINDOW: isize = 20;

/// How long a buyer waits when there is nothing to buy.
const NOTHING_FOR_SALE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq)]
pub struct Mix {
    pub listers: usize,
    pub buyers: usize,
}

/// One way under one mix, for some seconds.
pub struct Run {
    pub way: Way,
    pub mix: Mix,
    pub elapsed: Duration,
    pub notes: Notes,
    /// What the audit found wrong.
    pub wrong: Vec<String>,
}

/// What a trader notes down, or all of them together.
pub struct Notes {
    pub books: Books,
    /// Every `EXEC` that was refused.
    pub retries: u64,
    /// Purchases for which somebody else was quicker.
    pub missed: u64,
    /// In microseconds, from a buyer's first look at the market (or its last purchase) to the purchase, so with all
    /// retries and with all misses. A wait that the end of the session cuts off counts as far as it came: otherwise
    /// a buyer who never gets anything would not show.
    pub waits: Histogram<u64>,
}

pub fn run(url: &str, way: Way, mix: Mix, length: Duration) -> Result<Run, Failure> {
    let world = &World::new(url, mix.listers, mix.buyers)?;

    // Everybody is connected before anybody starts.
    let enter = |name: &String| Trader::new(world, way, name);
    let listers: Vec<_> = (world.listers.iter().map(enter)).collect::<Result<_, _>>()?;
    let buyers: Vec<_> = (world.buyers.iter().map(enter)).collect::<Result<_, _>>()?;
    let mut redis = world.connect()?;

    let stop = &AtomicBool::new(false);
    let bought = &AtomicU64::new(0);
    let start = Instant::now();
    let notes = thread::scope(|scope| {
        let mut threads = Vec::new();
        for lister in listers {
            threads.push(scope.spawn(|| ending_all_on_error(stop, || list(world, lister, stop))));
        }
        for buyer in buyers {
            threads.push(scope.spawn(|| ending_all_on_error(stop, || buy(world, buyer, stop, bought))));
        }
        let name = format!("{way:<11}  {}/{}", mix.listers, mix.buyers);
        show_progress(&name, length, stop, bought, || {
            world.expire_leftovers(&mut redis);
        });
        stop.store(true, Relaxed);

        let mut total = Notes::new();
        for thread in threads {
            total.add(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok::<_, Failure>(total)
    })?;

    Ok(Run {
        way,
        mix,
        elapsed: start.elapsed(),
        wrong: world.audit(&notes.books)?,
        notes,
    })
}

fn list(world: &World, mut lister: Trader, stop: &AtomicBool) -> Result<Notes, Failure> {
    let name = lister.name().to_owned();
    let mut notes = Notes::new();
    while !stop.load(Relaxed) {
        let Books { made, listed, .. } = &mut notes.books;
        if made.len() <= *listed + 1 {
            let batch: Vec<String> = (made.len()..made.len() + BATCH)
                .map(|number| format!("{name}.{number}"))
                .collect();
            (lister.redis()).sadd::<_, _, ()>(world.inventory(&name), &batch)?;
            made.extend(batch);
        }
        let listing = Listing {
            world,
            lister: &name,
            item: &made[*listed],
            price: fastrand::i64(1..=HIGHEST_PRICE),
        };
        let (outcome, retries) = lister.make(&listing, stop)?;
        notes.retries += retries;
        match outcome {
            Outcome::Done => *listed += 1,
            // Nobody else touches its inventory.
            Outcome::Missed => return Err(format!("{} is gone from {name}", listing.item).into()),
            Outcome::Refused => {}
        }
    }
    Ok(notes)
}

fn buy(world: &World, mut buyer: Trader, stop: &AtomicBool, bought: &AtomicU64) -> Result<Notes, Failure> {
    let name = buyer.name().to_owned();
    let mut notes = Notes::new();
    let mut since = Instant::now();
    while !stop.load(Relaxed) {
        let window: Vec<(String, i64)> = (buyer.redis()).zrange_withscores(world.market(), 0, SHOP_WINDOW - 1)?;
        let Some((item, price)) = fastrand::choice(window) else {
            thread::sleep(NOTHING_FOR_SALE);
            since = Instant::now();
            continue;
        };
        let purchase = Purchase {
            world,
            buyer: &name,
            item: &item,
            price,
        };
        let (outcome, retries) = buyer.make(&purchase, stop)?;
        notes.retries += retries;
        match outcome {
            Outcome::Done => {
                notes.waits.record(since.elapsed().as_micros() as u64)?;
                since = Instant::now();
                bought.fetch_add(1, Relaxed);
                notes.books.sales.push(Sale {
                    buyer: name.clone(),
                    item,
                    price,
                });
            }
            Outcome::Missed => notes.missed += 1,
            Outcome::Refused => {}
        }
    }
    notes.waits.record(since.elapsed().as_micros() as u64)?;
    Ok(notes)
}

impl Run {
    pub fn bought(&self) -> usize {
        self.notes.books.sales.len()
    }

    pub fn purchases_per_second(&self) -> f64 {
        self.bought() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Notes {
    fn new() -> Self {
        Notes {
            books: Books::default(),
            retries: 0,
            missed: 0,
            waits: Histogram::new(3).expect("3 significant digits are allowed"),
        }
    }

    fn add(&mut self, other: Notes) {
        self.books.made.extend(other.books.made);
        self.books.listed += other.books.listed;
        self.books.sales.extend(other.books.sales);
        self.retries += other.retries;
        self.missed += other.missed;
        self.waits += other.waits;
    }
}

/// The first who fails ends the session, so that its error is seen at once.
fn ending_all_on_error<T>(stop: &AtomicBool, trade: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let result = trade();
    if result.is_err() {
        stop.store(true, Relaxed);
    }
    result
}

/// Shows a bar until the time is over or somebody has failed; one line at the end where there is no terminal.
fn show_progress(name: &str, length: Duration, stop: &AtomicBool, bought: &AtomicU64, mut at_every_tick: impl FnMut()) {
    const TICK: Duration = Duration::from_millis(100);

    let bar = ProgressBar::new(length.as_millis() as u64).with_prefix(name.to_owned());
    bar.set_style(ProgressStyle::with_template("{prefix}  {bar:30}  {msg}").expect("the template is valid"));
    let start = Instant::now();
    while start.elapsed() < length && !stop.load(Relaxed) {
        at_every_tick();
        bar.set_position(start.elapsed().as_millis() as u64);
        bar.set_message(format!("{} bought", bought.load(Relaxed)));
        thread::sleep(TICK.min(length.saturating_sub(start.elapsed())));
    }
    if bar.is_hidden() {
        eprintln!("{name}  {} bought", bought.load(Relaxed));
    }
    bar.finish_and_clear();
}
