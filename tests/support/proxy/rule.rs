use std::panic::Location;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::super::{server::Server, time::SLACK};
use super::Proxy;

/// What happens to a command.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The server runs it; the reply is never seen, and the connection stays open and silent until
    /// the client closes it.
    SwallowReply,
    /// The server runs it; the client's connection is closed without a reply.
    CutAfter,
    /// The client's connection is closed and the server never sees the command.
    CutBefore,
    /// The server runs it; the reply comes that much later.
    DelayReply(Duration),
    /// The server runs it; the client gets these bytes in place of the reply.
    Answer(&'static str),
    /// It is kept from the server until `release_held`, even if its client has left by then: what a
    /// stalled server does. What follows on the same connection waits behind it.
    HoldRequest,
}

type Predicate = Box<dyn Fn(&[Vec<u8>]) -> bool + Send + Sync>;

/// A rule in the making, from [`Proxy::on`]: for the first command that matches, unless told
/// otherwise.
#[must_use = "a rule begins with `apply` or `watch`"]
pub struct RuleBuilder<'a> {
    proxy: &'a Proxy,
    predicate: Predicate,
    which: Which,
    may_miss: bool,
}

#[derive(Clone, Copy)]
enum Which {
    /// Counted from 1.
    Nth(usize),
    Every,
}

impl<'a> RuleBuilder<'a> {
    pub(super) fn new(proxy: &'a Proxy, predicate: Predicate) -> Self {
        Self {
            proxy,
            predicate,
            which: Which::Nth(1),
            may_miss: false,
        }
    }

    /// For the `nth` command that matches from now on, counted from 1, and no other.
    pub fn nth(mut self, nth: usize) -> Self {
        assert!(nth > 0, "the first command is number 1");
        self.which = Which::Nth(nth);
        self
    }

    /// For every command that matches from now on.
    pub fn every(mut self) -> Self {
        self.which = Which::Every;
        self
    }

    /// Does not mind if the fault never strikes.
    pub fn may_miss(mut self) -> Self {
        self.may_miss = true;
        self
    }

    /// Has the fault strike. It stays in force without its handle, which must not be dropped before:
    /// a test whose fault struck nothing has tested nothing.
    #[track_caller]
    pub fn apply(self, fault: Fault) -> FaultHandle {
        let which = self.which;
        let must_strike = (!self.may_miss).then_some(Location::caller());
        self.add(Some((which, fault)), must_strike)
    }

    /// Only counts.
    pub fn watch(self) -> FaultHandle {
        self.add(None, None)
    }

    fn add(self, fault: Option<(Which, Fault)>, must_strike: Option<&'static Location<'static>>) -> FaultHandle {
        let rule = self.proxy.add_rule(Rule {
            predicate: self.predicate,
            fault,
            progress: Mutex::default(),
            changed: Condvar::new(),
        });
        FaultHandle { rule, must_strike }
    }
}

/// What became of a rule. Dropping it panics if it stands for a fault that has not struck, unless
/// [that was foreseen](RuleBuilder::may_miss).
#[must_use = "a fault's handle tells when it is dropped whether the fault has struck: keep it until then"]
pub struct FaultHandle {
    rule: Arc<Rule>,
    /// Where a fault was applied that has to strike.
    must_strike: Option<&'static Location<'static>>,
}

impl FaultHandle {
    /// How many commands have matched.
    pub fn seen(&self) -> usize {
        self.rule.progress.lock().seen
    }

    /// How many commands the fault has struck.
    pub fn hits(&self) -> usize {
        self.rule.progress.lock().hits
    }

    /// Waits until the fault has struck: the server has run the command, or it is kept from it, and
    /// the client's connection is closed if it was to be. Panics after `within`.
    #[track_caller]
    pub fn wait_hit(&self, within: Duration) {
        self.wait_hits(1, within);
    }

    /// Waits until the fault has struck so many times. Panics after `within`.
    #[track_caller]
    pub fn wait_hits(&self, hits: usize, within: Duration) {
        self.wait_for("the fault to strike", within, |progress| progress.hits >= hits);
    }

    /// Waits until so many commands have matched. Panics after `within`.
    #[track_caller]
    pub fn wait_seen(&self, seen: usize, within: Duration) {
        self.wait_for("commands to come", within, |progress| progress.seen >= seen);
    }

    /// No further command is struck or counted.
    pub fn end(&self) {
        self.rule.progress.lock().ended = true;
    }

