//! Several locks as one on a real server: what they cost, what is lost on the way, and many threads at once.

mod storm;
#[path = "../support/mod.rs"]
mod support;

use std::{
    process,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use redlatch::{CancelToken, Client, ClientBuilder, Error, LostReason, MultiLock, Wait};
use support::{
    Fault, Proxy, SECOND, Server, is_acquire, is_acquire_several, is_release, is_renew, load_scripts, lost, millis,
    wait_until,
};

/// How long one request may take where replies are lost.
const COMMAND: Duration = SECOND;

/// "Long before the lease of 30 s ends."
const SOON: Duration = SECOND.saturating_mul(10);

/// Whoever waits for longer than this starves.
const PATIENCE: Duration = SECOND.saturating_mul(60);

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A server that knows the scripts, with a proxy before it.
struct Fixture {
    server: Server,
    proxy: Proxy,
}

impl Fixture {
    fn new() -> Self {
        let server = Server::start();
        load_scripts(&server);
        let proxy = Proxy::to(&server);
        Self { server, proxy }
    }

    /// A client whose requests may be lost.
    fn client(&self) -> Client {
        self.client_within(COMMAND)
    }

    /// The same, with so much time for each request: on a busy machine one that is not lost takes long as well.
    fn client_within(&self, command_timeout: Duration) -> Client {
        let builder = Client::builder().url(self.proxy.url());
        builder.command_timeout(command_timeout).build().unwrap()
    }

    /// One that suits this fault: only a reply that never comes is to be waited for in vain.
    fn client_for(&self, fault: Fault) -> Client {
        let waits_in_vain = matches!(fault, Fault::SwallowReply);
        self.client_within(if waits_in_vain { COMMAND } else { PATIENCE })
    }

    /// A client with a straight line to the server.
    fn straight(&self) -> Client {
        self.straight_with(|builder| builder)
    }

    fn straight_with(&self, settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        settings(Client::builder().url(self.server.url())).build().unwrap()
    }

    fn holder(&self, name: &str) -> Option<String> {
        self.server.get(&format!("lock:{name}"))
    }

    fn all_free(&self) -> bool {
        NAMES.iter().all(|name| self.holder(name).is_none())
    }

    fn none_free(&self) -> bool {
        NAMES.iter().all(|name| self.holder(name).is_some())
    }

    fn wait_until_free(&self) {
        wait_until("all to be free", SOON, || self.all_free());
    }

    fn scripts_run(&self) -> u64 {
        self.server.command_calls("evalsha") + self.server.command_calls("eval")
    }
}

/// The names in the order in which they are taken.
fn in_order(locks: &MultiLock) -> Vec<String> {
    locks.names().map(|name| String::from_utf8_lossy(name).into()).collect()
}

#[test]
fn free_locks_cost_one_round_trip_to_take_however_many_and_one_to_give_back() {
    let fixture = Fixture::new();
    let several = fixture.proxy.on(is_acquire_several).watch();
    let names = (0..50).map(|nth| format!("name-{nth}"));
    let locks = fixture.client_within(PATIENCE).multi_lock(names).lease(SECOND * 3600);
    let before = fixture.scripts_run();
    let guard = locks.acquire_timeout(PATIENCE).unwrap();
    assert_eq!((fixture.scripts_run() - before, several.seen()), (1, 1));
    let writes = fixture.proxy.on(is_renew).watch();
    guard.extend(SECOND * 7200).unwrap();
    assert_eq!(writes.seen(), 50);
    drop(guard);
    assert_eq!(fixture.server.command_calls("publish"), 0);
    let before = fixture.scripts_run();
    locks.try_acquire().unwrap().expect("free").release().unwrap();
    assert_eq!(fixture.scripts_run() - before, 1 + 50);
}

#[test]
fn a_try_that_finds_one_taken_costs_one_round_trip_and_writes_nothing() {
    let fixture = Fixture::new();
    let locks = fixture.straight().multi_lock(NAMES);
    let _taken = fixture.straight().lock(&in_order(&locks)[2]).acquire().unwrap();
    let (before, written) = (fixture.scripts_run(), fixture.server.command_calls("set"));
    assert!(locks.try_acquire().unwrap().is_none());
    assert_eq!(fixture.scripts_run() - before, 1);
    assert_eq!(fixture.server.command_calls("set"), written);
    assert_eq!(fixture.server.command_calls("del"), 0);
}

#[test]
fn every_key_has_a_ttl() {
    let fixture = Fixture::new();
    let guard = fixture.straight().multi_lock(NAMES).acquire().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut fixture.server.connection())
        .unwrap();
    assert_eq!(keys.len(), 6, "{keys:?}");
    assert!(keys.iter().all(|key| fixture.server.ttl(key).is_some()), "{keys:?}");
    guard.release().unwrap();
    assert!(fixture.all_free());
}

