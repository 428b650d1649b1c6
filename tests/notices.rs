//! What operators are told by the crate `tracing`.

mod support;

use std::{
    fmt, fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redlatch::{Client, Error};
use support::{SECOND, Server, long_run, wait_until};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

const SECRET: &str = "correcthorsebatterystaple";

/// For what takes no time on a machine that is not busy.
const PATIENCE: Duration = SECOND.saturating_mul(30);

/// Keeps what redlatch says.
#[derive(Clone, Default)]
struct Log {
    said: Arc<Mutex<Vec<String>>>,
    /// Whether it panics when it has kept it.
    panics: Arc<AtomicBool>,
}

impl Log {
    fn len(&self) -> usize {
        self.said.lock().len()
    }

    fn last(&self) -> String {
        self.said.lock().last().expect("a warning").clone()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redlatch"
    }

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        assert_eq!(*event.metadata().level(), Level::WARN);
        let mut text = Text(String::new());
        event.record(&mut text);
        self.said.lock().push(text.0);
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        span::Id::from_u64(NEXT.fetch_add(1, Ordering::SeqCst))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Waits in vain for a lock that somebody else holds: by then knocks are listened for, or that was tried.
#[track_caller]
fn wait_in_vain(client: &Client, name: &str) {
    let waited = client.lock(name).acquire_timeout(SECOND);
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
}

/// How many threads of this process listen for knocks.
fn listening() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("the threads");
    let names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "redlatch-knocks").count()
}

// One test, since there is one log for the process.
#[test]
fn a_client_whose_waiters_cannot_be_woken_says_so_once() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).expect("the only subscriber");
    let server = Server::start();
    let permit = |permissions: &str| server.run(&format!("ACL SETUSER app reset on >{SECRET} {permissions}"));
    let client = || {
        let url = server.url().replace("redis://", &format!("redis://app:{SECRET}@"));
        Client::open(url).unwrap()
    };
    let _held = Client::open(server.url()).unwrap().lock("x").acquire().unwrap();

    permit("~* +@all &redlatch:*");
    wait_in_vain(&client(), "x");
    assert_eq!(log.len(), 0);

    permit("~* +@all");
    let (first, second) = (client(), client());
    // Nobody who does not wait wants to be woken.
    assert!(first.lock("x").try_acquire().unwrap().is_none());
    assert_eq!(log.len(), 0);
    for (nth, client) in [&first, &second].into_iter().enumerate() {
        wait_in_vain(client, "x");
        wait_until("a warning", PATIENCE, || log.len() == nth + 1);
        let said = log.last();
        assert!(said.contains("waiters cannot be woken"), "{said}");
        assert!(said.contains("channel"), "{said}");
        assert!(!said.contains(SECRET), "{said}");
    }
    for _ in 0..3 {
        wait_in_vain(&first, "x");
        wait_in_vain(&second, "x");
    }
    assert_eq!(log.len(), 2);

    // A panic in a subscriber is its own: the thread goes on, to try again.
    log.panics.store(true, Ordering::SeqCst);
    let before = listening();
    let third = client();
    wait_in_vain(&third, "x");
    wait_until("a warning", PATIENCE, || log.len() == 3);
    wait_in_vain(&third, "x");
    assert_eq!(listening(), before + 1);
    log.panics.store(false, Ordering::SeqCst);
    drop(third);

    if long_run().is_some() {
        // It is tried again, in vain again, and not worth another word.
        let refused = || -> u64 {
            let stats: String = redis::from_redis_value(server.run("INFO commandstats")).unwrap();
            let line = stats
                .lines()
                .find(|line| line.starts_with("cmdstat_subscribe:"))
                .expect("it was asked for");
            let (_, rejected) = line.split_once("rejected_calls=").expect("a number of calls");
            rejected.split(',').next().unwrap().parse().unwrap()
        };
        wait_until("another attempt of both", SECOND * 90, || refused() == 5);
        wait_in_vain(&first, "x");
        assert_eq!(log.len(), 3);
    }
}
