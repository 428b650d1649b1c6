use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{
    lease::{
        Terms,
        tests::{granted_at, terms},
    },
    store::{
        Resource, because,
        fake::{FakeStore, Fault},
    },
};

const LENGTH: Duration = Duration::from_secs(30);
const COMMAND: Duration = Duration::from_secs(2);

/// A keeper without its thread: the tests make its rounds.
struct Fixture {
    store: FakeStore,
    keeper: Keeper,
}

impl Fixture {
    fn new() -> Self {
        let store = FakeStore::new();
        let keeper = Keeper::new(Arc::new(store.clone()), store.clock.clone(), COMMAND);
        keeper.shared.reporter.start().unwrap();
        Self { store, keeper }
    }

    fn lease(&self, name: &str, terms: &Terms) -> Arc<Lease> {
        let clock = self.store.clock.clone();
        let hold = Hold::new(Resource::lock(name));
        self.store.grant(&hold, terms.first_length());
        let grant = granted_at(clock.now());
        Arc::new(Lease::new(hold, name.as_bytes().into(), &grant, terms, clock))
    }

    /// What a guard does when it gets the lease.
    fn take_up(&self, lease: &Arc<Lease>) {
        self.keeper.keep(lease);
        self.keeper.watch(lease);
    }

    /// Lets `time` pass, with a round whenever something is due.
    fn pass(&self, time: Duration) {
        let end = self.store.clock.now() + time;
        loop {
            let due = self.keeper.shared.agenda.lock().schedule.next_due(FIRST_LANE);
            let next = due.unwrap_or(Moment::NEVER).min(end);
            let now = self.store.clock.now();
            self.store.clock.advance(now.until(next));
            if due.is_none_or(|due| due > end) {
                return;
            }
            self.keeper.shared.round(FIRST_LANE, &mut *self.store.upkeep());
        }
    }

    fn renewals(&self) -> usize {
        self.store.seen().iter().filter(|seen| seen.what == "renew").count()
    }
}

fn counting(reports: &Arc<AtomicU32>) -> Terms {
    let reports = reports.clone();
    Terms {
        on_lost: Some(Arc::new(move |_| {
            reports.fetch_add(1, Ordering::SeqCst);
        })),
        ..terms()
    }
}

#[test]
fn a_lease_is_renewed_after_a_third_and_held_for_as_long_as_it_is() {
    let fixture = Fixture::new();
    let lease = fixture.lease("x", &terms());
    fixture.take_up(&lease);
    fixture.pass(LENGTH / 4);
    assert_eq!(fixture.renewals(), 0);
    fixture.pass(20 * LENGTH);
    assert!(lease.check().is_ok());
    assert!((50..90).contains(&fixture.renewals()), "{}", fixture.renewals());
}

#[test]
fn a_released_lease_is_not_renewed() {
    let fixture = Fixture::new();
    let lease = fixture.lease("x", &terms());
    fixture.take_up(&lease);
    lease.finish().unwrap();
    fixture.keeper.let_go(&lease);
    fixture.pass(2 * LENGTH);
    assert_eq!(fixture.renewals(), 0);
}

