//! What a lock or a permit costs when nobody else wants it, against the least that it can cost.
//!
//! ```text
//! cargo bench --bench uncontended -- [--iterations N] [--unix]
//! ```
//!
//! Five operations take turns within each iteration, in random order, so that whatever else the machine does hits all
//! of them alike:
//! - `PING`, the price of a round trip;
//! - the floor: `SET NX PX` with a random token and a compare-and-delete script, by hand on one connection;
//! - redlatch's `acquire` and `release`;
//! - redlatch's `try_acquire` and drop;
//! - the same of one permit of a semaphore.
//!
//! The server is `REDIS_URL` if set, else one of its own, found as the tests find theirs, over TCP as most users have
//! it (`--unix`: over its socket).
//!
//! `cargo test --benches` runs this without `--bench`: then it does one iteration and prints nothing.

mod common;
#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::time::Instant;

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use redis::{Connection, Script};

const LEASE_MS: u64 = 30_000;
const FLOOR: usize = 1; // its place among the rows

struct Options {
    /// False when run as a test.
    measure: bool,
    iterations: usize,
    unix: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_arguments()?;
    let (url, _server) = common::server(options.unix);
    let mut redis = redis::Client::open(url.as_str())?.get_connection()?;
    let version = common::server_version(&mut redis)?;
    let transport = common::transport(&url)?;

    let (iterations, warm_up) = if options.measure {
        (options.iterations, options.iterations / 10)
    } else {
        (1, 0)
    };
    let mut rows = rows(&url, redis)?;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    for iteration in 0..warm_up + iterations {
        fastrand::shuffle(&mut order);
        for &place in &order {
            let row = &mut rows[place];
            let start = Instant::now();
            (row.operation)()?;
            let took = start.elapsed();
            if iteration >= warm_up {
                row.times.record(took.as_nanos() as u64)?;
            }
        }
    }

    if options.measure {
        println!(
            "redlatch {}, {version}, {transport}, {iterations} iterations",
            env!("CARGO_PKG_VERSION")
        );
        println!("{}", table(&rows));
    }
    Ok(())
}

impl Options {
    fn from_arguments() -> Result<Self, lexopt::Error> {
        use lexopt::prelude::*;

        // Run as a test, this may get any of libtest's arguments; none concerns it.
        let measure = std::env::args_os().any(|argument| argument == "--bench");
        let mut options = Options {
            measure,
            iterations: 20_000,
            unix: false,
        };
        let mut arguments = lexopt::Parser::from_env();
        while let (true, Some(argument)) = (measure, arguments.next()?) {
            match argument {
                Long("bench") => {}
                Long("iterations") => options.iterations = arguments.value()?.parse()?,
                Long("unix") => options.unix = true,
                _ => return Err(argument.unexpected()),
            }
        }
        Ok(options)
    }
}

struct Row {
    name: &'static str,
    operation: Box<dyn FnMut() -> Result<(), Box<dyn Error>>>,
    times: Histogram<u64>, // nanoseconds
}

/// The floor shares its connection with `PING`; redlatch has its own.
fn rows(url: &str, redis: Connection) -> Result<Vec<Row>, Box<dyn Error>> {
    let redis = std::rc::Rc::new(std::cell::RefCell::new(redis));
    let name = format!("redlatch-bench:{:016x}", fastrand::u64(..));

    let ping = {
        let redis = redis.clone();
        move || Ok(redis::cmd("PING").exec(&mut *redis.borrow_mut())?)
    };

    let key = format!("{name}:floor");
    let compare_and_delete =
        Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0");
    let floor = move || {
        let redis = &mut *redis.borrow_mut();
        let token = uuid::Uuid::new_v4().to_string();
        let set: Option<String> = redis::cmd("SET")
            .arg(&key)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(LEASE_MS)
            .query(redis)?;
        let deleted: u32 = compare_and_delete.key(&key).arg(&token).invoke(redis)?;
        expect(set.is_some() && deleted == 1)
    };

    let client = redlatch::Client::open(url)?;
    let lock = client.lock(format!("{name}:acquire"));
    let acquire_release = move || Ok(lock.acquire()?.release()?);

    let lock = client.lock(format!("{name}:try"));
    let try_drop = move || expect(lock.try_acquire()?.is_some());

    let semaphore = client.semaphore(format!("{name}:permit"), 5);
    let permit = move || expect(semaphore.try_acquire()?.is_some());

    Ok(vec![
        Row::new("PING", ping)?,
        Row::new("floor: SET NX PX + EVALSHA", floor)?,
        Row::new("redlatch: acquire + release", acquire_release)?,
        Row::new("redlatch: try_acquire + drop", try_drop)?,
        Row::new("redlatch: try_acquire + drop of a permit", permit)?,
    ])
}

impl Row {
    fn new(
        name: &'static str,
        operation: impl FnMut() -> Result<(), Box<dyn Error>> + 'static,
    ) -> Result<Self, Box<dyn Error>> {
        Ok(Row {
            name,
            operation: Box::new(operation),
            times: Histogram::new(3)?,
        })
    }

    fn micros(&self, quantile: f64) -> f64 {
        self.times.value_at_quantile(quantile) as f64 / 1000.0
    }
}

fn expect(got_it: bool) -> Result<(), Box<dyn Error>> {
    if got_it {
        Ok(())
    } else {
        Err("somebody else has it: this is not uncontended".into())
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "p50 µs", "p99 µs", "p50 / floor", "p99 / floor"]);
    for row in rows {
        let ratio = |quantile| row.micros(quantile) / rows[FLOOR].micros(quantile);
        table.add_row([
            row.name.to_owned(),
            format!("{:.1}", row.micros(0.5)),
            format!("{:.1}", row.micros(0.99)),
            format!("{:.2}", ratio(0.5)),
            format!("{:.2}", ratio(0.99)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