#[test]
fn what_holds_something_else_is_named_and_left_alone() {
    let fixture = Fixture::new();
    let locks = fixture.straight().multi_lock(NAMES);
    let names = in_order(&locks);
    let helper = |name: &str| format!("{{lock:{name}}}:redlatch:fencing:lock:{name}");
    for key in [
        format!("lock:{}", names[1]),
        format!("lock:{}", names[2]),
        helper(&names[1]),
    ] {
        fixture.server.run(&format!("RPUSH {key} foreign"));
        for wait in [Wait::none(), Wait::at_most(PATIENCE)] {
            let error = locks.acquire_with(wait).unwrap_err();
            assert!(
                matches!(&error, Error::KeyConflict { key: named, .. } if *named == key.as_bytes()),
                "{key}: {error:?}"
            );
        }
        assert!(fixture.holder(&names[0]).is_none(), "nothing is half done");
        fixture.server.run(&format!("DEL {key}"));
    }
    locks.acquire_timeout(PATIENCE).unwrap().release().unwrap();
}

#[test]
fn scripts_may_be_flushed_at_any_time() {
    let fixture = Fixture::new();
    let locks = fixture.straight().multi_lock(NAMES);
    for _ in 0..3 {
        fixture.server.run("SCRIPT FLUSH");
        let guard = locks.acquire_timeout(PATIENCE).unwrap();
        fixture.server.run("SCRIPT FLUSH");
        guard.extend(SECOND * 60).unwrap();
        fixture.server.run("SCRIPT FLUSH");
        guard.release().unwrap();
        assert!(fixture.all_free());
    }
}

#[test]
fn an_acquire_whose_reply_is_lost_succeeds_all_the_same() {
    for fault in [Fault::CutAfter, Fault::CutBefore, Fault::SwallowReply] {
        let fixture = Fixture::new();
        let locks = fixture.client_for(fault).multi_lock(NAMES);
        let struck = fixture.proxy.on(is_acquire_several).apply(fault);
        let guard = locks.acquire_timeout(PATIENCE).unwrap();
        struck.wait_hit(SOON);
        guard.check().unwrap();
        assert!(fixture.none_free());
        assert_eq!(fixture.holder(&in_order(&locks)[0]).as_deref(), Some(guard.token()));
        guard.release().unwrap();
        fixture.wait_until_free();
    }
}

#[test]
fn what_a_reply_takes_is_counted_against_the_lease() {
    let fixture = Fixture::new();
    let (locks, late, lease) = (
        fixture.client_within(PATIENCE).multi_lock(NAMES),
        SECOND * 2,
        SECOND * 30,
    );
    for wait in [Wait::none(), Wait::at_most(PATIENCE)] {
        let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::DelayReply(late));
        let guard = locks.acquire_with(wait).unwrap();
        assert!(guard.remaining() < lease - late, "{:?}", guard.remaining());
        let _struck = fixture.proxy.on(is_renew).apply(Fault::DelayReply(late));
        guard.extend(lease * 2).unwrap();
        assert!(guard.remaining() < lease * 2 - late, "{:?}", guard.remaining());
    }
}

