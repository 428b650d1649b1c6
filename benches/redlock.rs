//! What a lock costs on a Redlock of five servers, against the same on one of them.
//!
//! ```text
//! cargo bench --bench redlock -- [--iterations N]
//! ```
//!
//! Both take turns within each iteration, in random order: acquire and release, each timed by itself. Then one of the
//! five servers is stopped (SIGSTOP), so that it takes requests and answers nothing, and the Redlock's grants are timed
//! again.
//!
//! `cargo test --benches` runs this without `--bench`: then it does one iteration and prints nothing.

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use redlatch::{Client, Lock};
use support::Redlock;

const LEASE: Duration = Redlock::MAX_LEASE;
const NODE_TIMEOUT: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let (measure, iterations) = options()?;
    let redlock = Redlock::start();
    redlock.wait_for_votes(LEASE);
    let mut connection = redlock.node(0).connection();
    let version = common::server_version(&mut connection)?;

    let one = Client::open(redlock.node(0).url())?.lock("one").lease(LEASE);
    let five = Client::builder()
        .url(redlock.url())
        .max_lease(LEASE)
        .node_timeout(NODE_TIMEOUT)
        .build()?
        .lock("five")
        .lease(LEASE);
    let mut rows = [Row::new("one server", one)?, Row::new("Redlock of 5", five)?];
    let mut order = [0, 1];
    for iteration in 0..iterations + iterations / 10 {
        fastrand::shuffle(&mut order);
        for &place in &order {
            rows[place].time(iteration >= iterations / 10)?;
        }
    }
    let [_, five] = &rows;
    let mut one_silent = Row::new("Redlock of 5, one silent", five.lock.clone())?;
    redlock.node(4).stop_process();
    for _ in 0..iterations {
        one_silent.time(true)?;
    }
    redlock.node(4).continue_process();

    if measure {
        println!(
            "redlatch {}, {version}, TCP, {iterations} iterations, node timeout {NODE_TIMEOUT:?}",
            env!("CARGO_PKG_VERSION")
        );
        println!("{}", table(&rows, &one_silent));
    }
    Ok(())
}

/// Whether to measure, and how many iterations to make.
fn options() -> Result<(bool, usize), lexopt::Error> {
    use lexopt::prelude::*;

    // Run as a test, this may get any of libtest's arguments; none concerns it.
    let measure = std::env::args_os().any(|argument| argument == "--bench");
    let mut iterations = if measure { 10_000 } else { 1 };
    let mut arguments = lexopt::Parser::from_env();
    while let (true, Some(argument)) = (measure, arguments.next()?) {
        match argument {
            Long("bench") => {}
            Long("iterations") => iterations = arguments.value()?.parse()?,
            _ => return Err(argument.unexpected()),
        }
    }
    Ok((measure, iterations))
}

struct Row {
    name: &'static str,
    lock: Lock,
    // Nanoseconds.
    acquire: Histogram<u64>,
    pair: Histogram<u64>,
}

impl Row {
    fn new(name: &'static str, lock: Lock) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            name,
            lock,
            acquire: Histogram::new(3)?,
            pair: Histogram::new(3)?,
        })
    }

    fn time(&mut self, counts: bool) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        let guard = self.lock.acquire()?;
        let acquired = start.elapsed();
        guard.release()?;
        let released = start.elapsed();
        if counts {
            self.acquire.record(acquired.as_nanos() as u64)?;
            self.pair.record(released.as_nanos() as u64)?;
        }
        Ok(())
    }
}

fn table(rows: &[Row; 2], one_silent: &Row) -> Table {
    let micros = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "p50 µs", "p99 µs", "max ms", "p50 / one server"]);
    for row in rows.iter().chain([one_silent]) {
        let [one, _] = rows;
        for (what, times, one) in [
            ("acquire", &row.acquire, &one.acquire),
            ("acquire + release", &row.pair, &one.pair),
        ] {
            table.add_row([
                format!("{}: {what}", row.name),
                format!("{:.1}", micros(times, 0.5)),
                format!("{:.1}", micros(times, 0.99)),
                format!("{:.1}", micros(times, 1.0) / 1000.0),
                format!("{:.2}", micros(times, 0.5) / micros(one, 0.5)),
            ]);
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
