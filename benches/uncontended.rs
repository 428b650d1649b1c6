//! What a lock or a permit costs when nobody else wants it, against the least that it can cost.
//!
//! ```text
//! cargo bench --bench uncontended -- [--iterations N] [--unix]
//! ```
//!
//! These operations take turns within each iteration, in random order, so that whatever else the machine does hits all
//! of them alike:
//! - `PING`, the price of a round trip;
//! - the floor: `SET NX PX` with a random token and a compare-and-delete script, by hand on one connection;
//! - redlatch's `acquire` and `release`;
//! - redlatch's `try_acquire` and drop;
//! - the same of one permit of a semaphore;
//! - with the feature `capi`, `redlatch_lock_acquire()`, `redlatch_guard_release()` and `redlatch_guard_free()` of the
//!   C API, to be seen beside `acquire` and `release`.
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
// Places among the rows.
const FLOOR: usize = 1;
const ACQUIRE_RELEASE: usize = 2;

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
        if let Some(through_c) = rows.iter().find(|row| row.name == THROUGH_C) {
            let ratio = |quantile| through_c.micros(quantile) / rows[ACQUIRE_RELEASE].micros(quantile);
            println!(
                "{THROUGH_C} / {}: p50 {:.3}, p99 {:.3}",
                rows[ACQUIRE_RELEASE].name,
                ratio(0.5),
                ratio(0.99)
            );
        }
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

    #[cfg_attr(not(feature = "capi"), expect(unused_mut))]
    let mut rows = vec![
        Row::new("PING", ping)?,
        Row::new("floor: SET NX PX + EVALSHA", floor)?,
        Row::new("redlatch: acquire + release", acquire_release)?,
        Row::new("redlatch: try_acquire + drop", try_drop)?,
        Row::new("redlatch: try_acquire + drop of a permit", permit)?,
    ];
    #[cfg(feature = "capi")]
    {
        let lock = c::Lock::new(url, &format!("{name}:c"))?;
        rows.push(Row::new(THROUGH_C, move || lock.acquire_and_release())?);
    }
    Ok(rows)
}

const THROUGH_C: &str = "through C: acquire + release";

/// As a C program has it, from the same build.
#[cfg(feature = "capi")]
mod c {
    use std::{
        error::Error,
        ffi::{CString, c_char, c_void},
        ptr,
    };

    const NUL_TERMINATED: usize = usize::MAX;
    const FOREVER: u64 = u64::MAX;

    unsafe extern "C" {
        fn redlatch_client_open(url: *const c_char, out: *mut *mut c_void) -> i32;
        fn redlatch_client_free(client: *mut c_void);
        fn redlatch_lock_new(client: *const c_void, name: *const c_char, len: usize, out: *mut *mut c_void) -> i32;
        fn redlatch_lock_acquire(
            lock: *const c_void,
            wait_ms: u64,
            cancel: *const c_void,
            out: *mut *mut c_void,
        ) -> i32;
        fn redlatch_lock_free(lock: *mut c_void);
        fn redlatch_guard_release(guard: *mut c_void) -> i32;
        fn redlatch_guard_free(guard: *mut c_void);
    }

    pub struct Lock(*mut c_void);

    impl Lock {
        pub fn new(url: &str, name: &str) -> Result<Self, Box<dyn Error>> {
            let (url, name) = (CString::new(url)?, CString::new(name)?);
            let (mut client, mut lock) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: strings that end with a NUL, and places for the results.
            unsafe {
                succeed(redlatch_client_open(url.as_ptr(), &mut client))?;
                succeed(redlatch_lock_new(client, name.as_ptr(), NUL_TERMINATED, &mut lock))?;
                redlatch_client_free(client);
            }
            Ok(Self(lock))
        }

        pub fn acquire_and_release(&self) -> Result<(), Box<dyn Error>> {
            let mut guard = ptr::null_mut();
            // SAFETY: the lock lives until it is dropped, and the guard is freed once.
            unsafe {
                succeed(redlatch_lock_acquire(self.0, FOREVER, ptr::null(), &mut guard))?;
                let released = redlatch_guard_release(guard);
                redlatch_guard_free(guard);
                succeed(released)
            }
        }
    }

    impl Drop for Lock {
        fn drop(&mut self) {
            // SAFETY: it was made by `redlatch_lock_new`, and is not used any more.
            unsafe { redlatch_lock_free(self.0) }
        }
    }

    fn succeed(status: i32) -> Result<(), Box<dyn Error>> {
        if status == 0 {
            Ok(())
        } else {
            Err(format!("the C API returned {status}").into())
        }
    }
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