#[test]
fn a_grant_that_arrives_after_its_lease_is_none() {
    let fixture = Fixture::new();
    let lease = SECOND * 2;
    let locks = fixture.client_within(PATIENCE).multi_lock(NAMES).lease(lease);
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::DelayReply(lease));
    let error = locks.try_acquire().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::DelayReply(lease));
    drop(locks.acquire_timeout(PATIENCE).unwrap());
}

#[test]
fn a_try_whose_reply_is_cut_succeeds_on_a_new_connection() {
    let fixture = Fixture::new();
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::CutAfter);
    let client = fixture.client_for(Fault::CutAfter);
    let guard = client.multi_lock(NAMES).try_acquire().unwrap().expect("free");
    guard.release().unwrap();
    assert!(fixture.all_free());
}

#[test]
fn a_try_whose_reply_is_swallowed_is_unconfirmed_and_leaves_nothing() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::SwallowReply);
    let start = Instant::now();
    let error = client.multi_lock(NAMES).try_acquire().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert!(start.elapsed() <= COMMAND + SOON);
    fixture.wait_until_free();
}

#[test]
fn an_attempt_that_runs_after_the_release_is_cleaned_up() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::HoldRequest);
    let guard = client.multi_lock(NAMES).acquire_timeout(PATIENCE).unwrap();
    guard.release().unwrap();
    assert!(fixture.all_free());
    fixture.proxy.release_held();
    fixture.wait_until_free();
    let other = fixture.straight();
    let next = other.multi_lock(NAMES).acquire_timeout(SOON).unwrap();
    assert!(!next.wait_lost(SECOND));
    assert!(fixture.none_free());
}

#[test]
fn an_attempt_that_runs_late_does_not_shorten_what_was_extended() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::HoldRequest);
    let guard = client.multi_lock(NAMES).acquire_timeout(PATIENCE).unwrap();
    guard.extend(SECOND * 300).unwrap();
    fixture.proxy.release_held();
    for name in NAMES {
        let ttl = fixture.server.ttl(&format!("lock:{name}"));
        assert!(ttl.is_some_and(|ttl| ttl > SECOND * 200), "{name}: {ttl:?}");
    }
    guard.check().unwrap();
    guard.release().unwrap();
}

#[test]
fn what_was_left_to_a_waiter_is_taken() {
    let fixture = Fixture::new();
    let locks = fixture.straight().multi_lock(NAMES);
    let last = in_order(&locks)[2].clone();
    let claim = "redlatch:claim:somebody";
    fixture.server.run(&format!("SET lock:{last} {claim} PX 60000"));
    assert!(locks.try_acquire().unwrap().is_none());
    let error = locks.acquire_timeout(millis(50)).unwrap_err();
    assert!(
        matches!(&error, Error::Timeout { name, .. } if name == last.as_bytes()),
        "{error:?}"
    );
    assert_eq!(fixture.holder(&last).as_deref(), Some(claim));
}

/// The keys were deleted meanwhile, so that there is nothing to release.
#[test]
fn an_attempt_that_runs_after_a_loss_is_cleaned_up() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let _struck = fixture.proxy.on(is_acquire_several).apply(Fault::HoldRequest);
    let guard = client.multi_lock(NAMES).acquire_timeout(PATIENCE).unwrap();
    fixture.server.run("DEL lock:a lock:b lock:c");
    assert_eq!(lost(guard.extend(SECOND * 60).unwrap_err()), LostReason::Deleted);
    drop(guard);
    fixture.proxy.release_held();
    fixture.wait_until_free();
}

