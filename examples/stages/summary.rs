//! The table at the end.

use std::io;

use comfy_table::{ContentArrangement, Table, presets};

use crate::lessons::{Failure, World, client_clocks, counter_race, no_timeout, two_commands, under_a_lock};

const WIDTH: u16 = 120;

/// What came of the stages.
pub struct Outcomes {
    no_timeout: no_timeout::Outcome,
    two_commands: two_commands::Outcome,
    client_clocks: client_clocks::Outcome,
    counter_race: counter_race::Outcome,
    under_a_lock: under_a_lock::Outcome,
}

impl Outcomes {
    /// Runs each in a world of its own, and tells of it on the standard output.
    pub fn of_all_stages(url: &str) -> Result<Self, Failure> {
        let world = || World::new(url, io::stdout());
        Ok(Self {
            no_timeout: no_timeout::run(&world()?)?,
            two_commands: two_commands::run(&world()?)?,
            client_clocks: client_clocks::run(&world()?)?,
            counter_race: counter_race::run(&world()?)?,
            under_a_lock: under_a_lock::run(&world()?)?,
        })
    }
}

/// A stage, its known failure, what happened by hand, what happened with redlatch.
type Row = [String; 4];

pub fn table(outcomes: &Outcomes) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header([
            "stage",
            "known failure",
            "what happened by hand",
            "what happened with redlatch",
        ])
        .add_rows([
            no_timeout(&outcomes.no_timeout),
            two_commands(&outcomes.two_commands),
            client_clocks(&outcomes.client_clocks),
            counter_race(&outcomes.counter_race),
            under_a_lock(&outcomes.under_a_lock),
        ]);
    table
}

fn no_timeout(no_timeout::Outcome { by_hand, with_redlatch }: &no_timeout::Outcome) -> Row {
    [
        "1 SETNX".into(),
        "a crashed holder keeps the lock for ever".into(),
        format!(
            "{}; {} tries, and {}",
            if by_hand.has_ttl { "a TTL" } else { "no TTL" },
            by_hand.tries,
            if by_hand.acquired { "acquired" } else { "never acquired" },
        ),
        format!(
            "acquired {:.2?} after the crash (lease {:?})",
            with_redlatch.acquired_after,
            no_timeout::LEASE
        ),
    ]
}

fn two_commands(two_commands::Outcome { by_hand, with_redlatch }: &two_commands::Outcome) -> Row {
    let free = |freed: Option<_>| match freed {
        Some(freed) => format!("free {freed:.2?} after the crash"),
        None => format!("stuck as long as nobody tried ({:?})", two_commands::NOBODY_TRIES),
    };
    [
        "2 SETNX + EXPIRE".into(),
        "a crash between the two commands".into(),
        format!(
            "{}, and then another {:.2?} (timeout {:?}); the repair {}",
            free(by_hand.freed_by_itself),
            by_hand.waited_then,
            two_commands::TIMEOUT,
            if by_hand.late_repair.has_prolonged() {
                "prolonged another's lock"
            } else {
                "did no harm"
            },
        ),
        format!(
            "{} (lease {:?}), though nobody tried; a try {}",
            free(with_redlatch.freed_by_itself),
            two_commands::TIMEOUT,
            if with_redlatch.late_try.has_prolonged() {
                "prolonged another's lock"
            } else {
                "changed nothing"
            },
        ),
    ]
}

fn client_clocks(client_clocks::Outcome { by_hand, with_redlatch }: &client_clocks::Outcome) -> Row {
    [
        "3 semaphore by the clients' clocks".into(),
        "a clock that is 10 ms slow steals the last slot".into(),
        format!(
            "{} hold {} slots; {} times of day were sent by B, which was {} when they were right",
            by_hand.holders.len(),
            client_clocks::LIMIT,
            by_hand.times_sent,
            if by_hand.let_in_by_a_right_clock {
                "let in too"
            } else {
                "refused"
            },
        ),
        format!(
            "{} hold {} permits; B was {}; {} times of day were sent by all",
            with_redlatch.holders,
            client_clocks::LIMIT,
            if with_redlatch.let_in { "let in" } else { "refused" },
            with_redlatch.times_sent,
        ),
    ]
}

fn counter_race(counter_race::Outcome { by_hand, with_redlatch }: &counter_race::Outcome) -> Row {
    [
        "4 fair semaphore by a counter".into(),
        "who draws first and enters second steals the last slot".into(),
        format!("{} hold {} slots", by_hand.holders.len(), counter_race::LIMIT),
        format!(
            "{} races for the last of {} permits, {} won by just one",
            counter_race::RACES,
            counter_race::LIMIT,
            with_redlatch.won_by_one,
        ),
    ]
}

fn under_a_lock(under_a_lock::Outcome { by_hand, with_redlatch }: &under_a_lock::Outcome) -> Row {
    let row = |found: &under_a_lock::Found, what| {
        format!(
            "{} hold {} {what}; an acquire is {}, a release {}",
            found.holders,
            under_a_lock::LIMIT,
            found.acquire,
            found.release,
        )
    };
    [
        "5 the same under a lock".into(),
        "none; the cost".into(),
        row(by_hand, "slots"),
        row(with_redlatch, "permits"),
    ]
}
