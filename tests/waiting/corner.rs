//! What a test has to itself.

use std::{
    thread,
    time::{Duration, SystemTime},
};

use redlatch::{CancelToken, Client, ClientBuilder, Guard, Wait};

use crate::{
    support::{Server, Worker, wait_until},
    terms::{Kind, MINUTE, NAME, PROMPT, Terms},
};

/// A server, what the test is about, and whether that is fair.
pub struct Corner {
    pub server: Server,
    pub kind: Kind,
    pub fair: bool,
}

impl Corner {
    pub fn new(kind: Kind, fair: bool) -> Self {
        Self {
            server: Server::start(),
            kind,
            fair,
        }
    }

    pub fn terms(&self) -> Terms {
        Terms::new(self.kind, self.fair)
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().url(self.server.url()).poll_interval(MINUTE)
    }

    /// A client as another process would have it.
    pub fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// Takes what the others are to wait for.
    pub fn hold(&self) -> Guard {
        self.terms().acquire(&self.client()).unwrap()
    }

    /// Has `client` wait for another name until it can be called, as it can from then on.
    pub fn have_listen(&self, client: &Client) {
        let (terms, cancel) = (Terms::new(self.kind, false).named("another"), CancelToken::new());
        let taken = terms.acquire(&self.client()).unwrap();
        thread::scope(|scope| {
            let wait = Wait::at_most(terms.limit).cancelled_by(&cancel);
            let target = terms.target(client);
            let waiting = scope.spawn(move || target.acquire_with(wait).map(drop));
            // Before that it is given no time to come for the lock, since it looks all the time.
            wait_until("the client to be given time", PROMPT, || {
                let waiters: Vec<String> = redis::cmd("HVALS")
                    .arg(self.kind.helper_key("waiters", "another"))
                    .query(&mut self.server.connection())
                    .unwrap();
                let claim = |waiter: &String| waiter.split(' ').nth(1).map(str::to_owned);
                waiters
                    .iter()
                    .any(|waiter| claim(waiter).is_some_and(|claim| claim != "0"))
            });
            cancel.cancel();
            waiting.join().unwrap().unwrap_err();
        });
        taken.release().unwrap();
        wait_until("that wait to be forgotten", PROMPT, || {
            self.traces_of_waiting().is_empty()
        });
    }

    /// A process with a client that looks by itself once a minute only.
    pub fn worker(&self) -> Worker {
        self.worker_polling(MINUTE)
    }

    pub fn worker_polling(&self, poll_interval: Duration) -> Worker {
        let mut worker = Worker::of_this_program(&self.server.url());
        assert_eq!(worker.ask(format_args!("open {}", poll_interval.as_millis())), "open");
        worker
    }

    /// Where the lock, or semaphore, stands.
    pub fn key(&self) -> String {
        self.kind.key(NAME)
    }

    /// The token that stands at its key, or one of those.
    pub fn holder(&self) -> Option<String> {
        match self.kind {
            Kind::Lock => self.server.get(&self.key()),
            // The others are further permits of the same one.
            Kind::Semaphore { .. } => self.holders().into_iter().find(|token| !token.ends_with(":2")),
        }
    }

    /// What stands at the semaphore's key and has not ended: a permit each.
    pub fn holders(&self) -> Vec<String> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        let mut live = redis::cmd("ZRANGE");
        live.arg(self.key()).arg(now).arg("+inf").arg("BYSCORE");
        live.query(&mut self.server.connection()).unwrap()
    }

    /// Has somebody who is not of redlatch hold the lock for a minute, whoever held it.
    pub fn hold_as_another(&self) {
        self.server.run("SET lock:x another PX 60000");
    }

    /// How many are registered as waiting for it, alive or not: if it is fair each thread, else one for each
    /// client.
    pub fn registered(&self) -> usize {
        let count = redis::cmd("ZCARD")
            .arg(self.kind.queue_key(NAME))
            .query(&mut self.server.connection());
        count.unwrap()
    }

    #[track_caller]
    pub fn wait_for_registered(&self, count: usize) {
        wait_until(&format!("{count} to be registered as waiting"), PROMPT, || {
            self.registered() == count
        });
    }

    /// The keys of the names that are waited for.
    pub fn queues(&self) -> Vec<String> {
        self.keys("*redlatch:queue*")
    }

    /// All that stands on the server because somebody waits, or is about to be served.
    pub fn traces_of_waiting(&self) -> Vec<String> {
        [self.queues(), self.keys("*redlatch:waiters*")].concat()
    }

    /// Waits until all is free and nobody is registered, for any name.
    #[track_caller]
    pub fn wait_until_all_is_gone(&self) {
        wait_until("the traces of all waits and holds to go", PROMPT, || {
            self.traces_of_waiting().is_empty() && self.keys(&self.kind.key("*")).is_empty()
        });
    }

    /// How many connections are subscribed to something.
    pub fn subscribers(&self) -> usize {
        let list = redis::cmd("CLIENT")
            .arg(&["LIST", "TYPE", "pubsub"])
            .query(&mut self.server.connection());
        let list: String = list.unwrap();
        list.lines().count()
    }

    #[track_caller]
    pub fn wait_for_subscribers(&self, count: usize) {
        wait_until(&format!("{count} subscribed connections"), PROMPT, || {
            self.subscribers() == count
        });
    }

    fn keys(&self, pattern: &str) -> Vec<String> {
        let keys = redis::cmd("KEYS").arg(pattern).query(&mut self.server.connection());
        keys.unwrap()
    }
}