#[test]
fn a_wait_that_ends_over_lost_replies_leaves_nothing() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let swallowed = [
        fixture.proxy.on(is_acquire_several).every().apply(Fault::SwallowReply),
        fixture.proxy.on(is_acquire).every().apply(Fault::SwallowReply),
    ];
    let start = Instant::now();
    let error = client.multi_lock(NAMES).acquire_timeout(COMMAND * 3).unwrap_err();
    assert!(matches!(error, Error::Timeout { last: Some(_), .. }), "{error:?}");
    assert!(start.elapsed() <= COMMAND * 5 + SOON, "{:?}", start.elapsed());
    swallowed.iter().for_each(|swallowed| swallowed.end());
    fixture.wait_until_free();
}

#[test]
fn a_wait_is_cancelled_at_once_though_the_server_is_silent() {
    for silent_from in [is_acquire_several, is_acquire] {
        let fixture = Fixture::new();
        let (locks, cancel) = (fixture.client_within(PATIENCE).multi_lock(NAMES), CancelToken::new());
        let other = fixture.straight();
        let _taken = other.lock(&in_order(&locks)[1]).acquire().unwrap();
        let struck = fixture.proxy.on(silent_from).apply(Fault::SwallowReply);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let wait = Wait::forever().cancelled_by(&cancel);
                locks.acquire_with(wait).map(drop)
            });
            struck.wait_hit(PATIENCE);
            let start = Instant::now();
            cancel.cancel();
            assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
            assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        });
        let others_free = || {
            let names = in_order(&locks);
            fixture.holder(&names[0]).is_none() && fixture.holder(&names[2]).is_none()
        };
        wait_until("what it had to be given back", SOON, others_free);
    }
}

/// It has all by then, and only makes sure of those that it had before it waited.
#[test]
fn a_wait_is_cancelled_at_once_though_the_server_is_silent_in_the_end() {
    let fixture = Fixture::new();
    let (locks, cancel) = (fixture.client_within(PATIENCE).multi_lock(NAMES), CancelToken::new());
    let other = fixture.straight();
    let last = other.lock(&in_order(&locks)[2]);
    let taken = last.acquire().unwrap();
    let struck = fixture.proxy.on(is_renew).apply(Fault::SwallowReply);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let wait = Wait::forever().cancelled_by(&cancel);
            locks.acquire_with(wait).map(drop)
        });
        wait_until("it to wait", SOON, || last.inspect().unwrap().waiters > 0);
        taken.release().unwrap();
        struck.wait_hit(PATIENCE);
        let start = Instant::now();
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Cancelled)));
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    });
    fixture.wait_until_free();
}

#[test]
fn a_release_whose_reply_is_lost_has_succeeded_and_one_that_gets_none_is_completed_later() {
    for fault in [Fault::CutAfter, Fault::CutBefore, Fault::SwallowReply] {
        let fixture = Fixture::new();
        let client = fixture.client_for(fault);
        let guard = client.multi_lock(NAMES).acquire_timeout(PATIENCE).unwrap();
        let _struck = fixture.proxy.on(is_release).apply(fault);
        guard.release().unwrap();
        assert!(fixture.all_free());
    }
    let fixture = Fixture::new();
    let client = fixture.client();
    let guard = client.multi_lock(NAMES).acquire_timeout(PATIENCE).unwrap();
    fixture.proxy.black_hole(true);
    let start = Instant::now();
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    assert!(start.elapsed() <= COMMAND * 2 + SOON, "{:?}", start.elapsed());
    fixture.proxy.black_hole(false);
    fixture.wait_until_free();
}

#[test]
fn what_was_extended_is_given_back_however_long_the_server_was_silent() {
    let fixture = Fixture::new();
    let (client, lease) = (fixture.client(), SECOND * 2);
    let guard = client.multi_lock(NAMES).lease(lease).acquire_timeout(PATIENCE).unwrap();
    guard.extend(SECOND * 600).unwrap();
    fixture.proxy.black_hole(true);
    let error = guard.release().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed(_)), "{error:?}");
    // By then they would be gone if they had not been extended.
    thread::sleep(lease * 2);
    assert!(fixture.none_free());
    fixture.proxy.black_hole(false);
    wait_until("all to be free", PATIENCE, || fixture.all_free());
}

