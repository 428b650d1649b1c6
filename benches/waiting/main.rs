//! What waiting for a lock or a permit costs, against what a careful user would write by hand: tokens in a list, taken
//! by `BLPOP` and given back by `RPUSH`.
//!
//! ```text
//! cargo bench --bench waiting -- [--hand-over] [--contended] [--idle] [--sweep] [--json] [--unix]
//!     [--iterations N] [--seconds S] [--idle-seconds S] [--waiters N] [--handoffs N]
//! ```
//!
//! - `--hand-over`: how long it takes from a release in one process to the grant in another that waits, `--iterations`
//!   times; and `PING`, the price of a round trip.
//! - `--contended`: two processes of eight threads each fight for one lock, then for the permits of one semaphore, for
//!   `--seconds` with each way to pass it on.
//! - `--idle`: what `--waiters` threads cost while they wait `--idle-seconds` for a lock that stays taken.
//! - `--sweep`: what the budget of local hand-overs gives to one process and costs another, `--seconds` for each
//!   budget; `--handoffs` names the budgets in place of the usual ones, and may be repeated.
//!
//! Without any of these it does the first three. `--json` prints one JSON object for each row in place of the tables.
//!
//! All that waits and releases are processes of their own: this program again, told what to do line by line. The server
//! is `REDIS_URL` if set (nobody else should use it: its commands are counted), else one of its own, found as the tests
//! find theirs, over TCP as most users have it (`--unix`: over its socket).
//!
//! `cargo test --benches` runs this without `--bench`: then it does one small round of each and prints nothing.

#[path = "../common/mod.rs"]
mod common;
mod contended;
mod hand_over;
mod idle;
mod report;
mod room;
mod sent;
#[path = "../../tests/support/mod.rs"]
mod support;
mod way;
mod worker;

use std::{error::Error, time::Duration};

use redis::Connection;
use report::Report;
use room::Room;
use support::{SECOND, millis};

const BUDGETS: [u32; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];

struct Options {
    /// False when run as a test.
    measure: bool,
    hand_over: bool,
    contended: bool,
    idle: bool,
    sweep: bool,
    json: bool,
    unix: bool,
    iterations: usize,
    run: Duration,
    waiters: usize,
    idle_run: Duration,
    /// From when all have begun to wait until it counts.
    settle: Duration,
    budgets: Vec<u32>,
}

/// What the measurements work with.
struct Bench {
    url: String,
    redis: Connection,
    room: Room,
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = worker::url() {
        worker::run(&url);
        return Ok(());
    }
    let options = Options::from_arguments()?;
    let (url, _server) = common::server(options.unix);
    let mut bench = Bench {
        redis: redis::Client::open(url.as_str())?.get_connection()?,
        room: Room::create()?,
        url,
    };
    if options.measure && !options.json {
        let (version, transport) = (
            common::server_version(&mut bench.redis)?,
            common::transport(&bench.url)?,
        );
        println!("redlatch {}, {version}, {transport}", env!("CARGO_PKG_VERSION"));
    }

    let print = |report: Report| {
        if options.measure {
            report.print(options.json);
        }
    };
    if options.hand_over {
        print(hand_over::measure(&mut bench, options.iterations)?);
    }
    if options.contended {
        print(contended::measure(&mut bench, options.run)?);
    }
    if options.idle {
        print(idle::measure(
            &mut bench,
            options.waiters,
            options.settle,
            options.idle_run,
        )?);
    }
    if options.sweep {
        print(contended::sweep(&mut bench, &options.budgets, options.run)?);
    }
    Ok(())
}

impl Bench {
    /// A name that nobody has used.
    fn name(&self) -> String {
        format!("redlatch-bench:{:016x}", fastrand::u64(..))
    }

    fn worker(&self) -> support::Worker {
        worker::start(&self.url, &self.room)
    }
}

impl Options {
    fn from_arguments() -> Result<Self, lexopt::Error> {
        use lexopt::prelude::*;

        // Run as a test, this may get any of libtest's arguments; none concerns it.
        if !std::env::args_os().any(|argument| argument == "--bench") {
            return Ok(Self::smallest());
        }
        let mut options = Options {
            measure: true,
            hand_over: false,
            contended: false,
            idle: false,
            sweep: false,
            json: false,
            unix: false,
            iterations: 2000,
            run: SECOND * 5,
            waiters: 1000,
            idle_run: SECOND * 10,
            settle: SECOND * 2,
            budgets: Vec::new(),
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("bench") => {}
                Long("hand-over") => options.hand_over = true,
                Long("contended") => options.contended = true,
                Long("idle") => options.idle = true,
                Long("sweep") => options.sweep = true,
                Long("json") => options.json = true,
                Long("unix") => options.unix = true,
                Long("iterations") => options.iterations = arguments.value()?.parse()?,
                Long("seconds") => options.run = arguments.value()?.parse_with(seconds)?,
                Long("idle-seconds") => options.idle_run = arguments.value()?.parse_with(seconds)?,
                Long("waiters") => options.waiters = arguments.value()?.parse()?,
                Long("handoffs") => options.budgets.push(arguments.value()?.parse()?),
                _ => return Err(argument.unexpected()),
            }
        }
        options.sweep |= !options.budgets.is_empty();
        if options.budgets.is_empty() {
            options.budgets = BUDGETS.into();
        }
        if !(options.hand_over || options.contended || options.idle || options.sweep) {
            (options.hand_over, options.contended, options.idle) = (true, true, true);
        }
        Ok(options)
    }

    /// A little of everything.
    fn smallest() -> Self {
        Options {
            measure: false,
            hand_over: true,
            contended: true,
            idle: true,
            sweep: true,
            json: false,
            unix: false,
            iterations: 1,
            run: millis(20),
            waiters: 4,
            idle_run: millis(20),
            settle: Duration::ZERO,
            budgets: vec![0],
        }
    }
}

fn seconds(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}