    #[track_caller]
    fn wait_for(&self, what: &str, within: Duration, done: impl Fn(&Progress) -> bool) {
        let mut progress = self.rule.progress.lock();
        let waits = |progress: &mut Progress| !done(progress);
        let waited = self.rule.changed.wait_while_for(&mut progress, waits, within);
        assert!(
            !waited.timed_out() || done(&progress),
            "gave up after {within:?} waiting for {what}; {progress:?}"
        );
    }
}

impl Drop for FaultHandle {
    fn drop(&mut self) {
        let Some(applied) = self.must_strike else {
            return;
        };
        if thread::panicking() {
            return;
        }
        let mut progress = self.rule.progress.lock();
        // A client may see its connection cut just before the proxy notes it.
        let strikes = |progress: &mut Progress| progress.claimed > 0 && progress.hits == 0;
        self.rule.changed.wait_while_for(&mut progress, strikes, SLACK);
        assert!(
            progress.hits > 0,
            "the fault that was applied at {applied} has not struck; {progress:?}"
        );
    }
}

pub(super) struct Rule {
    predicate: Predicate,
    fault: Option<(Which, Fault)>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    seen: usize,
    /// Commands that the fault has been promised to, struck or not yet.
    claimed: usize,
    hits: usize,
    ended: bool,
}

impl Rule {
    /// Whether commands that are still to come can make a difference to it, or to anybody.
    pub(super) fn is_needed(self: &Arc<Self>) -> bool {
        let may_strike = || {
            let progress = self.progress.lock();
            let due = match self.fault {
                None => false,
                Some((Which::Nth(_), _)) => progress.claimed == 0,
                Some((Which::Every, _)) => true,
            };
            due && !progress.ended
        };
        // Besides its proxy, handles have it, and commands that are on their way.
        Arc::strong_count(self) > 1 || may_strike()
    }

    /// Counts a command that matches. `None` if the rule has ended, else the fault that is due.
    fn count(&self, may_strike: bool) -> Option<Option<Fault>> {
        let mut progress = self.progress.lock();
        if progress.ended {
            return None;
        }
        progress.seen += 1;
        self.changed.notify_all();
        let due = self.fault.and_then(|(which, fault)| match which {
            // Not just the nth: a command that turns out not to count gives its turn back.
            Which::Nth(nth) => (progress.claimed == 0 && progress.seen >= nth).then_some(fault),
            Which::Every => Some(fault),
        });
        let due = due.filter(|_| may_strike);
        progress.claimed += usize::from(due.is_some());
        Some(due)
    }
}

/// The rules that one command matches, and the fault that is to strike it.
pub(super) struct Matches {
    rules: Vec<Arc<Rule>>,
    striking: Option<(Arc<Rule>, Fault)>,
}

impl Matches {
    /// Counts a command for all rules that it matches; the oldest whose fault is due strikes.
    pub(super) fn of(rules: Vec<Arc<Rule>>, args: &[Vec<u8>]) -> Self {
        let mut matches = Self {
            rules: Vec::new(),
            striking: None,
        };
        for rule in rules {
            if !(rule.predicate)(args) {
                continue;
            }
            let Some(due) = rule.count(matches.striking.is_none()) else {
                continue;
            };
            if let Some(fault) = due {
                matches.striking = Some((Arc::clone(&rule), fault));
            }
            matches.rules.push(rule);
        }
        matches
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.striking.as_ref().map(|(_, fault)| *fault)
    }

    /// Tells that the fault has struck.
    pub(super) fn hit(&self) {
        if let Some((rule, _)) = &self.striking {
            rule.progress.lock().hits += 1;
            rule.changed.notify_all();
        }
    }

    /// The command turned out to do nothing: it does not count.
    pub(super) fn take_back(self) {
        for rule in &self.rules {
            rule.progress.lock().seen -= 1;
        }
        if let Some((rule, _)) = &self.striking {
            rule.progress.lock().claimed -= 1;
        }
    }
}

/// One of redlatch's scripts, as it is sent.
pub struct Script {
    /// What it is for: `lock`, `semaphore`, or `quorum` for a lock on several servers.
    pub slot: &'static str,
    pub name: &'static str,
    pub text: &'static str,
    digest: String,
}