#[test]
fn a_release_reports_a_loss_before_what_is_unknown_and_gives_the_others_back() {
    let fixture = Fixture::new();
    let guard = fixture.straight().multi_lock(NAMES).acquire().unwrap();
    fixture.server.run("DEL lock:b");
    assert_eq!(lost(guard.release().unwrap_err()), LostReason::Deleted);
    assert!(fixture.all_free());

    let guard = fixture.straight().multi_lock(NAMES).acquire().unwrap();
    fixture.server.run("SET lock:b somebody");
    drop(guard);
    assert!(fixture.holder("a").is_none() && fixture.holder("c").is_none());
    assert_eq!(fixture.holder("b").as_deref(), Some("somebody"));
}

#[test]
fn a_silent_server_costs_all_of_them_and_each_is_told_of() {
    let fixture = Fixture::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let locks = fixture.client().multi_lock(NAMES).lease(SECOND * 2).on_lost({
        let told = told.clone();
        move |lost| told.lock().unwrap().push((lost.name().to_vec(), lost.reason))
    });
    let guard = locks.acquire_timeout(PATIENCE).unwrap();
    fixture.proxy.black_hole(true);
    assert!(guard.wait_lost(SOON));
    wait_until("all losses to be told", SOON, || told.lock().unwrap().len() == 3);
    let mut told = told.lock().unwrap().clone();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(told, NAMES.map(|name| (name.as_bytes().to_vec(), LostReason::Expired)));
    assert!(matches!(guard.check(), Err(Error::Lost(_))));
}

#[test]
fn an_outage_during_the_wait_is_ridden_out() {
    let fixture = Fixture::new();
    let locks = fixture.client().multi_lock(NAMES).lease(SECOND * 2);
    let names = in_order(&locks);
    let other = fixture.straight();
    let taken = other.lock(&names[1]).acquire().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| locks.acquire_timeout(PATIENCE));
        wait_until("it to wait", SOON, || {
            other.lock(&names[1]).inspect().unwrap().waiters > 0
        });
        fixture.proxy.go_down();
        // What it had by then ends meanwhile, and somebody else has it.
        let in_between = other.lock(&names[0]).acquire_timeout(SOON).unwrap();
        taken.release().unwrap();
        fixture.proxy.go_up();
        in_between.release().unwrap();
        let guard = waiting.join().unwrap().unwrap();
        guard.check().unwrap();
        assert_eq!(fixture.holder(&names[0]).as_deref(), Some(guard.token()));
        assert!(fixture.none_free());
    });
}

#[test]
fn a_server_out_of_reach_is_told_at_once() {
    let fixture = Fixture::new();
    let locks = fixture.client().multi_lock(NAMES);
    fixture.proxy.go_down();
    for wait in [Wait::none(), Wait::forever()] {
        let error = locks.acquire_with(wait).unwrap_err();
        assert!(matches!(error, Error::Connection(_)), "{error:?}");
    }
}

#[test]
fn a_forked_child_has_none_of_them() {
    let fixture = Fixture::new();
    let locks = fixture.straight().multi_lock(NAMES);
    let guard = locks.acquire().unwrap();
    // SAFETY: the child calls nothing that takes a lock, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let inert = !guard.is_held()
            && guard.remaining().is_zero()
            && guard.wait_lost(SECOND)
            && matches!(guard.check(), Err(Error::Forked))
            && matches!(guard.extend(SECOND), Err(Error::Forked))
            && matches!(locks.try_acquire(), Err(Error::Forked))
            && matches!(guard.release(), Err(Error::Forked));
        // SAFETY: it ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!inert)) };
    }
    let mut status = 0;
    // SAFETY: the status is a valid place for the result.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child of {} saw more than it should", process::id());
    assert!(guard.is_held() && fixture.none_free());
    guard.release().unwrap();
}
