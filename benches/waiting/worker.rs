//! The processes that wait and release: this program again. The first order tells a worker which measurement it is for.

use std::{
    env,
    io::{self, Lines, StdinLock},
    panic,
    process::{self, Command},
};

use crate::{contended, hand_over, idle, room::Room, support::Worker};

/// Names the server to a program that is to be a worker.
const URL: &str = "REDLATCH_BENCH_WORKER_URL";

/// Names the file of the room.
const ROOM: &str = "REDLATCH_BENCH_ROOM";

/// What a worker is told after its first order.
pub type Orders = Lines<StdinLock<'static>>;

pub fn start(url: &str, room: &Room) -> Worker {
    let program = env::current_exe().expect("the path of this program");
    Worker::start(Command::new(program).env(URL, url).env(ROOM, room.path()))
}

/// The server to work on, if this process is a worker.
pub fn url() -> Option<String> {
    env::var(URL).ok()
}

/// The room that all workers of a benchmark share.
pub fn room() -> Room {
    Room::open(env::var_os(ROOM).expect("the room's path").as_ref()).unwrap()
}

/// Takes part in one measurement. Whatever goes wrong is a panic, of whatever thread; its message goes to the standard
/// error, and the worker ends.
pub fn run(url: &str) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::exit(1);
    }));
    let mut orders = io::stdin().lines();
    let first = orders.next().expect("an order").unwrap();
    match first.split(' ').collect::<Vec<_>>()[..] {
        ["hand-over", name, ref ways @ ..] => hand_over::take_part(url, orders, name, ways),
        ["contend", ref terms @ ..] => contended::take_part(url, orders, terms),
        ["idle", name, way, waiters] => idle::take_part(url, orders, name, way, waiters),
        _ => panic!("unknown order {first:?}"),
    }
}