#[test]
fn a_fixed_lease_is_never_renewed_but_its_end_is_told() {
    let fixture = Fixture::new();
    let reports = Arc::default();
    let lease = fixture.lease(
        "x",
        &Terms {
            renewed: false,
            ..counting(&reports)
        },
    );
    fixture.take_up(&lease);
    lease.prolong(fixture.store.clock.now(), 2 * LENGTH);
    fixture.pass(LENGTH * 3 / 2);
    assert!(lease.check().is_ok());
    fixture.pass(LENGTH / 2);
    assert_eq!(lease.check().unwrap_err().reason, LostReason::Expired);
    fixture.keeper.shared.reporter.close(COMMAND);
    assert_eq!((fixture.renewals(), reports.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn one_swallowed_reply_costs_no_lease() {
    for length in [100, 500, 3_000, 30_000].map(Duration::from_millis) {
        let fixture = Fixture::new();
        let lease = fixture.lease("x", &Terms { length, ..terms() });
        fixture.take_up(&lease);
        for _ in 0..10 {
            fixture.store.then([Fault::SwallowReply]);
            fixture.pass(length);
            assert!(lease.check().is_ok(), "{length:?}");
        }
    }
}

#[test]
fn refused_connections_do_not_make_the_next_batch_wait_too_long() {
    let fixture = Fixture::new();
    let length = Duration::from_secs(3);
    let lease = fixture.lease("x", &Terms { length, ..terms() });
    fixture.take_up(&lease);
    fixture.store.then([Fault::Unreachable; 7]);
    fixture.store.then([Fault::SwallowReply]);
    fixture.pass(2 * length);
    assert!(lease.check().is_ok());
}

#[test]
fn a_lease_that_expires_over_failing_renewals_says_why_they_failed() {
    let fixture = Fixture::new();
    let lease = fixture.lease("x", &terms());
    fixture.take_up(&lease);
    fixture.store.then([Fault::NotPermitted; 1_000]);
    fixture.pass(2 * LENGTH);
    let lost = lease.check().unwrap_err();
    let cause = std::error::Error::source(&lost).unwrap();
    assert!(
        std::error::Error::source(cause).unwrap().to_string().contains("NOPERM"),
        "{lost:?}"
    );
}

#[test]
fn renewal_goes_on_through_failures_until_the_lease_has_ended() {
    let fixture = Fixture::new();
    let reports = Arc::default();
    let lease = fixture.lease("x", &counting(&reports));
    fixture.take_up(&lease);
    fixture.store.then([
        Fault::Unreachable,
        Fault::Loading,
        Fault::NotPermitted,
        Fault::CutBefore,
    ]);
    fixture.pass(LENGTH / 2);
    assert!(lease.check().is_ok());

    fixture.store.then([Fault::Unreachable; 10_000]);
    let before = fixture.renewals();
    fixture.pass(2 * LENGTH);
    assert!(fixture.renewals() > before + 50);
    assert_eq!(lease.check().unwrap_err().reason, LostReason::Expired);
    fixture.keeper.shared.reporter.close(COMMAND);
    assert_eq!(reports.load(Ordering::SeqCst), 1);
}

#[test]
fn a_deleted_and_a_taken_key_are_told_apart() {
    let fixture = Fixture::new();
    let reports = Arc::default();
    let (deleted, taken) = (
        fixture.lease("a", &counting(&reports)),
        fixture.lease("b", &counting(&reports)),
    );
    fixture.take_up(&deleted);
    fixture.take_up(&taken);
    fixture.store.memory.evict(&deleted.hold, COMMAND).unwrap();
    fixture.store.memory.evict(&taken.hold, COMMAND).unwrap();
    fixture.store.taken_by_another("b", 10 * LENGTH);
    fixture.pass(LENGTH / 2);
    assert_eq!(deleted.check().unwrap_err().reason, LostReason::Deleted);
    assert_eq!(taken.check().unwrap_err().reason, LostReason::Taken);
    fixture.keeper.shared.reporter.close(COMMAND);
    assert_eq!(reports.load(Ordering::SeqCst), 2);
}

#[test]
fn a_batch_never_waits_past_half_the_way_to_the_nearest_end() {
    let fixture = Fixture::new();
    let long = fixture.lease("long", &terms());
    let short = fixture.lease(
        "short",
        &Terms {
            length: Duration::from_millis(600),
            ..terms()
        },
    );
    fixture.take_up(&long);
    fixture.take_up(&short);
    fixture.pass(LENGTH);
    let seen = fixture.store.seen();
    assert!(seen.iter().all(|seen| seen.timeout <= Duration::from_millis(300)));
    assert!(seen.iter().any(|seen| seen.token == long.hold.token));
}

#[test]
fn a_lease_too_short_for_the_way_to_the_server_does_not_starve_the_others() {
    let fixture = Fixture::new();
    let long = fixture.lease("long", &terms());
    fixture.take_up(&long);
    // The way takes longer than the least patience, and there is always a lease that asks for that little.
    for _ in 0..2_000 {
        let tiny = fixture.lease(
            "tiny",
            &Terms {
                length: Duration::from_millis(30),
                ..terms()
            },
        );
        fixture.take_up(&tiny);
        let due = fixture
            .keeper
            .shared
            .agenda
            .lock()
            .schedule
            .next_due(FIRST_LANE)
            .unwrap();
        let now = fixture.store.clock.now();
        fixture.store.clock.advance(now.until(due));
        let patience = fixture.keeper.shared.agenda.lock().lane(FIRST_LANE).patience.0;
        if patience < Duration::from_millis(200) {
            fixture.store.then([Fault::SwallowReply]);
        }
        fixture.keeper.shared.round(FIRST_LANE, &mut *fixture.store.upkeep());
        fixture.keeper.let_go(&tiny);
        assert!(long.check().is_ok());
    }
}

#[test]
fn many_leases_go_out_in_few_batches() {
    let fixture = Fixture::new();
    let leases: Vec<_> = (0..300).map(|n| fixture.lease(&n.to_string(), &terms())).collect();
    leases.iter().for_each(|lease| fixture.take_up(lease));
    fixture.pass(LENGTH / 2);
    let mut instants: Vec<_> = fixture.store.seen().iter().map(|seen| seen.at).collect();
    assert_eq!(instants.len(), 300);
    instants.dedup();
    assert!(instants.len() < 10, "{} batches", instants.len());
}

#[test]
fn what_an_attempt_may_leave_behind_is_deleted_soon_even_when_it_runs_late() {
    let fixture = Fixture::new();
    let hold = Hold::new(Resource::lock("x"));
    let mut doubt = Doubt::default();
    doubt.add(
        fixture.store.clock.now(),
        LENGTH,
        &Failure::Silent(because("timed out")),
    );
    fixture.keeper.sweeper().clean_up(&hold, doubt, LENGTH);
    fixture.pass(Duration::from_secs(5));

    // The stalled server runs it now.
    fixture.store.grant(&hold, LENGTH);
    fixture.pass(LENGTH / 16);
    assert_eq!(fixture.store.memory.evict(&hold, COMMAND).unwrap(), Found::Nothing);

    fixture.pass(2 * LENGTH);
    assert_eq!(fixture.keeper.shared.agenda.lock().schedule.next_due(FIRST_LANE), None);
}

#[test]
fn a_clean_up_is_tried_once_more_when_the_client_goes() {
    let fixture = Fixture::new();
    let hold = fixture.store.taken_by_another("x", LENGTH);
    fixture.store.then([Fault::Unreachable]);
    fixture.keeper.sweeper().clean_up(&hold, Doubt::default(), LENGTH);
    fixture.keeper.shared.round(FIRST_LANE, &mut *fixture.store.upkeep());
    fixture
        .keeper
        .shared
        .last_round(FIRST_LANE, &mut *fixture.store.upkeep());
    assert_eq!(fixture.store.memory.evict(&hold, COMMAND).unwrap(), Found::Nothing);
}

#[test]
fn a_panicking_callback_costs_only_itself() {
    let fixture = Fixture::new();
    let reports = Arc::default();
    let panicking = Terms {
        on_lost: Some(Arc::new(|_| panic!("a user's mistake"))),
        ..terms()
    };
    let leases = [fixture.lease("a", &panicking), fixture.lease("b", &counting(&reports))];
    let kept = fixture.lease("c", &terms());
    leases.iter().chain([&kept]).for_each(|lease| fixture.take_up(lease));
    for lease in &leases {
        fixture.store.memory.evict(&lease.hold, COMMAND).unwrap();
    }
    fixture.pass(3 * LENGTH);
    fixture.keeper.shared.reporter.close(COMMAND);
    assert_eq!(reports.load(Ordering::SeqCst), 1);
    assert!(kept.check().is_ok());
}