impl Script {
    /// Whether a command runs it.
    pub fn is_run_by(&self, args: &[Vec<u8>]) -> bool {
        let [command, script, ..] = args else {
            return false;
        };
        command.eq_ignore_ascii_case(b"EVALSHA") && script == self.digest.as_bytes()
            || command.eq_ignore_ascii_case(b"EVAL") && script == self.text.as_bytes()
    }
}

/// All the scripts: each is put together from files.
static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    macro_rules! file {
        ($name:literal) => {
            concat!(
                include_str!(concat!("../../../src/store/scripts/", $name, ".lua")),
                "\n"
            )
        };
    }
    macro_rules! script {
        ($slot:literal, $name:literal) => {
            ($slot, $name, concat!(file!("base"), file!($slot), file!($name)))
        };
        ($slot:literal, "queue", $name:literal) => {
            (
                $slot,
                $name,
                concat!(file!("base"), file!($slot), file!("queue"), file!($name)),
            )
        };
    }
    macro_rules! kit {
        ($slot:literal) => {
            [
                script!($slot, "queue", "acquire"),
                script!($slot, "renew"),
                script!($slot, "queue", "release"),
                script!($slot, "queue", "turn"),
                script!($slot, "queue", "withdraw"),
                script!($slot, "inspect"),
            ]
        };
    }
    macro_rules! of_several_servers {
        ($name:literal) => {
            ("quorum", $name, concat!(file!("base"), file!($name)))
        };
    }
    let acquire_several = (
        "lock",
        "acquire_several",
        concat!(file!("base"), file!("acquire_several")),
    );
    let others = [
        script!("semaphore", "queue", "set_limit"),
        acquire_several,
        of_several_servers!("quorum_grant"),
        of_several_servers!("quorum_raise"),
    ];
    let all = kit!("lock").into_iter().chain(kit!("semaphore")).chain(others);
    all.map(|(slot, name, text)| Script {
        slot,
        name,
        text,
        digest: redis::Script::new(text).get_hash().to_owned(),
    })
    .collect()
});

/// All of redlatch's scripts.
pub fn scripts() -> &'static [Script] {
    &SCRIPTS
}

/// Has `server` know all of redlatch's scripts.
pub fn load_scripts(server: &Server) {
    let mut load = redis::pipe();
    for script in &*SCRIPTS {
        load.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
    }
    load.exec(&mut server.connection()).expect("the scripts to be loaded");
}

/// Whether a command runs redlatch's script for acquiring, on a single server or on one of several.
pub fn is_acquire(args: &[Vec<u8>]) -> bool {
    runs(args, "acquire") || runs(args, "quorum_grant")
}

/// Whether a command runs redlatch's script for acquiring several locks at once.
pub fn is_acquire_several(args: &[Vec<u8>]) -> bool {
    runs(args, "acquire_several")
}

/// Whether a command runs the script for acquiring and asks for a place among those who wait.
pub fn is_registration(args: &[Vec<u8>]) -> bool {
    // It says at which channel to knock. The keys of helpers begin with a hash tag.
    is_acquire(args) && args.iter().any(|arg| arg.starts_with(b"redlatch:"))
}

/// Whether a command runs redlatch's script by which one of several servers catches up with the others.
pub fn is_raise(args: &[Vec<u8>]) -> bool {
    runs(args, "quorum_raise")
}

/// Whether a command runs redlatch's script for renewing and extending.
pub fn is_renew(args: &[Vec<u8>]) -> bool {
    runs(args, "renew")
}

/// Whether a command runs redlatch's script for releasing, and for cleaning up.
pub fn is_release(args: &[Vec<u8>]) -> bool {
    runs(args, "release")
}

/// Whether a command runs redlatch's script for releasing unless nobody else waits.
pub fn is_turn(args: &[Vec<u8>]) -> bool {
    runs(args, "turn")
}

/// Whether a command runs redlatch's script for taking back a place among those who wait.
pub fn is_withdraw(args: &[Vec<u8>]) -> bool {
    runs(args, "withdraw")
}

/// Whether a command runs redlatch's script for setting the limit of a semaphore.
pub fn is_set_limit(args: &[Vec<u8>]) -> bool {
    runs(args, "set_limit")
}

/// Whether a command runs redlatch's script for looking at a lock or semaphore.
pub fn is_inspect(args: &[Vec<u8>]) -> bool {
    runs(args, "inspect")
}

fn runs(args: &[Vec<u8>], name: &str) -> bool {
    let mut named = SCRIPTS.iter().filter(|script| script.name == name);
    named.any(|script| script.is_run_by(args))
}
